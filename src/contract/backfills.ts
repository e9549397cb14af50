import type { FormatName } from '../conversation/format-names.js';

/** What a backfill is asked for, and what it says of itself. Plain JSON: stored, sent over HTTP, shown by the CLI. */
export type BackfillState = 'running' | 'paused' | 'completed' | 'cancelled' | 'stopped';

/** `unchanged`: nothing to do. `skipped`: never tried, because the job was cancelled or its spend limit was reached. */
export type BackfillItemState = 'pending' | 'running' | 'compacted' | 'unchanged' | 'failed' | 'skipped';

/** Which sessions: all conditions hold. */
export interface BackfillSelection {
  /** Session ids that begin with this. */
  prefix?: string;
  format?: FormatName;
  /** No turn since this moment, ISO 8601. */
  idleSince?: string;
  /** Context tokens at least. */
  minTokens?: number;
}

export interface BackfillRequest {
  /** Idempotency key within the tenant: the same job started twice is one job. */
  job: string;
  select?: BackfillSelection;
  /** `due`: sessions over their own trigger. `all`: every session that can become smaller. @default 'due' */
  mode?: 'due' | 'all';
  /** Compactions at once, 1 to 500. @default 16 */
  concurrency?: number;
  /** Money for model calls of this job at most, in the currency of the policies' prices; then it stops. */
  spendLimit?: number;
}

export interface Backfill {
  job: string;
  /** As it was started, defaults filled in. */
  request: BackfillRequest;
  /** In force now: `resize` and `retry` change them. */
  concurrency: number;
  spendLimit: number | null;
  state: BackfillState;
  /** Why it stopped, where it did not complete. */
  reason: string | null;
  /** Sessions by state; `selected` is their sum so far, and more pages may follow while `selecting`. */
  counts: Record<BackfillItemState, number> & { selected: number };
  selecting: boolean;
  /** Failed sessions by failure type. */
  failures: Record<string, number>;
  tokensBefore: number;
  tokensAfter: number;
  modelCalls: number;
  modelInputTokens: number;
  modelOutputTokens: number;
  cost: number | null;
  createdAt: string;
  endedAt: string | null;
  /** Finished sessions per second since the start, pauses included. */
  perSecond: number;
}

export interface BackfillItem {
  session: string;
  state: BackfillItemState;
  attempts: number;
  error: { type: string; message: string } | null;
  generation: number | null;
  tokensBefore: number | null;
  tokensAfter: number | null;
  cost: number | null;
  startedAt: string | null;
  endedAt: string | null;
}

export interface BackfillItemList {
  items: BackfillItem[];
  /** Give it as `after` to read on; null at the end. */
  next: string | null;
}

export interface BackfillItemRequest {
  job: string;
  state?: BackfillItemState;
  after?: string;
  /** 1 to 1,000. @default 100 */
  limit?: number;
}

/** What a backfill would do, without doing it. Tokens and money are worked out from sizes alone. */
export interface BackfillEstimate {
  /** Sessions that match the selection / that would be compacted. */
  selected: number;
  due: number;
  /** Context tokens of the due sessions, before and after. */
  tokensBefore: number;
  tokensAfter: number;
  modelCalls: number;
  modelInputTokens: number;
  modelOutputTokens: number;
  /** Null where a policy has no prices. */
  cost: number | null;
  currency: string | null;
}

/** One compaction of this job that was committed. */
export interface CommittedStep {
  generation: number;
  tokensBefore: number;
  tokensAfter: number;
  modelCalls: number;
  modelInputTokens: number;
  modelOutputTokens: number;
  cost: number | null;
}
