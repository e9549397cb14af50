/**
 * The contract with Temporal clients in any language: the workflow type `session`, these names, and plain JSON. It carries no
 * messages of a conversation, except inline in a `turn` signal if the tenant is allowed to send them.
 */
import type { FormatName } from '../conversation/format-names.js';
import type { UsageReport } from '../tokens/reported-usage.js';
import type { BackfillState } from './backfills.js';
import type { CompactionOutcome } from './compactions.js';
import type { BackfillIds, SessionIds } from './ids.js';
import type { Status } from './sessions.js';

/** A turn was appended. Signals are delivered at least once; `turnId` makes them idempotent. */
export interface TurnSignal {
  turnId: string;
  /** Last message of the turn. Absent if `messages` are inline. */
  seq?: number;
  /** False if the append found that nothing is due; nothing is then measured. Absent if this is unknown. */
  due?: boolean;
  /**
   * The messages of the turn, or their JSON as text: at most 256 KiB, for platforms that have only a Temporal client. Refused
   * unless the tenant is allowed to send them in a signal.
   */
  messages?: unknown[] | string;
  /**
   * For tenants with a key: HMAC-SHA256 (hex) of tenant, session, turn id and the text of `messages`, separated by NUL characters.
   */
  mac?: string;
  /** When `messages` were said, an ISO 8601 instant with a time zone. */
  at?: string;
  /** Format of `messages`. @default the session's format, `openai-chat` for a new session */
  format?: FormatName;
  /** The provider's usage report, in its own form, for the request that made the first assistant message of `messages`. */
  usage?: UsageReport;
}

export interface CompactRequest {
  /** Reason for the request. It appears only in the history of the workflow. */
  note?: string;
  /** Evict nothing; instead, a model rewrites from the archive what the fallback wrote. */
  resummarize?: boolean;
  /** The caller has seen this generation: a compaction in flight answers the request only if it makes a later one. */
  after?: number;
}

/** Answer to `compact`: the outcome; null if there was nothing to do or the result was refused (not smaller, or without a pin). */
export type CompactAnswer = CompactionOutcome | null;
export type Phase = Exclude<Status['phase'], 'asleep' | 'unknown'>;

export interface SessionStatus {
  phase: Phase;
  /** Turns received and not yet processed. */
  inbox: number;
  /** Those of them that PostgreSQL does not have: turns with their messages, and requests to compact. Absent in earlier versions. */
  unstored?: number;
  generation: number | null;
  /** Context tokens at the last measurement. */
  tokens: number | null;
  compaction: Status['compaction'];
  compactions: number;
  /** Whether the session was paused at the last measurement. No compaction begins until an operator resumes it. */
  paused: boolean;
  lastError: { type: string; message: string; at: number } | null;
  rejectedTurns: Status['rejectedTurns'];
}

export interface BackfillProgress {
  state: BackfillState;
  concurrency: number;
  /** Compactions in flight. */
  running: number;
  /** Sessions that this execution has read and not yet begun. */
  ready: number;
  /** Cost of this job so far. */
  spent: number;
}

/** Starts a workflow of type `session`. */
export interface SessionStart extends SessionIds {
  v: 1;
  /** Milliseconds without a message after which the workflow completes. Signal-with-start starts it again. */
  idleAfterMs: number;
  /** Events after which the run continues as new. @default 1,000 */
  maxHistoryEvents?: number;
}

/** Starts a workflow of type `backfill`. */
export interface BackfillStart extends BackfillIds {
  v: 1;
  /** Sessions selected at once. A run continues as new after each such page. @default 500 */
  pageSize?: number;
  /** Events after which a run continues as new within a page. @default the server's suggestion */
  maxHistoryEvents?: number;
}

/** Starts a workflow of type `sweep`. */
export interface SweepStart {
  v: 1;
  /** Sessions signalled by one step. @default 200 */
  pageSize?: number;
  /** Steps of one sweep. The next sweep handles the rest. @default 25 */
  mostPages?: number;
}
