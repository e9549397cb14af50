/**
 * Sizes that depend on the session: the cost-optimal trigger on its mean turn, the trigger of an idle session on prices, all
 * sizes on the provider's count; and the sizes above which messages are reduced.
 */
import { describe, expect, test } from 'vitest';
import { optimum } from '../../../src/limits/economics.js';
import {
  isTriggered,
  limitsOf,
  measureAt,
  type Limits,
  type SessionFacts,
} from '../../../src/limits/limits.js';
import { parsePolicy, type PolicyInput } from '../../../src/policy/schema.js';
import { resolvePolicy } from '../../../src/policy/layers.js';

const limitsFor = (input: PolicyInput, facts?: SessionFacts): Limits =>
  limitsOf(
    resolvePolicy(parsePolicy({ ...input, summary: { mode: 'incremental', ...input.summary } })),
    facts,
  );

describe('the cost-optimal trigger', () => {
  const economic: PolicyInput = { contextWindow: 200_000, overhead: 10_000, trigger: { economic: true } };

  test('follows from head, tail and D*, and lies between D* and 1.5 D*, far below the window', () => {
    const limits = limitsFor(economic, { meanTurnTokens: 1_500 });
    const { economic: sizes, headMax, keepTokens, contextTarget } = limits;
    expect({ headMax, keepTokens }).toEqual({ headMax: 3_500, keepTokens: 4 * 1_500 });
    expect(contextTarget).toBe(3_500 + 6_000 + 6_000);
    // Six messages are four turns as a rule.
    const after = 3_500 + 6_000;
    const growth = optimum({
      prices: resolvePolicy(economic).prices,
      turnTokens: 1_500,
      headTokens: headMax,
      tailTokens: 6_000,
      snapshotTokens: 2_000,
    });
    expect(sizes?.optimum).toBeCloseTo(growth, 6);
    expect(sizes?.from).toBe(Math.floor(after + growth));
    expect(sizes?.at).toBeGreaterThanOrEqual(after + growth);
    expect(sizes?.at).toBeLessThanOrEqual(after + 1.5 * growth);
    expect(limits.triggers).toEqual([{ contextTokens: sizes?.at, messages: null }]);
    expect(measureAt(limits)).toEqual({ tokens: sizes?.at, messages: null });
  });

  test('does not depend on the window if that is large enough, and never exceeds a fraction of 0.85', () => {
    const at = (contextWindow: number) =>
      limitsFor({ ...economic, contextWindow }, { meanTurnTokens: 1_500 }).economic?.at ?? 0;
    expect(at(1_000_000)).toBe(at(200_000));
    const byFraction = limitsFor({ ...economic, contextWindow: 32_000, trigger: { fraction: 0.85 } });
    expect(at(32_000)).toBe(byFraction.triggers[0]?.contextTokens);
  });

  test('grows with the mean turn; a session without turns counts as 1,000 tokens per turn', () => {
    const at = (meanTurnTokens?: number) => limitsFor(economic, { meanTurnTokens }).economic?.at ?? 0;
    expect(at(undefined)).toBe(at(1_000));
    expect(at(0)).toBe(at(1_000));
    expect(at(300)).toBeLessThan(at(1_500));
    expect(at(1_500)).toBeLessThan(at(6_000));
  });

  test('follows the prices: free cache reads wait for the window, no cache compacts early', () => {
    const at = (prices: PolicyInput['prices']) =>
      limitsFor({ ...economic, prices }, { meanTurnTokens: 1_500 }).economic?.at ?? 0;
    const byDefault = at(undefined);
    expect(at({ input: 2, cachedInput: 0 })).toBe(170_000 - 10_000);
    expect(at({ input: 2, cachedInput: 2, cacheWrite: 2 })).toBeLessThan(0.7 * byDefault);
    expect(at({ input: 2 })).toBe(byDefault);
  });

  test('does not change the ceilings of keep and plans with them', () => {
    const limits = limitsFor(
      { ...economic, keep: { messages: 20, tokens: 8_000 } },
      { meanTurnTokens: 1_500 },
    );
    expect(limits).toMatchObject({ keepMessages: 20, keepTokens: 8_000, contextTarget: 19_500 });
    const byTokens = limitsFor({ ...economic, keep: { tokens: 15_000 } }, { meanTurnTokens: 1_500 });
    expect(byTokens.contextTarget).toBe(15_000 + 8_000 + 3_500);
  });

  test('evicts only one summarizer request if digests would cost more than an earlier compaction', () => {
    const at = (chunkTokens: number) =>
      limitsFor({ ...economic, summary: { chunkTokens } }, { meanTurnTokens: 1_500 }).economic;
    const inOne = at(24_000);
    const inMany = at(150_000);
    expect(inMany?.at).toBeGreaterThan(inOne?.at ?? Infinity);
    expect(inOne?.optimum).toBe(inMany?.optimum);
    expect(at(20_000)?.from).toBe(at(20_000)?.at);
  });

  test('combines with a size: the smaller one fires', () => {
    const both = limitsFor(
      { ...economic, trigger: [{ economic: true }, { tokens: 35_000 }] },
      { meanTurnTokens: 1_500 },
    );
    expect(isTriggered(both, { contextTokens: 25_000, messages: 1 })).toBe(true);
    expect(both.economic?.at).toBeGreaterThan(0);
    expect(both.contextTarget).toBeLessThan(0.9 * 25_000);
  });

  test('leaves room for leading system messages, exactly their size if it is known', () => {
    const facts = { meanTurnTokens: 1_500 };
    const none = limitsFor(economic, { ...facts, systemTokens: 0 });
    const led = limitsFor(economic, { ...facts, systemTokens: 20_000 });
    expect(none.contextTarget).toBe(9_500);
    expect(led.contextTarget).toBe(none.contextTarget + 20_000);
    expect(led.economic?.at).toBe((none.economic?.at ?? 0) + 20_000);
    expect(limitsFor(economic, facts).economic?.at).toBe(none.economic?.at);
  });

  test('never makes an accepted policy invalid, for any session', () => {
    const pins = ['a rule that stays '.repeat(1_100)];
    for (const meanTurnTokens of [1, 100, 1_000, 30_000, 1_000_000])
      for (const systemTokens of [undefined, 0, 50_000])
        for (const given of [
          { ...economic, pins },
          { ...economic, keep: { tokens: 50 } },
        ]) {
          const { headMax, tailTarget } = limitsFor(given, { meanTurnTokens, systemTokens });
          expect(Math.min(headMax, tailTarget)).toBeGreaterThanOrEqual(200);
        }
  });

  test('is null without the clause, and if the policy is off', () => {
    expect(limitsFor({}).economic).toBeNull();
    expect(limitsFor({ ...economic, enabled: false }).economic).toBeNull();
  });
});

describe('a quiet session', () => {
  const idle: PolicyInput = {
    contextWindow: 200_000,
    overhead: 10_000,
    trigger: [{ fraction: 0.85 }, { idle: 300_000 }],
    prices: { input: 3, summarizerInput: 0.6 },
  };

  test('is worth compacting from the size at which a cold read costs more than a summary', () => {
    const limits = limitsFor(idle, { meanTurnTokens: 1_500 });
    expect(limits.idle?.afterMs).toBe(300_000);
    // s = 3,500, K = 6,000, P = 10,000, κ = 0.2: the snapshot of 2,000 tokens is what the summarizer writes.
    const request = (1.25 * 19_500 + 0.2 * (1_000 + 5 * 2_000 - 16_000)) / 1.05;
    expect(limits.idle?.contextTokens).toBe(Math.ceil(request - 10_000));
    expect(measureAt(limits).tokens).toBe(limits.idle?.contextTokens);
  });

  test('is never worth compacting if the summarizer costs as much as cache writes', () => {
    expect(limitsFor({ ...idle, prices: { input: 3, summarizerInput: 3.75 } }).idle).toBeNull();
    expect(limitsFor({ ...idle, enabled: false }).idle).toBeNull();
    expect(limitsFor({ trigger: { fraction: 0.5 } }).idle).toBeNull();
  });

  test('is never worth compacting if that size exceeds the maximum of a context', () => {
    expect(
      limitsFor({ ...idle, contextWindow: 32_000, prices: { input: 3, summarizerInput: 3.7 } }).idle,
    ).toBeNull();
  });

  test('is worth compacting without a model once the required share is saved', () => {
    const limits = limitsFor({ ...idle, summary: { method: 'extractive' } }, { meanTurnTokens: 1_500 });
    expect(limits.idle?.contextTokens).toBe(Math.ceil(9_500 / 0.9));
  });

  test('has a clause that never fires by size', () => {
    const limits = limitsFor({ ...idle, trigger: { idle: 60_000 } });
    expect(isTriggered(limits, { contextTokens: limits.budget, messages: 10_000 })).toBe(false);
    expect(measureAt(limits)).toEqual({ tokens: limits.idle?.contextTokens, messages: null });
  });

  test('fires by the shortest of several idle clauses', () => {
    const limits = limitsFor({ ...idle, trigger: [{ idle: 300_000 }, { idle: 60_000 }] });
    expect(limits.idle?.afterMs).toBe(60_000);
  });
});

describe('calibration', () => {
  const policy: PolicyInput = {
    contextWindow: 100_000,
    reservedOutputTokens: 4_000,
    overhead: 10_000,
    trigger: { tokens: 60_000 },
    target: 30_000,
    keep: { tokens: 8_000 },
    reduce: { toolResults: { budget: 2_000 } },
  };

  test('divides every size that the policy gives in the provider’s tokens', () => {
    expect(limitsFor(policy, { factor: 1.25 })).toMatchObject({
      factor: 1.25,
      window: 80_000,
      reservedOutput: 3_200,
      overhead: 8_000,
      budget: 80_000 - 3_200 - 8_000,
      triggers: [{ contextTokens: 48_000 - 8_000, messages: null }],
      contextTarget: 24_000 - 8_000,
      keepTokens: 6_400,
      resultBudget: 1_600,
    });
    expect(limitsFor(policy, { factor: 0.8 })).toMatchObject({ window: 125_000, keepTokens: 10_000 });
  });

  test('does not change texts that are counted locally', () => {
    const texts: PolicyInput = { ...policy, overhead: ['You are a careful agent.'] };
    expect(limitsFor(texts, { factor: 2 }).overhead).toBe(limitsFor(texts).overhead);
  });

  test('of 1 changes nothing', () => {
    expect(limitsFor(policy, { factor: 1 })).toEqual(limitsFor(policy));
  });

  test('scales shares of the window with it', () => {
    const shares: PolicyInput = { contextWindow: 100_000, trigger: { fraction: 0.5 } };
    expect(limitsFor(shares, { factor: 2 }).triggers).toEqual([{ contextTokens: 25_000, messages: null }]);
  });
});

describe('lengths of reduced messages', () => {
  test('arguments, from their share of the window on, where a trigger does not come first', () => {
    const at = (input: PolicyInput) =>
      limitsFor({ contextWindow: 100_000, overhead: 5_000, ...input }).reduceAt;
    expect(at({})).toBe(65_000);
    expect(at({ reduce: { arguments: { from: 0.3 } } })).toBe(25_000);
    expect(at({ reduce: { arguments: false } })).toBeNull();
    expect(at({ trigger: { fraction: 0.7 } })).toBeNull();
    expect(at({ trigger: { tokens: 20_000 } })).toBeNull();
    expect(at({ trigger: { economic: true } })).toBeNull();
    expect(at({ enabled: false })).toBeNull();
    expect(at({ trigger: { messages: 50 } })).toBe(65_000);
  });

  test('one message, above its share of the smallest threshold', () => {
    const at = (input: PolicyInput) => limitsFor({ contextWindow: 100_000, ...input }).messageTokens;
    expect(at({})).toBe(42_500);
    expect(at({ trigger: [{ tokens: 20_000 }, { fraction: 0.9 }] })).toBe(10_000);
    expect(at({ reduce: { messages: 0.1 } })).toBe(8_500);
    expect(at({ reduce: { messages: false } })).toBeNull();
    const economic = limitsFor({ contextWindow: 100_000, trigger: { economic: true } });
    expect(economic.messageTokens).toBe(Math.floor((economic.economic?.at ?? 0) / 2));
  });

  test('results beyond half of the target, or beyond the given budget', () => {
    const limits = limitsFor({ contextWindow: 100_000 });
    expect(limits.resultBudget).toBe(Math.floor(limits.contextTarget / 2));
    expect(limitsFor({ reduce: { toolResults: { budget: 0 } } }).resultBudget).toBe(0);
  });
});

describe('pins', () => {
  test('by seq and pattern add to pinned texts, up to half of the kept tokens', () => {
    const policy: PolicyInput = {
      contextWindow: 32_000,
      pins: ['Never push.', { seq: 2 }, { pattern: 'must' }],
    };
    const texts = limitsFor(policy).pinTokens;
    expect(texts).toBeGreaterThan(0);
    expect(limitsFor(policy, { pinTokens: 400 }).pinTokens).toBe(texts + 400);
    const many = limitsFor(policy, { pinTokens: 1_000_000 });
    expect(many.pinTokens).toBe(Math.floor((many.contextTarget - many.headMax) / 2));
    expect(many.tailTarget).toBeGreaterThan(0);
  });
});
