/**
 * The cost model: costs and savings of a compaction, and the cheapest growth between two compactions. Its figures are those of
 * the published derivation (prices: cache reads 0.1, cache writes 1.25, output 5 times the input).
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  chunkedGrowth,
  coldCacheSize,
  economicsOf,
  estimateCost,
  fixedCost,
  optimum,
  PROMPT_TOKENS,
} from '../../../src/limits/economics.js';
import { resolvePrices } from '../../../src/policy/schema.js';
import { modelledCost } from '../../support/modelled-session.js';

const prices = resolvePrices();
const cycle = { prices, turnTokens: 1_500, headTokens: 3_000, tailTokens: 10_000 };
const session = { ...cycle, turns: 1_000, prefixTokens: 10_000 };

describe('the optimal growth', () => {
  test('depends only on turn, head, tail and prices', () => {
    expect(fixedCost(cycle)).toBe(1.25 * 13_000 + 1_000 + 3_000 + 5 * 3_000);
    expect(optimum(cycle)).toBeCloseTo(32_519, 0);
  });

  test('grows with rework and with the root of the turn, and shrinks without model costs', () => {
    expect(optimum({ ...cycle, reworkTokens: 17_500 })).toBeGreaterThan(optimum(cycle));
    expect(optimum({ ...cycle, turnTokens: 6_000 })).toBeCloseTo(2 * optimum(cycle), 6);
    expect(optimum({ ...cycle, asksModel: false })).toBeLessThan(optimum(cycle));
    expect(fixedCost({ ...cycle, snapshotTokens: 1_000 })).toBe(1.25 * 13_000 + 2_000 + 5_000);
  });

  test('is infinite if cache reads are free, and far smaller without a cache', () => {
    expect(optimum({ ...cycle, prices: resolvePrices({ input: 1, cachedInput: 0 }) })).toBe(Infinity);
    const uncached = resolvePrices({ input: 1, cachedInput: 1, cacheWrite: 1 });
    expect(optimum({ ...cycle, prices: uncached })).toBeLessThan(12_000);
  });

  test('depends on the relations of prices, not on the currency’s unit', () => {
    const dear = resolvePrices({ input: 300 });
    expect(optimum({ ...cycle, prices: dear })).toBeCloseTo(optimum(cycle), 6);
  });

  test('lies within 5 % of the cheapest trigger of the modelled session, for short and long turns and sessions', () => {
    for (const turnTokens of [500, 1_500, 5_000]) {
      for (const turns of [200, 1_000]) {
        const one = { ...session, turns, turnTokens, tailTokens: 6 * turnTokens };
        const after = one.prefixTokens + one.headTokens + one.tailTokens;
        const at = (growth: number) => modelledCost({ ...one, triggerTokens: after + growth }).perToken;
        const sweep = Array.from({ length: 80 }, (_, step) => at((0.1 + step / 20) * optimum(one)));
        expect(at(optimum(one))).toBeLessThan(1.05 * Math.min(...sweep));
        expect(at(1.15 * optimum(one))).toBeLessThan(1.05 * Math.min(...sweep));
      }
    }
  });
});

describe('the growth with a summarizer that reads in chunks', () => {
  const long = { ...cycle, turnTokens: 5_000, tailTokens: 20_000, snapshotTokens: 2_000 };

  test('is the requested one if that fits a chunk, or no model is called', () => {
    const chunking = { chunkTokens: 200_000, digestTokens: 2_000 };
    expect(chunkedGrowth(long, chunking, 1.15)).toBe(1.15 * optimum(long));
    const none = { ...long, asksModel: false };
    expect(chunkedGrowth(none, { chunkTokens: 8_000, digestTokens: 500 }, 1.15)).toBe(1.15 * optimum(none));
  });

  test('is a number of whole chunks if more would cost digests, and close to the requested one if digests are short', () => {
    const one = chunkedGrowth(cycle, { chunkTokens: 32_000, digestTokens: 2_000 }, 1.15);
    expect(one).toBeCloseTo(0.95 * 32_000 - 1_500, 6);
    const short = chunkedGrowth(long, { chunkTokens: 12_000, digestTokens: 10 }, 1.15);
    expect(short).toBeGreaterThan(0.8 * optimum(long));
  });

  test('never exceeds the requested one, whatever the prices', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0, max: 5, noNaN: true }),
        fc.integer({ min: 256, max: 64_000 }),
        fc.integer({ min: 1, max: 60_000 }),
        (cachedInput, chunkTokens, turnTokens) => {
          const given = { ...long, turnTokens, prices: resolvePrices({ input: 1, cachedInput }) };
          const growth = chunkedGrowth(given, { chunkTokens, digestTokens: 1_000 }, 1.15);
          expect(growth).toBeGreaterThan(0);
          expect(growth).toBeLessThanOrEqual(1.15 * optimum(given));
        },
      ),
    );
  });
});

describe('a modelled session', () => {
  test.each([
    [55_500, 5.84],
    [88_000, 6.36],
    [100_000, 6.72],
    [167_000, 8.58],
    [180_000, 8.96],
  ])('compacted at %i tokens costs %d input tokens by appended token', (triggerTokens, expected) => {
    expect(modelledCost({ ...session, triggerTokens }).perToken).toBeCloseTo(expected, 2);
  });

  test('without compaction costs what its closed form says, quadratic in its length', () => {
    const { turns, turnTokens, prefixTokens } = session;
    const { reads, writes, compactions } = modelledCost({ ...session, triggerTokens: Infinity });
    expect(compactions).toBe(0);
    expect(writes).toBeCloseTo(1.25 * (prefixTokens + turns * turnTokens), 3);
    const closed = prefixTokens * (turns - 1) + (turnTokens * turns * (turns - 1)) / 2;
    expect(reads).toBeCloseTo(0.1 * closed, 3);
  });

  test('compacts as often as the closed form says', () => {
    const triggerTokens = 55_500;
    const first = Math.ceil((triggerTokens - session.prefixTokens) / session.turnTokens);
    const growth = triggerTokens - session.prefixTokens - session.headTokens - session.tailTokens;
    const each = Math.ceil(growth / session.turnTokens);
    const expected = 1 + Math.floor((session.turns - first) / each);
    expect(modelledCost({ ...session, triggerTokens }).compactions).toBe(expected);
  });

  test('with chunk summaries merged by rank costs in proportion to the evicted tokens, not to the number of compactions', () => {
    const summaries = { chunkTokens: 16_000, ratio: 0.05, fanIn: 4 };
    const often = modelledCost({ ...session, triggerTokens: 30_000, summaries });
    const seldom = modelledCost({ ...session, triggerTokens: 120_000, summaries });
    const perEvicted = 1 + (PROMPT_TOKENS / 16_000 + 0.05 * 5) * (4 / 3) + (0.05 / 3) * 1;
    expect(often.compactions).toBeGreaterThan(5 * seldom.compactions);
    expect(often.summarizer / (session.turns * session.turnTokens)).toBeGreaterThan(0.9 * perEvicted);
    expect(often.summarizer).toBeLessThan(1.15 * seldom.summarizer);
    expect(modelledCost({ ...session, triggerTokens: 55_500, summaries }).perToken).toBeCloseTo(5.7, 1);
  });

  test('adds up, and is never cheaper for a dearer price', () => {
    fc.assert(
      fc.property(
        fc.record({
          turns: fc.integer({ min: 1, max: 300 }),
          turnTokens: fc.integer({ min: 1, max: 20_000 }),
          triggerTokens: fc.integer({ min: 1_000, max: 500_000 }),
          cachedInput: fc.double({ min: 0, max: 2, noNaN: true }),
        }),
        ({ turns, turnTokens, triggerTokens, cachedInput }) => {
          const cost = (read: number) =>
            modelledCost({
              ...session,
              ...{ turns, turnTokens, triggerTokens },
              prices: resolvePrices({ input: 1, cachedInput: read }),
            });
          const one = cost(cachedInput);
          expect(one.reads + one.writes + one.summarizer + one.rework).toBeCloseTo(one.total, 6);
          expect(cost(cachedInput + 0.1).total).toBeGreaterThanOrEqual(one.total);
        },
      ),
    );
  });
});

describe('a cold cache', () => {
  test.each([
    [0.2, 26_619],
    [0.33, 29_815],
    [1, 99_000],
  ])('with a summarizer at %d of the agent’s price is worth compacting from %i tokens', (relation, size) => {
    const cheap = resolvePrices({ summarizerInput: relation });
    expect(coldCacheSize({ ...cycle, prices: cheap, overheadTokens: 10_000 })).toBeCloseTo(size, -1);
  });

  test("is not worth compacting if the summarizer's reads cost as much as the agent's cache writes", () => {
    const dear = resolvePrices({ summarizerInput: 1.25 });
    expect(coldCacheSize({ ...cycle, prices: dear, overheadTokens: 10_000 })).toBeNull();
    expect(coldCacheSize({ ...cycle, asksModel: false, overheadTokens: 10_000 })).toBe(23_000);
  });

  test('at that size costs the same either way', () => {
    const cheap = resolvePrices({ summarizerInput: 0.2 });
    const size = coldCacheSize({ ...cycle, prices: cheap, overheadTokens: 10_000 }) ?? 0;
    const asIs = 1.25 * size;
    const compacted = 0.2 * (size - 20_000 + PROMPT_TOKENS) + 0.2 * 5 * 3_000 + 1.25 * 23_000;
    expect(asIs).toBeCloseTo(compacted, 6);
  });
});

describe('a committed compaction', () => {
  const given = {
    tokensBefore: 100_000,
    tokensAfter: 20_000,
    headTokens: 3_000,
    tailTokens: 17_000,
    inputTokens: 85_000,
    outputTokens: 2_000,
  };

  test('costs the summarizer’s tokens, saves cache reads, and pays back once the new prefix is paid for, too', () => {
    const paid = resolvePrices({ input: 3, summarizerInput: 0.15, summarizerOutput: 0.6 });
    const { cost, savedPerTurn, paysBackAfter } = economicsOf({ ...given, prices: paid });
    expect(cost).toBeCloseTo((0.15 * 85_000 + 0.6 * 2_000) / 1e6, 9);
    expect(savedPerTurn).toBeCloseTo((0.3 * 80_000) / 1e6, 9);
    const rewriting = ((3.75 - 0.3) * 20_000) / 1e6;
    expect(paysBackAfter).toBe(Math.ceil(((cost ?? 0) + rewriting) / savedPerTurn));
  });

  test('has no cost in money without prices, but still a number of turns', () => {
    const { cost, paysBackAfter } = economicsOf({ ...given, prices });
    expect(cost).toBeNull();
    expect(paysBackAfter).toBe(Math.ceil((85_000 + 10_000 + 1.15 * 20_000) / 8_000));
  });

  test('never pays back if nothing is saved, or if cache reads are free', () => {
    expect(economicsOf({ ...given, prices, tokensAfter: 100_000 }).paysBackAfter).toBeNull();
    const free = resolvePrices({ input: 1, cachedInput: 0 });
    expect(economicsOf({ ...given, prices: free }).paysBackAfter).toBeNull();
  });
});

test('prices of any size give a number of reads that the database can hold, or none', () => {
  const price = fc.double({ min: 0, max: 1_000_000, noNaN: true });
  fc.assert(
    fc.property(
      fc.double({ min: Number.MIN_VALUE, max: Number.MAX_VALUE, noNaN: true }),
      fc.record({ cachedInput: price, cacheWrite: price, summarizerInput: price }, { requiredKeys: [] }),
      (input, others) => {
        const sizes = { tokensBefore: 900, tokensAfter: 500, headTokens: 100, tailTokens: 200 };
        const { paysBackAfter } = economicsOf({
          ...sizes,
          prices: resolvePrices({ input, ...others }),
          inputTokens: 10_000,
          outputTokens: 500,
        });
        expect(paysBackAfter === null || (paysBackAfter >= 0 && paysBackAfter < 2 ** 31)).toBe(true);
      },
    ),
  );
  const dear = { ...resolvePrices({ input: 1e308 }) };
  const sizes = {
    tokensBefore: 9,
    tokensAfter: 5,
    headTokens: 1,
    tailTokens: 1,
    inputTokens: 1,
    outputTokens: 1,
  };
  expect(economicsOf({ ...sizes, prices: dear }).paysBackAfter).toBeNull();
});

describe('a planned compaction', () => {
  const plan = {
    prices,
    evictedTokens: 30_000,
    chunkTokens: 32_000,
    digestTokens: 500,
    snapshotTokens: 2_000,
  };

  test('of one chunk is read and folded in one request', () => {
    expect(estimateCost(plan)).toBeCloseTo((30_000 + PROMPT_TOKENS + 2_000 + 5 * 2_000) / 1e6, 9);
  });

  test('of several chunks pays each digest twice: written, and read by the consolidation', () => {
    const input = 100_000 + 5 * PROMPT_TOKENS + 4 * 500 + 2_000;
    const output = 4 * 500 + 2_000;
    expect(estimateCost({ ...plan, evictedTokens: 100_000 })).toBeCloseTo((input + 5 * output) / 1e6, 9);
  });

  test('is never estimated below the cost of reading the evicted messages', () => {
    fc.assert(
      fc.property(fc.nat(2_000_000), fc.integer({ min: 256, max: 32_000 }), (evictedTokens, chunkTokens) => {
        const cost = estimateCost({ ...plan, evictedTokens, chunkTokens });
        expect(cost).toBeGreaterThan((evictedTokens + 2_000 * 5) / 1e6);
      }),
    );
  });
});
