/**
 * The summarizer reads the original of every evicted message, whole or in pieces: chunks cover all text without overlap, stay
 * within their size, and are the same again when a later plan evicts more.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LoggedMessage } from '../../../src/conversation/message.js';
import { renderMessage, renderParts } from '../../../src/conversation/render.js';
import { coverageOf } from '../../../src/summary/coverage.js';
import {
  cutChunks,
  digestKey,
  halveChunk,
  transcriptOf,
  type ChunkRef,
} from '../../../src/summary/ask/chunk.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';

const counter = counterFor('o200k_base');

const itemsOf = (messages: readonly LoggedMessage[]) =>
  messages.map((logged) => ({ seq: logged.seq, tokens: logged.tokens, text: () => renderMessage(logged) }));

const text = fc.oneof(
  { weight: 4, arbitrary: fc.lorem({ maxCount: 60 }) },
  fc.string({ unit: 'binary', maxLength: 400 }),
  fc.string({ unit: 'grapheme', maxLength: 300 }),
  fc.constantFrom(
    '',
    '😀'.repeat(500),
    '</message>'.repeat(60),
    'x'.repeat(3_000),
    '語'.repeat(700),
    'a b\n'.repeat(900),
  ),
);

const content = fc.array(text, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('\n'));

const history = fc
  .array(fc.record({ role: fc.constantFrom('user', 'assistant', 'tool' as const), content }), {
    minLength: 1,
    maxLength: 25,
  })
  .map((all) =>
    all.map(({ role, content }, index): LoggedMessage => {
      const message = { role, content, ...(role === 'tool' ? { tool_call_id: `call_${index}` } : {}) };
      return { seq: index + 3, message, tokens: countMessage(message, counter) };
    }),
  );

const chunkTokens = fc.integer({ min: 400, max: 3_000 });

/** The parts of each message's rendered text that the chunks name, in order. */
function slicesOf(chunks: readonly ChunkRef[], messages: readonly LoggedMessage[]): string[] {
  return messages.map((logged) =>
    chunks
      .filter(({ fromSeq, throughSeq }) => fromSeq <= logged.seq && logged.seq <= throughSeq)
      .map(({ fromSeq, fromChar, throughSeq, throughChar }) =>
        renderMessage(logged).slice(
          fromSeq === logged.seq ? fromChar : 0,
          throughSeq === logged.seq && throughChar !== null ? throughChar : undefined,
        ),
      )
      .join(''),
  );
}

/** What the transcripts show of each message's content, labels removed. */
function shownOf(chunks: readonly ChunkRef[], messages: readonly LoggedMessage[]): Map<number, string> {
  const shown = new Map<number, string>();
  for (const chunk of chunks) {
    for (const [, seq, part] of transcriptOf(chunk, messages).matchAll(
      /<message seq="(\d+)"[^>]*>([\s\S]*?)<\/message>/g,
    )) {
      shown.set(Number(seq), (shown.get(Number(seq)) ?? '') + part!);
    }
  }
  return shown;
}

describe('cutting', () => {
  test('slices cover every message completely and without overlap, in references and text', () => {
    fc.assert(
      fc.property(history, chunkTokens, (messages, size) => {
        const chunks = cutChunks(itemsOf(messages), size, counter);
        expect(slicesOf(chunks, messages)).toEqual(messages.map(renderMessage));
        const shown = shownOf(chunks, messages);
        for (const logged of messages) expect(shown.get(logged.seq)).toBe(renderParts(logged).content);
      }),
      { numRuns: 60 },
    );
  });

  test('no transcript is larger than a chunk may be, or than its reference says', () => {
    fc.assert(
      fc.property(history, chunkTokens, (messages, size) => {
        for (const chunk of cutChunks(itemsOf(messages), size, counter)) {
          const tokens = counter.count(transcriptOf(chunk, messages));
          expect(tokens).toBeLessThanOrEqual(chunk.tokens);
          expect(chunk.tokens).toBeLessThanOrEqual(size);
        }
      }),
      { numRuns: 60 },
    );
  });

  test('no slice ends inside a code point', () => {
    fc.assert(
      fc.property(history, chunkTokens, (messages, size) => {
        const byIndex = new Map(messages.map((logged) => [logged.seq, renderMessage(logged)]));
        for (const { throughSeq, throughChar } of cutChunks(itemsOf(messages), size, counter)) {
          if (throughChar === null) continue;
          const around = byIndex.get(throughSeq)!.slice(throughChar - 1, throughChar + 1);
          expect(around).not.toMatch(/^[\uD800-\uDBFF][\uDC00-\uDFFF]$/);
        }
      }),
      { numRuns: 60 },
    );
  });

  test('the same left edge gives the same chunks except the last', () => {
    fc.assert(
      fc.property(history, history, chunkTokens, (messages, more, size) => {
        const all = [
          ...messages,
          ...more.map((logged) => ({ ...logged, seq: logged.seq + messages.length })),
        ];
        const before = cutChunks(itemsOf(messages), size, counter);
        const after = cutChunks(itemsOf(all), size, counter);
        expect(after.slice(0, before.length - 1)).toEqual(before.slice(0, -1));
      }),
      { numRuns: 60 },
    );
  });

  test('messages that fit are never split, and a short remainder joins the chunk before', () => {
    const messages = Array.from({ length: 9 }, (_, index): LoggedMessage => {
      const message = { role: 'user' as const, content: index === 8 ? 'Thanks!' : 'word '.repeat(300) };
      return { seq: index + 1, message, tokens: countMessage(message, counter) };
    });
    const chunks = cutChunks(itemsOf(messages), 800, counter);
    expect(chunks.every(({ fromChar, throughChar }) => fromChar === 0 && throughChar === null)).toBe(true);
    expect(chunks.at(-1)).toMatchObject({ fromSeq: 7, throughSeq: 9 });
  });

  test('stored sizes are used if the text of a small message is missing', () => {
    const messages = Array.from({ length: 40 }, (_, index) => ({
      seq: index + 1,
      tokens: 90,
      text: () => '',
    }));
    const chunks = cutChunks(messages, 1_000, counter);
    expect(chunks.length).toBeGreaterThan(3);
    expect(chunks.every(({ tokens }) => tokens <= 1_000)).toBe(true);
  });

  test('a message of 20 MB is split with about one count of its text', () => {
    let counted = 0;
    const metered = {
      name: counter.name,
      count: (part: string) => ((counted += part.length), Math.ceil(part.length / 4)),
    };
    const logged: LoggedMessage = {
      seq: 1,
      message: { role: 'tool', content: 'ab\u4E00d '.repeat(4_000_000) },
      tokens: 9_000_000,
    };
    const chunks = cutChunks(itemsOf([logged]), 32_000, metered);
    expect(chunks.length).toBeGreaterThan(150);
    expect(counted).toBeLessThan(2.1 * 20_000_000);
    expect(chunks.map(({ fromChar }) => fromChar)).toEqual([
      0,
      ...chunks.slice(0, -1).map(({ throughChar }) => throughChar),
    ]);
    expect(chunks.at(-1)!.throughChar).toBeNull();
  });

  test('a slice names its range of characters', () => {
    const logged: LoggedMessage = {
      seq: 4,
      message: { role: 'user', content: 'word '.repeat(2_000) },
      tokens: 2_004,
    };
    const [first, second] = cutChunks(itemsOf([logged]), 800, counter).map((chunk) =>
      transcriptOf(chunk, [logged]),
    );
    const end = Number(/part="characters 1-(\d+) of 10000"/.exec(first!)?.[1]);
    expect(end).toBeGreaterThan(1_000);
    expect(second).toContain(`<message seq="4" origin="user" part="characters ${end + 1}-`);
  });

  test('a result is labelled with the tool of its call in the chunk', () => {
    const messages: LoggedMessage[] = [
      {
        seq: 1,
        message: {
          role: 'assistant',
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'ls', arguments: '{}' } }],
        },
        tokens: 9,
      },
      { seq: 2, message: { role: 'tool', tool_call_id: 'c', content: 'a.ts' }, tokens: 9 },
    ];
    const [chunk] = cutChunks(itemsOf(messages), 500, counter);
    expect(transcriptOf(chunk!, messages)).toContain('origin="tool:ls"');
  });

  test('a chunk that ends after its message is refused', () => {
    const logged: LoggedMessage = { seq: 1, message: { role: 'user', content: 'short' }, tokens: 5 };
    const chunk = { fromSeq: 1, fromChar: 900, throughSeq: 1, throughChar: null, tokens: 10 };
    expect(() => transcriptOf(chunk, [logged])).toThrow(expect.objectContaining({ type: 'Store.Corrupt' }));
  });
});

describe('halving', () => {
  test('covers exactly the same text, again and again, until pieces are small', () => {
    fc.assert(
      fc.property(history, chunkTokens, (messages, size) => {
        const items = itemsOf(messages);
        const leaves = (chunk: ChunkRef): ChunkRef[] => {
          const halves = halveChunk(chunk, items, counter);
          if (halves) for (const half of halves) expect(half.tokens).toBeLessThan(chunk.tokens);
          return halves ? halves.flatMap(leaves) : [chunk];
        };
        const chunks = cutChunks(items, size, counter).flatMap(leaves);
        expect(slicesOf(chunks, messages)).toEqual(messages.map(renderMessage));
        expect(chunks.length).toBeGreaterThanOrEqual(1);
      }),
      { numRuns: 30 },
    );
  });

  test('halves have about equal sizes, and a slice too short to halve gives null', () => {
    const long: LoggedMessage = {
      seq: 1,
      message: { role: 'user', content: 'some words here '.repeat(400) },
      tokens: 1_204,
    };
    const [chunk] = cutChunks(itemsOf([long]), 4_000, counter);
    const [left, right] = halveChunk(chunk!, itemsOf([long]), counter)!;
    expect(
      counter.count(transcriptOf(left, [long])) / counter.count(transcriptOf(right, [long])),
    ).toBeCloseTo(1, 0);
    const short: LoggedMessage = { seq: 1, message: { role: 'user', content: 'hello' }, tokens: 5 };
    expect(halveChunk(cutChunks(itemsOf([short]), 500, counter)[0]!, itemsOf([short]), counter)).toBeNull();
  });
});

describe('coverage', () => {
  const chunk = (
    fromSeq: number,
    fromChar: number,
    throughSeq: number,
    throughChar: number | null,
  ): ChunkRef => ({
    ...{ fromSeq, fromChar, throughSeq, throughChar, tokens: 1 },
  });

  test('full, split and withheld messages in ranges', () => {
    const chunks = [chunk(1, 0, 4, 500), chunk(4, 500, 4, 900), chunk(4, 900, 9, null)];
    expect(
      coverageOf(chunks, { messages: [1, 2, 4, 5, 6, 7, 8, 9], excluded: [{ seq: 3, reason: 'media' }] }),
    ).toEqual([
      { fromSeq: 1, throughSeq: 2, how: 'full' },
      { fromSeq: 3, throughSeq: 3, how: 'withheld', reason: 'media' },
      { fromSeq: 4, throughSeq: 4, how: 'split' },
      { fromSeq: 5, throughSeq: 9, how: 'full' },
    ]);
  });

  test('without chunks the extractive summarizer has read everything', () => {
    expect(coverageOf([], { messages: [2, 3], excluded: [] })).toEqual([
      { fromSeq: 2, throughSeq: 3, how: 'full' },
    ]);
  });

  test.each([
    ['a message in no chunk', [chunk(1, 0, 2, null)], [1, 2, 3]],
    ['a gap inside a message', [chunk(1, 0, 2, 500), chunk(2, 600, 3, null)], [1, 2, 3]],
    ['a missing beginning', [chunk(1, 20, 3, null)], [1, 2, 3]],
    ['a missing end', [chunk(1, 0, 3, 100)], [1, 2, 3]],
  ])('%s never counts as read', (_what, chunks, messages) => {
    expect(() => coverageOf(chunks, { messages, excluded: [] })).toThrow(
      expect.objectContaining({ type: 'Store.Corrupt' }),
    );
  });

  test('halved chunks of random histories are covered', () => {
    fc.assert(
      fc.property(history, chunkTokens, (messages, size) => {
        const items = itemsOf(messages);
        const chunks = cutChunks(items, size, counter).flatMap(
          (one) => halveChunk(one, items, counter) ?? [one],
        );
        const ranges = coverageOf(chunks, { messages: messages.map(({ seq }) => seq), excluded: [] });
        expect(ranges.reduce((sum, { fromSeq, throughSeq }) => sum + throughSeq - fromSeq + 1, 0)).toBe(
          messages.length,
        );
      }),
      { numRuns: 30 },
    );
  });
});

describe('digest key', () => {
  const parts = {
    tenant: 't',
    kind: 'chunk' as const,
    members: ['a', 'b:0-9'],
    promptVersion: 1,
    model: 'm',
    limits: { maxTokens: 5, chunkTokens: 9 },
  };

  test('any other tenant, kind, member, prompt, model or limit gives another key; the order of limits does not', () => {
    const others = [
      { ...parts, tenant: 'u' },
      { ...parts, kind: 'fold' as const },
      { ...parts, members: ['b:0-9', 'a'] },
      { ...parts, members: ['ab', ':0-9'] },
      { ...parts, promptVersion: 2 },
      { ...parts, promptHash: 'x' },
      { ...parts, model: 'n' },
      { ...parts, limits: { maxTokens: 6, chunkTokens: 9 } },
    ];
    const keys = [parts, ...others].map(digestKey);
    expect(new Set(keys).size).toBe(keys.length);
    expect(digestKey({ ...parts, limits: { chunkTokens: 9, maxTokens: 5 } })).toBe(keys[0]);
    expect(keys[0]).toMatch(/^[0-9a-f]{64}$/);
  });
});
