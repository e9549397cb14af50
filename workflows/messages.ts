import { ApplicationFailure, defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type {
  BackfillProgress,
  CompactAnswer,
  CompactRequest,
  SessionStatus,
  TurnSignal,
} from '../src/contract/workflows.js';
import type { ResizeRequest, RetryRequest } from '../src/contract/backfills.js';

export const turnSignal = defineSignal<[TurnSignal]>('turn');

/** The session's policy changed in PostgreSQL: measure again. */
export const configureSignal = defineSignal<[]>('configure');

/** No further turns follow: finish the current work, then complete. */
export const closeSignal = defineSignal<[]>('close');

/** No compaction starts until `resume`. A running compaction finishes, and turns are still stored. */
export const pauseSignal = defineSignal<[]>('pause');
export const resumeSignal = defineSignal<[]>('resume');

/** Compacts now, regardless of size and earlier failures: `compact` without an answer. */
export const retrySignal = defineSignal<[]>('retry');

/** These updates do the same as the signals of the same names, and are answered when the change has taken effect. */
export const pauseUpdate = defineUpdate<void>('pause');
export const resumeUpdate = defineUpdate<void>('resume');
export const configureUpdate = defineUpdate<void>('configure');
export const closeUpdate = defineUpdate<void>('close');
export const compactUpdate = defineUpdate<CompactAnswer, [CompactRequest]>('compact');
export const statusQuery = defineQuery<SessionStatus>('status');

/**
 * Whether the argument of a signal is a turn: it has messages, or an id that is not longer than the store accepts. Any client in
 * any language may send the signal, so the argument may be anything.
 */
export function isTurn(turn: TurnSignal | null | undefined): turn is TurnSignal {
  if (typeof turn !== 'object' || turn === null) return false;
  return isInline(turn) || (typeof turn.turnId === 'string' && turn.turnId.length <= 512);
}

/** True if the turn carries its messages. */
export function isInline({ messages }: TurnSignal): boolean {
  return (messages ?? null) !== null;
}

/** Refuses an update before it is accepted: the caller gets `Input.Invalid`, and the history records nothing. */
export function refusal(problem: string, hint: string): ApplicationFailure {
  return ApplicationFailure.nonRetryable(`${problem} — ${hint}`, 'Input.Invalid');
}

export function checkCompactRequest(request: CompactRequest | null | undefined): void {
  if (request === null || request === undefined) return;
  if (typeof request !== 'object' || Array.isArray(request))
    throw refusal('the argument of compact must be an object', 'send {} or leave it out');
  const fields = ['note', 'resummarize', 'after'];
  for (const field of Object.keys(request))
    if (!fields.includes(field))
      throw refusal(
        `compact has no field ${JSON.stringify(field).slice(0, 80)}`,
        `fields: ${fields.join(', ')}`,
      );
}

/*
 * Workflow type `backfill`. `pause` and `resume` have the same names and forms as those of a session. After `pause` and after
 * `cancel`, compactions in flight run to their end.
 */
export const cancelSignal = defineSignal<[]>('cancel');
export const cancelUpdate = defineUpdate<void>('cancel');
export const resizeUpdate = defineUpdate<void, [ResizeRequest]>('resize');

/** Retries the failed sessions, and the sessions that were never tried because the job ended early. */
export const retryUpdate = defineUpdate<void, [RetryRequest]>('retry');
export const progressQuery = defineQuery<BackfillProgress>('status');

export function checkResizeRequest(request: ResizeRequest | null | undefined): void {
  const concurrency: unknown = request?.concurrency;
  if (Number.isInteger(concurrency) && Number(concurrency) >= 1 && Number(concurrency) <= 500) return;
  throw refusal('concurrency must be a whole number from 1 to 500', 'send {"concurrency": 32}');
}

export function checkRetryRequest(request: RetryRequest | null | undefined): void {
  const limit: unknown = request?.spendLimit;
  if (limit === undefined || limit === null || (typeof limit === 'number' && limit > 0)) return;
  throw refusal('spendLimit must be a number above 0', 'leave it out to keep the present limit');
}
