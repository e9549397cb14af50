import { CancelledFailure, Context } from '@temporalio/activity';
import { PalimpsestError, type FailureType } from '../src/errors.js';
import { isAbort } from '../src/llm/classify.js';
import { toApplicationFailure } from '../src/temporal/failures.js';
import { backfillPriorityKey, beyondDeadlineMs } from '../src/temporal/names.js';

/** What a step sees of its attempt. */
export interface Attempt {
  /** From 1. */
  number: number;
  /** Serves a backfill, not a live session. */
  backfill: boolean;
  /** Unix milliseconds at which the compaction does without the model. */
  deadline: number;
  /** Aborted on cancellation and on worker shutdown after its grace time. */
  signal: AbortSignal;
}

const waitsOnly: ReadonlySet<FailureType> = new Set([
  'Llm.RateLimited',
  'Llm.Unavailable',
  'Store.Unavailable',
]);

/** Earlier attempts of this step that came to no draw, as the last of them said. */
function waitsIn(details: unknown): number {
  const waits = typeof details === 'object' && details !== null && 'waits' in details ? details.waits : 0;
  return typeof waits === 'number' ? waits : 0;
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
  const { info } = context;
  const attempt: Attempt = {
    number: info.attempt,
    backfill: (info.priority?.priorityKey ?? 0) >= backfillPriorityKey,
    deadline: info.scheduledTimestampMs + info.scheduleToCloseTimeoutMs - beyondDeadlineMs,
    signal: context.cancellationSignal,
  };
  const waits = waitsIn(info.heartbeatDetails);
  const startedAt = Date.now();
  const tell = (waited: number): void =>
    context.heartbeat({ phase, attempt: attempt.number, elapsedMs: Date.now() - startedAt, waits: waited });
  const beat = setInterval(() => tell(waits), heartbeatEveryMs);
  try {
    return await step(attempt);
  } catch (error) {
    if (attempt.signal.aborted || isAbort(error)) throw new CancelledFailure(`${phase} was cancelled`);
    if (!(error instanceof PalimpsestError)) throw error;
    // Attempts that only found the endpoint or the limit busy are no draws; where this beat is lost, they count.
    if (waitsOnly.has(error.type)) tell(waits + 1);
    throw toApplicationFailure(error, { attempt: attempt.number - waits, drawn });
  } finally {
    clearInterval(beat);
  }
}
