/** The questions of one compaction to a model, by references only: the same as activities and in memory. */
import type { ChunkRef } from '../../summary/ask/chunk.js';

/** A stored model result, by reference. */
export interface DigestRef {
  /** Content key of the stored text (hex sha256). */
  key: string;
  /** Tokens of the stored text. */
  tokens: number;
  /** True when it was there already and nothing was paid. */
  cached: boolean;
  /** Unix milliseconds of the model call; equal where none was made. */
  startedAt: number;
  endedAt: number;
  /** Type of the failure for which the rules wrote it; absent where a model did. */
  byRule?: string;
  /** Of notes: it holds the changes of the present state too. */
  changesState?: boolean;
}

export interface ChunkStep {
  chunk: ChunkRef;
  /** The whole reading fits one request: fold it with the previous snapshot right away, the result is the new snapshot. */
  fold: boolean;
  foldGeneration: number | null;
  /** Tokens of the answer at most. */
  maxTokens: number;
  /** The rules make the digest, and mark it, where the model fails at this chunk for good. Absent in steps of earlier versions. */
  rulesServe?: boolean;
  /** `journal` mode: notes are asked for. */
  notes?: NotesStep;
}

/** The material beside a chunk, by reference. */
export interface NotesStep {
  /** The entry before: its last message, and its key where it is written already; null at the beginning of the session. */
  before: { throughSeq: number; key: string | null } | null;
  /** First message that stays in the context; null where other chunks follow. */
  followsFromSeq: number | null;
  /** Tokens of the state, where its changes are asked for in the same answer; otherwise null. */
  stateTokens: number | null;
}

/** The changes that notes make to the state of the parent generation. */
export interface StateStep {
  /** Keys of the new notes, in order. */
  digests: string[];
  followsFromSeq: number;
  maxTokens: number;
}

export interface MergeStep {
  /** Keys of neighbouring digests, in the order of the log. */
  digests: string[];
  /** Tokens of the originals that they stand for. */
  coveredTokens: number;
  /** The root of the tree: folds the previous snapshot too, its result is the new snapshot. */
  root: boolean;
  foldGeneration: number | null;
  maxTokens: number;
  /** `journal` mode: the digests are notes. */
  notes?: boolean;
  /** The rules merge notes at which the model fails for good. Absent in steps of earlier versions. */
  rulesServe?: boolean;
}

/** The model as `summarize` sees it. `label` is shown to operators. */
export interface ModelSteps {
  readChunk(step: ChunkStep, label: string): Promise<DigestRef>;
  merge(step: MergeStep, label: string): Promise<DigestRef>;
  /** Null where the model fails at it for good: the state stays as it is. */
  changeState(step: StateStep, label: string): Promise<DigestRef | null>;
  /** Null for any other error than an overflow. Otherwise the halves of the chunk that did not fit; null inside where it cannot be halved. */
  overflow(error: unknown): { halves: [ChunkRef, ChunkRef] | null } | null;
  /** A failure that no retry helps; `type` is the one of each chunk's own where the model failed at all of them. */
  failed(type: string, message: string): Error;
}

/** Progress shown to operators while the model is at work. */
export interface Progress {
  chunk(index: number, of: number, tokensIn: number, tokensOut: number): void;
  consolidating(digests: number, depth: number): void;
}

/** Unix milliseconds of each model call behind these. */
export function spansOf(digests: readonly DigestRef[]): [from: number, to: number][] {
  const asked = digests.filter(({ startedAt, endedAt }) => endedAt > startedAt);
  return asked.map(({ startedAt, endedAt }) => [startedAt, endedAt]);
}
