import { z } from 'zod';

const price = z.number().min(0);

/** `policy.prices`: money per million tokens. What is left out follows from `input` by the relations of current providers. */
export const pricesSchema = z.strictObject({
  currency: z.string().min(1).max(10).optional().describe('Name of the money. Default `USD`.'),
  input: price
    .gt(0)
    .optional()
    .describe("Agent's model: uncached input, per million tokens. Default 1, without a currency."),
  cachedInput: price.optional().describe('Input read from the cache. Default 0.1 · input.'),
  cacheWrite: price.optional().describe('Input written to the cache. Default 1.25 · input.'),
  output: price.optional().describe('Output. Default 5 · input.'),
  summarizerInput: price.optional().describe("Summarizer's input. Default input."),
  summarizerOutput: price.optional().describe("Summarizer's output. Default 5 · summarizerInput."),
});

/** `policy.spend`: most money for summaries; beyond it the extractive summarizer serves. Needs `prices.input`. */
export const spendSchema = z.strictObject({
  perCompaction: price
    .optional()
    .describe('Most money that one compaction may be planned to cost. Default none.'),
  perSession: price.optional().describe('Most money for all compactions of a session. Default none.'),
});

/** Prices per million tokens. `currency` null: nothing was given, and the numbers are relations only. */
export interface Prices {
  currency: string | null;
  input: number;
  cachedInput: number;
  cacheWrite: number;
  output: number;
  summarizerInput: number;
  summarizerOutput: number;
}

export function resolvePrices(given: z.infer<typeof pricesSchema> = {}): Prices {
  const input = given.input ?? 1;
  const summarizerInput = given.summarizerInput ?? input;
  return {
    currency: given.input === undefined ? null : (given.currency ?? 'USD'),
    input,
    cachedInput: given.cachedInput ?? 0.1 * input,
    cacheWrite: given.cacheWrite ?? 1.25 * input,
    output: given.output ?? 5 * input,
    summarizerInput,
    summarizerOutput: given.summarizerOutput ?? 5 * summarizerInput,
  };
}

export interface Spend {
  perCompaction: number | null;
  perSession: number | null;
}
