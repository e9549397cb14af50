/** The time of a message stays with it everywhere, and is never invented. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { restore } from '../../../src/store/compactions/restore.js';
import { openPool } from '../../support/pool.js';
import { expand, exportSession } from '../../../src/store/reading/replay.js';
import { historyLog } from '../../../src/store/reading/history-log.js';
import { recordsOf } from '../../../src/store/reading/records.js';
import { timeline } from '../../../src/store/reading/timeline.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import { importSessions } from '../../../src/import/importer.js';
import { fileSources } from '../../../src/import/sources.js';
import { search } from '../../../src/store/search/search.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { fileText, nativeFiles, nativePath, readNativeFile } from '../../support/native-files.js';
import { joined } from '../../support/texts.js';
import { compactThrough, newSession, replayed } from '../../support/store.js';

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

const may = '2023-05-07T13:04:05.000Z';
const june = '2023-06-01T08:00:00.000Z';
const own = '2023-05-07T15:00:00.000Z';

const question: ChatMessage = { role: 'user', content: 'Where is the lighthouse?' };
const answer: ChatMessage = { role: 'assistant', content: 'Behind the harbour.', timestamp: own };

const timesOf = async (ids: SessionIds) => (await replayed(pool, ids)).map(({ at }) => at ?? null);

/** Two turns, the first in May, the second at an unknown time. */
async function told(): Promise<SessionIds> {
  const ids = newSession();
  await appendTurn(pool, {
    ...{ ...ids, turnId: 't-1', messages: [question, answer] },
    at: '2023-05-07T15:04:05+02:00',
  });
  await appendTurn(pool, { ...ids, turnId: 't-2', messages: [{ role: 'user', content: 'And the mill?' }] });
  return ids;
}

describe('the time of a turn', () => {
  it('is that of its messages, except those with their own; null if unknown', async () => {
    expect(await timesOf(await told())).toEqual([may, own, null]);
  });

  it('stays as it was given first', async () => {
    const ids = await told();
    const turn = { ...ids, turnId: 't-1', messages: [question, answer], at: june };
    expect(await appendTurn(pool, turn)).toMatchObject({ repeated: true });
    expect(await timesOf(ids)).toEqual([may, own, null]);
  });

  it.each([
    ['last Friday', 'at must be an ISO 8601 instant with its zone.'],
    ['1950-01-01T00:00:00Z', 'at is before 1970.'],
    ['2999-01-01T00:00:00Z', 'at is more than a day ahead.'],
  ])('is refused as %s, and nothing is stored', async (at, message) => {
    const ids = newSession();
    await expect(appendTurn(pool, { ...ids, turnId: 't-1', messages: [question], at })).rejects.toMatchObject(
      {
        ...{ type: 'Input.Invalid', path: 'at', message },
      },
    );
    await expect(timesOf(ids)).rejects.toMatchObject({ type: 'Store.SessionNotFound' });
  });

  it('is read from each entry of a log, also of a long one', async () => {
    const line = (uuid: string, timestamp: string, content: string): Json => ({
      ...{ type: 'user', uuid, parentUuid: null, sessionId: 's', timestamp },
      message: { role: 'user', content },
    });
    for (const text of ['short', 'long '.repeat(30_000)]) {
      const ids = newSession();
      const messages = [line('a', may, text), line('b', june, text)];
      await appendTurn(pool, { ...ids, turnId: 't-1', messages, format: 'claude-code' });
      expect(await timesOf(ids)).toEqual([may, june]);
    }
  });
});

describe('an export', () => {
  it('has the times of turns, so that an import reads them again', async () => {
    const ids = await told();
    const text = await joined(exportSession(pool, ids));
    const read = JSON.parse(text) as ChatMessage[];
    expect(read).toEqual([{ ...question, at: may }, answer, { role: 'user', content: 'And the mill?' }]);
    const tenant = `${ids.tenant}-again`;
    const folder = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-times-'));
    const file = path.join(folder, 'talk.json');
    writeFileSync(file, text);
    await importSessions(pool, await fileSources([file]), { tenant });
    rmSync(folder, { recursive: true });
    const again = { tenant, session: 'talk' };
    expect(await timesOf(again)).toEqual([may, own, null]);
    expect(await joined(exportSession(pool, again))).toBe(text);
  });

  it.each(
    [
      [
        'claude-code/jnarowski+agentcmd--full-session-two.jsonl',
        '2025-10-24T20:50:22.798Z',
        '2025-10-24T21:29:14.372Z',
      ],
      [
        'gemini-cli/jnarowski+agentcmd--session-2025-10-27T19-55-981c87cb.json',
        '2025-10-27T19:56:01.701Z',
        '2025-10-27T20:24:29.688Z',
      ],
    ].filter(([file]) => nativeFiles().includes(file!)),
  )('of %s is the file, and its messages have its times', async (file, first, last) => {
    const tenant = file;
    const sessions: string[] = [];
    await importSessions(pool, await fileSources([nativePath(file)]), {
      tenant,
      onReport: ({ session }) => void sessions.push(session),
    });
    const ids = { tenant, session: sessions[0]! };
    const { value, layout } = readNativeFile(file);
    expect(await joined(exportSession(pool, ids))).toBe(fileText(value, layout));
    const times = await timesOf(ids);
    expect(times).not.toContain(null);
    expect([times[0], times.at(-1)]).toEqual([first, last]);
  });
});

describe('in the archive and in the tail', () => {
  it('search, pages of originals, a restored generation and a fork show it', async () => {
    const ids = await told();
    await compactThrough(pool, ids, 2);
    const { hits } = await search(pool, ids, { query: 'lighthouse', after: 2 });
    expect(hits.map(({ at, following }) => [at, following.map((one) => one.at)])).toEqual([
      [may, [own, null]],
    ]);
    const { messages } = await expand(pool, ids, {});
    expect(messages.map(({ at }) => at)).toEqual([may, own, undefined]);
    expect(messages[2]).not.toHaveProperty('at');
    const log = await joined(historyLog(pool, ids));
    expect(log).toContain(`[user]: Where is the lighthouse? <!-- message 1, ${may} -->`);
    expect((await timeline(pool, ids)).turns.map(({ saidAt }) => saidAt)).toEqual([may, null]);
    expect((await recordsOf(pool, await loadSession(pool, ids))).said).toEqual({ first: may, last: null });
    await restore(pool, ids, 0);
    expect(await timesOf(ids)).toEqual([may, own, null]);
    const target = { ...newSession(), tenant: ids.tenant };
    await fork(pool, ids, { throughSeq: 2, to: target.session });
    expect(await timesOf(target)).toEqual([may, own]);
  });
});
