import type { ContextBreakdown } from '../context/view/breakdown.js';
import type { FormatName } from '../conversation/format-names.js';
import type { PolicyRow } from '../policy/describe.js';
import type { Policy } from '../policy/resolve.js';
import type { SkippedPin } from '../summary/answer/pins.js';
import type { Journal } from '../summary/journal/rewrites.js';
import type { SessionStatus } from './workflows.js';

export interface Status extends SessionRecords, SessionMemory {
  session: string;
  /** Messages in the log / in the context. */
  messages: number;
  liveMessages: number;
  tokens: number;
  window: { tokens: number; source: string };
  budget: number;
  /** Context tokens at which the next measurement is due; null when nothing will trigger. */
  measureAt: number | null;
  generation: number;
  /** `asleep`: ended for idleness; `unknown`: no worker answers. */
  phase: SessionStatus['phase'] | 'asleep' | 'unknown';
  compaction: SessionStatus['compaction'];
  /**
   * Since when it asks for a compaction that no workflow is known to be at work on; null: it does not, or one is. The sweep
   * signals such a session.
   */
  overdue: string | null;
  /** An operator holds it: no compaction begins until it is resumed. */
  paused: boolean;
  exhausted: Exhausted | null;
  failures: number;
  retryAt: string | null;
  lastError: { type: string; message: string } | null;
  /** Patterns of stored pins that are not matched, and why. */
  skippedPins: SkippedPin[];
  rejectedTurns: SessionStatus['rejectedTurns'];
  policy: Policy;
  /** Every knob of the policy with its effective value and who set it. */
  knobs: PolicyRow[];
  /** Rises with every change of the policy or of the calibration in use. */
  policyVersion: number;
  /**
   * Provider's tokens for one of ours, and of a request beside its context: as learnt from reported usage of the policy's
   * model, from how many requests, and as the sizes above take them. `model` is '' where neither policy nor reports name
   * one. `warning`: a report of late that cannot be of its request, and changed nothing.
   */
  calibration: {
    model: string;
    factor: number;
    overhead: number;
    samples: number;
    applied: number;
    appliedOverhead: number;
    warning: string | null;
  };
}

/** What the context consists of, by the counts that its sizes are kept with. */
export interface SessionMemory {
  /** Of `tokens`. */
  breakdown: ContextBreakdown;
  /** Entries of `journal` mode, or the layers of `layered`; null in other modes. */
  journal: Journal | null;
  /**
   * Tokens of the first request after the newest commit, overhead included, and of them those that the request before began
   * with: a provider's prompt cache serves them. Null before the first commit, behind a restore, and where an earlier version
   * committed.
   */
  promptCache: { tokens: number; requestTokens: number } | null;
}

/** One committed generation, briefly. */
export interface SummaryRecord {
  generation: number;
  /** ISO 8601. */
  at: string;
  reason: string;
  method: 'model' | 'extractive' | 'none';
  /** The extractive summarizer served because the model could not, for all of it or for some chunks. */
  fallback: boolean;
  /** Chunks that it served. */
  chunksByRule: number;
  /** Messages it took out of the context; null where it took none. */
  range: { fromSeq: number; throughSeq: number } | null;
  tokensBefore: number;
  tokensAfter: number;
  /** Messages. */
  evicted: number;
  /** The snapshot's first 500 characters; null without one. */
  summary: string | null;
}

export interface ArchivedTool {
  callId: string;
  tool: string | null;
  seq: number;
  part: number;
  tokens: number;
}

export interface SessionRecords {
  /** When the first message behind the instructions was said, and the last of the log; null where nobody told. */
  said: { first: string | null; last: string | null };
  /** Newest first, at most 50. */
  summaryRecords: SummaryRecord[];
  /** Results of tools behind the head: how many, their tokens, and the newest, at most 50. */
  toolHistoryArchived: { count: number; tokens: number; newest: ArchivedTool[] };
  /** Compactions that put a summary in the place of messages. */
  summariesPerformed: number;
  /** Tokens of the messages they evicted. */
  tokensSummarized: number;
  /** First 500 characters of the present snapshot; null without one. */
  lastSummary: string | null;
}

/** The latest compaction could free no more; none is tried again before something new can be compacted. */
export interface Exhausted {
  atSeq: number;
  tokens: number;
  reason: string;
}

/** Why the latest attempt failed. `fallback`: the model's part did, and compactions go on without it until it may be asked again. */
export interface LastError {
  type: string;
  message: string;
  fallback?: boolean;
}

export interface Forked {
  session: string;
  /** Messages taken over, and the generation the fork begins with. */
  messages: number;
  generation: number;
  /** True when this very fork was made before; nothing was written now. */
  repeated: boolean;
}

export interface ForkRequest {
  /** Last message that the fork takes over. */
  throughSeq: number;
  /** Id of the new session. */
  to: string;
}

/** One session of a list, as its row has it: nothing of it is worked out, so that a page costs one statement. */
export interface ListedSession {
  session: string;
  format: FormatName;
  messages: number;
  turns: number;
  /** Context tokens and their budget. */
  tokens: number;
  budget: number;
  generation: number;
  exhausted: boolean;
  paused: boolean;
  lastError: { type: string; message: string } | null;
  closedAt: string | null;
  createdAt: string;
  updatedAt: string;
}

export interface Timeline {
  session: string;
  /** Context tokens now and at most; those at which the next measurement is due, null for none. */
  tokens: number;
  budget: number;
  measureAt: number | null;
  turns: TimelineTurn[];
  compactions: TimelineCompaction[];
}

export interface TimelineTurn {
  /** From 1. */
  turn: number;
  turnId: string;
  /** When it was stored. */
  at: string;
  /** When its first message was said; null where nobody told. */
  saidAt: string | null;
  fromSeq: number;
  throughSeq: number;
  /** Of the turn's messages. */
  tokens: number;
  /** Tokens of all messages up to here: what the context would be without compactions. */
  logTokens: number;
  /** Context tokens after this turn. */
  contextTokens: number;
}

export interface TimelineCompaction {
  generation: number;
  at: string;
  /** The turn behind which it was committed; 0 before the first. */
  turn: number;
  reason: string;
  method: string;
  tokensBefore: number;
  tokensAfter: number;
  evicted: number;
  /** Chunks, and those of them that the fallback served. */
  chunks: number;
  chunksByRule: number;
  part: number | null;
}
