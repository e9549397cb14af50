/**
 * Invariant 8 in the provider's own tokens, for any provider and any reports. A provider counts
 * `overhead + factor × local count` for a request; `window` is its maximum, `budget` the maximum of a context in local tokens.
 *
 * - Truth: a provider takes, and reports, no request that exceeds its window. From two reports on whose contexts differ by a tenth (and 500 tokens), `overhead + factor × budget ≤ window`,
 *   whatever overhead the policy declares, and whatever impossible reports came between.
 * - Junk: whatever is reported, the budget is never larger than without any report before three plausible ones have come,
 *   never larger than twice the window, and always such that what was learnt holds: `learnt overhead + learnt factor ×
 *   budget ≤ window`.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/index.js';
import { isFailure } from '../../../src/errors.js';
import { policyOf } from '../../../src/policy/layers.js';
import { learntOf, overdue, requestOf, type Learnt } from '../../../src/limits/learnt.js';
import { limitsOf } from '../../../src/limits/limits.js';
import type { Policy } from '../../../src/policy/defaults.js';
import { calibrated, calibrationKey, type Calibration } from '../../../src/tokens/calibration.js';

const window = 128_000;
const key = calibrationKey('gpt-4o', 'o200k_base');

/** A session's sizes as its turns leave them. */
class Sizes {
  calibration: Calibration = {};
  inUse: Learnt = { factor: 1, overhead: 0 };

  constructor(readonly policy: Policy) {}

  get budget(): number {
    return limitsOf(this.policy, this.inUse).budget;
  }

  report(counted: number, reported: number): void {
    const request = requestOf(
      {
        tokens: [counted, 1],
        roles: ['user', 'assistant'],
        usage: { inputTokens: reported, outputTokens: 1 },
      },
      this.policy,
      { liveTokens: 0, budget: Infinity },
    );
    if (request) this.calibration = calibrated(this.calibration, key, request);
    const learnt = learntOf(this.policy, this.calibration);
    this.inUse = overdue(this.policy, this.inUse, learnt, {}) ?? this.inUse;
  }

  get samples(): number {
    return this.calibration[key]?.samples ?? 0;
  }
}

const policies = fc
  .record({ overhead: fc.nat(40_000), reservedOutputTokens: fc.integer({ min: 2, max: 16_000 }) })
  .map((session) => policyOf({ session: { model: 'gpt-4o', contextWindow: window, ...session } }));

const providers = fc.record({
  overhead: fc.nat(60_000),
  factor: fc.double({ min: 0.5, max: 2.5, noNaN: true }),
});

const contexts = fc.integer({ min: 1, max: 150_000 });

/** Of a context, what no request of it can have. */
const impossible: fc.Arbitrary<readonly [number, number]> = fc.oneof(
  contexts.map((counted): [number, number] => [counted + 500, Math.floor(counted / 2.1)]),
  contexts.map((counted): [number, number] => [counted, 5 * counted + window + 1]),
  fc.constantFrom<[number, number][]>([20_000, 1], [20_000, 1e12], [20_000, 0]),
);

function isRevealed(counted: readonly number[]): boolean {
  const [least, most] = [Math.min(...counted), Math.max(...counted)];
  return most - least >= 500 && most - least >= 0.1 * most;
}

describe('the budget of a session', () => {
  test('lets no context exceed the window of any provider, once two of its reports differ', () => {
    const turns = fc.array(
      fc.oneof(
        { weight: 4, arbitrary: contexts.map((counted) => ({ counted })) },
        { weight: 1, arbitrary: impossible.map((report) => ({ report })) },
      ),
      { minLength: 2, maxLength: 30 },
    );
    fc.assert(
      fc.property(policies, providers, turns, (policy, { overhead, factor }, played) => {
        const sizes = new Sizes(policy);
        const recent: number[] = [];
        for (const turn of played) {
          if ('report' in turn) sizes.report(turn.report[0], turn.report[1]);
          else {
            const reported = Math.round(overhead + factor * turn.counted);
            if (reported > window) continue;
            sizes.report(turn.counted, reported);
            recent.push(turn.counted);
          }
          if (isRevealed(recent))
            expect(Math.round(overhead + factor * sizes.budget)).toBeLessThanOrEqual(window);
        }
      }),
      { numRuns: 2_000 },
    );
  });

  test('changes no further than any reports support', () => {
    const report = fc.oneof(
      fc.tuple(contexts, fc.oneof(contexts, fc.nat(1_000), fc.constantFrom(1, 1e12))),
      fc
        .tuple(contexts, fc.double({ min: 0.01, max: 6, noNaN: true }))
        .map(([counted, ratio]): [number, number] => [counted, Math.round(counted * ratio)]),
      impossible,
    );
    fc.assert(
      fc.property(policies, fc.array(report, { maxLength: 40 }), (policy, reports) => {
        const sizes = new Sizes(policy);
        const declared = sizes.budget;
        for (const [counted, reported] of reports) {
          sizes.report(counted, reported);
          const { budget, samples } = sizes;
          if (samples < 3) expect(budget).toBeLessThanOrEqual(declared);
          expect(budget).toBeLessThanOrEqual(2 * window);
          const { factor, overhead } = learntOf(policy, sizes.calibration);
          if (overhead + factor < window - limitsOf(policy).reservedOutput)
            expect(overhead + factor * budget).toBeLessThanOrEqual(window);
        }
      }),
      { numRuns: 2_000 },
    );
  });

  test('does not change for a provider that reports only uncached tokens', () => {
    fc.assert(
      fc.property(
        policies,
        fc.array(fc.integer({ min: 500, max: 12_000 }), { minLength: 3, maxLength: 30 }),
        (policy, turns) => {
          const sizes = new Sizes(policy);
          const declared = sizes.budget;
          let context = 0;
          for (const turn of turns) {
            context += turn;
            sizes.report(context, turn);
            expect(sizes.budget).toBeLessThanOrEqual(declared);
          }
        },
      ),
    );
  });
});

describe('a conversation in memory', () => {
  const words = (count: number) => 'some plain words of it '.repeat(Math.ceil(count / 5));
  const turns = fc.array(
    fc.record({ asked: fc.integer({ min: 20, max: 1_500 }), answered: fc.integer({ min: 1, max: 3_000 }) }),
    { minLength: 3, maxLength: 14 },
  );

  test('shows no context that exceeds the window of its provider, once two reports differ', () => {
    const small = fc.record({
      overhead: fc.nat(6_000),
      factor: fc.double({ min: 0.5, max: 2.2, noNaN: true }),
    });
    fc.assert(
      fc.property(small, fc.nat(4_000), turns, ({ overhead, factor }, declared, played) => {
        const policy = { contextWindow: 20_000, overhead: declared, tokenizer: 'o200k_base' as const };
        const conversation = new Conversation({ policy });
        const recent: number[] = [];
        for (const { asked, answered } of played) {
          conversation.append([{ role: 'user', content: words(asked) }]);
          const tokens = tokensOf(conversation);
          if (tokens === null) return;
          if (isRevealed(recent)) expect(Math.round(overhead + factor * tokens)).toBeLessThanOrEqual(20_000);
          const usage = { prompt_tokens: Math.round(overhead + factor * tokens), completion_tokens: 1 };
          conversation.append([{ role: 'assistant', content: words(answered) }], undefined, usage);
          const live = conversation.log.slice(0, -1).reduce((sum, message) => sum + message.tokens, 0);
          if (live === tokens) recent.push(tokens);
        }
      }),
      { numRuns: 150 },
    );
  });

  function tokensOf(conversation: Conversation): number | null {
    try {
      return conversation.context().tokens;
    } catch (error) {
      if (isFailure(error, 'Budget.Unreachable')) return null;
      throw error;
    }
  }
});
