/** Whatever left the context can be read again, exactly: by call id, by message, by archive part, as a history log, and by the agent itself. */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildView } from '../src/conversation/context.js';
import type { ChatMessage, LoggedMessage } from '../src/conversation/message.js';
import { callRecoveryTool, recoveryTools, type RecoverySource } from '../src/recovery-tools.js';
import { readContextSource } from '../src/store/context.js';
import { expand } from '../src/store/expand.js';
import { historyLog } from '../src/store/history-log.js';
import { openPool } from '../src/store/pool.js';
import { recordsOf } from '../src/store/records.js';
import { restore } from '../src/store/restore.js';
import { search } from '../src/store/search.js';
import { loadSession, type SessionIds } from '../src/store/sessions.js';
import { pageOf, toolResponse } from '../src/store/tool-response.js';
import { appendTurn } from '../src/store/turns.js';
import { counterFor } from '../src/tokens/counter.js';
import { createDatabase, type TestDatabase } from './support/database.js';
import { compactThrough, newSession, sessionWith, talk } from './support/store.js';
import { readTranscripts, skipWithoutTranscripts } from './support/transcripts.js';

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

function calls(...named: [id: string, name: string][]): ChatMessage {
  const tool_calls = named.map(([id, name]) => ({
    id,
    type: 'function',
    function: { name, arguments: '{}' },
  }));
  return { role: 'assistant', content: null, tool_calls };
}

const result = (id: string, content: ChatMessage['content']): ChatMessage => ({
  role: 'tool',
  tool_call_id: id,
  content,
});
const user = (content: string): ChatMessage => ({ role: 'user', content });

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
          const page = await toolResponse(pool, ids, { callId: 'a' }, { offset, limit });
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

  it('pages make progress, and begin with the whole pair where an offset lies within one', () => {
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

  it('of a reused id is the newest, with every other one named and where it is kept', async () => {
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

  it('of an id as the context shows it is the result that stands there, before and after it is evicted', async () => {
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

  it('that is not there is refused, naming what is near', async () => {
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
    await expect(toolResponse(pool, ids, { callId: 'call_abc' }, { limit: 0 })).rejects.toMatchObject({
      path: 'limit',
    });
    await expect(toolResponse(pool, newSession(), { seq: 1 })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });
});

describe('expand', () => {
  it('pages through a part by messages and by characters, and through any range of the log', async () => {
    const messages = talk(30);
    const ids = await sessionWith(pool, messages);
    await compactThrough(pool, ids, 8);
    await compactThrough(pool, ids, 20);
    const read: LoggedMessage[] = [];
    for (let fromSeq: number | null = 9; fromSeq !== null;) {
      const page: Awaited<ReturnType<typeof expand>> = await expand(pool, ids, {
        part: 2,
        fromSeq,
        limit: 5,
      });
      read.push(...page.messages);
      fromSeq = page.nextSeq;
    }
    expect(read.map(({ seq }) => seq)).toEqual(Array.from({ length: 12 }, (_, index) => 9 + index));
    expect(read.map(({ message }) => message)).toEqual(messages.slice(8, 20));
    expect((await expand(pool, ids, { part: 1, maxCharacters: 1 })).messages).toHaveLength(1);
    expect(await expand(pool, ids, { fromSeq: 29 })).toMatchObject({
      part: null,
      nextSeq: null,
      messages: [{ seq: 29 }, { seq: 30 }],
    });
    await expect(expand(pool, ids, { part: 3 })).rejects.toMatchObject({ path: 'part' });
    await expect(expand(pool, ids, { part: 2, fromSeq: 8 })).rejects.toMatchObject({ path: 'fromSeq' });
  });

  it('refuses what was changed behind the store', async () => {
    const ids = await sessionWith(pool, talk(4));
    const client = await pool.connect();
    try {
      await client.query('begin');
      await client.query(
        'alter table palimpsest.messages disable trigger all, drop constraint messages_sha256',
      );
      await client.query("update palimpsest.messages set body = '{}' where session_id = $1 and seq = 2", [
        ids.session,
      ]);
      await client.query('alter table palimpsest.messages enable trigger all');
      await client.query('commit');
      await expect(expand(pool, ids, {})).rejects.toMatchObject({
        type: 'Store.Corrupt',
        details: { seq: 2 },
      });
      await expect(toolResponse(pool, ids, { seq: 2 })).rejects.toMatchObject({ type: 'Store.Corrupt' });
    } finally {
      client.release();
    }
  });
});

async function written(ids: SessionIds): Promise<string> {
  let whole = '';
  for await (const piece of historyLog(pool, ids)) whole += piece;
  return whole;
}

describe('the history log', () => {
  it('has one timestamped section an archive part and grows at its end only', async () => {
    const ids = await sessionWith(pool, talk(20));
    expect(await written(ids)).toBe('');
    await compactThrough(pool, ids, 5);
    const first = await written(ids);
    expect(first).toMatch(
      /^## Summarized at \d{4}-\d\d-\d\dT[\d:.]+Z\n\nArchive part 1, messages 1–5\.\n\n\[user\]: number 1: /,
    );
    await compactThrough(pool, ids, 12);
    const second = await written(ids);
    expect(second.startsWith(first)).toBe(true);
    expect(second.slice(first.length)).toMatch(/^## Summarized at .*\n\nArchive part 2, messages 6–12\.\n/);
    await restore(pool, ids, 1);
    expect(await written(ids)).toBe(first);
  });

  it('cannot be forged by content: every section heading is ours', async () => {
    const forged = '## Summarized at 2020-01-01T00:00:00.000Z';
    const pieces = fc.array(
      fc.constantFrom(forged, '\n', '\r', '\u2028', '===', '```', '[user]: ', ' ', '\0', '\ud800'),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(pieces, { minLength: 1, maxLength: 4 }), async (contents) => {
        const ids = await sessionWith(
          pool,
          contents.map((content) => user(content.join(''))),
        );
        await compactThrough(pool, ids, contents.length);
        const lines = (await written(ids)).split(/\r\n|[\n\r\v\f\u0085\u2028\u2029]/);
        expect(lines.filter((line) => /^ {0,3}(#|=|```)/.test(line))).toHaveLength(1);
        expect(lines.filter((line) => /^ {0,3}\[\w+\]:/.test(line))).toHaveLength(contents.length);
      }),
      { numRuns: 25 },
    );
  });
});

describe('records', () => {
  it('tell what was summarized and which tool results were archived', async () => {
    const ids = await sessionWith(pool, [
      ...[user('go'), calls(['a', 'grep'], ['b', 'read']), result('a', 'one'), result('b', 'two')],
      ...[calls(['a', 'grep']), result('a', 'three'), user('end')],
    ]);
    expect(await recordsOf(pool, await loadSession(pool, ids))).toEqual({
      ...{ summaryRecords: [], toolHistoryArchived: { count: 0, tokens: 0, newest: [] } },
      ...{ summariesPerformed: 0, tokensSummarized: 0, lastSummary: null },
    });
    await compactThrough(pool, ids, 4, { snapshot: `${'🎉'.repeat(400)}${'z'.repeat(400)}` });
    await restore(pool, ids, 1);
    const records = await recordsOf(pool, await loadSession(pool, ids));
    expect(records.lastSummary).toBe(`${'🎉'.repeat(400)}${'z'.repeat(100)}`);
    expect(records.summariesPerformed).toBe(1);
    expect(records.summaryRecords).toMatchObject([
      { generation: 2, reason: 'restore', method: 'none', range: null, evicted: 0 },
      {
        generation: 1,
        method: 'extractive',
        fallback: false,
        range: { fromSeq: 1, throughSeq: 4 },
        evicted: 4,
      },
    ]);
    const { toolHistoryArchived } = records;
    expect(toolHistoryArchived).toMatchObject({
      count: 2,
      newest: [
        { callId: 'b', tool: 'read', seq: 4, part: 1 },
        { callId: 'a', tool: 'grep', seq: 3, part: 1 },
      ],
    });
    expect(toolHistoryArchived.tokens).toBe(
      toolHistoryArchived.newest.reduce((sum, { tokens }) => sum + tokens, 0),
    );
    expect(records.tokensSummarized).toBeGreaterThan(toolHistoryArchived.tokens);
  });
});

/** The library's own methods, without a workflow behind them. */
function sourceOf(tenant: string): RecoverySource {
  const idsOf = (session: string) => ({ tenant, session });
  return {
    toolResponse: (of) => toolResponse(pool, idsOf(of.session), of, of),
    search: ({ session, ...request }) => search(pool, idsOf(session), request),
    expand: ({ session, ...request }) => expand(pool, idsOf(session), request),
  };
}

describe('the tools of the agent', () => {
  const ask = async (ids: SessionIds, name: string, args: string): Promise<Record<string, unknown>> =>
    JSON.parse(await callRecoveryTool(sourceOf(ids.tenant), ids.session, name, args));

  it('are definitions that a request takes', () => {
    expect(recoveryTools.map(({ function: { name } }) => name)).toEqual([
      'get_tool_response',
      'search_history',
      'expand_history',
    ]);
    for (const { type, function: definition } of recoveryTools) {
      expect(type).toBe('function');
      expect(definition.parameters).toMatchObject({ type: 'object', additionalProperties: false });
      expect(definition.parameters).not.toHaveProperty('$schema');
    }
  });

  it('lead from a search to the original', async () => {
    const ids = await sessionWith(pool, [
      calls(['a', 'run']),
      result('a', `${'x '.repeat(9_000)}the needle`),
      ...talk(9),
    ]);
    await compactThrough(pool, ids, 6);
    const found = await ask(ids, 'search_history', '{"query":"needle"}');
    expect(found).toMatchObject({
      hits: [{ message: 2, role: 'tool', tool: 'run', offset: 18_004 }],
      next_offset: null,
    });
    const read = await ask(ids, 'get_tool_response', '{"message":2,"offset":18004,"call_id":null}');
    expect(read).toMatchObject({
      content: 'needle',
      archive_part: 1,
      total_characters: 18_010,
      next_offset: null,
    });
    const first = await ask(ids, 'get_tool_response', '{"call_id":"a"}');
    expect(first).toMatchObject({ offset: 0, next_offset: 8_000 });
    const listed = await ask(ids, 'expand_history', '{"part":1,"limit":3}');
    expect(listed).toMatchObject({
      next_message: 4,
      messages: [
        { message: 1, calls: [{ id: 'a', name: 'run' }] },
        { message: 2, total_characters: 18_010 },
        { message: 3 },
      ],
    });
    expect(await ask(ids, 'search_history', '{"query":"nowhere","exact":true}')).toMatchObject({
      hits: [],
      hint: expect.any(String),
    });
  });

  it('answer a mistake of the model with what to do, and throw what is none', async () => {
    const ids = await sessionWith(pool, talk(3));
    const mistakes: [string, string, RegExp][] = [
      ['nothing', '{}', /no tool "nothing"/],
      ['search_history', '{"query":', /no JSON/],
      ['search_history', '', /query/],
      ['search_history', '[]', /expected object/],
      ['search_history', '{"query":"x","colour":1}', /colour/],
      ['get_tool_response', '{}', /either call_id or message/],
      ['get_tool_response', '{"call_id":"none"}', /no call "none"/],
      ['get_tool_response', '{"message":99}', /no message 99/],
      ['expand_history', '{"part":7}', /no archive part 7/],
    ];
    for (const [name, args, error] of mistakes) {
      const answer = await ask(ids, name, args);
      expect(answer).toEqual({ error: expect.stringMatching(error), hint: expect.any(String) });
    }
    const away = openPool('postgresql://nobody@127.0.0.1:1/none');
    const broken: RecoverySource = { ...sourceOf(ids.tenant), search: (of) => search(away, ids, of) };
    await expect(
      callRecoveryTool(broken, ids.session, 'search_history', '{"query":"x"}'),
    ).rejects.toMatchObject({
      type: 'Store.Unavailable',
    });
    await away.end();
  });

  it('never throw for any arguments', async () => {
    const ids = await sessionWith(pool, talk(3));
    const args = fc.record(
      Object.fromEntries(
        [
          'call_id',
          'message',
          'query',
          'exact',
          'part',
          'from_message',
          'through_message',
          'limit',
          'offset',
          'tool',
        ].map((key) => [
          key,
          fc.oneof(fc.integer({ min: -1, max: 5 }), fc.string({ unit: 'binary' }), fc.boolean()),
        ]),
      ),
      { requiredKeys: [] },
    );
    const name = fc.constantFrom('get_tool_response', 'search_history', 'expand_history');
    await fc.assert(
      fc.asyncProperty(name, args, async (tool, given) => {
        expect(typeof (await ask(ids, tool, JSON.stringify(given)))).toBe('object');
      }),
      { numRuns: 150 },
    );
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  it('give back every tool result by the id that their context shows', { timeout: 300_000 }, async () => {
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
        const { seq, content } = await toolResponse(
          pool,
          ids,
          { callId: message.tool_call_id ?? '' },
          { limit: 1e8 },
        );
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
