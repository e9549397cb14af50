/** Notices of changed sessions arrive on one connection, which exists only while somebody waits. */
import pg, { type Pool } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { appendTurn } from '../../../src/store/append/turns.js';
import { Notices } from '../../../src/store/connection/notices.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { setPaused } from '../../../src/store/sessions/sessions.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { compactThrough, newSession, sessionWith, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;
let notices: Notices;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(() => (notices = new Notices({ url: database.url, pool })));
afterEach(async () => {
  await notices.close();
  await expect.poll(listeners).toEqual([]);
});

const listeners = async (): Promise<number[]> => {
  const { rows } = await ownerOf(pool).query<{ pid: number }>(
    `select pid from pg_stat_activity where application_name = 'palimpsest notices' and datname = current_database()`,
  );
  return rows.map(({ pid }) => pid);
};

/** A subscription whose connection has come to listen; counts the notices since. */
async function subscribed(ids: { tenant: string; session: string }, to = notices) {
  const wake = vi.fn();
  const end = to.subscribe(ids, wake);
  await expect.poll(() => to.isListening).toBe(true);
  wake.mockClear();
  return { wake, end };
}

test('a commit, a pause and an erasure wake those that wait for the session, and nobody else', async () => {
  const ids = await sessionWith(pool, talk(6));
  const other = await subscribed(newSession());
  const { wake } = await subscribed(ids);
  await compactThrough(pool, ids, 2);
  await expect.poll(() => wake.mock.calls.length).toBe(1);
  await setPaused(pool, ids, true);
  await expect.poll(() => wake.mock.calls.length).toBe(2);
  await eraseSession(pool, ids);
  await expect.poll(() => wake.mock.calls.length).toBe(3);
  expect(other.wake).not.toHaveBeenCalled();
});

test('a transaction that rolls back wakes nobody', async () => {
  const ids = await sessionWith(pool, talk(6));
  const { wake } = await subscribed(ids);
  await expect(compactThrough(pool, ids, 2, { digestKeys: ['no-such-digest'] })).rejects.toThrow();
  await compactThrough(pool, ids, 2);
  await expect.poll(() => wake.mock.calls.length).toBe(1);
});

test('a notice names no tenant and no session', async () => {
  const ids = { tenant: 'tenant-in-plain', session: 'session-in-plain' };
  const listener = new pg.Client({ connectionString: database.ownerUrl });
  await listener.connect();
  try {
    await listener.query('listen palimpsest');
    const heard = new Promise<pg.Notification>((resolve) => listener.once('notification', resolve));
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2) });
    await setPaused(pool, ids, true);
    expect((await heard).payload).toMatch(/^[0-9a-f]{32}$/);
  } finally {
    await listener.end();
  }
});

test('many subscriptions share one connection, which is closed once it is unused', async () => {
  const own = new Notices({ url: database.url, pool, unusedMs: 0 });
  expect(await listeners()).toEqual([]);
  const many = await Promise.all(Array.from({ length: 50 }, () => subscribed(newSession(), own)));
  expect(await listeners()).toHaveLength(1);
  for (const { end } of many) end();
  await expect.poll(listeners).toEqual([]);
  const again = await subscribed(newSession(), own);
  expect(await listeners()).toHaveLength(1);
  again.end();
  await own.close();
});

test('a lost connection is replaced, and everybody looks again', async () => {
  const { wake } = await subscribed(newSession());
  const [pid] = await listeners();
  await ownerOf(pool).query('select pg_terminate_backend($1)', [pid]);
  await expect.poll(() => wake.mock.calls.length).toBeGreaterThan(0);
  await expect.poll(() => notices.isListening).toBe(true);
  await expect.poll(listeners).not.toContain(pid);
});

test('where no notice arrives, as behind a pooler, nothing listens', async () => {
  // Notices do not cross databases.
  const elsewhere = await createDatabase();
  const deaf = new Notices({ url: elsewhere.url, pool, answerMs: 200 });
  try {
    const wake = vi.fn();
    const end = deaf.subscribe(newSession(), wake);
    await expect.poll(() => wake.mock.calls.length).toBeGreaterThan(0);
    expect(deaf.isListening).toBe(false);
    end();
  } finally {
    await deaf.close();
    await elsewhere.drop();
  }
});

test('closing while the connection opens leaves none behind', async () => {
  notices.subscribe(newSession(), () => undefined);
  await notices.close();
  await expect.poll(listeners).toEqual([]);
  expect(notices.isListening).toBe(false);
});
