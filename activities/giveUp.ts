import { log } from '@temporalio/activity';
import { policyOf } from '../src/policy/layers.js';
import type { Policy } from '../src/policy/resolve.js';
import { releaseHolds } from '../src/store/compactions/digest-holds.js';
import { withTransaction } from '../src/store/connection/transaction.js';
import { loadSession, recordFailure, setExhausted } from '../src/store/sessions/sessions.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

export interface GiveUpInput extends SessionIds {
  type: string;
  message: string;
  /** The result was refused: nothing is tried again before something compactable has arrived (invariant 9). */
  exhausted: boolean;
  /** The model's part failed. Where the policy has a fallback, compactions go on without the model until the next attempt. */
  model: boolean;
  /** For tokens of the deployment's own limit: no failure of a model, so it is not counted. */
  onlyWaited?: boolean;
}

/** Records a compaction that left the context unchanged, and when the next attempt may be made. */
export function giveUp({ pool, now, metrics }: Dependencies) {
  return ({
    type,
    message,
    exhausted,
    model,
    onlyWaited,
    ...ids
  }: GiveUpInput): Promise<{ notBefore: number | null }> =>
    runStep('give up', async ({ runId }) => {
      await withTransaction(pool, ({ query }) => releaseHolds(query, ids, runId));
      const row = await loadSession(pool, ids);
      const policy = policyOf(row.policy);
      // Time heals neither a window that cannot hold what must stay nor reductions that save too little, and no model
      // was to blame: something else must come. With no fallback a refused result was the model's.
      const unreachable = type === 'Budget.Unreachable';
      const blameless = unreachable || (exhausted && policy.summary.fallback !== 'none');
      const next = blameless ? null : retryAt(policy, onlyWaited ? 0 : row.failures, now());
      const fallback = model && policy.summary.fallback !== 'none';
      await recordFailure(pool, row, { type, message, retryAt: next, fallback, onlyWaited });
      if (exhausted || unreachable)
        await setExhausted(pool, row, { atSeq: row.nextSeq - 1, tokens: row.liveTokens, reason: type });
      log.warn('compaction left the context unchanged', {
        tenant: ids.tenant,
        session: ids.session,
        failure: type,
        notBefore: next?.getTime() ?? null,
      });
      metrics?.gaveUp(type);
      return { notBefore: next?.getTime() ?? null };
    });
}

const longestWaitMs = 6 * 60 * 60 * 1000;

/** Exponential from the policy's first step, at most six hours. */
export function retryAt(policy: Policy, failures: number, now: number): Date {
  const wait = Math.min(longestWaitMs, policy.summary.retryAfterFailure * 2 ** Math.min(failures, 20));
  return new Date(now + wait);
}
