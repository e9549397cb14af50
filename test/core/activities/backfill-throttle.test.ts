/** Steps of a backfill give way to live sessions: they pause while those are active, and only then. */
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { BackfillThrottle } from '../../../activities/interceptors.js';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const elapse = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Milliseconds after which the worker has the answer of a step that takes `ms`. */
async function answered(
  of: ActivityInterceptorsFactory,
  ms: number,
  step = () => elapse(ms),
): Promise<number> {
  const { execute } = of({} as never).inbound!;
  const began = performance.now();
  const done = execute!({ args: [], headers: {} }, step).then(
    () => performance.now() - began,
    () => performance.now() - began,
  );
  await vi.runAllTimersAsync();
  return done;
}

test('without live sessions a backfill step is not delayed', async () => {
  const throttle = new BackfillThrottle(0.25);
  expect(await answered(throttle.backfill, 40)).toBe(40);
  expect(await answered(throttle.backfill, 40)).toBe(40);
});

test('with live sessions a backfill uses a quarter of the time and pauses at most 2.5 s; live steps never pause', async () => {
  const throttle = new BackfillThrottle(0.25);
  expect(await answered(throttle.live, 10)).toBe(10);
  expect(await answered(throttle.backfill, 40)).toBe(160);
  expect(await answered(throttle.live, 10)).toBe(10);
  expect(await answered(throttle.backfill, 1_500)).toBe(4_000);
});

test('a failed step also pauses and keeps its failure', async () => {
  const throttle = new BackfillThrottle(0.25);
  await answered(throttle.live, 10);
  const fails = () => elapse(40).then(() => Promise.reject(new Error('gone')));
  const { execute } = throttle.backfill({} as never).inbound!;
  const failed = expect(execute!({ args: [], headers: {} }, fails)).rejects.toThrow('gone');
  await vi.runAllTimersAsync();
  await failed;
  await answered(throttle.live, 10);
  expect(await answered(throttle.backfill, 40, fails)).toBe(160);
});

test('with a share of 1 it never pauses', async () => {
  const throttle = new BackfillThrottle(1);
  await answered(throttle.live, 10);
  expect(await answered(throttle.backfill, 40)).toBe(40);
});

test('after the live work a backfill runs at full speed again', async () => {
  const throttle = new BackfillThrottle(0.25);
  await answered(throttle.live, 10);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(await answered(throttle.backfill, 40)).toBe(40);
});

test('of work outside the slots, four run at once, and none once live sessions are active', async () => {
  const throttle = new BackfillThrottle(0.25);
  let running = 0;
  let most = 0;
  const work = async () => {
    most = Math.max(most, ++running);
    await elapse(40);
    return running--;
  };
  const results = Promise.all(Array.from({ length: 10 }, () => throttle.whileQuiet(work)));
  // While the second four run.
  await vi.advanceTimersByTimeAsync(60);
  const live = throttle.live({} as never).inbound!.execute!({ args: [], headers: {} }, () => elapse(1));
  await vi.runAllTimersAsync();
  await live;
  expect((await results).map((one) => one !== null)).toEqual([...Array(8).fill(true), false, false]);
  expect(most).toBe(4);
  expect(await throttle.whileQuiet(work)).toBeNull();
});

test('work outside the slots that fails leaves its place', async () => {
  const throttle = new BackfillThrottle(0.25);
  const fails = () => throttle.whileQuiet(() => Promise.reject(new Error('gone')));
  for (let time = 0; time < 5; time++) await expect(fails()).rejects.toThrow('gone');
  expect(await throttle.whileQuiet(() => Promise.resolve('done'))).toBe('done');
});
