/** Computes the cost of a whole session turn by turn, for comparison with the closed formulas of `src/limits`. */
import { PROMPT_TOKENS, type Cycle } from '../../src/limits/economics.js';
import type { Prices } from '../../src/policy/schema.js';

/** A session whose turns all have the same size. Sizes in tokens. */
interface ModelledSession extends Cycle {
  /** Reads of the context, each followed by one turn. */
  turns: number;
  /** Request overhead and leading system messages, which are always read from the cache and never evicted. */
  prefixTokens: number;
  /** Request size, prefix included, at which it is compacted; Infinity: never. */
  triggerTokens: number;
  /**
   * `fold` merges the previous snapshot with the evicted messages; `leaves` keeps summaries of chunks and merges them by rank.
   * @default 'fold'
   */
  summaries?: 'fold' | { chunkTokens: number; ratio: number; fanIn: number };
}

interface ModelledCost {
  compactions: number;
  /** These costs are in uncached input tokens of the agent's model. */
  reads: number;
  writes: number;
  summarizer: number;
  rework: number;
  total: number;
  /** Total cost per appended token. */
  perToken: number;
}

/**
 * Returns the cost of a whole session, turn by turn: each turn's context is read from the cache up to the first difference from
 * the context before, and written to the cache from there on. A context at the trigger is compacted in the background: the next
 * turn reads the prefix from the cache and writes head, tail and the appended messages.
 */
export function modelledCost(session: ModelledSession): ModelledCost {
  const { turns, turnTokens, prefixTokens, headTokens, tailTokens, triggerTokens } = session;
  const { read, write } = relationsOf(session.prices);
  const cost = { compactions: 0, reads: 0, writes: 0, summarizer: 0, rework: 0 };
  let context = prefixTokens;
  let cached = 0;
  let head = 0;
  for (let turn = 0; turn < turns; turn++) {
    context += turnTokens;
    cost.reads += read * cached;
    cost.writes += write * (context - cached);
    cached = context;
    const evicted = context - prefixTokens - head - tailTokens;
    if (context < triggerTokens || evicted <= 0) continue;
    cost.compactions += 1;
    cost.summarizer += summarizerCost(session, evicted, head);
    cost.rework += session.reworkTokens ?? 0;
    head = headTokens;
    context = prefixTokens + head + tailTokens;
    cached = prefixTokens;
  }
  const total = cost.reads + cost.writes + cost.summarizer + cost.rework;
  return { ...cost, total, perToken: total / Math.max(1, turns * turnTokens) };
}

/** Returns the cost of the summarizer for one compaction, in uncached input tokens of the agent's model. */
function summarizerCost(session: ModelledSession, evicted: number, head: number): number {
  const { summaries = 'fold', promptTokens = PROMPT_TOKENS, asksModel = true } = session;
  if (!asksModel) return 0;
  const { summarizerInput, summarizerOutput } = relationsOf(session.prices);
  const snapshot = session.snapshotTokens ?? session.headTokens;
  if (summaries === 'fold') {
    const previous = head > 0 ? snapshot : 0;
    return summarizerInput * (evicted + previous + promptTokens) + summarizerOutput * snapshot;
  }
  // The merges of the leaves form a geometric series with the ratio 1 / fanIn, spread over the chunks.
  const { chunkTokens, ratio, fanIn } = summaries;
  const chunks = evicted / chunkTokens;
  const leaf = ratio * chunkTokens;
  const merges = chunks / (fanIn - 1);
  const input = evicted + chunks * promptTokens + merges * (fanIn * leaf + promptTokens);
  return summarizerInput * input + summarizerOutput * (chunks + merges) * leaf;
}

/** Prices in units of one uncached input token of the agent's model. */
function relationsOf(prices: Prices) {
  const { input } = prices;
  return {
    read: prices.cachedInput / input,
    write: prices.cacheWrite / input,
    summarizerInput: prices.summarizerInput / input,
    summarizerOutput: prices.summarizerOutput / input,
  };
}
