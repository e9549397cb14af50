/**
 * The contract with every Temporal client, in any language: workflow type `session`, these names, plain JSON. Messages of
 * a conversation do not travel here, except inline in a `turn` signal where the tenant may do so.
 */
import type { FormatName } from '../conversation/format-names.js';
import type { UsageReport } from '../tokens/reported-usage.js';
import type { BackfillState } from './backfills.js';
import type { BackfillIds, SessionIds } from './ids.js';

/** One committed compaction in numbers; the row in Postgres holds the same and the texts. */
export interface CompactionOutcome {
  generation: number;
  reason: string;
  method: string;
  tokensBefore: number;
  tokensAfter: number;
  evicted: number;
  chunks: number;
  /** Chunks that the fallback served, because the model failed at them. */
  chunksByRule: number;
  modelCalls: number;
  modelInputTokens: number;
  modelOutputTokens: number;
  /** Milliseconds in which at least one model call was in flight / the rest of the compaction's wall time. */
  modelMs: number;
  overheadMs: number;
  archivePart: number | null;
  /** Tokens by which every later context read is smaller. */
  savedPerTurn: number;
  /**
   * Of `tokensAfter`: the beginning that the context had before as well, which a provider's prompt cache still serves; null for
   * a restore, and for what earlier versions committed.
   */
  cachedTokens: number | null;
  /** Money for the summarizer; null without prices. */
  cost: number | null;
  currency: string | null;
  /** Later context reads after which it has paid for itself, the cache writes of the new head included; null: never. */
  paysBackAfter: number | null;
  workflowId: string;
  runId: string;
}

/** A turn was appended. Signals are delivered at least once; `turnId` makes them idempotent. */
export interface TurnSignal {
  turnId: string;
  /** Last message of the turn. Absent when `messages` are inline. */
  seq?: number;
  /** False: the append saw that nothing is due, so nothing is measured. Absent means unknown. */
  due?: boolean;
  /** At most 256 KiB, for platforms that hold only a Temporal client. Off unless allowed per tenant. */
  messages?: unknown[];
  /** Of `messages`: when they were said, an ISO 8601 instant with its zone. */
  at?: string;
  /** Of `messages`. @default the session's own, `openai-chat` for a new one */
  format?: FormatName;
  /** Of `messages`: what the provider reported for the request that made the first assistant message, in its own form. */
  usage?: UsageReport;
}

export interface CompactRequest {
  /** Why it was asked for; shown to operators. */
  note?: string;
  /** Evict nothing: have a model write what the fallback has written, from the archive. */
  resummarize?: boolean;
}

/** Answer to `compact`: the outcome in numbers, null when there was nothing to do or the result was not smaller. */
export type CompactAnswer = CompactionOutcome | null;
export type Phase = 'idle' | 'appending' | 'debouncing' | 'measuring' | 'compacting';

export interface SessionStatus {
  phase: Phase;
  /** Turns received and not yet looked at. */
  inbox: number;
  generation: number | null;
  /** Context tokens at the last measurement. */
  tokens: number | null;
  compaction: { generation: number; workflowId: string; startedAt: number } | null;
  compactions: number;
  /** By an operator, as the last measurement saw it: nothing begins until it is resumed. */
  paused: boolean;
  lastError: { type: string; message: string; at: number } | null;
  /** Inline turns that were refused, newest last, at most 20. */
  rejectedTurns: { turnId: string; type: string; message: string }[];
}

export interface BackfillProgress {
  state: BackfillState;
  concurrency: number;
  /** Compactions in flight, and sessions that this run holds for the next ones. */
  running: number;
  ready: number;
  /** Money of this job so far. */
  spent: number;
}

export interface ResizeRequest {
  /** Compactions at once, 1 to 500. */
  concurrency: number;
}

export interface RetryRequest {
  /** Replaces the job's limit. */
  spendLimit?: number;
}

/** Starts a workflow of type `session`. */
export interface SessionStart extends SessionIds {
  v: 1;
  /** Milliseconds without a message after which the workflow completes; signal-with-start revives it. */
  idleAfterMs: number;
  /** Events after which the run hands over to the next. @default 1,000 */
  maxHistoryEvents?: number;
}

/** Starts a workflow of type `backfill`. */
export interface BackfillStart extends BackfillIds {
  v: 1;
  /** Sessions selected at once; a run hands over after each such page. @default 500 */
  pageSize?: number;
  /** Events after which a run hands over in the middle of a page. @default what the server suggests */
  maxHistoryEvents?: number;
}

/** Starts a workflow of type `sweep`. */
export interface SweepStart {
  v: 1;
  /** Sessions signalled by one step. @default 200 */
  pageSize?: number;
  /** Steps of one sweep; what is left waits for the next one. @default 25 */
  mostPages?: number;
}
