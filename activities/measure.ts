import { isTriggered, limitsOf } from '../src/policy/limits.js';
import { resolvePolicy } from '../src/policy/schema.js';
import { loadSession } from '../src/store/sessions.js';
import type { SessionIds } from '../src/temporal/names.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

export interface Measurement {
  /** True when a compaction should be planned now. */
  due: boolean;
  /** Context tokens and messages by the session's counters. */
  tokens: number;
  messages: number;
  window: number;
  generation: number;
  policyVersion: number;
  idleAfterMs: number;
  debounceMs: number;
  /** Unix milliseconds before which nothing is tried again after a failure; null when nothing holds it back. */
  notBefore: number | null;
}

/** Compares the session's counters with its policy. Reads one row, whatever the length of the log. */
export function measure({ pool, now }: Dependencies) {
  return ({ tenant, session }: SessionIds): Promise<Measurement> =>
    runStep('measure', async () => {
      const row = await loadSession(pool, { tenant, session });
      const policy = resolvePolicy(row.policy);
      const limits = limitsOf(policy);
      // After a fallback served, compactions go on without the model; after one that committed nothing they wait,
      // for the retry or, where its result was refused, for something compactable.
      const waits = row.retryAt !== null && row.retryAt.getTime() > now();
      const served = row.lastError?.fallback === true;
      const heldBack = waits && !served && (policy.summary.fallback === 'none' || row.exhausted === null);
      const triggered =
        policy.enabled && isTriggered(limits, { contextTokens: row.liveTokens, messages: row.liveMessages });
      // While exhausted, `measureAt` lies past the point where something compactable has arrived.
      const worthwhile =
        row.exhausted === null ||
        reached(row.liveTokens, row.measureAtTokens) ||
        reached(row.liveMessages, row.measureAtMessages);
      return {
        due: triggered && worthwhile && !heldBack,
        tokens: row.liveTokens,
        messages: row.liveMessages,
        window: limits.window,
        generation: row.generation,
        policyVersion: row.policyVersion,
        idleAfterMs: policy.idleAfter,
        debounceMs: policy.debounceMs,
        notBefore: triggered && heldBack && row.retryAt ? row.retryAt.getTime() : null,
      };
    });
}

function reached(size: number, mark: number | null): boolean {
  return mark !== null && size >= mark;
}
