import type { Head, Reduction } from '../../context/view/view.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { Coverage } from '../../summary/coverage.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import type { CompactionReason, Method } from '../plan/plan-types.js';

/** One committed compaction. */
export interface Generation {
  generation: number;
  parent: number;
  reason: CompactionReason;
  method: Method;
  fallback: boolean;
  /** Evicted range; empty (`throughSeq < fromSeq`) if only reductions were committed. */
  fromSeq: number;
  throughSeq: number;
  carriedSeq: number | null;
  snapshot: string | null;
  ledger: string | null;
  head: Head | null;
  layers: KeptLayer[] | null;
  /** `journal` mode: rules, requests and questions in force. */
  state: string | null;
  pinned: string[];
  reductions: Reduction[];
  coverage: Coverage[];
  chunks: ChunkRef[];
  /** Number of texts that the rules wrote because the model failed at them. */
  chunksByRule: number;
  /** Number of evicted messages. */
  evicted: number;
  tokensBefore: number;
  tokensAfter: number;
  /** Tokens of the unchanged beginning of the previous context; null for a restore. */
  cachedTokens: number | null;
  /** Number of archive parts along the chain of parents. */
  parts: number;
  /** The model calls of the compaction and their counted tokens. */
  calls: { kind: string; key: string; inputTokens: number; outputTokens: number }[];
}

/** The first generation of every conversation, which replaces nothing. */
export const genesis: Generation = {
  generation: 0,
  parent: 0,
  reason: 'restore',
  method: 'none',
  fallback: false,
  fromSeq: 1,
  throughSeq: 0,
  carriedSeq: null,
  snapshot: null,
  ledger: null,
  head: null,
  layers: null,
  state: null,
  pinned: [],
  reductions: [],
  coverage: [],
  chunks: [],
  chunksByRule: 0,
  evicted: 0,
  tokensBefore: 0,
  tokensAfter: 0,
  cachedTokens: null,
  parts: 0,
  calls: [],
};

/** The newest generation and its chain of parents, newest first, without the genesis. */
export function chainOf(generations: readonly Generation[]): Generation[] {
  const links: Generation[] = [];
  for (let at = generations.length; at > 0; at = links.at(-1)!.parent) links.push(generations[at - 1]!);
  return links;
}
