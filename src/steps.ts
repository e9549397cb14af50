/**
 * Long work in steps: a generator yields wherever other work may run. The same work runs in one go if nothing else waits, and
 * in slices on a shared event loop.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export type Steps<Result> = Generator<void, Result>;

/** Milliseconds after which a slice ends with its present step. */
const sliceMs = 15;

export function atOnce<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** Lets other work run between two slices. Rejects with the signal's reason once it is aborted. */
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
