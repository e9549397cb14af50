/** Archived messages can be read in pages, as a history log and as records, by their tenant only. */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LoggedMessage } from '../../../src/conversation/message.js';
import { expand } from '../../../src/store/reading/replay.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { historyLog } from '../../../src/store/reading/history-log.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { recordsOf } from '../../../src/store/reading/records.js';
import { restore } from '../../../src/store/compactions/restore.js';
import { search } from '../../../src/store/search/search.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { toolResponse } from '../../../src/store/reading/tool-response.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { compactThrough, sessionWith, talk } from '../../support/store.js';
import { calls, result, user } from '../../support/tool-messages.js';

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

  it('refuses originals that were changed outside the store', async () => {
    const ids = await sessionWith(pool, talk(4));
    const client = await ownerOf(pool).connect();
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
  it('has one timestamped section for each archive part and grows only at its end', async () => {
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

  it('cannot be forged by content: every section heading is genuine', async () => {
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
  it('list the summarized messages and the archived tool results', async () => {
    const ids = await sessionWith(pool, [
      ...[user('go'), calls(['a', 'grep'], ['b', 'read']), result('a', 'one'), result('b', 'two')],
      ...[calls(['a', 'grep']), result('a', 'three'), user('end')],
    ]);
    expect(await recordsOf(pool, await loadSession(pool, ids))).toEqual({
      ...{ summaryRecords: [], toolHistoryArchived: { count: 0, tokens: 0, newest: [] } },
      ...{ summariesPerformed: 0, tokensSummarized: 0, lastSummary: null },
      said: { first: null, last: null },
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

describe('another tenant', () => {
  it('cannot read, restore or fork a session, by any name', async () => {
    const ids = await sessionWith(pool, [calls(['a', 'run']), result('a', 'secret'), ...talk(6)], 'owner');
    await compactThrough(pool, ids, 4);
    const other = { ...ids, tenant: 'other' };
    const notFound = { type: 'Store.SessionNotFound' };
    await expect(toolResponse(pool, other, { callId: 'a' })).rejects.toMatchObject(notFound);
    await expect(expand(pool, other, {})).rejects.toMatchObject(notFound);
    await expect(written(other)).rejects.toMatchObject(notFound);
    await expect(restore(pool, other, 0)).rejects.toMatchObject(notFound);
    await expect(fork(pool, other, { throughSeq: 1, to: 'mine' })).rejects.toMatchObject(notFound);
    // A session of the same name holds its own rows only.
    await appendTurn(pool, { ...other, turnId: 'first', messages: talk(2) });
    await expect(toolResponse(pool, other, { callId: 'a' })).rejects.toMatchObject({ type: 'Input.Invalid' });
    expect((await search(pool, other, { query: 'secret' })).hits).toEqual([]);
    expect(await written(other)).toBe('');
    expect(await toolResponse(pool, ids, { callId: 'a' })).toMatchObject({ content: 'secret', part: 1 });
  });
});
