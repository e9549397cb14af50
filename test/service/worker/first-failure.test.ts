/** A caller gets the first failure of a worker, even though the others still hold the connection to Temporal. */
import { Worker } from '@temporalio/worker';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { taskQueues } from '../../../src/temporal/names.js';
import { startWorker } from '../../../src/worker/worker.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
beforeAll(async () => void (stack = await startStack({ worker: false })));
afterAll(() => stack.stop());
afterEach(() => void vi.restoreAllMocks());

test('one worker cannot be created, and the others are stopped', async () => {
  const { create } = Worker;
  const others: Promise<Worker>[] = [];
  vi.spyOn(Worker, 'create').mockImplementation(async function (this: typeof Worker, options) {
    if (options.taskQueue === taskQueues(stack.queuePrefix).llm) {
      await Promise.all(others);
      throw new Error('one worker failed');
    }
    const other = create.call(this, options);
    others.push(other);
    return other;
  });
  await expect(startWorker(stack.settings)).rejects.toThrow('one worker failed');
  const states = await Promise.all(others.map(async (other) => (await other).getState()));
  expect(states).toEqual(Array.from({ length: 4 }, () => 'STOPPED'));
});

test('one worker fails while the others run', async () => {
  const { run } = Worker.prototype;
  vi.spyOn(Worker.prototype, 'run').mockImplementationOnce(async function (this: Worker) {
    const running = run.call(this);
    this.shutdown();
    await running;
    throw new Error('one worker failed');
  });
  const { finished } = await startWorker(stack.settings);
  await expect(finished).rejects.toThrow('one worker failed');
});
