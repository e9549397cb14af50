import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { Layer } from '../../summary/ask/layers.js';
import type { JournalRoom } from '../../summary/journal/room.js';
import type { TokenizerName } from '../../tokens/counter.js';

/**
 * Why a compaction runs. `reduce` commits reductions only and has no archive part; `resummarize` evicts nothing and has a
 * model rewrite the fallback's summary; `restore` restores an earlier generation; `redact` redacts the standing memory under another
 * redaction; `backfill` belongs to a backfill job.
 */
export type CompactionReason =
  'trigger' | 'manual' | 'idle' | 'reduce' | 'resummarize' | 'restore' | 'redact' | 'backfill';

export type Method = 'model' | 'extractive' | 'none';

/** The settings of every model call of one compaction, frozen at planning. */
export interface SummarizerSettings {
  model: string;
  tokenizer: TokenizerName;
  /** Tokens the summarizer reads and writes in one request. */
  window: number;
  chunkTokens: number;
  /** Maximum tokens of one chunk's digest. */
  digestTokens: number;
  /** Requested and maximum accepted tokens of the snapshot: models overrun a limit given in words. */
  snapshotTokens: number;
  snapshotCeiling: number;
  /** Tokens of digests and previous snapshot that one consolidation may read. */
  foldTokens: number;
  concurrency: number;
  depthLimit: number;
  deadlineMs: number;
  /**
   * Hash of the redaction rules; '' without rules. A plan depends on them, because its chunks refer to characters of redacted
   * messages.
   */
  redaction: string;
}

/** A message of the tail that is summarized separately: its beginning and end stay, a summary replaces its middle. */
export interface LargeMessage {
  seq: number;
  tokens: number;
  chunks: ChunkRef[];
}

/** Tokens of journal and state in `journal` mode. */
export interface JournalPlan extends JournalRoom {
  /** Requested tokens of the entry of each chunk, in order. */
  lengths: number[];
}

/** The plan of one compaction: references and sizes, no text, so that it may travel through Temporal. */
export interface Plan {
  baseGeneration: number;
  /** Incarnation of the planned session. Absent without a database, and in plans of earlier versions. */
  incarnation?: string;
  /** The policy that the plan follows. */
  policyVersion: number;
  reason: CompactionReason;
  method: Method;
  /** `layered` occurs in plans of earlier versions, which still run and produce a journal. */
  mode: 'journal' | 'incremental' | 'full_rewrite' | 'layered';
  /** First and last evicted message. If nothing is evicted, `throughSeq` is that of the base and `fromSeq` is one higher. */
  fromSeq: number;
  throughSeq: number;
  /**
   * Last message of the context at planning. Later messages do not count for the target; the next plan makes room for them.
   * Absent in plans of earlier versions, for which all messages count.
   */
  seenThroughSeq?: number;
  /** Seq of the request that the head carries, because the cut divides its run; null if the cut divides no run. */
  carriedSeq: number | null;
  /**
   * Chunks to read: the evicted range, preceded by messages that only the fallback has read, or in `full_rewrite` mode by the
   * whole archive. Empty unless `method` is `model`.
   */
  chunks: ChunkRef[];
  /** First message of `chunks`; `fromSeq` if no message is read again. */
  readFromSeq: number;
  /** The generation whose snapshot is merged with the chunks; null for a new summary. */
  foldGeneration: number | null;
  /** Tokens of the snapshot of the base; 0 without a snapshot. */
  previousTokens: number;
  /** `journal` mode: the existing entries, oldest first. */
  layers: Layer[];
  /** `journal` mode only. */
  journal?: JournalPlan;
  /** Reductions of this compaction: only the policy's reductions, or all reductions that help to reach the target. */
  reductions: 'policy' | 'all';
  /** Messages of the tail that are summarized separately. */
  messages: LargeMessage[];
  tokensBefore: number;
  evictedMessages: number;
  evictedTokens: number;
  /**
   * Whether the tail stays larger than its room, because one compaction may not evict more, or because the cut is at the end of
   * notes written ahead. If so, the next compaction continues, and this one may miss its target.
   */
  partial: boolean;
  /** The reason for planning without a model, such as cost or an earlier failure; a model may rewrite the summary later. */
  withoutModel: string | null;
  /** The operator's limits are the reason why no model is asked. Absent in plans of earlier versions. */
  beyondLimits?: boolean;
  summarizer: SummarizerSettings;
  fallback: 'extractive' | 'none';
}

export interface NothingToDo {
  /** The reason why there is nothing to do. */
  nothing: string;
  /** Whether no compaction helps until compactable messages arrive (invariant 9). */
  exhausted: boolean;
}

/** A generation in the head's chain of parents, as input of planning. */
export interface ChainLink {
  generation: number;
  /** Last seq that its head replaces. */
  throughSeq: number;
  snapshotTokens: number;
  /** Whether the fallback wrote its snapshot, a part of the snapshot, or an earlier snapshot that it is based on. */
  fallback: boolean;
  /** Whether a model read all or most of its evicted messages. */
  readByModel: boolean;
  layers: Layer[] | null;
  /** Tokens of the state; 0 without a state. */
  stateTokens: number;
}
