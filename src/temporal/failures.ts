import { ApplicationFailure, CancelledFailure, TerminatedFailure, TimeoutFailure } from '@temporalio/common';
import type { CommittedStep } from '../contract/backfills.js';
import { type FailureType, isFailureType, PalimpsestError } from '../errors.js';

/**
 * Types that justify an unchanged retry without a limit on attempts: something was only busy or unavailable, and no model
 * answered. Bad answers and unexpected errors are retried a few times (see below). The workflow decides about all other types
 * (halve, fall back, replan).
 */
export const onlyWaits: ReadonlySet<FailureType> = new Set([
  'Llm.RateLimited',
  'Llm.Unavailable',
  'Llm.InFlight',
  'Store.Busy',
  'Store.Unavailable',
  'Temporal.Unavailable',
]);

/**
 * After a bad answer the model is asked again, with at most this many answers in total; then the failure is final. Retries
 * because something is busy or unavailable are limited by time, not by a number.
 */
const badOutputAttempts = 3;
const firstRedrawMs = 1_000;
const drawnAgain: ReadonlySet<FailureType> = new Set(['Llm.BadOutput', 'Summary.NotSmaller']);
/**
 * Maximum attempts after an error that no rule covers, since it may be temporary. Each attempt of a model step may cost money.
 */
const unexpectedAttempts = { model: 3, other: 5 };

interface FailureContext {
  /** Number of this attempt, from 1. Attempts that only found the endpoint busy do not count. */
  attempt: number;
  /** True if the step asks a model, which may answer better the next time. Other steps would only repeat the same result. */
  drawn: boolean;
  /** References that the workflow needs to continue, such as the halves of a chunk. Plain JSON. */
  details?: unknown[];
}

/** True if a step asks the model again after this failure of its `draw`-th attempt. */
export function isDrawnAgain({ type }: PalimpsestError, draw: number): boolean {
  return drawnAgain.has(type) && draw < badOutputAttempts;
}

/** Turns a typed failure into one that Temporal shows, retries and passes to the workflow, in the words for tenants. */
export function toApplicationFailure(
  thrown: PalimpsestError,
  { attempt, drawn, details }: FailureContext,
): ApplicationFailure {
  const error = thrown.forTenants ?? thrown;
  const redraw = drawn && isDrawnAgain(error, attempt);
  const unforeseen =
    error.type === 'Worker.Failed' && attempt < (drawn ? unexpectedAttempts.model : unexpectedAttempts.other);
  const again = onlyWaits.has(error.type) || redraw || unforeseen;
  // A retry after a bad answer has its own delay: the server's delay grows with all attempts, including those that only waited.
  const retryAfterMs = redraw ? firstRedrawMs * 2 ** (attempt - 1) : error.details?.['retryAfterMs'];
  return ApplicationFailure.create({
    type: error.type,
    message: [error.message, error.hint].filter(Boolean).join(hintMark),
    nonRetryable: !again,
    details: details ?? (error.details ? [error.details] : undefined),
    nextRetryDelay: typeof retryAfterMs === 'number' ? retryAfterMs : undefined,
  });
}

/** Separates a message from its hint when both are in one text. */
const hintMark = ' — ';

/**
 * Returns the typed failure of a workflow as it was thrown, with message, hint and details separated, or null for any other
 * error.
 */
export function toPalimpsestError(error: unknown): PalimpsestError | null {
  const failure = failureOf(error);
  if (!failure || !isFailureType(failure.type)) return null;
  const at = failure.message.lastIndexOf(hintMark);
  return new PalimpsestError(failure.type, at < 0 ? failure.message : failure.message.slice(0, at), {
    ...(at < 0 ? {} : { hint: failure.message.slice(at + hintMark.length) }),
    details: numbersAndNames(failure.details[0]),
    cause: error,
  });
}

/** Returns the part of a detail that a caller may see, without the references between steps. */
function numbersAndNames(detail: unknown): PalimpsestError['details'] {
  if (typeof detail !== 'object' || detail === null) return undefined;
  const told = Object.entries(detail).filter(
    (entry): entry is [string, string | number | boolean | null] =>
      entry[1] === null || typeof entry[1] !== 'object',
  );
  return told.length === 0 ? undefined : Object.fromEntries(told);
}

/** Detail of a model step that ended because it waited too long for the deployment's tokens per minute: no model failed. */
export const onlyWaited = { onlyWaited: true };

export function hasOnlyWaited({ details: [detail] }: { details: unknown[] }): boolean {
  return (
    typeof detail === 'object' && detail !== null && 'onlyWaited' in detail && detail.onlyWaited === true
  );
}

/** Returns the typed failure at the end of a chain of workflow and activity failures, or null for any other error. */
export function failureOf(error: unknown): { type: string; message: string; details: unknown[] } | null {
  for (const current of causesOf(error)) {
    if (current instanceof ApplicationFailure && current.type) {
      return { type: current.type, message: current.message, details: current.details ?? [] };
    }
  }
  return null;
}

/** Yields the error and its causes, outermost first, and stops at an error that is its own cause. */
export function* causesOf(error: unknown): Generator<Error> {
  const seen = new Set<unknown>();
  for (let cause = error; cause instanceof Error && !seen.has(cause); cause = cause.cause) {
    seen.add(cause);
    yield cause;
  }
}

/** `elsewhere`: another workflow ran the compaction, or another commit came first; the session must be checked again. */
export type End =
  | { kind: 'committed'; step: CommittedStep }
  | { kind: 'nothing' }
  | { kind: 'elsewhere' }
  | { kind: 'failed'; type: string; message: string };

/** Tells how a compaction of a backfill ended; used by its workflow and by steps that poll it. */
export function endOfOutcome(outcome: CommittedStep | null): End {
  if (outcome === null) return { kind: 'nothing' };
  const { generation, tokensBefore, tokensAfter, cost } = outcome;
  const { modelCalls, modelInputTokens, modelOutputTokens } = outcome;
  return {
    kind: 'committed',
    step: { generation, tokensBefore, tokensAfter, cost, modelCalls, modelInputTokens, modelOutputTokens },
  };
}

export function endOfFailure(error: unknown): End {
  const failure = failureOf(error);
  // Another commit came first, so the session must be checked again.
  if (failure?.type === 'Store.StaleGeneration') return { kind: 'elsewhere' };
  if (failure) return { kind: 'failed', type: failure.type, message: failure.message };
  for (const current of causesOf(error)) {
    const { message } = current;
    if (current instanceof CancelledFailure) return { kind: 'failed', type: 'Cancelled', message };
    if (current instanceof TerminatedFailure) return { kind: 'failed', type: 'Terminated', message };
    if (current instanceof TimeoutFailure) return { kind: 'failed', type: 'TimedOut', message };
  }
  return { kind: 'failed', type: 'Unknown', message: String(error) };
}
