import { ApplicationFailure } from '@temporalio/common';
import { isFailure, PalimpsestError } from '../src/errors.js';
import type { SummaryAnswer } from '../src/llm/exchange.js';
import { admitCall, type CallTokens } from '../src/store/tenants/admission.js';
import { refusalOfModel, type TenantLimits } from '../src/policy/tenant-limits.js';
import { onlyWaited } from '../src/temporal/failures.js';
import type { Attempt, Dependencies } from './run.js';

/** A backfill's waits are extended by up to this share, so that its calls do not all return at once. */
const spread = 0.25;

interface TokensOfCall {
  tenant: string;
  model: string;
  limits: TenantLimits | undefined;
  caller: string;
  expected: () => CallTokens;
}

/**
 * Makes a model call within the rates that all workers share and within the operator's limits of the tenant, and gives its
 * answer to `use`. It reserves the most that the call may use and corrects the amount meanwhile. If a rate is used up, no call is
 * made: `Llm.RateLimited` says when to retry, so that no slot is blocked; the failure is final if that time is past the
 * compaction's deadline. A model or an amount beyond the tenant's limits is a final `Tenant.BeyondLimit`.
 */
export async function withinTokens<Used>(
  { pool, tokensPerMinute: perMinute, metrics }: Dependencies,
  attempt: Attempt,
  { expected, ...call }: TokensOfCall,
  ask: () => Promise<SummaryAnswer>,
  use: (answer: SummaryAnswer) => Promise<Used>,
): Promise<Used> {
  const { backfill } = attempt;
  const { limits, model } = call;
  const forbidden = limits === undefined ? null : refusalOfModel(limits, model);
  if (forbidden) throw refusedFor(forbidden, metrics);
  const admission = await admitCall(pool, { ...call, perMinute, backfill, most: expected });
  if ('refused' in admission) throw refusedFor(admission.refused, metrics);
  if ('waitMs' in admission) {
    const { waitMs, tokens } = admission;
    metrics?.tokenWait(backfill, waitMs);
    const message = `This minute has too few tokens or calls left for a call of ${tokens} tokens;`;
    const hint =
      "Raise PALIMPSEST_TOKENS_PER_MINUTE if the provider allows more, or the tenant's limits with `palimpsest limits set`.";
    throw notNow(message, hint, waitMs, attempt);
  }
  const answer = await ask().catch(async (error: unknown) => {
    await admission.settle(usedBy(error));
    throw error;
  });
  const settled = admission.settle(answer);
  // Awaited below, after the answer is used.
  settled.catch(() => undefined);
  try {
    return await use(answer);
  } finally {
    await settled;
  }
}

/** The call is made later, unless the compaction's deadline is earlier. */
export function notNow(
  message: string,
  hint: string,
  waitMs: number,
  { backfill, deadline }: Attempt,
): Error {
  const retryAfterMs = backfill ? Math.ceil(waitMs * (1 + spread * Math.random())) : waitMs;
  const then = `${message} retry in ${retryAfterMs} ms.`;
  if (Date.now() + retryAfterMs < deadline)
    return new PalimpsestError('Llm.RateLimited', then, { hint, details: { retryAfterMs } });
  const late = `${then} The deadline of this compaction is earlier. — ${hint}`;
  return ApplicationFailure.nonRetryable(late, 'Llm.RateLimited', onlyWaited);
}

/** No model failed: the session does not back off, and asks again when it is compacted next. */
function refusedFor(
  { type, message, hint, details }: PalimpsestError,
  metrics: Dependencies['metrics'],
): Error {
  metrics?.callBeyondLimit(String(details?.['limit']));
  return ApplicationFailure.nonRetryable(`${message} — ${hint}`, type, { ...details, ...onlyWaited });
}

/** Returns the tokens of a failed call, or null if they are unknown: the call may have used all reserved tokens. */
function usedBy(error: unknown): CallTokens | null {
  const spent = spentBy(error);
  if (spent !== null) return spent;
  const answered = isFailure(error) && typeof error.details?.['status'] === 'number';
  return answered ? { inputTokens: 0, outputTokens: 0 } : null;
}

/** Returns the usage of a refused answer as the endpoint reported it, or null if there was none. */
export function spentBy(error: unknown): { inputTokens: number; outputTokens: number; calls: number } | null {
  const { inputTokens, outputTokens, calls } = isFailure(error) ? (error.details ?? {}) : {};
  if (typeof inputTokens !== 'number' || typeof outputTokens !== 'number') return null;
  return { inputTokens, outputTokens, calls: typeof calls === 'number' ? calls : 1 };
}
