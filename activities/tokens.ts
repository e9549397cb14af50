import { ApplicationFailure } from '@temporalio/common';
import { isFailure, isPassingFailureOfStore, PalimpsestError } from '../src/errors.js';
import type { SummaryAnswer } from '../src/llm/exchange.js';
import { correctTokens, drawTokens } from '../src/store/rate-limit/tokens-per-minute.js';
import { onlyWaited } from '../src/temporal/failures.js';
import type { Attempt, Dependencies } from './run.js';

/** A backfill's waits are extended by up to this share, so that its calls do not all return at once. */
const spread = 0.25;

/**
 * Makes a model call within the tokens per minute that all workers share. It reserves the most that the call may use and
 * corrects the amount afterwards. If there are not enough tokens, no call is made: `Llm.RateLimited` says when to retry, so
 * that no slot is blocked. The failure is final if that time is past the compaction's deadline.
 */
export async function withinTokens(
  { pool, tokensPerMinute: perMinute, metrics }: Dependencies,
  attempt: Attempt,
  { caller, expected }: { caller: string; expected: () => number },
  call: () => Promise<SummaryAnswer>,
): Promise<SummaryAnswer> {
  if (perMinute === undefined) return call();
  const tokens = expected();
  const { backfill, deadline } = attempt;
  const { waitMs } = await drawTokens(pool, { tokens, perMinute, backfill, caller });
  if (waitMs > 0) {
    metrics?.tokenWait(backfill, waitMs);
    throw notNow(backfill ? Math.ceil(waitMs * (1 + spread * Math.random())) : waitMs, tokens, deadline);
  }
  let used = tokens;
  try {
    const answer = await call();
    used = answer.inputTokens + answer.outputTokens;
    return answer;
  } catch (error) {
    used = usedBy(error) ?? tokens;
    throw error;
  } finally {
    await correctTokens(pool, tokens - used).catch((error: unknown) => {
      // The answer must not be lost. Tokens that were not given back flow in again within the minute.
      if (!isPassingFailureOfStore(error)) throw error;
    });
  }
}

function notNow(waitMs: number, tokens: number, deadline: number): Error {
  const message = `This minute has too few tokens left for a call of ${tokens}; retry in ${waitMs} ms.`;
  const hint = 'Raise PALIMPSEST_TOKENS_PER_MINUTE if the provider allows more.';
  if (Date.now() + waitMs < deadline)
    return new PalimpsestError('Llm.RateLimited', message, { hint, details: { retryAfterMs: waitMs } });
  const late = `${message} The deadline of this compaction is earlier. — ${hint}`;
  return ApplicationFailure.nonRetryable(late, 'Llm.RateLimited', onlyWaited);
}

/** Returns the tokens of a failed call, or null if they are unknown: the call may have used all reserved tokens. */
function usedBy(error: unknown): number | null {
  const spent = spentBy(error);
  if (spent !== null) return spent.inputTokens + spent.outputTokens;
  return isFailure(error) && typeof error.details?.['status'] === 'number' ? 0 : null;
}

/** Returns the usage of a refused answer as the endpoint reported it, or null if there was none. */
export function spentBy(error: unknown): { inputTokens: number; outputTokens: number; calls: number } | null {
  const { inputTokens, outputTokens, calls } = isFailure(error) ? (error.details ?? {}) : {};
  if (typeof inputTokens !== 'number' || typeof outputTokens !== 'number') return null;
  return { inputTokens, outputTokens, calls: typeof calls === 'number' ? calls : 1 };
}
