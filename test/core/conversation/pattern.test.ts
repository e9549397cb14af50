/** Patterns of a policy are matched against texts of others: any text takes linear time, and all matches are found. */
import fc from 'fast-check';
import { RE2JS } from 're2js';
import { describe, expect, test, vi } from 'vitest';
import { LONGEST_FOUND, Matching, problemOfPattern, type Match } from '../../../src/conversation/pattern.js';
import { parsePolicy } from '../../../src/policy/schema.js';
import { inSlices } from '../../../src/steps.js';

const found = (text: string, pattern: string, matching = new Matching()): Match[] =>
  [...matching.search(text, pattern, 'policy.pins[0].pattern')].filter((match) => match !== null);

const texts = (text: string, pattern: string): string[] => found(text, pattern).map(({ match }) => match);

describe('patterns that take a backtracking engine exponential or polynomial time end quickly', () => {
  test.each([
    'a*a*a*a*b',
    '(?:a|a){10}(?:a|a){10}b',
    '(?:a?){30}a{30}b',
    '(a+)+b',
    '(a|aa)+b',
    '(\\w+\\s?)*!',
    '((a{1,20})+)x',
    '[^]*[^]*[^]*x',
  ])('%s on 20,000 letters', (pattern) => {
    expect(problemOfPattern(pattern)).toBeNull();
    expect(found('a'.repeat(20_000), pattern)).toEqual([]);
  });
});

describe('a pattern that cannot be matched in linear time is refused with its path and an alternative', () => {
  test.each([
    ['(?=a)b', 'a lookaround', 'Match the surrounding words'],
    ['x(?!a).', 'a lookaround', '[^x]'],
    ['(?<=key: )\\w+', 'a lookaround', 'key: (\\w+)'],
    ['(?<!a)b', 'a lookaround', 'Match the surrounding words'],
    ['(a)\\1', 'back-reference', 'again'],
    ['(?<n>a)\\k<n>', 'back-reference', 'again'],
    ['(', 'not valid RE2 syntax', 'RE2'],
    ['a{1001}', 'not valid RE2 syntax|too large', 'RE2|fewer repetitions'],
    ['a{1000}{1000}', 'not valid RE2 syntax|too large', 'RE2|fewer repetitions'],
    ['(?:a{100}){100}', 'too large', 'fewer repetitions'],
    ['(?:abcdefghij){200}', 'too large', 'fewer repetitions'],
    [`(?:${'x'.repeat(900)}){1000}`, 'too large', 'fewer repetitions'],
    ['x'.repeat(1_001), '', ''],
  ])('%s', (pattern, problem, hint) => {
    expect(problemOfPattern(pattern)?.problem).toMatch(new RegExp(problem));
    for (const [policy, path] of [
      [{ pins: ['a', { pattern }] }, 'policy.pins[1].pattern'],
      [{ redact: { patterns: ['a', pattern] } }, 'policy.redact.patterns[1]'],
    ] as const) {
      const refusal: unknown = (() => {
        try {
          return parsePolicy(policy);
        } catch (error) {
          return error;
        }
      })();
      expect(refusal).toMatchObject({ type: 'Input.Invalid', path });
      if (pattern.length > 1_000) continue;
      expect(refusal).toHaveProperty('message', expect.stringMatching(new RegExp(problem)));
      const hints = hint.split('|');
      const { hint: told } = refusal as { hint: string };
      expect(hints.some((one) => told.includes(one))).toBe(true);
    }
  });

  test('more patterns than a policy may hold', () => {
    const pins = Array.from({ length: 101 }, (_, index) => ({ pattern: `a${index}` }));
    expect(() => parsePolicy({ pins })).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path: 'policy.pins' }),
    );
    expect(parsePolicy({ pins: pins.slice(1) }).pins).toHaveLength(100);
  });
});

describe('patterns that take long to compile are refused before any of them is compiled', () => {
  const compile = vi.spyOn(RE2JS, 'compile');
  const numbered = (pattern: string, count: number) =>
    Array.from({ length: count }, (_, index) => `${pattern}${index}`);

  test.each([
    ['a class of white space', '[\\S]'.repeat(100)],
    ['a large range', '[B-\\u{1E900}]'.repeat(60)],
    ['a range with an escaped end', '[\\.-\\uFFFF]'.repeat(60)],
    ['many in one class', `[${'\\S'.repeat(400)}]`],
    ['Unicode properties', '\\p{L}'.repeat(150)],
    ['their short form', '[\\PL]'.repeat(150)],
  ])('%s, whose case is folded', (_, classes) => {
    compile.mockClear();
    expect(problemOfPattern(`(?i)${classes}`)?.problem).toContain('classes');
    expect(problemOfPattern(`(?s-m:x)(?mi:${classes})`)?.problem).toContain('classes');
    expect(compile).not.toHaveBeenCalled();
  });

  test('a list of patterns that are too large together', () => {
    compile.mockClear();
    for (const patterns of [
      numbered('\\w'.repeat(400), 80),
      numbered('(?:abc){200}', 60),
      numbered('(?i)\\p{L}\\p{N}\\P{Z}\\p{Lu}\\p{M}\\p{S}', 90),
    ]) {
      const pins = patterns.map((pattern) => ({ pattern }));
      expect(() => parsePolicy({ pins })).toThrow(
        expect.objectContaining({ type: 'Input.Invalid', path: 'policy.pins' }),
      );
      expect(() => parsePolicy({ redact: { patterns } })).toThrow(
        expect.objectContaining({ type: 'Input.Invalid', path: 'policy.redact.patterns' }),
      );
    }
    expect(compile).not.toHaveBeenCalled();
  });

  test('usual patterns may be used in any number', () => {
    const patterns = [
      ...numbered('(?i)\\bpassword\\s*[:=]\\s*\\S+', 50),
      ...numbered('[A-Za-z0-9._%+-]+@[\\p{L}0-9.-]+\\.\\p{L}{2,}', 50),
    ];
    expect(parsePolicy({ redact: { patterns } }).redact).toEqual({ patterns });
    expect(problemOfPattern('(?i)[^]*a-z[\\s\\S]*[\\w.-]+')).toBeNull();
  });

  test('the case of all characters that are no white space is not folded one by one', () => {
    compile.mockClear();
    expect(problemOfPattern(`(?i)${'\\S'.repeat(490)}`)).toBeNull();
    expect(compile.mock.lastCall?.[0]).not.toContain('10FFFF');
    expect(texts('Aé \u00a0bK', '(?i)\\S+')).toEqual(['Aé', 'bK']);
  });
});

describe('a pattern has its meaning of JavaScript', () => {
  const cases: [string, string][] = [
    ['Never .*', 'a\nNever x y\r\nb'],
    ['^RULE: .+$', 'x\r\nRULE: one\r\nRULE: two\nRULE: three\u2028RULE: four'],
    ['a.b', 'a\u2028b a\rb a\u0085b'],
    ['a\\r\\nb', 'a\r\nb'],
    ['\\s', 'a\u00a0b\ufeffc\u3000\v'],
    ['[\\s,]+', 'a,\u00a0,b'],
    ['[^\\s]+', 'a\u00a0bc'],
    ['[\\S]+', 'a\u00a0bc'],
    ['\\S+', 'é\u00a0b'],
    ['.', 'a\u{1F600}\uD800b\0'],
    ['[^a]', 'a\uDC00b'],
    ['\u{1F600}+|\\u{1F601}|\\ud83d\\ude02', 'x\u{1F600}\u{1F600}y\u{1F601}z\u{1F602}'],
    ['\\0|\\x00|\\u0000', 'a\0b'],
    ['\\cJ', 'a\nb'],
    ['[\\b]', 'a\bb'],
    ['(?<id>\\d+)-(\\w)', 'n 12-x'],
    ['\\p{Lu}\\p{Ll}+', 'Éa Ab x'],
    ['\\p{Script=Greek}+', 'aαβ'],
    ['[\\p{sc=Han}]+', '漢字 x'],
    ['\\P{L}+', 'ab12'],
    ['\\b\\w+\\b', 'é ab cd'],
    ['[^]', 'a\n'],
    ['x[^]y', 'x\ny'],
    ['a{2,3}?', 'aaaa'],
    ['(?:ab|a)(?:c|bcd)', 'abcd'],
    ['\\/\\.', '/.'],
    ['[\\-a]+', '-a'],
    ['X|', 'aXbX'],
    ['\\b', 'a b'],
    ['[(]+[)|]*', '((|)'],
  ];
  test.each(cases)('%s', (pattern, text) => {
    const expected = [...text.matchAll(new RegExp(pattern, 'gmu'))].map(([match]) => match);
    expect(texts(text, pattern)).toEqual(expected.filter((match) => match !== ''));
  });

  test('a pattern may set flags inside, as in RE2', () => {
    expect(texts('ABC abc', '(?i)abc')).toEqual(['ABC', 'abc']);
    expect(texts('a\nb', '(?s)a.b')).toEqual(['a\nb']);
    expect(texts('a]b', '[^]]')).toEqual(['a', 'b']);
    expect(texts('a.b', '\\Qa.b\\E')).toEqual(['a.b']);
  });
});

test('texts of any length have the same matches as in one piece', () => {
  const piece = fc.oneof(
    fc.constantFrom('RULE 12', ' ', '\n', 'x'.repeat(300), '\u{1F600}', 'RULE'),
    fc.string({ unit: 'binary', maxLength: 40 }),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
      const text = pieces.join('');
      const whole = [...text.matchAll(/RULE \d+|\u{1F600}+/gmu)].map(({ index, 0: match }) => ({
        from: index,
        to: index + match.length,
        match,
        isPiece: false,
      }));
      const read = found(text, 'RULE \\d+|\\u{1F600}+');
      if (whole.every(({ match }) => match.length < LONGEST_FOUND)) expect(read).toEqual(whole);
    }),
  );
});

test('ends of lines and words are found at every end of a window', () => {
  const lines = Array.from(
    { length: 3_000 },
    (_, index) => `${index % 7 === 0 ? 'Rule' : 'Text'} ${index}: rule`,
  );
  expect(texts(lines.join('\n'), '^Rule \\d+')).toEqual(
    lines.filter((line) => line.startsWith('Rule')).map((line) => line.split(':')[0]),
  );
  const oneLine = 'rule '.repeat(2_000);
  expect(texts(oneLine, '^rule')).toEqual(['rule']);
  expect(texts('a'.repeat(5_000), '\\ba')).toEqual(['a']);
});

test('megabytes without a line end are searched', () => {
  const text = `${'lorem ipsum \u{1F600} \uD800 \0 '.repeat(400_000)}RULE 7`;
  expect(found(text, 'RULE \\d+').map(({ match, to }) => [match, to])).toEqual([['RULE 7', text.length]]);
});

describe('long matches', () => {
  const pattern = '(?:\\w?){200}b|a';
  const text = 'a'.repeat(1_000_000);

  test('ends with a failure that names the pattern once all of it takes too long', () => {
    expect(() => found(text, pattern, new Matching({ mostMs: 50 }))).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path: 'policy.pins[0].pattern' }),
    );
  });

  test('gives way to other work, and ends when it is cancelled', async () => {
    const over = new AbortController();
    const matching = new Matching({ signal: over.signal });
    let turns = 0;
    const others = setInterval(() => {
      turns += 1;
      if (turns === 3) over.abort(new Error('cancelled'));
    }, 1);
    function* steps() {
      for (const _ of matching.search(text, pattern, 'p')) yield;
    }
    await expect(inSlices(steps(), over.signal)).rejects.toThrow('cancelled');
    clearInterval(others);
    expect(turns).toBe(3);
  });
});
