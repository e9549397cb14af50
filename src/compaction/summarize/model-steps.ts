/** The model calls of one compaction, described by references to texts. Activities and sessions in memory carry them out. */
import type { ChunkRef } from '../../summary/ask/chunk.js';

/** A stored model result, by reference. */
export interface DigestRef {
  /** Content key of the stored text (hex sha256). */
  key: string;
  /** Tokens of the stored text. */
  tokens: number;
  /** Whether the result was stored before, so that no call was made. */
  cached: boolean;
  /** Unix milliseconds of the model call; both are equal if no call was made. */
  startedAt: number;
  endedAt: number;
  /** Type of the failure after which the rules wrote the text; absent if a model wrote it. */
  byRule?: string;
  /** Whether notes include the changes of the current state. */
  changesState?: boolean;
}

export interface ChunkStep {
  chunk: ChunkRef;
  /** Whether the only chunk is merged with the previous snapshot in the same request; the result is the new snapshot. */
  fold: boolean;
  foldGeneration: number | null;
  /** Maximum tokens of the answer. */
  maxTokens: number;
  /** Whether the rules write the digest, with a mark, if the model fails at this chunk permanently. Absent in steps of earlier versions. */
  rulesServe?: boolean;
  /** `journal` mode: requests notes. */
  notes?: NotesStep;
}

/** The material in addition to a chunk, by reference. */
export interface NotesStep {
  /** The previous entry: its last message, and its key if it is already written; null at the beginning of the session. */
  before: { throughSeq: number; key: string | null } | null;
  /** First message that stays in the context; null if other chunks follow. */
  followsFromSeq: number | null;
  /** Tokens of the state if the same answer includes its changes; otherwise null. */
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
  /** Tokens of the originals that the digests cover. */
  coveredTokens: number;
  /** Whether this is the root of the tree, which also merges the previous snapshot; the result is the new snapshot. */
  root: boolean;
  foldGeneration: number | null;
  maxTokens: number;
  /** `journal` mode: the digests are notes. */
  notes?: boolean;
  /** Whether the rules merge notes if the model fails at them permanently. Absent in steps of earlier versions. */
  rulesServe?: boolean;
}

/** The model's interface for `summarize`. `label` is shown to operators. */
export interface ModelSteps {
  readChunk(step: ChunkStep, label: string): Promise<DigestRef>;
  merge(step: MergeStep, label: string): Promise<DigestRef>;
  /** Null if the model fails permanently; the state then stays unchanged. */
  changeState(step: StateStep, label: string): Promise<DigestRef | null>;
  /** Null unless the error is an overflow. Otherwise the halves of the chunk that did not fit; `halves` is null if it cannot be halved. */
  overflow(error: unknown): { halves: [ChunkRef, ChunkRef] | null } | null;
  /** Creates a failure that is not retried; if the model failed at all chunks, `type` is the type of their failures. */
  failed(type: string, message: string): Error;
}

/** Progress of the model calls, shown to operators. */
export interface Progress {
  chunk(index: number, of: number, tokensIn: number, tokensOut: number): void;
  consolidating(digests: number, depth: number): void;
}

/** Unix milliseconds of the model calls of these digests. */
export function spansOf(digests: readonly DigestRef[]): [from: number, to: number][] {
  const asked = digests.filter(({ startedAt, endedAt }) => endedAt > startedAt);
  return asked.map(({ startedAt, endedAt }) => [startedAt, endedAt]);
}
