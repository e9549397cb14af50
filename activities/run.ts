import type { Pool } from 'pg';
import { CancelledFailure, Context, log } from '@temporalio/activity';
import { TemporalFailure } from '@temporalio/common';
import { PalimpsestError } from '../src/errors.js';
import { isAbort } from '../src/llm/classify.js';
import type { ModelClient } from '../src/llm/client.js';
import type { Embedder } from '../src/llm/embedder.js';
import type { DeploymentPolicy } from '../src/policy/layers.js';
import type { Metrics } from '../src/process/metrics.js';
import type { Asker } from '../src/store/compactions/digest-leases.js';
import type { BackfillWorkflows } from '../src/temporal/backfill-workflows.js';
import { onlyWaits, toApplicationFailure } from '../src/temporal/failures.js';
import { backfillPriorityKey, beyondDeadlineMs } from '../src/temporal/names.js';
import type { SessionWorkflows } from '../src/temporal/session-workflows.js';

/** The dependencies of all activities: one set per worker process. */
export interface Dependencies {
  pool: Pool;
  model: ModelClient;
  /** Null: searches go by words alone. */
  embedder?: Embedder | null;
  /** Summarizer settings of the environment, used where a session's policy names none. */
  summarizer: { model?: string; contextWindow?: number };
  /** Prompt and answer tokens that all workers together may use per minute. @default unlimited */
  tokensPerMinute?: number;
  metrics?: Metrics;
  /** Unix milliseconds. */
  now: () => number;
  /** Tenants whose `turn` signals may carry messages inline; `*` allows all. Empty: none. */
  inlineTurnTenants: readonly string[];
  /** Signals sessions that no workflow knows of. Absent: this process does not sweep. */
  workflows?: Pick<SessionWorkflows, 'signalMeasure'>;
  /** Starts the workflows of jobs that have none. */
  backfills?: Pick<BackfillWorkflows, 'revive'>;
  /** Layers of the policy below tenant and session, for sessions that an inline turn creates. */
  deployment?: DeploymentPolicy;
}

/** The attempt as its step sees it. */
export interface Attempt {
  /** From 1. */
  number: number;
  /** From 1: attempts that only found the endpoint or the limit busy are no draws of an answer. */
  draw: number;
  /** Serves a backfill, not a live session. */
  backfill: boolean;
  /** Unix milliseconds at which the compaction does without the model. */
  deadline: number;
  /** Aborted on cancellation and on worker shutdown after its grace time. */
  signal: AbortSignal;
  /** Run of the workflow whose step this is. */
  runId: string;
  /** By which it is known to others that need the same answer of a model. */
  asker: Asker;
}

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
  const { runId } = info.workflowExecution ?? { runId: '' };
  const waits = waitsIn(info.heartbeatDetails);
  const attempt: Attempt = {
    number: info.attempt,
    draw: info.attempt - waits,
    backfill: (info.priority?.priorityKey ?? 0) >= backfillPriorityKey,
    deadline: info.scheduledTimestampMs + info.scheduleToCloseTimeoutMs - beyondDeadlineMs,
    signal: context.cancellationSignal,
    runId,
    asker: { step: `${runId}/${info.activityId}`, attempt: info.attempt },
  };
  const startedAt = Date.now();
  const tell = (waited: number): void =>
    context.heartbeat({ phase, attempt: attempt.number, elapsedMs: Date.now() - startedAt, waits: waited });
  const beat = setInterval(() => tell(waits), heartbeatEveryMs);
  try {
    return await step(attempt);
  } catch (error) {
    if (attempt.signal.aborted || isAbort(error)) throw new CancelledFailure(`${phase} was cancelled`);
    if (error instanceof TemporalFailure) throw error;
    const failure = error instanceof PalimpsestError ? error : unexpected(phase, error);
    // Attempts that only found the endpoint or the limit busy are no draws; where this beat is lost, they count.
    if (onlyWaits.has(failure.type)) tell(waits + 1);
    throw toApplicationFailure(failure, { attempt: attempt.draw, drawn });
  } finally {
    clearInterval(beat);
  }
}

/**
 * What no rule covers: a defect, a row that cannot be read, a statement that PostgreSQL refuses. Its message is left out,
 * because those of parsers and databases repeat what they read; the worker's log has the place.
 */
function unexpected(phase: string, error: unknown): PalimpsestError {
  const { name, code, frames } = traceOf(error);
  log.error('a step ended in an unexpected error', { phase, error: name, code, stack: frames });
  const what = code === null ? name : `${name} ${code}`;
  return new PalimpsestError('Worker.Failed', `The step "${phase}" ended in an unexpected error (${what}).`, {
    hint: "Look for this step in the worker's log, and check that workers and schema are of one version; then compact again.",
    details: { error: name, code },
    cause: error,
  });
}

function traceOf(error: unknown): { name: string; code: string | null; frames: string[] } {
  if (!(error instanceof Error)) return { name: typeof error, code: null, frames: [] };
  const code =
    'code' in error && typeof error.code === 'string' && /^\w{1,40}$/.test(error.code) ? error.code : null;
  const frames = (error.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line));
  return { name: error.constructor.name, code, frames: frames.slice(0, 12) };
}
