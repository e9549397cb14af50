/** Words read unit by unit are the words that the patterns find, also where one part of a text ends and the next begins. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { atOnce } from '../../../src/steps.js';
import { eachRun, eachToken, isLetterAt, type Letters } from '../../../src/summary/text/runs.js';

const alphabet = [
  ...'abzAZ09 _/\\.@#$:~+%-`\n',
  ...['é', 'e\u0301', 'ß', 'ж', '語', 'ก', '\u{1D400}', '\u{10330}', '🙂', '\uD800', '\uDC00', '\u200B'],
];
const text = fc.array(fc.constantFrom(...alphabet), { maxLength: 60 }).map((units) => units.join(''));

/** More than one part; its edge falls into the random text. */
const beside = text.chain((one) =>
  fc.nat({ max: one.length }).map((before) => 'a-1 '.repeat(8_192).slice(before) + one),
);

const runsOf = (given: string): [run: string, of: Letters][] => {
  const found: [string, Letters][] = [];
  atOnce(eachRun(given, (from, to, of) => found.push([given.slice(from, to), of])));
  return found;
};

const tokensOf = (given: string): string[] => {
  const found: string[] = [];
  atOnce(eachToken(given, (token) => found.push(token)));
  return found;
};

const lettersOf = (run: string): Letters => {
  if (/^[a-z]+$/.test(run)) return 'small';
  return /[\uD800-\uDFFF]/.test(run) ? 'any' : 'basic';
};

describe.each([
  ['short texts', text, 500],
  ['texts of two parts', beside, 30],
] as const)('in %s', (_, texts, numRuns) => {
  test('runs of letters and marks', () => {
    fc.assert(
      fc.property(texts, (one) => {
        const runs = one.match(/[\p{L}\p{M}]+/gu) ?? [];
        expect(runsOf(one)).toEqual(runs.map((run) => [run, lettersOf(run)]));
      }),
      { numRuns },
    );
  });

  test('tokens with a digit or a sign', () => {
    fc.assert(
      fc.property(texts, (one) => {
        const tokens = one.match(/[a-z0-9][\w@#$./\\:~+%-]*[a-z0-9]/g) ?? [];
        const isTold = (token: string) => /[\d_/\\@.]/.test(token);
        expect(tokensOf(one).filter(isTold)).toEqual(tokens.filter(isTold));
      }),
      { numRuns },
    );
  });
});

test('a letter is told from a mark, also in a pair', () => {
  const letters = ['a', 'é', '語', '\u{1D400}'].map((one) => isLetterAt(one, 0));
  const others = ['1', ' ', '\u0301', '🙂', '\uD800', '\uDC00'].map((one) => isLetterAt(one, 0));
  expect([letters, others]).toEqual([Array(4).fill(true), Array(6).fill(false)]);
});

test('a long text is read in steps', () => {
  const long = 'word '.repeat(20_000);
  for (const steps of [eachRun(long, () => undefined), eachToken(long, () => undefined)])
    expect([...steps].length).toBeGreaterThan(2);
});
