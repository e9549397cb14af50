/** Patterns of a policy meet texts that others chose: none may take exponential time, and matches are found all the same. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LONGEST_FOUND, matchesIn, refusePattern } from '../src/conversation/pattern.js';

const found = (text: string, pattern: string) => [...matchesIn(text, pattern, 'policy.pins[0].pattern')];

describe('patterns that could take forever', () => {
  test.each([
    '(a+)+',
    '(a*)*b',
    '(a|a)*',
    '(a|aa)+$',
    '(\\w+\\s?)*',
    '((a{1,20})+)x',
    '(?:.*,)+',
    '([a-z]+)*!',
    '(a?b?)+',
    '(?:(?:x+)y?)+',
    '(\\w|_)*',
    '(a+){11}',
    '(',
  ])('%s is refused', (pattern) => {
    expect(refusePattern(pattern)).not.toBeNull();
    expect(() => found('aaaa', pattern)).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path: 'policy.pins[0].pattern' }),
    );
  });

  test.each([
    'Never .*',
    '^RULE: .+$',
    'ORD-\\d{6}',
    '\\b[A-Z]{2,5}-\\d+\\b',
    '(?:foo|bar)+',
    '\\w+(?:-\\w+)*',
    '(?:\\w+\\.)+com',
    '(?<id>\\d+)',
    '(?:ab){2,9}',
    'https?://\\S+',
    '[^()]*',
    '\\p{Lu}\\w+',
    '(?:a+){2}',
    '[(]+[)|]*',
  ])('%s is run', (pattern) => expect(refusePattern(pattern)).toBeNull());
});

test('in texts of any length the same matches are found as in one piece', () => {
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

test('ends of lines are ends of lines, wherever a window ends', () => {
  const lines = Array.from(
    { length: 3_000 },
    (_, index) => `${index % 7 === 0 ? 'Rule' : 'Text'} ${index}: rule`,
  );
  expect(found(lines.join('\n'), '^Rule \\d+').map(({ match }) => match)).toEqual(
    lines.filter((line) => line.startsWith('Rule')).map((line) => line.split(':')[0]),
  );
});

test('empty matches are none, and do not stop the search', () => {
  expect(found('a b c', '\\b').map(({ match }) => match)).toEqual([]);
  expect(found('aXbX', 'X|').map(({ from }) => from)).toEqual([1, 3]);
});

test('megabytes without a line end are searched', () => {
  const text = `${'lorem ipsum \u{1F600} \uD800 \0 '.repeat(400_000)}RULE 7`;
  expect(found(text, 'RULE \\d+').map(({ match, to }) => [match, to])).toEqual([['RULE 7', text.length]]);
});
