/**
 * Long work in steps: a generator yields wherever something else may have its turn. The same work runs at once where
 * nobody waits, and in slices where an event loop serves others.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export type Steps<Result> = Generator<void, Result>;

/** Milliseconds for which one slice holds the event loop, and the last step of it beyond. */
const sliceMs = 15;

export function atOnce<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** Between two slices everything else has its turn. Rejects with the signal's reason once it is aborted. */
export async function inSlices<Result>(steps: Steps<Result>, signal?: AbortSignal): Promise<Result> {
  let since = performance.now();
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    if (performance.now() - since < sliceMs) continue;
    await nextTurn();
    signal?.throwIfAborted();
    since = performance.now();
  }
}
