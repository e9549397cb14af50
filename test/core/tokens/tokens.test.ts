/**
 * The tokens of a conversation. The counts decide when sessions are compacted and whether a context fits. They equal the
 * tokenizer's on ordinary text, and take linear time on text that would take the tokenizer minutes.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import fc from 'fast-check';
import { encode as cl100k } from 'gpt-tokenizer/encoding/cl100k_base';
import { encode as o200k } from 'gpt-tokenizer/encoding/o200k_base';
import { describe, expect, test } from 'vitest';
import { parseExact } from '../../../src/conversation/json.js';
import { type ChatMessage, isMedia } from '../../../src/conversation/message.js';
import { checkMessages, textOf } from '../../../src/conversation/validate.js';
import {
  IMAGE_TOKENS,
  LOW_DETAIL_IMAGE_TOKENS,
  mediaTokens,
  OTHER_MEDIA_TOKENS,
} from '../../../src/tokens/media.js';
import {
  bytePairCounter,
  counterFor,
  registerCounter,
  registerCounters,
  RUN_LIMIT,
  SLICE_CHARACTERS,
  textSlices,
  tokenizerForModel,
  unbrokenRunsSplit,
} from '../../../src/tokens/counter.js';
import { countMessage, countOverhead, FRAMING_TOKENS } from '../../../src/tokens/message.js';
import { resolveWindow, windowOfModel } from '../../../src/tokens/windows.js';
import { readTranscripts, recordedTokens, skipWithoutTranscripts } from '../../support/transcripts.js';

const plain = { disallowedSpecial: new Set<string>() };

const encoders = {
  o200k_base: (text: string) => o200k(text, plain).length,
  cl100k_base: (text: string) => cl100k(text, plain).length,
};

const names = ['o200k_base', 'cl100k_base'] as const;

/** Words, code, other scripts, special tokens and odd characters, separated as they are in texts. */
const word = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 30 }),
  fc.string({ unit: 'binary', maxLength: 10 }),
  fc.constantFrom(
    '<|endoftext|>',
    '<|im_start|>',
    '```ts',
    '{"path":"/src/a.ts"}',
    "don't",
    '汉字漢語',
    '😀👩‍👩‍👧',
    'e\u0301\u0302',
    '\ud800',
    '\ufffd',
    '\ufeffusing',
    '3.14159265',
    '====',
    'camelCaseName',
  ),
);

const ordinary = fc
  .array(fc.tuple(word, fc.constantFrom(' ', '\n', '\r\n\r\n', '\t', '  ', '', ', ')), { maxLength: 60 })
  .map((words) => words.flat().join(''));

/** One kind of character repeated, which encoders cannot split. */
const unbroken = fc
  .tuple(
    fc.constantFrom(
      'a',
      'Z',
      'aB',
      'é',
      '汉',
      '字漢',
      '😀',
      '=',
      '-=',
      ' ',
      '\n',
      '/\n',
      '\u0301',
      'ㄱ',
      '\r\n',
      '!\n',
    ),
    fc.integer({ min: 200, max: 3_000 }),
  )
  .map(([unit, times]) => unit.repeat(times));

describe('the counter', () => {
  test.each(names)('equals %s on ordinary text, special tokens being text', (name) => {
    const counter = counterFor(name);
    fc.assert(
      fc.property(ordinary, (text) => {
        // Rare generated texts hold a long run after all; those are the next tests' matter.
        fc.pre([...unbrokenRunsSplit(text)].length === 1);
        expect(counter.count(text)).toBe(encoders[name](text));
      }),
      { numRuns: 400 },
    );
  });

  test.each(names)('equals %s on each of its tokens', (name) => {
    const file = createRequire(import.meta.url).resolve(`gpt-tokenizer/data/${name}.tiktoken`);
    const lines = readFileSync(file, 'latin1').trim().split('\n');
    const texts = lines.map((line) => Buffer.from(line.split(' ')[0] ?? '', 'base64').toString());
    const counter = counterFor(name);
    expect(texts.length).toBeGreaterThan(100_000);
    expect(texts.filter((text) => counter.count(text) !== encoders[name](text))).toEqual([]);
  });

  test('counts special tokens as ordinary text', () => {
    expect(counterFor('o200k_base').count('<|endoftext|>')).toBeGreaterThan(3);
    expect(counterFor('o200k_base').count('')).toBe(0);
  });

  test.each(names)('differs from %s by at most 4 tokens for each cut of an unbroken run', (name) => {
    const counter = counterFor(name);
    fc.assert(
      fc.property(fc.array(fc.oneof(unbroken, word), { minLength: 1, maxLength: 4 }), (parts) => {
        const text = parts.join('');
        const cuts = [...unbrokenRunsSplit(text)].length - 1;
        expect(Math.abs(counter.count(text) - encoders[name](text))).toBeLessThanOrEqual(4 * cuts);
      }),
      { numRuns: 60 },
    );
  });
});

describe('unbroken runs', () => {
  const o200kPieces =
    /[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'(?:[sdmt]|ll|ve|re))?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'(?:[sdmt]|ll|ve|re))?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+/gu;
  const cl100kPieces =
    /'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+$|\s*[\r\n]|\s+(?!\S)|\s/gu;
  const hostile = fc.array(fc.oneof(unbroken, word), { maxLength: 8 }).map((parts) => parts.join(''));

  test('are split without losing a character or cutting a surrogate pair', () => {
    fc.assert(
      fc.property(hostile, (text) => {
        const slices = [...unbrokenRunsSplit(text)];
        expect(slices.join('')).toBe(text);
        const halves = slices
          .slice(1)
          .filter((slice, at) => /[\ud800-\udbff]$/.test(slices[at] ?? '') && /^[\udc00-\udfff]/.test(slice));
        expect(halves).toEqual([]);
      }),
    );
  });

  test('leave no piece to an encoder that is longer than two runs', () => {
    fc.assert(
      fc.property(hostile, (text) => {
        for (const slice of unbrokenRunsSplit(text)) {
          for (const pattern of [o200kPieces, cl100kPieces]) {
            const longest = Math.max(0, ...Array.from(slice.matchAll(pattern), ([piece]) => piece.length));
            expect(longest).toBeLessThanOrEqual(2 * RUN_LIMIT + 8);
          }
        }
      }),
    );
  });

  test.each(['a', '汉', '😀', '=', ' ', '/\n', '\u0301', 'aé'])(
    'cost in proportion to their length: %j',
    (unit) => {
      // An encoder's work on a piece grows with the square of its length; this sums it up instead of taking time.
      const work = (characters: number): number => {
        let squares = 0;
        const counter = bytePairCounter('o200k_base', () => (text) => {
          for (const [piece] of text.matchAll(o200kPieces)) squares += piece.length ** 2;
          return 1;
        });
        counter.count(unit.repeat(characters / unit.length));
        return squares;
      };
      expect(work(200_000) / work(100_000)).toBeLessThan(2.1);
      expect(work(200_000)).toBeLessThanOrEqual(200_000 * (2 * RUN_LIMIT + 8));
    },
  );

  test.each(['a', '汉', '/\n'])('of 20 MB are counted: %j', (unit) => {
    const text = unit.repeat(20_000_000 / unit.length);
    const tokens = counterFor('o200k_base').count(text);
    const sample = counterFor('o200k_base').count(text.slice(0, 256_000));
    expect(tokens / (text.length / 256_000) / sample).toBeCloseTo(1, 1);
  });
});

describe('a count of characters', () => {
  test('is linear in ASCII and does not undercount other scripts', () => {
    expect(counterFor('chars/4').count('abcd'.repeat(100))).toBe(100);
    expect(counterFor('chars/3.3').count('abc'.repeat(110))).toBe(100);
    for (const text of [
      '汉字漢語'.repeat(50),
      'これはテストです。'.repeat(20),
      '😀🎉'.repeat(50),
      '한국어 문장입니다. '.repeat(20),
      'Это обычный текст. '.repeat(20),
    ]) {
      expect(counterFor('chars/4').count(text) / encoders.o200k_base(text)).toBeGreaterThan(0.8);
    }
  });
});

describe('a message', () => {
  const counter = counterFor('o200k_base');
  const count = (message: ChatMessage): number => countMessage(message, counter);

  test('counts framing, text, name, refusal and reasoning, and for each call name, arguments and framing', () => {
    expect(count({ role: 'user', content: null })).toBe(FRAMING_TOKENS);
    expect(count({ role: 'user', content: 'hello world', name: 'Ada' })).toBe(
      FRAMING_TOKENS + counter.count('hello world') + counter.count('Ada'),
    );
    expect(count({ role: 'assistant', refusal: 'No.', reasoning_content: 'Why?' })).toBe(
      FRAMING_TOKENS + counter.count('No.') + counter.count('Why?'),
    );
    const call = {
      id: 'call_not_counted',
      type: 'function',
      function: { name: 'read_file', arguments: '{"path":"a.ts"}' },
    };
    const one = FRAMING_TOKENS + counter.count('read_file') + counter.count('{"path":"a.ts"}');
    expect(count({ role: 'assistant', content: null, tool_calls: [call, call] })).toBe(
      FRAMING_TOKENS + 2 * one,
    );
    expect(count({ role: 'assistant', function_call: call.function })).toBe(FRAMING_TOKENS + one);
    const custom = { id: 'c', type: 'custom', custom: { name: 'read_file', input: '{"path":"a.ts"}' } };
    expect(count({ role: 'assistant', tool_calls: [custom] })).toBe(FRAMING_TOKENS + one);
  });

  test('counts media with a fixed number, whatever the size of their data', () => {
    const image = (url: string, detail?: string) => ({
      type: 'image_url',
      image_url: { url, ...(detail === undefined ? {} : { detail }) },
    });
    const data = `data:image/png;base64,${'iVBORw0KGgo'.repeat(200_000)}`;
    const text = { type: 'text', text: 'what is this?' };
    const words = FRAMING_TOKENS + counter.count('what is this?');
    expect(count({ role: 'user', content: [text, image(data)] })).toBe(words + IMAGE_TOKENS);
    expect(
      count({ role: 'user', content: [text, image('https://x/y.png'), image('https://x/y.png', 'low')] }),
    ).toBe(words + IMAGE_TOKENS + LOW_DETAIL_IMAGE_TOKENS);
    expect(count({ role: 'user', content: [text, { type: 'file', file: { file_data: data } }] })).toBe(
      words + OTHER_MEDIA_TOKENS,
    );
    expect(count({ role: 'user', content: [text, { type: 'novel_kind', blob: data }] })).toBeLessThan(
      words + OTHER_MEDIA_TOKENS + 30,
    );
    expect(
      count({
        role: 'user',
        content: [text, { type: 'novel_kind', hint: 'six words that the model reads' }],
      }),
    ).toBeGreaterThan(words + 6);
  });
});

describe('fields that a provider or router adds', () => {
  const counter = counterFor('o200k_base');
  const bare = countMessage({ role: 'assistant', content: 'Done.' }, counter);
  const extra = (fields: Record<string, unknown>): number =>
    countMessage({ role: 'assistant', content: 'Done.', ...fields }, counter) - bare;
  const thought = 'The user wants the smaller change, so the index stays as it is. '.repeat(5);

  test('are counted if they have text', () => {
    expect(extra({ thinking: thought })).toBe(counter.count(thought));
    const details = [{ type: 'reasoning.text', text: thought, format: 'unknown', index: 0 }];
    expect(extra({ reasoning_details: details })).toBe(counter.count(JSON.stringify(details)));
    expect(extra({ annotations: [{ type: 'url_citation', url: 'https://example.org/a' }] })).toBeGreaterThan(
      5,
    );
    expect(extra({ timestamp: 1_700_000_000, cached: true, audio: null })).toBe(0);
  });

  test('are counted once if a router repeats the reasoning', () => {
    const repeated = { reasoning: thought, reasoning_details: [{ type: 'reasoning.text', text: thought }] };
    expect(extra(repeated)).toBeLessThan(counter.count(thought) + 20);
  });

  test('are counted as data if they are encoded', () => {
    const signature = 'Q2xhdWRl'.repeat(1_000);
    expect(extra({ thinking_blocks: [{ type: 'thinking', thinking: thought, signature }] })).toBeLessThan(
      counter.count(thought) + OTHER_MEDIA_TOKENS + 30,
    );
  });

  test('of any kind, nested and odd, never make a count fail', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.array(fc.jsonValue()), (fields, content) => {
        const parts = content.map((inner) => ({ type: 'tool_result', content: inner }));
        const message = JSON.parse(
          JSON.stringify({ ...fields, role: 'user', content: parts }),
        ) as ChatMessage;
        delete message.tool_calls;
        delete message.function_call;
        expect(countMessage(message, counter)).toBeGreaterThanOrEqual(FRAMING_TOKENS);
      }),
    );
  });
});

describe('a custom counter', () => {
  const words = (text: string): number => text.split(/\s+/).filter((word) => word !== '').length;
  const failureOf = (act: () => unknown): unknown => {
    try {
      return act();
    } catch (error) {
      return error;
    }
  };

  test('counts texts under its registered name, long ones in complete slices', () => {
    registerCounter('words', words);
    const counter = counterFor('custom:words');
    expect(counter.count('three short words')).toBe(3);
    expect(counter.count('')).toBe(0);
    const long = 'Ünïcode wörds 😀😀 and so on. '.repeat(20_000);
    expect(counter.count(long)).toBe(words(long));
    expect(countMessage({ role: 'user', content: 'three short words' }, counter)).toBe(FRAMING_TOKENS + 3);
  });

  test('gets short slices that together are the text, without a cut surrogate pair', () => {
    const text = fc.oneof(
      ordinary,
      fc.constantFrom('a', '😀', ' ', 'word ').map((unit) => unit.repeat(70_001)),
    );
    fc.assert(
      fc.property(fc.array(text, { maxLength: 4 }), fc.nat(3), (parts, offset) => {
        const whole = 'x'.repeat(offset) + parts.join('');
        const slices = [...textSlices(whole)];
        expect(slices.join('')).toBe(whole);
        for (const slice of slices) {
          expect(slice.length).toBeLessThanOrEqual(SLICE_CHARACTERS);
          if (/[\ud800-\udbff]$/.test(slice) && slice !== slices.at(-1)) {
            expect(slices[slices.indexOf(slice) + 1]).not.toMatch(/^[\udc00-\udfff]/);
          }
        }
      }),
      { numRuns: 40 },
    );
  });

  test.each([NaN, -1, Infinity, '7', undefined])('that answers %s is refused', (answer) => {
    registerCounter('odd', () => answer as number);
    expect(failureOf(() => counterFor('custom:odd').count('text'))).toMatchObject({
      type: 'Input.Invalid',
      path: 'policy.tokenizer',
      message: expect.stringContaining(`custom:odd returned ${String(answer)}`),
    });
  });

  test('that throws, is not a function, or is not registered is refused by name', () => {
    registerCounter('broken', () => {
      throw new RangeError('too long');
    });
    expect(failureOf(() => counterFor('custom:broken').count('text'))).toMatchObject({
      type: 'Input.Invalid',
      message: expect.stringMatching(/custom:broken failed .* too long/),
    });
    expect(failureOf(() => counterFor('custom:nobody'))).toMatchObject({ path: 'policy.tokenizer' });
    expect(failureOf(() => registerCounter('with space', words))).toMatchObject({ path: 'counters' });
    expect(failureOf(() => registerCounters({ none: 'x' as never }))).toMatchObject({
      path: 'counters.none',
    });
  });
});

describe('the request overhead', () => {
  const counter = counterFor('o200k_base');

  test('is a number as given, texts as counted, or system prompt and tool definitions with their framing', () => {
    const tool = {
      type: 'function',
      function: {
        name: 'read_file',
        parameters: { type: 'object', properties: { path: { type: 'string' } } },
      },
    };
    const json = counter.count(JSON.stringify(tool)) + FRAMING_TOKENS;
    expect(countOverhead(1_234, counter)).toBe(1_234);
    expect(countOverhead(['You are brief.', ''], counter)).toBe(counter.count('You are brief.'));
    expect(countOverhead({ tools: [tool, tool] }, counter)).toBe(2 * json);
    expect(countOverhead({ system: 'You are brief.', tools: [tool] }, counter)).toBe(
      counter.count('You are brief.') + FRAMING_TOKENS + json,
    );
    expect(countOverhead({}, counter)).toBe(0);
  });
});

describe('models', () => {
  test.each([
    ['gpt-4o-mini-2024-07-18', 'o200k_base', 128_000],
    ['openai/gpt-4.1', 'o200k_base', 1_047_576],
    ['ft:gpt-4o-mini:org::abc', 'o200k_base', 128_000],
    ['gpt-5-mini', 'o200k_base', 400_000],
    ['o3-mini', 'o200k_base', 200_000],
    ['gpt-4', 'cl100k_base', 8_192],
    ['gpt-4-0613', 'cl100k_base', 8_192],
    ['gpt-4-turbo-2024-04-09', 'cl100k_base', 128_000],
    ['gpt-3.5-turbo-0125', 'cl100k_base', 16_385],
    ['claude-sonnet-4-5-20250929', 'chars/3.3', 200_000],
    ['us.anthropic.claude-3-5-haiku-20241022-v1:0', 'chars/3.3', 200_000],
    ['anthropic/claude-opus-4.1', 'chars/3.3', 200_000],
    ['models/gemini-2.5-pro', 'chars/4', 1_048_576],
    ['qwen3:32b', 'chars/4', undefined],
    ['o10-unheard-of', 'o200k_base', undefined],
    ['gpt-4ever', 'cl100k_base', undefined],
  ] as const)('%s is counted by %s, window %s', (model, tokenizer, window) => {
    expect(tokenizerForModel(model)).toBe(tokenizer);
    expect(windowOfModel(model)).toBe(window);
  });

  test('a window is taken as given, else from the registry, else from the fallback, and says which', () => {
    const fallbackContextWindow = 32_768;
    expect(resolveWindow({ contextWindow: 9_000, model: 'gpt-4o', fallbackContextWindow })).toEqual({
      tokens: 9_000,
      source: 'explicit',
    });
    expect(resolveWindow({ model: 'gpt-4o', fallbackContextWindow })).toEqual({
      tokens: 128_000,
      source: 'model',
    });
    expect(resolveWindow({ model: 'nobody-knows', fallbackContextWindow })).toEqual({
      tokens: 32_768,
      source: 'fallback',
    });
    expect(resolveWindow({ fallbackContextWindow })).toEqual({ tokens: 32_768, source: 'fallback' });
    expect(tokenizerForModel()).toBe('o200k_base');
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  test('have the counts of their collection, apart from framing, names and images', async () => {
    const counter = counterFor('o200k_base');
    const expected = await recordedTokens();
    let sessions = 0;
    let exact = 0;
    for await (const { line } of readTranscripts()) {
      const { id, messages } = parseExact(line) as { id: string; messages: unknown };
      let counted = 0;
      let cuts = 0;
      for (const message of checkMessages(messages)) {
        const media = (Array.isArray(message.content) ? message.content : []).filter(isMedia);
        const images = media.reduce((sum, part) => sum + mediaTokens(part), 0);
        const framing = FRAMING_TOKENS * (1 + (message.tool_calls?.length ?? 0));
        counted += countMessage(message, counter) - framing - images - counter.count(message.name ?? '');
        cuts += [...unbrokenRunsSplit(textOf(message))].length - 1;
      }
      const deviation = counted - (expected.get(id) ?? NaN);
      expect(Math.abs(deviation), id).toBeLessThanOrEqual(cuts);
      if (deviation === 0) exact++;
      sessions++;
    }
    expect(sessions).toBe(expected.size);
    // One has a table padded with runs of some 500 spaces.
    expect(exact).toBeGreaterThanOrEqual(sessions - 1);
  });
});
