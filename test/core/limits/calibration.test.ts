/**
 * A provider's reported usage corrects the local counts: in both directions, per model and tokenizer, without an effect of
 * single odd reports or of small differences.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseExact } from '../../../src/conversation/json.js';
import { checkMessages } from '../../../src/conversation/validate.js';
import {
  calibrated,
  calibratedModel,
  calibrationKey,
  knownOf,
  type Calibration,
} from '../../../src/tokens/calibration.js';
import { policyOf } from '../../../src/policy/layers.js';
import { overdue, requestOf } from '../../../src/limits/learnt.js';
import { limitsOf } from '../../../src/limits/limits.js';
import { readCalibration } from '../../../src/store/sessions/session-row.js';
import { counterFor, type TokenizerName } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

const key = calibrationKey('gpt-4o', 'o200k_base');
const window = 128_000;

interface Report {
  counted: number;
  reported: number;
}

const reporting = (known: Calibration, of: string, report: Report, declared = 0): Calibration =>
  calibrated(known, of, { ...report, declared, window });

const after = (reports: readonly Report[], from: Calibration = {}, declared = 0): Calibration =>
  reports.reduce((known, report) => reporting(known, key, report, declared), from);

const lineOf = (known: Calibration) => known[key] ?? { factor: NaN, overhead: NaN, samples: NaN };
const factorOf = (known: Calibration): number => lineOf(known).factor;

/** Contexts of growing size, as a provider counts them. */
const steady = (factor: number, times: number, overhead = 0): Report[] =>
  Array.from({ length: times }, (_, turn) => {
    const counted = 1_000 + 500 * turn;
    return { counted, reported: Math.round(overhead + factor * counted) };
  });

describe('the factor', () => {
  test.each([0.55, 0.6, 0.9, 1, 1.1, 1.8, 4.5])(
    'is the ratio that a provider reports steadily: %s',
    (factor) => {
      const known = after(steady(factor, 30, 2_000), {}, 2_000);
      expect(factorOf(known)).toBeCloseTo(factor, 1);
      expect(lineOf(known).overhead / 2_000).toBeCloseTo(1, 1);
      expect(lineOf(known).samples).toBe(30);
    },
  );

  test('and the overhead are those of the provider, whatever tools each request has', () => {
    const policy = policyOf({ session: { model: 'gpt-4o', contextWindow: 8_000, overhead: 1_024 } });
    const [bare, withTools] = [70, 700];
    let known: Calibration = {};
    // A context grows, is compacted, and grows again; from then on requests have tools.
    for (let turn = 0; turn < 16; turn++) {
      const context = turn < 8 ? 500 + 600 * turn : 1_500 + 500 * (turn - 8);
      const countedTokens = context + (turn < 8 ? bare : withTools);
      const usage = { inputTokens: Math.round(1.37 * countedTokens), outputTokens: 10, countedTokens };
      // After the compaction, the session's own count is that of another context.
      const before = { liveTokens: 100, budget: 5_000 };
      const request = requestOf({ tokens: [50], roles: ['assistant'], usage }, policy, before);
      if (request) known = calibrated(known, key, request);
    }
    expect(factorOf(known)).toBeCloseTo(1.37, 2);
    // That of a request with as much as the policy declares.
    expect(lineOf(known).overhead / (1.37 * 1_024)).toBeCloseTo(1, 2);
  });

  test('and the overhead are learnt separately, from two requests of different sizes', () => {
    const first = after([{ counted: 5_813, reported: 11_813 }], {}, 10_000);
    expect(lineOf(first)).toMatchObject({ factor: 1, overhead: 6_000 });
    const second = after([{ counted: 20_000, reported: 6_000 + 30_000 }], first, 10_000);
    expect(factorOf(second)).toBeCloseTo((36_000 - 11_813) / (20_000 - 5_813), 2);
    const third = after([{ counted: 500, reported: 40_500 }], {}, 0);
    expect(lineOf(third)).toMatchObject({ factor: 1, overhead: 40_000 });
  });

  test('stays while all requests are of one size, and the overhead follows', () => {
    const known = after(steady(1.5, 10, 3_000));
    const times = (count: number, overhead: number) =>
      Array.from({ length: count }, () => ({ counted: 30_000, reported: overhead + 45_000 }));
    const alike = after(times(20, 3_000), known);
    expect(factorOf(alike)).toBeCloseTo(1.5, 1);
    const later = after(times(2, 20_000), alike);
    expect(factorOf(later)).toBe(factorOf(alike));
    expect(lineOf(later).overhead / 20_000).toBeCloseTo(1, 1);
  });

  test('below 1 needs three requests that are mostly text, and that agree', () => {
    const two = steady(0.6, 2);
    expect(factorOf(after(two))).toBe(1);
    expect(factorOf(after(steady(0.6, 3)))).toBeCloseTo(0.6, 2);
    const mostlyOverhead = steady(0.6, 12, 9_000).slice(0, 3);
    expect(factorOf(after(mostlyOverhead))).toBe(1);
    const scattered = [0.6, 0.95, 0.55, 0.9].map((ratio, turn) => {
      const counted = 4_000 + 3_000 * turn;
      return { counted, reported: ratio * counted };
    });
    expect(factorOf(after(scattered))).toBe(1);
  });

  test('does not decrease if every report lacks the same tokens', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 1, max: 2, noNaN: true }),
        fc.double({ min: 0.02, max: 0.45, noNaN: true }),
        fc.array(fc.integer({ min: 60_000, max: 120_000 }), { minLength: 3, maxLength: 12 }),
        (factor, share, sizes) => {
          const cached = Math.round(share * 60_000);
          const grown = [...sizes, 60_000, 90_000, 120_000];
          const reports = grown.map((counted) => ({
            counted,
            reported: Math.round(factor * counted) - cached,
          }));
          const { factor: learnt, overhead } = lineOf(after(reports));
          expect((overhead + learnt * 120_000) / (factor * 120_000)).toBeGreaterThan(0.99);
          // While the context has hardly grown, too.
          const first = lineOf(after(reports.slice(0, 1).flatMap((one) => [one, one, one])));
          expect(first.factor).toBeGreaterThanOrEqual(1);
        },
      ),
    );
  });

  test('does not fall below 1 if the reports are also noisy', () => {
    const sizes = [80, 90, 100, 110, 95, 105, 85, 115].map((thousand) => thousand * 1_000);
    const noise = [0.98, 1.02, 1, 0.97, 1.03, 1, 1.02, 0.98];
    const reports = sizes.map((counted, turn) => ({ counted, reported: counted * noise[turn]! - 20_000 }));
    const { factor, overhead } = lineOf(after(reports));
    expect(overhead + factor * 128_000).toBeGreaterThan(0.95 * 128_000);
  });

  test('follows a provider that changes, from above and from below', () => {
    const ratio = fc.double({ min: 0.55, max: 4, noNaN: true });
    fc.assert(
      fc.property(ratio, ratio, (first, then) => {
        const known = after(steady(then, 60), after(steady(first, 20)));
        expect(factorOf(known) / then).toBeGreaterThan(0.95);
        expect(factorOf(known) / then).toBeLessThan(1.05);
      }),
    );
  });

  test('is no smaller than the noise around it allows', () => {
    const noisy = fc.array(fc.double({ min: 0.95, max: 1.05, noNaN: true }), {
      minLength: 20,
      maxLength: 60,
    });
    fc.assert(
      fc.property(noisy, (noise) => {
        const reports = noise.map((deviation, turn) => {
          const counted = 10_000 + 1_000 * turn;
          return { counted, reported: Math.round(1.3 * counted * deviation) };
        });
        const { factor, overhead } = lineOf(after(reports));
        const largest = 10_000 + 1_000 * noise.length;
        expect((overhead + factor * largest) / (1.3 * largest)).toBeGreaterThan(0.94);
        expect((overhead + factor * largest) / (1.3 * largest)).toBeLessThan(1.2);
      }),
    );
  });

  test('changes by at most a tenth after one odd report, once it is settled', () => {
    for (const odd of [0.21, 0.6, 3, 4.9]) {
      const before = after(steady(1, 5));
      const { factor, overhead } = lineOf(after([{ counted: 1_000, reported: 1_000 * odd }], before));
      expect(Math.abs((overhead + factor * 3_000) / 3_000 - 1)).toBeLessThanOrEqual(0.1);
    }
  });

  test('stays within 0.5 to 5, and at 1 or above before three requests, for any reports', () => {
    const size = fc.oneof(
      fc.nat(1_000_000),
      fc.constantFrom(0, 1, NaN, Infinity, 1e12, Number.MAX_SAFE_INTEGER),
    );
    fc.assert(
      fc.property(fc.array(fc.record({ counted: size, reported: size })), (reports) => {
        let known: Calibration = {};
        for (const report of reports) {
          known = reporting(known, key, report);
          if (known[key] === undefined) continue;
          const { factor, overhead, samples } = known[key];
          expect(factor).toBeGreaterThanOrEqual(samples < 3 ? 1 : 0.5);
          expect(factor).toBeLessThanOrEqual(5);
          expect(overhead).toBeGreaterThanOrEqual(0);
        }
      }),
    );
  });
});

describe('a report that cannot belong to its request', () => {
  test.each([
    ['nothing was reported', { counted: 9_000, reported: 0 }],
    ['one token was reported', { counted: 9_000, reported: 1 }],
    ['only what missed the cache was reported', { counted: 90_000, reported: 120 }],
    ['a quarter of it was reported', { counted: 90_000, reported: 22_500 }],
    ['a whole run was reported', { counted: 9_000, reported: 400_000 }],
    ['anything was reported', { counted: 9_000, reported: 1e12 }],
    ['far less than before was reported', { counted: 9_000, reported: 5_000 }],
  ])('changes only the warning if %s', (_, report) => {
    const known = after(steady(1.2, 4));
    const { implausible, doubted: _doubted, ...sample } = reporting(known, key, report)[key]!;
    expect(sample).toEqual(known[key]);
    expect(implausible).toMatchObject(report);
  });

  test('is forgotten after enough others', () => {
    const known = after([{ counted: 9_000, reported: 1 }], after(steady(1.2, 4)));
    expect(after(steady(1.2, 6), known)[key]?.implausible).toBeDefined();
    expect(after(steady(1.2, 16), known)[key]?.implausible).toBeUndefined();
  });

  test('is accepted the third time in a row if the provider may now count differently', () => {
    const half = [4_000, 5_000, 6_000].map((counted) => ({ counted, reported: counted }));
    const known = after(steady(2, 12));
    expect(factorOf(after(half.slice(0, 2), known))).toBeCloseTo(2, 1);
    expect(factorOf(after(half, known))).toBeCloseTo(1, 1);
  });

  test('is ignored if the request was small', () => {
    const known = after(steady(1.2, 4));
    expect(reporting(known, key, { counted: 499, reported: 200 })).toBe(known);
  });
});

describe('a model', () => {
  test('is the same under the names that routers and dated releases give it, and no other', () => {
    for (const name of ['gpt-4o', 'openai/gpt-4o', 'gpt-4o-2024-08-06', 'GPT-4o', ' gpt-4o-latest'])
      expect(calibratedModel(name)).toBe('gpt-4o');
    expect(calibratedModel('claude-sonnet-4-5-20250929')).toBe(
      calibratedModel('anthropic/claude-sonnet-4-5'),
    );
    for (const name of ['gpt-4o-mini', 'gpt-4', 'gpt-4o-audio-preview'])
      expect(calibratedModel(name)).not.toBe('gpt-4o');
    expect(calibratedModel(null)).toBe('');
  });

  test('is learnt separately from other models and tokenizers, and nothing is forgotten', () => {
    const mini = calibrationKey('gpt-4o-mini', 'o200k_base');
    const characters = calibrationKey('gpt-4o', 'chars/4');
    let known = after(steady(1.5, 3));
    known = reporting(known, mini, { counted: 1_000, reported: 1_700 });
    known = reporting(known, characters, { counted: 1_000, reported: 1_250 });
    expect(knownOf(known, 'gpt-4o', 'o200k_base')).toMatchObject({ model: 'gpt-4o', samples: 3 });
    expect(knownOf(known, 'gpt-4o', 'o200k_base').factor).toBeCloseTo(1.5, 2);
    expect(knownOf(known, 'openai/gpt-4o-mini', 'o200k_base')).toMatchObject({
      ...{ model: 'gpt-4o-mini', factor: 1.7, samples: 1 },
    });
    expect(knownOf(known, 'gpt-4o', 'chars/4').factor).toBe(1.25);
    expect(knownOf(known, 'claude-opus-4', 'chars/3.3')).toMatchObject({
      ...{ model: 'claude-opus-4', factor: 1, overhead: 0, samples: 0 },
    });
  });

  test('is, if the policy names none, the one with the highest counts among the frequent ones', () => {
    const [frugal, lavish] = [calibrationKey('a', 'o200k_base'), calibrationKey('b', 'o200k_base')];
    let known: Calibration = {};
    for (const report of steady(1.1, 8)) known = reporting(known, frugal, report);
    const [one, ...more] = steady(1.6, 4);
    known = reporting(known, lavish, one!);
    expect(knownOf(known, null, 'o200k_base').model).toBe('a');
    for (const report of more) known = reporting(known, lavish, report);
    expect(knownOf(known, null, 'o200k_base').model).toBe('b');
    expect(knownOf({}, null, 'o200k_base')).toMatchObject({ model: '', factor: 1, overhead: 0, samples: 0 });
  });

  test("may have any name: that of an object's property, or one of thousands", () => {
    for (const name of ['constructor', '__proto__', 'a|b', '']) {
      const known = reporting({}, calibrationKey(name, 'chars/4'), { counted: 1_000, reported: 2_000 });
      expect(knownOf(known, name, 'chars/4')).toMatchObject({ factor: 2, samples: 1 });
    }
    let known: Calibration = {};
    for (let model = 0; model < 1_000; model++)
      known = reporting(known, calibrationKey(`m${model}`, 'chars/4'), { counted: 1_000, reported: 2_000 });
    expect(Object.keys(known).length).toBeLessThan(100);
  });
});

describe('calibrated sizes', () => {
  const policy = policyOf({
    session: { contextWindow: 100_000, reservedOutputTokens: 10_000, overhead: 5_000 },
  });
  const inUse = { factor: 1, overhead: 0 };
  const givesWayTo = (factor: number, overhead: number) =>
    overdue(policy, inUse, { factor, overhead }, {}) !== null;

  test('change if the budget is more than 5 % off', () => {
    expect([givesWayTo(1.04, 0), givesWayTo(0.97, 0), givesWayTo(1, 9_000)]).toEqual([false, false, false]);
    expect([givesWayTo(1.07, 0), givesWayTo(0.9, 0), givesWayTo(1, 10_000)]).toEqual([true, true, true]);
  });

  test('change earlier if a full budget would exceed the window', () => {
    const tight = policyOf({ session: { contextWindow: 100_000, reservedOutputTokens: 1 } });
    expect(overdue(tight, inUse, { factor: 1.01, overhead: 0 }, {})).toEqual({ factor: 1.01, overhead: 0 });
    expect(overdue(tight, inUse, { factor: 0.99, overhead: 0 }, {})).toBeNull();
  });

  test('are never those of a window larger than twice the declared one', () => {
    expect(limitsOf(policy, { factor: 0.01 }).window).toBe(200_000);
  });

  test('stay as declared if no tokens would be left, except the budget', () => {
    const small = policyOf({ session: { contextWindow: 5_000, overhead: 2_000 } });
    const declared = limitsOf(small);
    const { budget, ...rest } = limitsOf(small, { factor: 3, overhead: 2_000 });
    expect({ ...rest, budget: declared.budget }).toEqual(declared);
    expect(2_000 + 3 * budget).toBeLessThanOrEqual(5_000 - 625);
    expect(budget).toBeGreaterThan(700);
    expect(limitsOf(small, { factor: 1, overhead: 4_999 })).toEqual(declared);
  });
});

describe('calibration of another version', () => {
  test('is read without the factors below 1 that no request supports', () => {
    const stored = {
      'gpt-4o|o200k_base': { factor: 0.31, samples: 1 },
      'gpt-4|cl100k_base': { factor: 1.4, samples: 9 },
    };
    const read = readCalibration(stored);
    expect(knownOf(read, 'gpt-4o', 'o200k_base')).toMatchObject({ factor: 1, overhead: 0, samples: 1 });
    expect(knownOf(read, 'gpt-4', 'cl100k_base')).toMatchObject({ factor: 1.4, samples: 9 });
    expect(lineOf(after(steady(0.7, 4, 1_000), read)).factor).toBeCloseTo(0.7, 1);
  });

  test('is read as it was written, whatever its values', () => {
    const known = after(
      [
        { counted: 9_000, reported: 1 },
        { counted: 9_000, reported: 6_000 },
      ],
      after(steady(1.2, 14)),
    );
    expect(readCalibration(JSON.parse(JSON.stringify(known)))).toEqual(known);
    fc.assert(
      fc.property(fc.anything(), fc.object(), (whatever, object) => {
        for (const stored of [
          whatever,
          object,
          { [key]: whatever },
          { [key]: { factor: whatever, samples: 1 } },
        ]) {
          const { factor, overhead } = knownOf(readCalibration(stored), 'gpt-4o', 'o200k_base');
          expect(factor >= 1 && factor <= 5 && overhead === 0).toBe(true);
        }
      }),
    );
  });
});

describe.skipIf(skipWithoutTranscripts())('on recorded sessions', () => {
  /** The ratio of expected to provider's count for each request: by the local count, and by the earlier requests; sorted. */
  async function expectations(ours: TokenizerName, providers: TokenizerName, overhead: number) {
    const [counter, provider] = [counterFor(ours), counterFor(providers)];
    const plain: number[] = [];
    const corrected: number[] = [];
    for await (const { line } of readTranscripts()) {
      const { messages } = parseExact(line) as { messages: unknown };
      let [counted, reported, requests] = [0, overhead, 0];
      let known: Calibration = {};
      for (const message of checkMessages(messages)) {
        if (message.role === 'assistant' && counted > 0) {
          if (requests++ >= 5 && counted >= 4_000) {
            const sample = knownOf(known, 'gpt-4o', 'o200k_base');
            plain.push(counted / reported);
            corrected.push((sample.overhead + sample.factor * counted) / reported);
          }
          known = reporting(known, key, { counted, reported });
        }
        counted += countMessage(message, counter);
        reported += countMessage(message, provider);
      }
    }
    const sorted = (values: number[]) => values.sort((a, b) => a - b);
    return { plain: sorted(plain), corrected: sorted(corrected) };
  }
  const quantile = (sorted: readonly number[], share: number): number =>
    sorted[Math.floor(share * sorted.length)] ?? NaN;

  test.each([
    ['chars/4', 'o200k_base', 0],
    ['o200k_base', 'chars/3.3', 0],
    ['chars/4', 'o200k_base', 12_000],
    ['o200k_base', 'chars/3.3', 12_000],
  ] as const)(
    'counts by %s approach those of a provider that counts by %s and %i of overhead, rather from above',
    async (ours, providers, overhead) => {
      const { plain, corrected } = await expectations(ours, providers, overhead);
      expect(corrected.length).toBeGreaterThan(1_000);
      expect(plain.filter((share) => Math.abs(share - 1) > 0.1).length).toBeGreaterThan(plain.length / 3);
      expect(quantile(corrected, 0.01)).toBeGreaterThan(0.9);
      expect(quantile(corrected, 0.05)).toBeGreaterThan(0.97);
      expect(quantile(corrected, 0.5)).toBeLessThan(1.06);
      expect(quantile(corrected, 0.95)).toBeLessThan(1.2);
    },
  );
});
