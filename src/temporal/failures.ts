import { ApplicationFailure, CancelledFailure, TerminatedFailure, TimeoutFailure } from '@temporalio/common';
import type { CommittedStep } from '../contract/backfills.js';
import { type FailureType, isFailureType, PalimpsestError } from '../errors.js';

/**
 * Types worth another attempt unchanged: only something busy or away was found, and no answer was drawn. Everything else is
 * decided by the workflow (halve, fall back, replan).
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
 * A bad answer is drawn again until this many attempts were made, then it is final.
 * Retries of the endpoint itself are bounded by time; these are not, so they need a count.
 */
const badOutputAttempts = 3;
const firstRedrawMs = 1_000;
const drawnAgain: ReadonlySet<FailureType> = new Set(['Llm.BadOutput', 'Summary.NotSmaller']);
/** An error that no rule covers may be over at the next attempt, and may never be: each attempt of a model step may cost money. */
const unexpectedAttempts = { model: 3, other: 5 };

interface FailureContext {
  /** From 1: which draw of an answer this was. Attempts that only found the endpoint busy are none. */
  attempt: number;
  /** The step asks a model: a bad answer may be a bad draw. Other steps would only come to the same result again. */
  drawn: boolean;
  /** References the workflow needs to go on, such as the halves of a chunk. Plain JSON. */
  details?: unknown[];
}

/** Whether a step that asks a model draws again after this failure. */
export function isDrawnAgain({ type }: PalimpsestError, draw: number): boolean {
  return drawnAgain.has(type) && draw < badOutputAttempts;
}

/** Turns a typed failure into what Temporal shows, retries and hands to the workflow. */
export function toApplicationFailure(
  error: PalimpsestError,
  { attempt, drawn, details }: FailureContext,
): ApplicationFailure {
  const redraw = drawn && isDrawnAgain(error, attempt);
  const unforeseen =
    error.type === 'Worker.Failed' && attempt < (drawn ? unexpectedAttempts.model : unexpectedAttempts.other);
  const again = onlyWaits.has(error.type) || redraw || unforeseen;
  // Bad draws have a delay of their own: the server's grows with all attempts, also those that only waited.
  const retryAfterMs = redraw ? firstRedrawMs * 2 ** (attempt - 1) : error.details?.['retryAfterMs'];
  return ApplicationFailure.create({
    type: error.type,
    message: [error.message, error.hint].filter(Boolean).join(hintMark),
    nonRetryable: !again,
    details: details ?? (error.details ? [error.details] : undefined),
    nextRetryDelay: typeof retryAfterMs === 'number' ? retryAfterMs : undefined,
  });
}

/** What stands between a message and its hint where both are one text. */
const hintMark = ' — ';

/** A typed failure of a workflow as it was thrown: message, hint and details apart again. Null for anything else. */
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

/** Of a detail what a caller is told; references between steps are not. */
function numbersAndNames(detail: unknown): PalimpsestError['details'] {
  if (typeof detail !== 'object' || detail === null) return undefined;
  const told = Object.entries(detail).filter(
    (entry): entry is [string, string | number | boolean | null] =>
      entry[1] === null || typeof entry[1] !== 'object',
  );
  return told.length === 0 ? undefined : Object.fromEntries(told);
}

/** Detail of a model step that ended because the deployment's own tokens per minute came too late: no model failed. */
export const onlyWaited = { onlyWaited: true };

export function hasOnlyWaited({ details: [detail] }: { details: unknown[] }): boolean {
  return (
    typeof detail === 'object' && detail !== null && 'onlyWaited' in detail && detail.onlyWaited === true
  );
}

/** The typed failure at the bottom of a chain of workflow and activity failures; null for anything else. */
export function failureOf(error: unknown): { type: string; message: string; details: unknown[] } | null {
  for (const current of causesOf(error)) {
    if (current instanceof ApplicationFailure && current.type) {
      return { type: current.type, message: current.message, details: current.details ?? [] };
    }
  }
  return null;
}

/** The error and what caused it, outermost first; an error that is its own cause once. */
export function* causesOf(error: unknown): Generator<Error> {
  const seen = new Set<unknown>();
  for (let cause = error; cause instanceof Error && !seen.has(cause); cause = cause.cause) {
    seen.add(cause);
    yield cause;
  }
}

/** `elsewhere`: another parent ran it, or another commit came first; look again. */
export type End =
  | { kind: 'committed'; step: CommittedStep }
  | { kind: 'nothing' }
  | { kind: 'elsewhere' }
  | { kind: 'failed'; type: string; message: string };

/** How a compaction of a backfill ended, told alike by its workflow and by who looks at it from outside. */
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
  // Whoever commits first makes the other look again.
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
