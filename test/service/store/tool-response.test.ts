/** A tool result can be read exactly, by its id in the log or in the context, or by its message. */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildView } from '../../../src/context/view/view.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { openPool } from '../../support/pool.js';
import { pageOf, toolResponse } from '../../../src/store/reading/tool-response.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { compactThrough, newSession, sessionWith } from '../../support/store.js';
import { calls, result, user } from '../../support/tool-messages.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

/** Text with everything that storage could spoil. */
const text = fc
  .array(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('🎉', '\0', '\ud800', '\udc00', 'word ')), {
    maxLength: 40,
  })
  .map((pieces) => pieces.join(''));

describe('a tool response', () => {
  it('is read back exactly, page by page, and no page cuts a surrogate pair', async () => {
    await fc.assert(
      fc.asyncProperty(text, fc.integer({ min: 1, max: 30 }), async (content, limit) => {
        const ids = await sessionWith(pool, [calls(['a', 'run']), result('a', content), user('next')]);
        let read = '';
        for (let offset: number | null = 0; offset !== null;) {
          const page = await toolResponse(pool, ids, { callId: 'a', offset, limit });
          expect(page).toMatchObject({
            seq: 2,
            tool: 'run',
            format: 'text',
            totalCharacters: content.length,
          });
          expect(
            /[\ud800-\udbff]$/.test(page.content) &&
              /^[\udc00-\udfff]/.test(content.slice(offset + page.content.length)),
          ).toBe(false);
          read += page.content;
          offset = page.nextOffset;
        }
        expect(read).toBe(content);
      }),
      { numRuns: 40 },
    );
  });

  it('pages make progress, and begin with the whole pair if an offset lies within one', () => {
    expect(pageOf('🎉🎉', 0, 1)).toEqual({ content: '🎉', offset: 0, totalCharacters: 4, nextOffset: 2 });
    expect(pageOf('🎉🎉', 3, 5)).toEqual({ content: '🎉', offset: 2, totalCharacters: 4, nextOffset: null });
    expect(pageOf('a🎉', 0, 2)).toMatchObject({ content: 'a', nextOffset: 1 });
    expect(pageOf('abc', 9, 2)).toMatchObject({ content: '', offset: 3, nextOffset: null });
    expect(pageOf('\ud800x', 0, 1)).toMatchObject({ content: '\ud800', nextOffset: 1 });
  });

  it('with parts is their JSON, a message with calls the whole message', async () => {
    const parts = [
      { type: 'text', text: 'a\0b' },
      { type: 'image_url', image_url: { url: 'data:x' } },
    ];
    const ids = await sessionWith(pool, [calls(['a', 'look']), result('a', parts)]);
    const response = await toolResponse(pool, ids, { callId: 'a' });
    expect(response.format).toBe('parts');
    expect(JSON.parse(response.content)).toEqual(parts);
    const caller = await toolResponse(pool, ids, { seq: 1 });
    expect(caller).toMatchObject({ format: 'message', role: 'assistant', callId: null, tool: null });
    expect(JSON.parse(caller.content)).toEqual(calls(['a', 'look']));
  });

  it('of a reused id is the newest, with the places of all others', async () => {
    const ids = await sessionWith(pool, [
      ...[calls(['x', 'one']), result('x', 'first'), user('go on')],
      ...[calls(['x', 'two']), result('x', 'second'), user('and on')],
      ...[calls(['x', 'three']), result('x', 'third'), user('end')],
    ]);
    await compactThrough(pool, ids, 6);
    expect(await toolResponse(pool, ids, { callId: 'x' })).toMatchObject({
      ...{ seq: 8, tool: 'three', content: 'third', part: null },
      occurrences: [
        { seq: 8, part: null },
        { seq: 5, part: 1 },
        { seq: 2, part: 1 },
      ],
    });
    expect(await toolResponse(pool, ids, { seq: 2 })).toMatchObject({
      content: 'first',
      tool: 'one',
      part: 1,
    });
  });

  it('of an id in the context is the result shown there, before and after it is evicted', async () => {
    const ids = await sessionWith(pool, [
      ...[user('start'), calls(['x', 'one']), result('x', 'first')],
      ...[calls(['x', 'two'], ['y', 'two']), result('y', 'beside'), result('x', 'second')],
      ...[calls(['', 'unnamed']), user('end'), user('really')],
    ]);
    const { source } = await readContextSource(pool, ids, 0);
    const shown = buildView(source, counterFor('o200k_base'))
      .filter(({ message }) => message.role === 'tool' && message.content !== '(no result recorded)')
      .map(({ message }) => [message.tool_call_id, message.content]);
    expect(shown).toEqual([
      ['x', 'first'],
      ['x-4', 'second'],
      ['y', 'beside'],
    ]);
    for (const [callId, content] of shown)
      expect(await toolResponse(pool, ids, { callId: String(callId) })).toMatchObject({ content });
    await compactThrough(pool, ids, 8);
    expect(await toolResponse(pool, ids, { callId: 'x-4' })).toMatchObject({
      seq: 6,
      content: 'second',
      part: 1,
    });
    expect(await toolResponse(pool, ids, { callId: 'x' })).toMatchObject({ seq: 6 });
  });

  it('of a legacy function is found by its message, or by the id that the context gave to its call', async () => {
    const ids = await sessionWith(pool, [
      user('go'),
      { role: 'assistant', content: null, function_call: { name: 'sum', arguments: '{}' } },
      { role: 'function', name: 'sum', content: '42' },
    ]);
    const expected = { seq: 3, role: 'function', tool: 'sum', content: '42' };
    expect(await toolResponse(pool, ids, { seq: 3 })).toMatchObject(expected);
    expect(await toolResponse(pool, ids, { callId: 'call_2_1' })).toMatchObject(expected);
  });

  it('that does not exist is refused with similar ids', async () => {
    const ids = await sessionWith(pool, [
      calls(['call_abc', 'run'], ['open', 'run']),
      result('call_abc', 'x'),
    ]);
    const refusal = (callId: string) =>
      toolResponse(pool, ids, { callId }).then(
        () => '',
        (error: { type: string; hint: string }) => `${error.type}: ${error.hint}`,
      );
    expect(await refusal('call_abd')).toMatch(/^Input.Invalid: Nearest: "call_abc"/);
    expect(await refusal('open')).toMatch(/Message 1 made the call/);
    expect(await refusal('\0\ud800%')).toMatch(/Nearest/);
    await expect(toolResponse(pool, ids, { seq: 3 })).rejects.toMatchObject({ path: 'seq' });
    await expect(toolResponse(pool, newSession(), { seq: 1 })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  it('return every tool result by the id that their context shows', async () => {
    let read = 0;
    let reused = 0;
    for await (const { line, number, dirty } of readTranscripts()) {
      const { messages } = JSON.parse(line) as { messages: ChatMessage[] };
      const called = messages.flatMap((message) => message.tool_calls ?? []).map(({ id }) => id);
      const repeats = new Set(called).size < called.length;
      if (!dirty && !(repeats && number % 3 === 1) && number % 15 !== 1) continue;
      const ids = newSession();
      await appendTurn(pool, { ...ids, turnId: 't', messages });
      if (repeats) reused++;
      const { source } = await readContextSource(pool, ids, 0);
      const view = buildView(source, counterFor('o200k_base'));
      const results = view.filter(({ message, source: from }) => message.role === 'tool' && from === 'log');
      for (const { fromSeq, message } of results.slice(-12)) {
        const { seq, content } = await toolResponse(pool, ids, {
          callId: message.tool_call_id ?? '',
          limit: 1e8,
        });
        const original = messages[fromSeq - 1]?.content;
        expect([seq, content]).toEqual([
          fromSeq,
          typeof original === 'string' ? original : JSON.stringify(original),
        ]);
        read++;
      }
    }
    console.log(`${read} results read, ${reused} sessions with reused ids`);
    expect(read).toBeGreaterThan(0);
  });
});
