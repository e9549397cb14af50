import { MESSAGE_LABEL_TOKENS } from '../../summary/ask/chunk.js';
import type { Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/defaults.js';

/** The expected outcome of a compaction, estimated from sizes alone. */
export interface EstimatedCompaction {
  tokensAfter: number;
  modelCalls: number;
  modelInputTokens: number;
  /** The estimate assumes answers of maximum length. */
  modelOutputTokens: number;
  /** Null if the policy has no prices. */
  cost: number | null;
}

/** Usual size of a head as a share of its ceiling: measured models write about half of the allowed length. */
const headShare = 0.6;

/** Estimates compacting a session of this size. */
export function estimateCompaction(
  policy: Policy,
  limits: Limits,
  { tokens, messages }: { tokens: number; messages: number },
  asksModel: boolean,
): EstimatedCompaction {
  const mean = tokens / Math.max(1, messages);
  const tail = Math.min(
    tokens,
    limits.tailTarget,
    limits.keepTokens ?? Infinity,
    limits.keepMessages === null ? Infinity : limits.keepMessages * mean,
  );
  const evicted = Math.max(0, tokens - tail);
  const head = Math.min(limits.headMax, limits.noteTokens + evicted / 2) * headShare + limits.pinTokens;
  const tokensAfter = Math.round(Math.min(tokens, tail + head));
  if (!asksModel || evicted === 0)
    return { tokensAfter, modelCalls: 0, modelInputTokens: 0, modelOutputTokens: 0, cost: costOf(0, 0) };

  const { chunkTokens, maxTokens, promptTokens } = limits.summarizer;
  const transcript = evicted + (evicted / mean) * MESSAGE_LABEL_TOKENS;
  const chunks = Math.max(1, Math.ceil(transcript / chunkTokens));
  const digest = Math.min(maxTokens, Math.max(128, Math.floor(chunkTokens / 4)));
  const calls = chunks === 1 ? 1 : chunks + 1;
  const digests = chunks === 1 ? 0 : chunks * digest;
  const input = Math.round(transcript + calls * promptTokens + digests);
  const output = digests + maxTokens;
  return {
    ...{ tokensAfter, modelCalls: calls, modelInputTokens: input, modelOutputTokens: output },
    cost: costOf(input, output),
  };

  function costOf(inputTokens: number, outputTokens: number): number | null {
    const { currency, summarizerInput, summarizerOutput } = policy.prices;
    if (currency === null) return null;
    return (summarizerInput * inputTokens + summarizerOutput * outputTokens) / 1_000_000;
  }
}
