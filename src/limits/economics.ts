/**
 * Costs and savings of compactions. The model: an agent reads its whole context before every turn and takes the unchanged
 * prefix from the provider's cache; a compaction pays the summarizer and writes head and tail to the cache again. The cost of
 * reads grows with the square of the distance between two compactions, while the number of compactions falls with it. The
 * optimum corresponds to the economic order quantity (Harris 1913) and does not depend on the window.
 */
import type { Prices } from '../policy/schema.js';

/** Ceiling for instructions and delimiters of one summarizer request, tokens. */
export const PROMPT_TOKENS = 1_000;

const PER_PRICE = 1_000_000;
/** Share of a chunk that messages fill; the rest is labels and unused room. */
const CHUNK_FILL = 0.95;
/** Nobody reads a context more often than the database can count. */
const MOST_READS = 2 ** 31 - 1;
/** Further chunks make no measurable difference. */
const MOST_CHUNKS = 100;

/** Prices in units of one uncached input token of the agent's model. */
interface Relations {
  read: number;
  write: number;
  summarizerInput: number;
  summarizerOutput: number;
}

function relationsOf(prices: Prices): Relations {
  const { input } = prices;
  return {
    read: prices.cachedInput / input,
    write: prices.cacheWrite / input,
    summarizerInput: prices.summarizerInput / input,
    summarizerOutput: prices.summarizerOutput / input,
  };
}

/** Sizes of a session that is compacted repeatedly, in tokens. */
export interface Cycle {
  prices: Prices;
  /** Tokens appended per read of the context. */
  turnTokens: number;
  /** Head after a compaction: snapshot, exact values, note. */
  headTokens: number;
  /** Tail that a compaction keeps verbatim. */
  tailTokens: number;
  /** Tokens that the summarizer writes, and reads at the next compaction. @default headTokens; 0 if no model is asked */
  snapshotTokens?: number;
  /** Instructions of one summarizer request. @default 1,000 */
  promptTokens?: number;
  /** Tokens that the agent spends on recovering evicted messages. @default 0 */
  reworkTokens?: number;
  /** Whether a model writes the snapshot. @default true */
  asksModel?: boolean;
}

/**
 * The cost of a compaction independent of the evicted messages, in uncached input tokens: `F = w(s + K) + κ(p₀ + s + o·s) + R`.
 * @internal A test compares it with a sum over turns.
 */
export function fixedCost(cycle: Cycle): number {
  const { write, summarizerInput, summarizerOutput } = relationsOf(cycle.prices);
  const { headTokens, tailTokens, promptTokens = PROMPT_TOKENS, reworkTokens = 0, asksModel = true } = cycle;
  const snapshot = cycle.snapshotTokens ?? headTokens;
  const summarizer = summarizerInput * (promptTokens + snapshot) + summarizerOutput * snapshot;
  return write * (headTokens + tailTokens) + (asksModel ? summarizer : 0) + reworkTokens;
}

/**
 * The cost-optimal growth between two compactions, in tokens: `D* = √(2·t·F/ρ)`. Twice or half this growth raises the part
 * of the cost that depends on it by a quarter. Infinity if reading the cache is free.
 */
export function optimum(cycle: Cycle): number {
  const { read } = relationsOf(cycle.prices);
  return read === 0 ? Infinity : Math.sqrt((2 * cycle.turnTokens * fixedCost(cycle)) / read);
}

/** Sizes of chunks and digests for a range that does not fit one request, in tokens. */
export interface Chunking {
  chunkTokens: number;
  digestTokens: number;
}

/**
 * The growth to plan: `beyond` times the optimum, or a smaller multiple of a chunk if that is cheaper, because a range beyond
 * one chunk costs digests, which are written and read again. The last chunk has room for one turn more than planned.
 */
export function chunkedGrowth(cycle: Cycle, { chunkTokens, digestTokens }: Chunking, beyond: number): number {
  const aim = beyond * optimum(cycle);
  const { asksModel = true, turnTokens, promptTokens = PROMPT_TOKENS } = cycle;
  const chunk = CHUNK_FILL * chunkTokens - turnTokens;
  if (!asksModel || aim <= chunk || chunk <= 0 || aim === Infinity) return aim;
  const { read, summarizerInput, summarizerOutput } = relationsOf(cycle.prices);
  const digest = summarizerInput * (promptTokens + digestTokens) + summarizerOutput * digestTokens;
  const fixed = fixedCost(cycle);
  const perToken = (growth: number, chunks: number) =>
    (read * growth) / (2 * turnTokens) + (fixed + (chunks === 1 ? 0 : chunks * digest)) / growth;
  let best = { growth: aim, cost: perToken(aim, Math.ceil(aim / chunk)) };
  for (let chunks = 1; chunks * chunk < aim && chunks <= MOST_CHUNKS; chunks++) {
    const cost = perToken(chunks * chunk, chunks);
    if (cost < best.cost) best = { growth: chunks * chunk, cost };
  }
  return best.growth;
}

/**
 * The smallest request, including the overhead, for which compacting first pays if the cache is cold: reading `x` tokens
 * again costs `w·x`; compacting first costs `κ(x − P − K + p₀) + κ·o·s + w(P + s + K)`. Null if the summarizer's input is not
 * cheaper than writing the agent's cache; in this case compacting first never pays.
 */
export function coldCacheSize(cycle: Cycle & { overheadTokens: number }): number | null {
  const { write, summarizerInput, summarizerOutput } = relationsOf(cycle.prices);
  const { headTokens, tailTokens, overheadTokens, promptTokens = PROMPT_TOKENS, asksModel = true } = cycle;
  const after = overheadTokens + headTokens + tailTokens;
  if (!asksModel) return write > 0 ? after : null;
  if (summarizerInput >= write) return null;
  const snapshot = cycle.snapshotTokens ?? headTokens;
  const summarizer =
    summarizerInput * (promptTokens - overheadTokens - tailTokens) + summarizerOutput * snapshot;
  return Math.max(after, (write * after + summarizer) / (write - summarizerInput));
}

export interface CompactionEconomics {
  /** Money saved by each later read of the context from the cache; a ratio without prices. */
  savedPerTurn: number;
  /** Money paid for the summarizer; null without prices. */
  cost: number | null;
  /** Reads of the context until the savings cover the summarizer and the cache writes of head and tail; null: never. */
  paysBackAfter: number | null;
}

/**
 * The cost of a committed compaction and the number of reads after which it has paid for itself. Sizes in tokens: the context
 * before and after, the head and tail that the provider must read again, and the summarizer's input and output.
 */
export function economicsOf(given: {
  prices: Prices;
  tokensBefore: number;
  tokensAfter: number;
  headTokens: number;
  tailTokens: number;
  inputTokens: number;
  outputTokens: number;
}): CompactionEconomics {
  const { prices, tokensBefore, tokensAfter, headTokens, tailTokens, inputTokens, outputTokens } = given;
  const summarizer =
    (prices.summarizerInput * inputTokens + prices.summarizerOutput * outputTokens) / PER_PRICE;
  // Without the compaction, head and tail would have been read from the cache.
  const rewriting =
    (Math.max(0, prices.cacheWrite - prices.cachedInput) * (headTokens + tailTokens)) / PER_PRICE;
  const savedPerTurn = (prices.cachedInput * (tokensBefore - tokensAfter)) / PER_PRICE;
  const reads = Math.ceil((summarizer + rewriting) / savedPerTurn);
  return {
    savedPerTurn,
    cost: prices.currency === null ? null : summarizer,
    paysBackAfter: savedPerTurn > 0 && reads <= MOST_READS ? reads : null,
  };
}

/**
 * The maximum cost of a planned compaction, without repairs and halved chunks: every chunk with its instructions and its
 * digest, then one consolidation that reads the digests and the previous snapshot. A ratio without prices.
 */
export function estimateCost(plan: {
  prices: Pick<Prices, 'summarizerInput' | 'summarizerOutput'>;
  evictedTokens: number;
  chunkTokens: number;
  digestTokens: number;
  snapshotTokens: number;
}): number {
  const { prices, evictedTokens, chunkTokens, digestTokens, snapshotTokens } = plan;
  const chunks = Math.max(1, Math.ceil(evictedTokens / chunkTokens));
  const digests = chunks === 1 ? 0 : chunks * digestTokens;
  const consolidations = chunks === 1 ? 0 : 1;
  const input = evictedTokens + (chunks + consolidations) * PROMPT_TOKENS + digests + snapshotTokens;
  const output = digests + snapshotTokens;
  return (prices.summarizerInput * input + prices.summarizerOutput * output) / PER_PRICE;
}
