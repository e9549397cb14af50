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

/** Start of the slice of this turn of the event loop; null until sliced work runs in it. */
let began: number | null = null;

/** The turns that waiting work has asked for: one turn has the slice of one. */
let turns: Promise<unknown> = Promise.resolve();

function isOver(): boolean {
  if (began === null) {
    began = performance.now();
    setImmediate(() => (began = null));
  }
  return performance.now() - began >= sliceMs;
}

/**
 * Lets other work run between two slices. All work in slices shares one slice per turn of the event loop. Rejects with the signal's
 * reason once it is aborted.
 */
export async function inSlices<Result>(steps: Steps<Result>, signal?: AbortSignal): Promise<Result> {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    if (!isOver()) continue;
    await (turns = turns.then(() => nextTurn()));
    signal?.throwIfAborted();
    began = null;
  }
}
