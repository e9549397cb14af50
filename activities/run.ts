import type { Pool } from 'pg';
import { CancelledFailure, Context, log } from '@temporalio/activity';
import { TemporalFailure } from '@temporalio/common';
import { PalimpsestError } from '../src/errors.js';
import type { InlineTurnSettings } from './inline-turn.js';
import type { BackfillThrottle } from './interceptors.js';
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

/** The dependencies of all activities; a worker process has one set. */
export interface Dependencies extends InlineTurnSettings {
  pool: Pool;
  model: ModelClient;
  /** Null means that searches use words alone. */
  embedder?: Embedder | null;
  /** Summarizer settings of the environment, used if a session's policy sets none. */
  summarizer: { model?: string; contextWindow?: number };
  /** Prompt and answer tokens that all workers together may use per minute. @default unlimited */
  tokensPerMinute?: number;
  metrics?: Metrics;
  /** Unix milliseconds. */
  now: () => number;
  /** Signals sessions that no workflow handles. Absent if this process does not sweep. */
  workflows?: Pick<SessionWorkflows, 'signalMeasure'>;
  /** Starts the workflows of jobs without a workflow. */
  backfills?: Pick<BackfillWorkflows, 'revive'>;
  /** Lets model steps of backfills commit. Absent if this process does not know when live sessions are active. */
  throttle?: Pick<BackfillThrottle, 'whileQuiet'>;
  /** Policy layers below tenant and session, for sessions that an inline turn creates. */
  deployment?: DeploymentPolicy;
}

/** The current attempt of a step. */
export interface Attempt {
  /** Counts from 1. */
  number: number;
  /** Counts from 1. Every attempt is a draw, except one that only found the endpoint or the limit busy. */
  draw: number;
  /** True if the step serves a backfill rather than a live session. */
  backfill: boolean;
  /** Unix milliseconds at which the compaction stops waiting for the model. */
  deadline: number;
  /** Aborted on cancellation, and on worker shutdown after the grace time. */
  signal: AbortSignal;
  /** Tells whether the server has, or may have, given up this attempt because it heard nothing of it in time. */
  givenUp: () => boolean;
  /** The workflow run that this step belongs to. */
  runId: string;
  /** Identifies this attempt to others that need the same answer of a model. */
  asker: Asker;
}

/** Returns the number of earlier attempts that were not draws, as the last of these attempts reported it. */
function waitsIn(details: unknown): number {
  const waits = typeof details === 'object' && details !== null && 'waits' in details ? details.waits : 0;
  return typeof waits === 'number' ? waits : 0;
}

type Step<T> = (attempt: Attempt) => Promise<T>;

/** A third of the shortest heartbeat timeout in workflows/options.ts, so that one late heartbeat does no harm. */
const heartbeatEveryMs = 3_000;

/**
 * Runs one step. The step heartbeats while the process lives, so that a killed worker is noticed within seconds and a
 * cancellation arrives. An abort becomes a cancellation, and a typed failure keeps its type, its retry advice and its delay.
 */
export function runStep<T>(phase: string, step: Step<T>): Promise<T> {
  return run(phase, step, false);
}

/** Runs a step that asks a model: a bad answer allows another draw. */
export function runModelStep<T>(phase: string, step: Step<T>): Promise<T> {
  return run(phase, step, true);
}

async function run<T>(phase: string, step: Step<T>, drawn: boolean): Promise<T> {
  const context = Context.current();
  const { info } = context;
  const { runId } = info.workflowExecution ?? { runId: '' };
  const waits = waitsIn(info.heartbeatDetails);
  const startedAt = Date.now();
  let toldAt = startedAt;
  let silent = false;
  const attempt: Attempt = {
    number: info.attempt,
    draw: info.attempt - waits,
    backfill: (info.priority?.priorityKey ?? 0) >= backfillPriorityKey,
    deadline: info.scheduledTimestampMs + info.scheduleToCloseTimeoutMs - beyondDeadlineMs,
    signal: context.cancellationSignal,
    givenUp: () => {
      const { notFound, timedOut } = context.cancellationDetails ?? {};
      return silent || notFound === true || timedOut === true;
    },
    runId,
    asker: { step: `${runId}/${info.activityId}`, attempt: info.attempt },
  };
  const tell = (waited: number): void => {
    const now = Date.now();
    silent ||= now - toldAt > (info.heartbeatTimeoutMs ?? Infinity);
    toldAt = now;
    context.heartbeat({ phase, attempt: attempt.number, elapsedMs: now - startedAt, waits: waited });
  };
  const beat = setInterval(() => tell(waits), heartbeatEveryMs);
  try {
    return await step(attempt);
  } catch (error) {
    if (attempt.signal.aborted || isAbort(error)) throw new CancelledFailure(`${phase} was cancelled`);
    if (error instanceof TemporalFailure) throw error;
    const failure = error instanceof PalimpsestError ? error : unexpected(phase, error);
    // Attempts that only found the endpoint or the limit busy are not draws; if this heartbeat is lost, they count.
    if (onlyWaits.has(failure.type)) tell(waits + 1);
    noteRefusal(phase, failure);
    throw toApplicationFailure(failure, { attempt: attempt.draw, drawn });
  } finally {
    clearInterval(beat);
  }
}

/** Logs the words of an endpoint, which only the operator may read. */
export function noteRefusal(phase: string, { type, message, hint, forTenants }: PalimpsestError): void {
  if (forTenants) log.warn('the endpoint refused a request', { phase, failure: type, reason: message, hint });
}

/**
 * Wraps an error that no rule covers: a defect, an unreadable row, or a statement that PostgreSQL refuses. Its message is
 * omitted, because messages of parsers and databases repeat what they read; the worker's log has the stack trace.
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
