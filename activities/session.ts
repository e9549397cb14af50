import { log } from '@temporalio/activity';
import type { SessionIds } from '../src/contract/ids.js';
import type { FormatName } from '../src/conversation/format-names.js';
import { inlineMessages } from './inline-turn.js';
import { policyOf } from '../src/policy/layers.js';
import type { Policy } from '../src/policy/defaults.js';
import { beyondLimitType } from '../src/policy/tenant-limits.js';
import { appendTurn as storeTurn } from '../src/store/append/turns.js';
import { releaseHolds } from '../src/store/compactions/digest-holds.js';
import { withTransaction } from '../src/store/connection/transaction.js';
import { embedTexts as embed } from '../src/store/search/embed-texts.js';
import { indexTexts as index } from '../src/store/search/index-texts.js';
import {
  loadSession,
  recordFailure,
  setExhausted,
  setPaused as store,
} from '../src/store/sessions/sessions.js';
import type { UsageReport } from '../src/tokens/reported-usage.js';
import { type Dependencies, runModelStep, runStep } from './run.js';

export interface InlineTurn extends SessionIds {
  turnId: string;
  /** The messages of the signal in the session's format, or their JSON as text; checked when they are appended. */
  messages: unknown;
  mac?: string;
  /** The value that the platform sent. */
  at?: string;
  format?: FormatName;
  /** Unix milliseconds at which the signal arrived. Absent in runs that began under an earlier version. */
  receivedAt?: number;
  usage?: UsageReport;
}

/** Stores the messages of a `turn` signal that carried them inline (off unless the tenant is allowed to). */
export function appendTurn({ pool, deployment, ...settings }: Dependencies) {
  return ({
    receivedAt,
    mac,
    ...turn
  }: InlineTurn): Promise<{ seq: number; due: boolean; incarnation: string }> =>
    runStep('append turn', async () => {
      const messages = inlineMessages({ ...turn, mac }, settings);
      const { throughSeq, due, incarnation } = await storeTurn(pool, {
        ...{ ...turn, messages, deployment },
        ...(receivedAt === undefined ? {} : { receivedAt: new Date(receivedAt) }),
      });
      return { seq: throughSeq, due, incarnation };
    });
}

export interface PauseInput extends SessionIds {
  paused: boolean;
}

/** Stores the pause that an operator signalled, because the session's workflow loses its state when it ends. */
export function setPaused({ pool }: Dependencies) {
  return ({ paused, ...ids }: PauseInput): Promise<void> =>
    runStep(paused ? 'pause' : 'resume', async () => store(pool, await loadSession(pool, ids), paused));
}

/**
 * Indexes new texts for search, so that the first search of a long session finds them indexed. A search indexes texts that are
 * still missing. Returns true if the texts also need vectors.
 */
export function indexTexts({ pool, embedder = null }: Dependencies) {
  return (ids: SessionIds): Promise<boolean> =>
    runStep('index texts', async () => {
      await index(pool, ids);
      return embedder !== null;
    });
}

/** Requests the vectors that the indexed texts lack. */
export function embedTexts({ pool, embedder = null }: Dependencies) {
  return (ids: SessionIds): Promise<void> =>
    runModelStep('embed texts', async ({ signal }) => {
      if (embedder !== null) await embed(pool, ids, embedder, { signal });
    });
}

export interface GiveUpInput extends SessionIds {
  type: string;
  message: string;
  /** The result was refused: nothing is retried until compactable content has arrived (invariant 9). */
  exhausted: boolean;
  /** The model failed. If the policy has a fallback, compactions continue without the model until the next attempt. */
  model: boolean;
  /** The step only waited for tokens of the deployment's limit: this is not a model failure and is not counted. */
  onlyWaited?: boolean;
}

/** Records that a compaction left the context unchanged, and the time of the next attempt. */
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
      await withTransaction(pool, ids, ({ query }) => releaseHolds(query, ids, runId));
      const row = await loadSession(pool, ids);
      const policy = policyOf(row.policy);
      // Two failures are not retried after a delay, because the model did not cause them: the window is too small for the messages
      // that must stay, or the result saves too little. New content must arrive first. Without a fallback, a refused result came
      // from the model, so it is retried.
      const unreachable = type === 'Budget.Unreachable';
      const blameless = unreachable || (exhausted && policy.summary.fallback !== 'none');
      const retry = retryAt(policy, onlyWaited ? 0 : row.failures, now());
      const earliest = type === beyondLimitType ? now() + beyondLimitMs : 0;
      const next = blameless ? null : new Date(Math.max(retry.getTime(), earliest));
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

/** A limit on spend lasts to the end of a day; plans of a session without a fallback need not look for it every moment. */
const beyondLimitMs = 60_000;

const longestWaitMs = 6 * 60 * 60 * 1000;

/** Grows exponentially from the policy's first delay to at most six hours. */
export function retryAt(policy: Policy, failures: number, now: number): Date {
  const wait = Math.min(longestWaitMs, policy.summary.retryAfterFailure * 2 ** Math.min(failures, 20));
  return new Date(now + wait);
}
