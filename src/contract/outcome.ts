/** One committed compaction in numbers; the row in Postgres holds the same and the texts. */
export interface CompactionOutcome {
  generation: number;
  reason: string;
  method: string;
  tokensBefore: number;
  tokensAfter: number;
  evicted: number;
  chunks: number;
  /** Chunks that the fallback served, because the model failed at them. */
  chunksByRule: number;
  modelCalls: number;
  modelInputTokens: number;
  modelOutputTokens: number;
  /** Milliseconds in which at least one model call was in flight / the rest of the compaction's wall time. */
  modelMs: number;
  overheadMs: number;
  archivePart: number | null;
  /** Tokens by which every later context read is smaller. */
  savedPerTurn: number;
  /**
   * Of `tokensAfter`: the beginning that the context had before as well, which a provider's prompt cache still serves; null for
   * a restore, and for what earlier versions committed.
   */
  cachedTokens: number | null;
  /** Money for the summarizer; null without prices. */
  cost: number | null;
  currency: string | null;
  /** Later context reads after which it has paid for itself, the cache writes of the new head included; null: never. */
  paysBackAfter: number | null;
  workflowId: string;
  runId: string;
}
