/**
 * The basis of all store functions: transactions without leftovers, connections that return to the pool, typed failures, and
 * exactly the schema of this version.
 */
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate as applyMigrations } from 'drizzle-orm/node-postgres/migrator';
import pg, { type Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { assertMigrated, migrate, migrationsFolder } from '../../../src/store/connection/migrate.js';
import { openPool } from '../../support/pool.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import { read, withTransaction } from '../../../src/store/connection/transaction.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { newSession, talk } from '../../support/store.js';

let database: TestDatabase;

/** One connection only: a transaction that did not give it back would block the next one for good. */
let pool: Pool;
let other: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url, { max: 1 });
  other = openPool(database.url, { max: 1 });
  await other.query('create table public.probe (value int)');
  await other.query('grant all on public.probe to palimpsest_app');
});

afterAll(async () => {
  await pool.end();
  await other.end();
  await database.drop();
});

const probes = async () =>
  (await other.query<{ value: number }>('select value from public.probe')).rows.map(({ value }) => value);

describe('withTransaction', () => {
  beforeEach(() => other.query('truncate public.probe'));

  it('commits on return and rolls back on an error, and releases the connection', async () => {
    await withTransaction(pool, 'shared', ({ query }) => query('insert into public.probe values (1)'));
    const failing = withTransaction(pool, 'shared', async ({ query }) => {
      await query('insert into public.probe values (2)');
      throw new Error('changed my mind');
    });
    await expect(failing).rejects.toThrow('changed my mind');
    const violating = withTransaction(pool, 'shared', ({ query }) =>
      query("insert into public.probe values ('x'::int)"),
    );
    await expect(violating).rejects.toMatchObject({ code: '22P02' });
    await withTransaction(pool, 'shared', ({ query }) => query('insert into public.probe values (3)'));
    expect(await probes()).toEqual([1, 3]);
  });

  it('does not report a commit if a swallowed error had aborted the transaction', async () => {
    const swallowing = withTransaction(pool, 'shared', async ({ query }) => {
      await query('insert into public.probe values (1)');
      await query('select 1/0').catch(() => undefined);
    });
    await expect(swallowing).rejects.toThrow('ended with ROLLBACK');
    expect(await probes()).toEqual([]);
  });

  it('drops a connection whose BEGIN fails instead of leaking it or giving it to the next one', async () => {
    // A connection, whose first statement is not one of the failing ones.
    await withTransaction(pool, 'shared', async () => 0);
    const spy = vi
      .spyOn(pg.Client.prototype, 'query')
      .mockRejectedValueOnce(new Error('Connection terminated unexpectedly'));
    spy.mockRejectedValueOnce(new Error('Client has encountered a connection error and is not queryable'));
    await expect(withTransaction(pool, 'shared', async () => 1)).rejects.toMatchObject({
      type: 'Store.Unavailable',
    });
    spy.mockRestore();
    expect(pool.totalCount).toBe(0);
    expect(await withTransaction(pool, 'shared', async () => 2)).toBe(2);
  });

  it('survives the loss of the connection: Store.Unavailable, nothing written, the next one works', async () => {
    const losing = withTransaction(pool, 'shared', async ({ query }) => {
      await query('insert into public.probe values (1)');
      const [self] = await query<{ pid: number }>('select pg_backend_pid() as pid');
      await other.query('select pg_terminate_backend($1, 10000)', [self?.pid]);
      await query('insert into public.probe values (2)');
    });
    await expect(losing).rejects.toMatchObject({ type: 'Store.Unavailable' });
    expect(await probes()).toEqual([]);
    expect(await withTransaction(pool, 'shared', async () => 'again')).toBe('again');
  });

  it('an idle connection that is lost does no harm', async () => {
    const lost = vi.fn();
    const idle = openPool(database.url, { max: 1, onIdleError: lost });
    const [self] = await read<{ pid: number }>(idle, 'shared', 'select pg_backend_pid() as pid');
    await other.query('select pg_terminate_backend($1, 10000)', [self?.pid]);
    await expect.poll(() => lost.mock.calls.length).toBeGreaterThan(0);
    expect(await read(idle, 'shared', 'select 1 as one')).toEqual([{ one: 1 }]);
    await idle.end();
  });
});

describe('an unusable database is Store.Unavailable with the next step', () => {
  const at = (change: (url: URL) => void) => {
    const url = new URL(database.url);
    change(url);
    return url.toString();
  };

  it.each([
    ['nobody listens', () => at((url) => void (url.port = '1')), /server of DATABASE_URL runs/],
    [
      'the password is wrong',
      () => at((url) => void (url.password = 'wrong')),
      /user, password and database/,
    ],
    [
      'the database does not exist',
      () => at((url) => void (url.pathname = '/nowhere')),
      /user, password and database/,
    ],
  ])('%s', async (_, url, hint) => {
    const unreachable = openPool(url());
    const failure = { type: 'Store.Unavailable', hint: expect.stringMatching(hint) };
    await expect(assertMigrated(unreachable)).rejects.toMatchObject(failure);
    await expect(loadSession(unreachable, newSession())).rejects.toMatchObject(failure);
    await expect(
      appendTurn(unreachable, { ...newSession(), turnId: 't', messages: talk(1) }),
    ).rejects.toMatchObject(failure);
    await expect(migrate(url())).rejects.toMatchObject(failure);
    await unreachable.end();
  });

  it('refuses an invalid connection string', async () => {
    expect(() => openPool('mysql://localhost/x')).toThrow(
      expect.objectContaining({ type: 'Store.Unavailable', path: 'DATABASE_URL' }),
    );
    await expect(migrate('not a url')).rejects.toMatchObject({
      type: 'Store.Unavailable',
      path: 'DATABASE_URL',
    });
  });
});

describe('migrate', () => {
  let fresh: TestDatabase;
  let freshPool: Pool;

  beforeEach(async () => {
    fresh = await createDatabase();
    freshPool = openPool(fresh.url, { max: 1 });
    return async () => {
      await freshPool.end();
      await fresh.drop();
    };
  });

  it('lets processes that start together prepare an empty database once', async () => {
    await freshPool.query('drop schema palimpsest cascade');
    await expect(assertMigrated(freshPool)).rejects.toMatchObject({
      type: 'Store.Unavailable',
      hint: expect.stringContaining('palimpsest migrate'),
    });
    const applied = await Promise.all([1, 2, 3, 4].map(() => migrate(fresh.ownerUrl, { roles: {} })));
    expect(applied.filter((count) => count > 0)).toHaveLength(1);
    await assertMigrated(freshPool);
    expect(await migrate(fresh.ownerUrl)).toBe(0);
  });

  it('refuses and does not touch a database that a newer version migrated, or whose migrations differ', async () => {
    const unknown = async (when: number) => {
      await freshPool.query("insert into palimpsest.migrations (hash, created_at) values ('unknown', $1)", [
        when,
      ]);
      for (const attempt of [() => migrate(fresh.ownerUrl), () => assertMigrated(freshPool)]) {
        await expect(attempt()).rejects.toMatchObject({
          type: 'Store.Unavailable',
          message: expect.stringContaining(when > 1 ? 'newer version' : 'differs'),
        });
      }
      await freshPool.query("delete from palimpsest.migrations where hash = 'unknown'");
    };
    await unknown(Date.parse('2100-01-01'));
    await unknown(1);
    await assertMigrated(freshPool);
  });

  it('notices a migration that drizzle would skip because a newer one is applied', async () => {
    await freshPool.query(
      'delete from palimpsest.migrations where id = (select min(id) from palimpsest.migrations)',
    );
    for (const attempt of [() => migrate(fresh.ownerUrl), () => assertMigrated(freshPool)]) {
      await expect(attempt()).rejects.toMatchObject({
        type: 'Store.Unavailable',
        message: expect.stringContaining('lacks 1 of'),
      });
    }
  });

  it('makes a database that looks a row up by its primary key before it has statistics', async () => {
    const { rows: keys } = await freshPool.query<{ name: string; lookup: string }>(`
      select conname as name, format('select from %s where %s', conrelid::regclass,
        string_agg(format('%I = $%s', attname, place), ' and ' order by place)) as lookup
      from pg_constraint, unnest(conkey) with ordinality key (number, place), pg_attribute
      where connamespace = 'palimpsest'::regnamespace and contype = 'p' and attrelid = conrelid and attnum = number
      group by pg_constraint.oid`);
    expect(keys.map(({ name }) => name)).toContain('sessions_pk');
    for (const { name, lookup } of keys) {
      const { rows } = await freshPool.query(`explain (generic_plan) ${lookup}`);
      expect(JSON.stringify(rows), lookup).toContain(name);
    }
  });

  it('brings the first version with a session in it up to date at once', async () => {
    await freshPool.query('drop schema palimpsest cascade');
    const first = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-first-'));
    const owner = new pg.Client(fresh.ownerUrl);
    await owner.connect();
    try {
      const journal = readFileSync(path.join(migrationsFolder(), 'meta', '_journal.json'), 'utf8');
      const { entries, ...about }: { entries: { tag: string }[] } = JSON.parse(journal);
      const [entry] = entries;
      const file = `${entry!.tag}.sql`;
      mkdirSync(path.join(first, 'meta'));
      copyFileSync(path.join(migrationsFolder(), file), path.join(first, file));
      writeFileSync(
        path.join(first, 'meta', '_journal.json'),
        JSON.stringify({ ...about, entries: [entry] }),
      );
      await applyMigrations(drizzle(owner), {
        ...{ migrationsFolder: first, migrationsSchema: 'palimpsest', migrationsTable: 'migrations' },
      });
      await owner.query(`
        insert into palimpsest.sessions
          (tenant_id, session_id, policy, policy_version, tokenizer, budget, next_seq, live_tokens, live_messages)
          values ('acme', 'old', '{}', 1, 'estimate', 8000, 2, 1, 1);
        insert into palimpsest.compactions
          (tenant_id, session_id, generation, from_seq, through_seq, reason, method)
          values ('acme', 'old', 0, 1, 0, 'genesis', 'none');
        insert into palimpsest.turns (tenant_id, session_id, turn_id, from_seq, through_seq, sha256)
          values ('acme', 'old', 't-1', 1, 1, sha256('turn'));
        insert into palimpsest.messages (tenant_id, session_id, seq, turn_id, role, empty, tokens, sha256, body)
          values ('acme', 'old', 1, 't-1', 'user', false, 1, sha256('{"role":"user","content":"hi"}'), '{"role":"user","content":"hi"}')`);
      expect(await migrate(fresh.ownerUrl, { roles: {} })).toBe(entries.length - 1);
      await assertMigrated(freshPool);
      const session = await loadSession(freshPool, { tenant: 'acme', session: 'old' });
      expect(session).toMatchObject({ nextSeq: 2, liveMessages: 1, storedBytes: 30 });
    } finally {
      await owner.end();
      rmSync(first, { recursive: true });
    }
  });

  it('has a journal whose times strictly increase, so that no file is ever skipped', () => {
    const journal = readFileSync(path.join(migrationsFolder(), 'meta', '_journal.json'), 'utf8');
    const { entries }: { entries: { when: number; tag: string }[] } = JSON.parse(journal);
    const times = entries.map(({ when }) => when);
    expect(times).toEqual([...new Set(times)].sort((a, b) => a - b));
    expect(entries.map(({ tag }) => tag)).toEqual(entries.map(({ tag }) => tag).sort());
  });
});
