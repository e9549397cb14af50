/**
 * A session whose row another writer has locked: its writers fail with Store.Busy, together they use one connection of a
 * process, and all other sessions are served.
 */
import { execFileSync } from 'node:child_process';
import pg, { type Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFailure } from '../../../src/errors.js';
import { openPool } from '../../support/pool.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { withTransaction } from '../../../src/store/connection/transaction.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { newSession, sessionWith, talk } from '../../support/store.js';
import { Way } from '../../support/way.js';

let database: TestDatabase;
let observer: Pool;

beforeAll(async () => {
  database = await createDatabase();
  observer = openPool(database.url, { max: 2 });
});

afterAll(async () => {
  await observer.end();
  await database.drop();
});

/** Holds the row of a session until it is released, as a worker that was stopped inside its commit does. */
async function hold({ tenant, session }: SessionIds) {
  const client = new pg.Client({ connectionString: database.ownerUrl, application_name: 'holder' });
  await client.connect();
  await client.query('begin');
  await client.query(
    'select from palimpsest.sessions where tenant_id = $1 and session_id = $2 for no key update',
    [tenant, session],
  );
  return {
    release: () => client.query('rollback'),
    end: () => client.end(),
  };
}

/** A program that ends when the server has ended a connection. */
const waitUntilGone = `
  const client = new (require('pg').Client)({ connectionString: process.env.URL });
  const look = () => client.query('select from pg_stat_activity where pid = $1', [process.env.PID]);
  const isGone = async () => (await look()).rowCount === 0 || isGone();
  client.connect().then(isGone).then(() => client.end());`;

/** Connections of one application that wait for a lock. */
async function waiting(application: string): Promise<number> {
  const { rows } = await observer.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`,
    [application],
  );
  return rows[0]?.count ?? 0;
}

const append = (pool: Pool, ids: SessionIds, turnId: string) =>
  appendTurn(pool, { ...ids, turnId, messages: talk(1) });

const typeOfError = (error: unknown): string => (isFailure(error) ? error.type : 'untyped');
const typeOf = (outcome: PromiseSettledResult<unknown>): string =>
  outcome.status === 'fulfilled' ? 'stored' : typeOfError(outcome.reason);

describe('a session whose row is locked', () => {
  it('answers Store.Busy, uses one connection for all its writers, and does not delay other sessions', async () => {
    const pool = openPool(database.url, { max: 4, applicationName: 'busy' });
    const atLock = openPool(database.url, { max: 4, lockTimeoutMs: 300 });
    const inQueue = openPool(database.url, { max: 4, applicationName: 'queue', connectionTimeoutMs: 5_000 });
    const held = await sessionWith(pool, talk(2));
    const other = await sessionWith(pool, talk(2), held.tenant);
    const holder = await hold(held);
    try {
      const patient = Promise.allSettled([
        ...Array.from({ length: 40 }, (_, n) => append(pool, held, `t-${n}`)),
        append(inQueue, held, 'q-0'),
      ]);
      await expect.poll(() => waiting('queue')).toBe(1);
      await expect.poll(() => waiting('busy')).toBeGreaterThan(0);
      // While they wait, another session appends more turns than the pool has connections.
      const others = await Promise.allSettled(
        Array.from({ length: 12 }, (_, n) => append(pool, other, `o-${n}`)),
      );
      expect(await waiting('busy')).toBe(1);
      expect(others.map(typeOf)).toEqual(others.map(() => 'stored'));
      const refused = await Promise.allSettled([
        ...Array.from({ length: 3 }, (_, n) => append(atLock, held, `l-${n}`)),
        append(inQueue, held, 'q-1'),
      ]);
      expect(refused.map(typeOf)).toEqual(refused.map(() => 'Store.Busy'));
      expect((await loadSession(pool, held)).nextSeq).toBe(3);
      await holder.release();
      const outcomes = await patient;
      expect(outcomes.map(typeOf)).toEqual(outcomes.map(() => 'stored'));
      expect((await loadSession(pool, held)).nextSeq).toBe(3 + outcomes.length);
    } finally {
      await holder.end();
      await Promise.all([pool.end(), atLock.end(), inQueue.end()]);
    }
  });

  it('a deadlock is also Store.Busy: the server is sound', async () => {
    const pool = openPool(database.url, { max: 4 });
    const ids = await Promise.all([sessionWith(pool, talk(1)), sessionWith(pool, talk(1))]);
    const lock = 'update palimpsest.sessions set updated_at = now() where session_id = $1';
    const arrived: (() => void)[] = [];
    const both = new Promise<void>((resolve) => arrived.push(resolve));
    let count = 0;
    const crossing = (first: SessionIds, second: SessionIds) =>
      withTransaction(pool, first, async ({ query }) => {
        await query(lock, [first.session]);
        if (++count === 2) arrived[0]!();
        await both;
        await query(lock, [second.session]);
      });
    const outcomes = await Promise.allSettled([crossing(ids[0], ids[1]), crossing(ids[1], ids[0])]);
    expect(outcomes.map(typeOf).sort()).toEqual(['Store.Busy', 'stored']);
    await pool.end();
  });
});

describe('a writer that stopped in its transaction', () => {
  it('loses it after the time a transaction may be idle; its COMMIT then fails, typed, with nothing written', async () => {
    const pool = openPool(database.url, {
      max: 2,
      applicationName: 'stopped',
      idleTransactionTimeoutMs: 500,
    });
    const ids = await sessionWith(observer, talk(2));
    const failed = withTransaction(pool, ids, async ({ query }) => {
      await query('update palimpsest.sessions set next_seq = 99 where session_id = $1', [ids.session]);
      const gone = `select 1 from pg_stat_activity where application_name = 'stopped' and state = 'idle in transaction'`;
      await expect.poll(async () => (await observer.query(gone)).rowCount).toBe(0);
    });
    await expect(failed).rejects.toMatchObject({ type: 'Store.Unavailable' });
    expect((await loadSession(pool, ids)).nextSeq).toBe(3);
    await pool.end();
  });

  it('gets a typed failure if the server reports the lost transaction only in answer to the COMMIT', async () => {
    const pool = openPool(database.url, { max: 1 });
    const ids = newSession();
    const failed = withTransaction(pool, ids, async ({ query }) => {
      const [self] = await query<{ pid: number }>('select pg_backend_pid() as pid');
      await query("set local idle_in_transaction_session_timeout = '300ms'");
      // Like SIGSTOP: this process reads nothing until it continues, and then sends its COMMIT before it reads anything.
      execFileSync(process.execPath, ['-e', waitUntilGone], {
        env: { ...process.env, URL: database.ownerUrl, PID: String(self!.pid) },
      });
    });
    await expect(failed).rejects.toMatchObject({ type: 'Store.Unavailable' });
    expect(await append(pool, ids, 't')).toMatchObject({ fromSeq: 1 });
    await pool.end();
  });
});

describe('a server that has gone silent', () => {
  it('is abandoned after the longest time that a statement may take, and its connection is replaced', async () => {
    const url = new URL(database.url);
    const way = new Way(`${url.hostname}:${url.port}`);
    url.port = String(await way.open());
    url.hostname = '127.0.0.1';
    const pool = openPool(url.toString(), { max: 1, statementTimeoutMs: 300, silenceTimeoutMs: 600 });
    const ids = await sessionWith(observer, talk(1));
    // A busy machine may need several attempts within these limits.
    await expect.poll(() => loadSession(pool, ids).then(({ nextSeq }) => nextSeq, typeOfError)).toBe(2);
    way.swallow();
    expect(await loadSession(pool, ids).catch(typeOfError)).toBe('Store.Unavailable');
    await expect.poll(() => append(pool, ids, 'lost').then(({ fromSeq }) => fromSeq, typeOfError)).toBe(2);
    expect(pool.totalCount).toBe(1);
    await pool.end();
    way.cut();
  });
});
