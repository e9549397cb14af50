/** Long work in slices: all such work of a process shares one slice per turn of the event loop. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, expect, test, vi } from 'vitest';
import { inSlices, type Steps } from '../../src/steps.js';

afterEach(async () => {
  vi.restoreAllMocks();
  // The next test begins with a slice of its own.
  await nextTurn();
});

/** A clock that only steps advance, by one millisecond each. */
function clockOfSteps() {
  let now = performance.now();
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  return function* (count: number, done: (step: number) => void): Steps<void> {
    for (let step = 1; step <= count; step++) {
      now += 1;
      done(step);
      yield;
    }
  };
}

test('works that run at the same time share the slice of a turn, and take turns', async () => {
  const work = clockOfSteps();
  const progress = [0, 0, 0, 0];
  let inTurn = 0;
  let longest = 0;
  const all = Promise.all(
    progress.map((_, each) =>
      inSlices(
        work(100, (step) => {
          progress[each] = step;
          inTurn += 1;
          longest = Math.max(longest, inTurn);
        }),
      ),
    ),
  );
  let isDone = false;
  void all.then(() => (isDone = true));
  let widest = 0;
  while (!isDone) {
    await nextTurn();
    inTurn = 0;
    widest = Math.max(widest, Math.max(...progress) - Math.min(...progress));
  }
  expect(progress).toEqual([100, 100, 100, 100]);
  // A slice has 15 ms; each work may overrun it by its present step, and this loop may see two turns as one.
  expect(longest).toBeLessThanOrEqual(40);
  expect(widest).toBeLessThanOrEqual(40);
});

test('work that begins after others have used up the slice waits for its own turn', async () => {
  const work = clockOfSteps();
  const steps: string[] = [];
  const first = inSlices(work(20, () => steps.push('first')));
  const second = inSlices(work(20, () => steps.push('second')));
  expect(steps.filter((one) => one === 'second')).toHaveLength(1);
  await Promise.all([first, second]);
  expect(steps).toHaveLength(40);
});

test('an abort ends the work at its next slice', async () => {
  const work = clockOfSteps();
  let steps = 0;
  const abort = new AbortController();
  const working = inSlices(
    work(1_000, () => (steps += 1)),
    abort.signal,
  );
  abort.abort(new Error('stopped'));
  await expect(working).rejects.toThrow('stopped');
  expect(steps).toBeLessThan(1_000);
});
