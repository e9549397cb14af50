/**
 * A provider's reported usage corrects our counts: in both directions, per model and tokenizer, without following single
 * odd reports, and without moving a session's sizes for trifles.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseExact } from '../src/conversation/json.js';
import { checkMessages } from '../src/conversation/validate.js';
import {
  calibrated,
  calibratedModel,
  calibrationKey,
  isOff,
  knownOf,
  type Calibration,
} from '../src/tokens/calibration.js';
import { counterFor, type TokenizerName } from '../src/tokens/counter.js';
import { countMessage } from '../src/tokens/message.js';
import { readTranscripts, skipWithoutTranscripts } from './support/transcripts.js';

const key = calibrationKey('gpt-4o', 'o200k_base');
const after = (
  reports: readonly { counted: number; reported: number }[],
  from: Calibration = {},
): Calibration => reports.reduce((known, report) => calibrated(known, key, report), from);
const factorOf = (known: Calibration): number => known[key]?.factor ?? NaN;
const steady = (ratio: number, times: number) =>
  Array.from({ length: times }, (_, turn) => {
    const counted = 1_000 + 500 * turn;
    return { counted, reported: Math.round(ratio * counted) };
  });

describe('the factor', () => {
  test.each([0.25, 0.6, 0.9, 1, 1.1, 1.8, 4.5])('is what a provider reports steadily: %s', (ratio) => {
    expect(factorOf(after(steady(ratio, 1)))).toBeCloseTo(ratio, 2);
    expect(factorOf(after(steady(ratio, 30)))).toBeCloseTo(ratio, 2);
    expect(after(steady(ratio, 30))[key]?.samples).toBe(30);
  });

  test('follows a provider that changes, from above and from below', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0.3, max: 4, noNaN: true }),
        fc.double({ min: 0.3, max: 4, noNaN: true }),
        (first, then) => {
          const known = after(steady(then, 60), after(steady(first, 20)));
          expect(isOff(factorOf(known), then)).toBe(false);
        },
      ),
    );
  });

  test('is the mean of noise around it', () => {
    const noisy = fc.array(fc.double({ min: 0.8, max: 1.2, noNaN: true }), { minLength: 20, maxLength: 60 });
    fc.assert(
      fc.property(noisy, (noise) => {
        const reports = noise.map((deviation) => ({ counted: 10_000, reported: 13_000 * deviation }));
        const factor = factorOf(after(reports));
        expect(factor).toBeGreaterThan(1.3 * 0.79);
        expect(factor).toBeLessThan(1.3 * 1.21);
      }),
    );
  });

  test('is moved by one odd report by a tenth at most, once it is settled', () => {
    for (const odd of [0.21, 4.9]) {
      const before = factorOf(after(steady(1, 5)));
      const moved = factorOf(after([{ counted: 1_000, reported: 1_000 * odd }], after(steady(1, 5))));
      expect(Math.abs(moved / before - 1)).toBeLessThanOrEqual(0.1 + 1e-9);
    }
  });

  test('never leaves 0.2 to 5, whatever is reported', () => {
    const size = fc.oneof(fc.nat(1_000_000), fc.constantFrom(0, NaN, Infinity, Number.MAX_SAFE_INTEGER));
    fc.assert(
      fc.property(fc.array(fc.record({ counted: size, reported: size })), (reports) => {
        const known = after(reports);
        if (known[key] === undefined) return;
        expect(factorOf(known)).toBeGreaterThanOrEqual(0.2);
        expect(factorOf(known)).toBeLessThanOrEqual(5);
      }),
    );
  });

  test.each([
    ['nothing was reported', { counted: 9_000, reported: 0 }],
    ['only what missed the cache was reported', { counted: 90_000, reported: 120 }],
    ['a whole run was reported', { counted: 9_000, reported: 400_000 }],
    ['the request was small', { counted: 499, reported: 900 }],
  ])('stays where %s', (_, report) => {
    const known = after(steady(1.2, 4));
    expect(calibrated(known, key, report)).toBe(known);
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

  test('is learnt apart from others and from other tokenizers, and nothing learnt is forgotten', () => {
    const mini = calibrationKey('gpt-4o-mini', 'o200k_base');
    const characters = calibrationKey('gpt-4o', 'chars/4');
    let known = after(steady(1.5, 3));
    known = calibrated(known, mini, { counted: 1_000, reported: 700 });
    known = calibrated(known, characters, { counted: 1_000, reported: 1_250 });
    expect(knownOf(known, 'gpt-4o', 'o200k_base')).toEqual({ model: 'gpt-4o', factor: 1.5, samples: 3 });
    expect(knownOf(known, 'openai/gpt-4o-mini', 'o200k_base')).toEqual({
      model: 'gpt-4o-mini',
      factor: 0.7,
      samples: 1,
    });
    expect(knownOf(known, 'gpt-4o', 'chars/4').factor).toBe(1.25);
    expect(knownOf(known, 'claude-opus-4', 'chars/3.3')).toEqual({
      model: 'claude-opus-4',
      factor: 1,
      samples: 0,
    });
  });

  test('is the one reported most often where the policy names none', () => {
    let known = after(steady(1.5, 3));
    known = calibrated(known, calibrationKey('other', 'o200k_base'), { counted: 1_000, reported: 700 });
    expect(knownOf(known, null, 'o200k_base')).toEqual({ model: 'gpt-4o', factor: 1.5, samples: 3 });
    expect(knownOf({}, null, 'o200k_base')).toEqual({ model: '', factor: 1, samples: 0 });
  });

  test('may be named like anything: a part of an object, or one of thousands', () => {
    for (const name of ['constructor', '__proto__', 'a|b', '']) {
      const known = calibrated({}, calibrationKey(name, 'chars/4'), { counted: 1_000, reported: 2_000 });
      expect(knownOf(known, name, 'chars/4')).toMatchObject({ factor: 2, samples: 1 });
    }
    let known: Calibration = {};
    for (let model = 0; model < 1_000; model++)
      known = calibrated(known, calibrationKey(`m${model}`, 'chars/4'), { counted: 1_000, reported: 2_000 });
    expect(Object.keys(known).length).toBeLessThan(100);
  });
});

test('a factor in use gives way only to one that is more than 5 % away', () => {
  expect([isOff(1, 1.049), isOff(1, 0.951), isOff(2, 2.09)]).toEqual([false, false, false]);
  expect([isOff(1, 1.06), isOff(1, 0.94), isOff(2, 1.8)]).toEqual([true, true, true]);
});

describe.skipIf(skipWithoutTranscripts())('on recorded sessions', () => {
  /** Deviations of our count of each request, as it is and as corrected by the requests before it; sorted. */
  async function deviations(ours: TokenizerName, providers: TokenizerName) {
    const [counter, provider] = [counterFor(ours), counterFor(providers)];
    const plain: number[] = [];
    const corrected: number[] = [];
    for await (const { line } of readTranscripts()) {
      const { messages } = parseExact(line) as { messages: unknown };
      let [counted, reported, applied, requests] = [0, 0, 1, 0];
      let known: Calibration = {};
      for (const message of checkMessages(messages)) {
        if (message.role === 'assistant' && counted > 0) {
          if (requests++ >= 5 && counted >= 4_000) {
            plain.push(Math.abs(counted / reported - 1));
            corrected.push(Math.abs((applied * counted) / reported - 1));
          }
          known = calibrated(known, key, { counted, reported });
          if (known[key] && isOff(applied, known[key].factor)) applied = known[key].factor;
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
    ['chars/4', 'o200k_base'],
    ['o200k_base', 'chars/3.3'],
  ] as const)(
    'counts by %s come close to those of a provider that counts by %s',
    async (ours, providers) => {
      const { plain, corrected } = await deviations(ours, providers);
      expect(corrected.length).toBeGreaterThan(1_000);
      expect(quantile(plain, 0.5)).toBeGreaterThan(0.1);
      expect(quantile(corrected, 0.5)).toBeLessThan(0.04);
      expect(quantile(corrected, 0.95)).toBeLessThan(0.08);
    },
    60_000,
  );
});
