/**
 * Input is stored exactly or refused (invariant 1). `JSON.parse` is not enough: it silently keeps the last of two equal keys,
 * rounds numbers and reorders integer-like keys.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { checkPlainJson, parseExact } from '../../../src/conversation/json.js';
import type { Json } from '../../../src/conversation/message.js';
import { PalimpsestError } from '../../../src/errors.js';

function refusal(text: string, origin = {}): PalimpsestError {
  try {
    parseExact(text, origin);
  } catch (error) {
    if (error instanceof PalimpsestError && error.type === 'Input.Invalid') return error;
    throw error;
  }
  throw new Error(`accepted: ${text.slice(0, 200)}`);
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Any JSON text: every string, deep and wide, keys such as `__proto__`, `constructor`, `7` and lone surrogates among them. */
const key = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 6 }),
  fc.constantFrom(
    '__proto__',
    'constructor',
    'toJSON',
    'hasOwnProperty',
    '',
    '0',
    '7',
    '4294967294',
    '4294967295',
    '-1',
    '01',
  ),
  fc
    .array(fc.integer({ min: 0xd800, max: 0xdfff }), { maxLength: 2 })
    .map((units) => String.fromCharCode(...units)),
);

const { value: jsonValue } = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom(null, true, false, 0, 1e21, 5e-324, Number.MAX_VALUE, 0.1),
    fc.double({ noNaN: true, noDefaultInfinity: true }).filter((number) => !Object.is(number, -0)),
    fc.maxSafeInteger().filter((number) => !Object.is(number, -0)),
    key,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie('value')), { maxLength: 5 }).map((entries) => Object.fromEntries(entries)),
  ),
}));

describe('an accepted text', () => {
  test('gives the value of JSON.parse, keys in the same order, and is written back as the same text', () => {
    fc.assert(
      fc.property(jsonValue, fc.constantFrom(undefined, 1, '\t', '\r\n '), (value, space) => {
        const text = JSON.stringify(value, null, space);
        const parsed = parseExact(text);
        expect(JSON.stringify(parsed, null, space)).toBe(text);
        expect(parsed).toEqual(JSON.parse(text));
      }),
      { numRuns: 500 },
    );
  });

  test('may spell numbers and characters in any equivalent way', () => {
    const text =
      ' { "a" : [ 1.0 , 1e2, 12.50, -0.5E-1, 100e-2, 0.0, 0e9 ] ,\n "\\u0062\\/" : "\\ud83d\\ude00\\u0000\\t" } ';
    expect(parseExact(text)).toEqual({ a: [1, 100, 12.5, -0.05, 1, 0, 0], 'b/': '😀\u0000\t' });
  });

  test('keeps `__proto__` as an ordinary key', () => {
    const parsed = parseExact('{"__proto__":{"admin":true},"x":1}');
    expect(Object.keys(parsed as object)).toEqual(['__proto__', 'x']);
    expect((parsed as { admin?: unknown }).admin).toBeUndefined();
  });

  test('agrees with JSON.parse after any damage: refused by both, the same value, or refused because it cannot be stored exactly', () => {
    const damage = fc.constantFrom(
      '',
      ',',
      '"',
      '{',
      '}',
      '[',
      ']',
      ':',
      '\\',
      '\u0001',
      '-',
      '0',
      '1e',
      '.',
      'tru',
      'null',
      '\\u12',
      ' ',
      '\uFEFF',
      '/**/',
      "'",
      '\u00a0',
      '"a":1,',
    );
    fc.assert(
      fc.property(jsonValue, fc.nat(), fc.nat({ max: 3 }), damage, (value, position, removed, inserted) => {
        const whole = JSON.stringify(value);
        const at = position % (whole.length + 1);
        const text = whole.slice(0, at) + inserted + whole.slice(at + removed);
        try {
          const parsed = parseExact(text);
          expect(JSON.stringify(parsed)).toBe(JSON.stringify(JSON.parse(text)));
        } catch (error) {
          if (!(error instanceof PalimpsestError)) throw error;
          expect(error.message).toMatch(/^Line \d+, column \d+: /);
          if (parses(text)) expect(error.message).toMatch(/appears twice|cannot be kept/);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('refused, with line, column and path', () => {
  test.each([
    ['{"role":"user",\n "content":"a",\n  "role":"tool"}', 3, 3, 'role', /key "role" appears twice/],
    ['{"a":{"b":[0,{"c":1,"\\u0063":2}]}}', 1, 21, 'a.b[1].c', /key "c" appears twice/],
    [
      '[{"n":9007199254740993}]',
      1,
      7,
      '[0].n',
      /9007199254740993 cannot be kept exactly \(it would become 9007199254740992\)/,
    ],
    ['{"x y":[1e400]}', 1, 9, '["x y"][0]', /would become Infinity/],
    ['[1e-400]', 1, 2, '[0]', /cannot be kept/],
    ['{"a":-0}', 1, 6, 'a', /-0 cannot be kept/],
    ['[0.1000000000000000055]', 1, 2, '[0]', /would become 0.1\)/],
    ['{"b":1,"7":2}', 1, 8, '["7"]', /order of the key "7" cannot be kept/],
    ['{"9":1,"7":2}', 1, 8, '["7"]', /order of the key "7"/],
    ['{"a":1,}', 1, 8, undefined, /expected a key in double quotes, found "}"/],
    ['[1,]', 1, 4, '[1]', /expected a value, found "]"/],
    ['[1 2]', 1, 4, undefined, /expected "," or "]", found "2"/],
    ['{"a" 1}', 1, 6, 'a', /expected ":"/],
    ['{"a":"b', 1, 6, 'a', /string is not closed/],
    ['["a\nb"]', 1, 4, '[0]', /control character "\\n"/],
    ['["\\x41"]', 1, 3, '[0]', /not an escape sequence/],
    ['["\\u12"]', 1, 3, '[0]', /not an escape sequence/],
    ['{"a":1}\r\n{"b":2}', 2, 1, undefined, /after the value/],
    ['', 1, 1, undefined, /the end of the text/],
    ['[01]', 1, 2, '[0]', /not a number in JSON/],
    ['[.5]', 1, 2, '[0]', /expected a value/],
    ['[NaN]', 1, 2, '[0]', /expected a value, found "N"/],
    ['[truth]', 1, 2, '[0]', /expected a value, found "t"/],
    ['\uFEFF{}', 1, 1, undefined, /byte order mark/],
    ['["😀",\r"é",x]', 2, 5, '[2]', /found "x"/],
  ])('%j', (text, line, column, path, reason) => {
    const error = refusal(text);
    expect(error.message).toMatch(reason);
    expect(error.message).toContain(`Line ${line}, column ${column}: `);
    expect(error.path).toBe(path);
  });

  test('a line of a larger file with its number, and its value with its name', () => {
    const error = refusal('{"messages":[{"content":1e999}]}', { line: 17, path: 'session' });
    expect(error.message).toContain('Line 17, column 25: ');
    expect(error.path).toBe('session.messages[0].content');
  });

  test('a duplicate key of any object', () => {
    const name = fc.stringMatching(/^[a-z]{1,5}$/);
    const nest = fc.array(fc.oneof(name, fc.nat({ max: 3 })), { maxLength: 6 });
    fc.assert(
      fc.property(nest, name, jsonValue, jsonValue, (steps, twice, first, second) => {
        const inner = `{"${twice}":${JSON.stringify(first)},"other-key":0,"${twice}":${JSON.stringify(second)}}`;
        const text = steps.reduceRight<string>(
          (json, step) =>
            typeof step === 'string' ? `{"${step}":${json}}` : `[${'null,'.repeat(step)}${json}]`,
          inner,
        );
        const path = [...steps, twice]
          .map((step) => (typeof step === 'string' ? `.${step}` : `[${step}]`))
          .join('');
        expect(refusal(text).path).toBe(path.replace(/^\./, ''));
      }),
    );
  });

  test('exactly the numbers that a double cannot represent', () => {
    const digits = (max: number) => fc.stringMatching(new RegExp(`^[0-9]{1,${max}}$`));
    const literal = fc
      .tuple(fc.boolean(), digits(22), fc.option(digits(22)), fc.option(fc.integer({ min: -340, max: 320 })))
      .map(([minus, whole, fraction, exponent]) => {
        const integer = whole.replace(/^0+(?=\d)/, '');
        return `${minus ? '-' : ''}${integer}${fraction === null ? '' : `.${fraction}`}${exponent === null ? '' : `e${exponent}`}`;
      });
    // Both sides as integers over a common power of ten, by BigInt: no floating point in the comparison.
    const scaled = (number: string): bigint => {
      const [mantissa = '', exponent = '0'] = number.split('e');
      const [whole = '', fraction = ''] = mantissa.split('.');
      return BigInt(whole + fraction) * 10n ** BigInt(Number(exponent) - fraction.length + 800);
    };
    fc.assert(
      fc.property(literal, (number) => {
        const double = Number(number);
        const kept =
          Number.isFinite(double) && !Object.is(double, -0) && scaled(String(double)) === scaled(number);
        if (kept) expect(parseExact(`[${number}]`)).toEqual([double]);
        else expect(refusal(`[${number}]`).path).toBe('[0]');
      }),
      { numRuns: 2_000 },
    );
  });

  test('nesting beyond 500 levels, without a stack overflow at any depth', () => {
    expect(parseExact('['.repeat(500) + ']'.repeat(500))).toBeDefined();
    expect(refusal('['.repeat(501) + ']'.repeat(501)).message).toMatch(/nested deeper than 500/);
    expect(refusal('{"a":['.repeat(1_000_000)).message).toMatch(/nested deeper than 500/);
    expect(refusal('['.repeat(501)).message.length).toBeLessThan(300);
  });
});

describe('a value in memory', () => {
  const refusalOf = (value: unknown): PalimpsestError => {
    try {
      checkPlainJson(value, 'messages');
    } catch (error) {
      if (error instanceof PalimpsestError) return error;
      throw error;
    }
    throw new Error('accepted');
  };

  test('is accepted when it is JSON, and properties that are undefined count as absent', () => {
    fc.assert(
      fc.property(jsonValue, (value) => {
        checkPlainJson(value, 'messages');
        expect(JSON.stringify(parseExact(JSON.stringify(value)))).toBe(JSON.stringify(value));
      }),
    );
    checkPlainJson([{ name: undefined, toJSON: 'only a word' }, Object.create(null)], 'messages');
    const shared = { text: 'twice, but not within itself' };
    checkPlainJson([shared, shared], 'messages');
  });

  class Turn {
    role = 'user';
  }
  const cyclic: { self?: unknown } = {};
  cyclic.self = [cyclic];
  test.each([
    [[{ n: Number.NaN }], 'messages[0].n', /NaN/],
    [[{ n: -Infinity }], 'messages[0].n', /-Infinity/],
    [[-0], 'messages[0]', /-0/],
    [[{ 'a b': 5n }], 'messages[0]["a b"]', /bigint/],
    [[() => 1], 'messages[0]', /function/],
    [[Symbol('s')], 'messages[0]', /symbol/],
    [[{ at: new Date(0) }], 'messages[0].at', /toJSON/],
    [[new Map()], 'messages[0]', /instance of Map/],
    [[new Turn()], 'messages[0]', /instance of Turn/],
    [[Object('boxed')], 'messages[0]', /instance of String/],
    [[{ toJSON: () => 'something else' }], 'messages[0]', /toJSON/],
    [[undefined], 'messages[0]', /undefined/],
    [[, 1], 'messages', /holes/],
    [Object.assign([1], { extra: 2 }), 'messages', /keys that are not indexes/],
    [[{ [Symbol('hidden')]: 1 }], 'messages[0]', /symbol among its keys/],
    [cyclic, 'messages.self[0]', /refers back/],
  ])('is refused with its path: %#', (value, path, reason) => {
    const error = refusalOf(value);
    expect(error.path).toBe(path);
    expect(error.message).toMatch(reason);
  });
});

test('megabytes of digits or of unclosed texts are read or refused in one pass', () => {
  const zeros = '0'.repeat(1_000_000);
  expect(refusal(`[1${zeros}1]`).message).toMatch(/cannot be kept exactly/);
  expect(refusal(`[0.1${zeros}1]`).message).toMatch(/cannot be kept exactly/);
  expect(refusal(`[${'"\\\\'.repeat(300_000)}`).message).toMatch(/expected|not closed|must be escaped/);
});
