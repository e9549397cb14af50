/**
 * What compacting costs and saves. The model: an agent reads its whole context before every turn, the unchanged prefix
 * from the provider's cache; a compaction pays the summarizer, and head and tail are written to the cache anew. Reads grow
 * with the square of the distance between two compactions, compactions become rarer with it: between them lies an
 * optimum, as with the economic order quantity of storekeeping (Harris 1913), and the window has no part in it.
 */
import type { Prices } from '../policy/schema.js';

/** Ceiling for instructions and delimiters of one summarizer request, tokens. */
export const PROMPT_TOKENS = 1_000;

const PER_PRICE = 1_000_000;
/** Share of a chunk that messages fill; the rest are their labels and what no longer fits. */
const CHUNK_FILL = 0.95;
/** Beyond so many chunks a further one changes nothing that could be measured. */
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

/** Sizes of a session that is compacted again and again, tokens. */
export interface Cycle {
  prices: Prices;
  /** Appended per read of the context. */
  turnTokens: number;
  /** Head that a compaction leaves: snapshot, exact values, note. */
  headTokens: number;
  /** Tail that it leaves verbatim. */
  tailTokens: number;
  /** What the summarizer writes, and reads again the next time. @default headTokens; 0 where no model is asked */
  snapshotTokens?: number;
  /** Instructions of one summarizer request. @default 1,000 */
  promptTokens?: number;
  /** Tokens that the agent spends on finding again what a compaction took away. @default 0 */
  reworkTokens?: number;
  /** Whether a model writes the snapshot. @default true */
  asksModel?: boolean;
}

/**
 * What one compaction costs whatever it evicts, in uncached input tokens: `F = w(s + K) + κ(p₀ + s + o·s) + R`.
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
 * The cost-optimal growth between two compactions, tokens: `D* = √(2·t·F/ρ)`. Twice or half of it costs a quarter more of
 * what depends on it at all. Infinity where reading the cache is free.
 */
export function optimum(cycle: Cycle): number {
  const { read } = relationsOf(cycle.prices);
  return read === 0 ? Infinity : Math.sqrt((2 * cycle.turnTokens * fixedCost(cycle)) / read);
}

/** How the summarizer reads a range that does not fit one request, tokens. */
export interface Chunking {
  chunkTokens: number;
  digestTokens: number;
}

/**
 * The growth to aim at where a range beyond one chunk costs digests that are written and read again: `beyond` times the
 * optimum, or the largest multiple of a chunk below it that is cheaper. A turn more than planned still fits the last chunk.
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
 * The smallest request, overhead included, worth compacting first when the cache is cold: reading `x` tokens anew costs
 * `w·x`; compacting first costs `κ(x − P − K + p₀) + κ·o·s + w(P + s + K)`. Null where the summarizer's input is no
 * cheaper than writing the agent's cache: then nothing is.
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
  /** Money that each later read of the context is cheaper by, from the cache; relative without prices. */
  savedPerTurn: number;
  /** Money for the summarizer; null without prices. */
  cost: number | null;
  /** Reads of the context until that and the new head and tail in the cache are paid for; null: never. */
  paysBackAfter: number | null;
}

/**
 * What a committed compaction costs and when it has paid for itself. Sizes in tokens: of the context before and after, of
 * the head and tail that the provider has to read anew, and of all that was sent to and written by the summarizer.
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
  // Without the compaction they would have been read from the cache.
  const rewriting =
    (Math.max(0, prices.cacheWrite - prices.cachedInput) * (headTokens + tailTokens)) / PER_PRICE;
  const savedPerTurn = (prices.cachedInput * (tokensBefore - tokensAfter)) / PER_PRICE;
  return {
    savedPerTurn,
    cost: prices.currency === null ? null : summarizer,
    paysBackAfter: savedPerTurn > 0 ? Math.ceil((summarizer + rewriting) / savedPerTurn) : null,
  };
}

/**
 * Money that a planned compaction may cost at most, but for repairs and halved chunks: every chunk with its instructions
 * and its digest, then one consolidation that reads digests and previous snapshot. Relative without prices.
 */
export function estimateCost(plan: {
  prices: Prices;
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
