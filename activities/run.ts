import { CancelledFailure, Context } from '@temporalio/activity';
import { PalimpsestError } from '../src/errors.js';
import { isAbort } from '../src/llm/classify.js';
import { toApplicationFailure } from '../src/temporal/failures.js';

/** What a step sees of its attempt. */
export interface Attempt {
  /** From 1. */
  number: number;
  /** Aborted on cancellation and on worker shutdown after its grace time. */
  signal: AbortSignal;
}

type Step<T> = (attempt: Attempt) => Promise<T>;

/** A third of the shortest heartbeat timeout in workflows/options.ts, so that one late beat does no harm. */
const heartbeatEveryMs = 3_000;

/**
 * Runs one step the way every step here runs: it heartbeats while the process lives (so that a killed worker is
 * noticed in seconds, and a cancellation arrives), an abort becomes a cancellation, and a typed failure keeps its
 * type, its retry advice and its delay.
 */
export function runStep<T>(phase: string, step: Step<T>): Promise<T> {
  return run(phase, step, false);
}

/** The same for a step that asks a model: a bad answer is worth another draw. */
export function runModelStep<T>(phase: string, step: Step<T>): Promise<T> {
  return run(phase, step, true);
}

async function run<T>(phase: string, step: Step<T>, drawn: boolean): Promise<T> {
  const context = Context.current();
  const attempt: Attempt = { number: context.info.attempt, signal: context.cancellationSignal };
  const startedAt = Date.now();
  const beat = setInterval(
    () => context.heartbeat({ phase, attempt: attempt.number, elapsedMs: Date.now() - startedAt }),
    heartbeatEveryMs,
  );
  try {
    return await step(attempt);
  } catch (error) {
    if (attempt.signal.aborted || isAbort(error)) throw new CancelledFailure(`${phase} was cancelled`);
    if (error instanceof PalimpsestError)
      throw toApplicationFailure(error, { attempt: attempt.number, drawn });
    throw error;
  } finally {
    clearInterval(beat);
  }
}
