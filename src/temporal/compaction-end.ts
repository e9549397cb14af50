import { CancelledFailure, TerminatedFailure, TimeoutFailure } from '@temporalio/common';
import type { CommittedStep } from '../contract/backfills.js';
import { causesOf, failureOf } from './failures.js';

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
