/** Tenants take turns at the threads that read and count long turns. */
import { expect, test } from 'vitest';
import { TaskQueue } from '../../../src/intake/threads/queue.js';

interface Task {
  name: string;
  tenant: string;
  long: boolean;
}

/** `a1` is the first task of the tenant `a`, `A1` a long one. */
const task = (name: string): Task => ({
  name,
  tenant: name.charAt(0).toLowerCase(),
  long: /[A-Z]/.test(name),
});

const queueOf = (names: string, mostLong: number): TaskQueue<Task> => {
  const queue = new TaskQueue<Task>(mostLong);
  for (const name of names.split(' ')) queue.push(task(name));
  return queue;
};

/** The order in which one thread gets the tasks. */
function order(queue: TaskQueue<Task>): string {
  const names: string[] = [];
  for (let next = queue.take([]); next; next = queue.take([])) names.push(next.name);
  return names.join(' ');
}

test('tenants take turns, each in its own order', () => {
  expect(order(queueOf('a1 a2 a3 b1 c1 b2', 1))).toBe('a1 b1 c1 a2 b2 a3');
  expect(order(queueOf('A1 A2 A3 B1', 1))).toBe('A1 B1 A2 A3');
  const queue = queueOf('a1 a2', 1);
  queue.take([]);
  queue.push(task('b1'));
  queue.push(task('a3'));
  expect(order(queue)).toBe('a2 b1 a3');
});

test('the last thread is for short work', () => {
  const queue = queueOf('A1 A2 b1', 1);
  expect(queue.take([task('C1')])?.name).toBe('b1');
  expect(queue.has([task('C1')])).toBe(false);
  expect(queue.take([task('C1')])).toBeUndefined();
  expect(queue.take([])?.name).toBe('A1');
});

test('a tenant has one long task running while others wait, and more while nobody does', () => {
  const queue = queueOf('A1 A2 a3 B1', 3);
  const running = [task('A0')];
  expect(queue.take(running)?.name).toBe('a3');
  expect(queue.take(running)?.name).toBe('B1');
  expect(queue.take(running)?.name).toBe('A1');
  expect(queue.take([...running, task('A1')])?.name).toBe('A2');
  expect(queue.has([])).toBe(false);
});
