import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { Layer } from '../../summary/ask/layers.js';
import type { JournalRoom } from '../../summary/journal/room.js';
import type { TokenizerName } from '../../tokens/counter.js';

/**
 * Why a compaction runs. `reduce` holds reductions only and has no archive part; `resummarize` evicts nothing, but has
 * a model write what the fallback wrote; `restore` brings an earlier generation back; `backfill`: a job over many sessions.
 */
export type CompactionReason =
  'trigger' | 'manual' | 'idle' | 'reduce' | 'resummarize' | 'restore' | 'backfill';

export type Method = 'model' | 'extractive' | 'none';

/** The settings of every model call of one compaction, frozen at planning. */
export interface SummarizerSettings {
  model: string;
  tokenizer: TokenizerName;
  /** Tokens the summarizer reads and writes in one request. */
  window: number;
  chunkTokens: number;
  /** Most tokens of one chunk's digest. */
  digestTokens: number;
  /** Tokens asked of the consolidated snapshot, and the most that is accepted: models overrun a limit given in words. */
  snapshotTokens: number;
  snapshotCeiling: number;
  /** Tokens of digests and previous snapshot that one consolidation may read. */
  foldTokens: number;
  concurrency: number;
  depthLimit: number;
  deadlineMs: number;
  /** Hash of the redaction rules, '' for none: chunks name characters of messages without their secrets. */
  redaction: string;
}

/** A message of the tail that is summarized by itself: head and tail stay, a summary stands for what lies between. */
export interface LargeMessage {
  seq: number;
  tokens: number;
  chunks: ChunkRef[];
}

/** Tokens of the memory in `journal` mode. */
export interface JournalPlan extends JournalRoom {
  /** Asked of the entry of each chunk, in order. */
  lengths: number[];
}

/** The plan of one compaction: references and sizes, no text, so that it may travel through Temporal. */
export interface Plan {
  baseGeneration: number;
  /** Of the session as it was planned. Absent without a database, and in plans of earlier versions. */
  incarnation?: string;
  /** The policy that the plan follows. */
  policyVersion: number;
  reason: CompactionReason;
  method: Method;
  /** `layered` in plans of earlier versions: they are carried out, and leave a journal. */
  mode: 'journal' | 'incremental' | 'full_rewrite' | 'layered';
  /** First and last evicted message; `fromSeq` one above `throughSeq`, which is the base's own, where nothing is evicted. */
  fromSeq: number;
  throughSeq: number;
  /**
   * Last message of the context when it was planned: what came later counts neither for nor against the target, it is
   * the next plan's to make room for. Absent in plans of earlier versions: all are the plan's.
   */
  seenThroughSeq?: number;
  /** User message of the run the cut lies in, carried verbatim; null at a user boundary. */
  carriedSeq: number | null;
  /**
   * What is read anew: the evicted range, and before it what only the fallback has read, or in `full_rewrite` mode the
   * whole archive. Empty for `method` other than `model`.
   */
  chunks: ChunkRef[];
  /** First message of `chunks`; `fromSeq` where nothing is read twice. */
  readFromSeq: number;
  /** The generation whose snapshot is folded with what is read; null: none, the summary starts afresh. */
  foldGeneration: number | null;
  /** Tokens of that snapshot, 0 without one. */
  previousTokens: number;
  /** `journal` mode: the entries that stand before the new ones, oldest first. */
  layers: Layer[];
  /** `journal` mode only. */
  journal?: JournalPlan;
  /** Which reductions go with it: those that the policy asks for, or all that help to reach the target. */
  reductions: 'policy' | 'all';
  /** Messages of the tail to be summarized by themselves. */
  messages: LargeMessage[];
  tokensBefore: number;
  evictedMessages: number;
  evictedTokens: number;
  /** More could be evicted than one compaction takes: the next one goes on, and the target is not this one's. */
  partial: boolean;
  /** The model is left out because of money or an earlier failure; a model may redo it from the archive. */
  withoutModel: string | null;
  summarizer: SummarizerSettings;
  fallback: 'extractive' | 'none';
}

export interface NothingToDo {
  /** The reason. */
  nothing: string;
  /** Nothing will help until something compactable arrives (invariant 9). */
  exhausted: boolean;
}

/** A generation behind the head as planning sees it. */
export interface ChainLink {
  generation: number;
  /** Last seq that its head replaces. */
  throughSeq: number;
  snapshotTokens: number;
  /** The fallback wrote its snapshot, a part of it, or one that it goes back to. */
  fallback: boolean;
  /** A model read what it evicts, or most of it. */
  readByModel: boolean;
  layers: Layer[] | null;
  /** Tokens of the state; 0 without one. */
  stateTokens: number;
}
