/**
 * The erasure of a session deletes all its data and no other data, although the database otherwise refuses to delete from a
 * log.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { holdDigest, releaseHolds } from '../../../src/store/compactions/digest-holds.js';
import { storeDigest } from '../../../src/store/compactions/digests.js';
import { eraseSession, eraseWithForks, releaseLeftDigests } from '../../../src/store/sessions/erase.js';
import { findErasure } from '../../../src/store/sessions/erasures.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { indexTexts } from '../../../src/store/search/index-texts.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import { withTransaction } from '../../../src/store/connection/transaction.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { rowsHolding } from '../../support/rows.js';
import { compactThrough, countRows, newSession, replayed, sessionWith, talk } from '../../support/store.js';

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

const tables = [
  ...['sessions', 'turns', 'messages', 'message_texts'],
  ...['compactions', 'archive_parts', 'reductions', 'compaction_digests'],
];

async function rows(ids: { tenant: string; session: string }): Promise<Record<string, number>> {
  const counts = tables.map(async (table) => [table, await countRows(pool, table, ids)] as const);
  return Object.fromEntries(await Promise.all(counts));
}

async function digest(tenant: string, payerSession: string): Promise<string> {
  const key = randomUUID();
  const cost = { calls: 1, inputTokens: 10, outputTokens: 5 };
  const about = { text: 'what was said', tokens: 3 };
  await storeDigest(pool, { tenant, key, ...about, ...cost, payerSession, payerGeneration: 1 });
  return key;
}

async function digestsLeft(tenant: string): Promise<string[]> {
  const found = await pool.query<{ key: string }>('select key from palimpsest.digests where tenant_id = $1', [
    tenant,
  ]);
  return found.rows.map(({ key }) => key);
}

describe('erasing a session', () => {
  it('deletes all its rows and does not change other sessions', async () => {
    const tenant = randomUUID();
    const [gone, stays] = [
      await sessionWith(pool, talk(8), tenant),
      await sessionWith(pool, talk(8), tenant),
    ];
    for (const ids of [gone, stays]) {
      const reduction = { fromSeq: 6, throughSeq: 6, kind: 'tool_result', body: '{}', tokens: 1 } as const;
      const digestKeys = [await digest(tenant, ids.session)];
      await compactThrough(pool, ids, 4, { digestKeys, reductions: [reduction] });
      await compactThrough(pool, ids, 6);
      await indexTexts(pool, ids);
    }
    const before = await rows(stays);
    for (const table of tables) expect(before[table], table).toBeGreaterThan(0);
    expect(await eraseSession(pool, gone)).toEqual({ messages: 8, generations: 2, digests: 1 });
    expect(await rows(gone)).toEqual(Object.fromEntries(tables.map((table) => [table, 0])));
    expect(await rows(stays)).toEqual(before);
    expect(await replayed(pool, stays)).toHaveLength(8);
    await expect(eraseSession(pool, gone)).rejects.toMatchObject({ type: 'Store.SessionNotFound' });
  });

  it('deletes digests that it paid for or refers to, unless another session refers to them', async () => {
    const tenant = randomUUID();
    const [gone, stays] = [
      await sessionWith(pool, talk(4), tenant),
      await sessionWith(pool, talk(4), tenant),
    ];
    const [own, shared, unused, ofOthers] = [
      await digest(tenant, gone.session),
      await digest(tenant, gone.session),
      await digest(tenant, gone.session),
      await digest(tenant, stays.session),
    ];
    await compactThrough(pool, gone, 2, { digestKeys: [own, shared] });
    await compactThrough(pool, stays, 2, { digestKeys: [shared] });
    await eraseSession(pool, gone);
    const left = await digestsLeft(tenant);
    expect(left.toSorted()).toEqual([shared, ofOthers].toSorted());
    expect(left).not.toContain(unused);
  });

  it('leaves a fork complete', async () => {
    const ids = await sessionWith(pool, talk(6));
    const digestKeys = [await digest(ids.tenant, ids.session)];
    await compactThrough(pool, ids, 4, { digestKeys });
    const to = randomUUID();
    await fork(pool, ids, { to, throughSeq: 6 });
    await eraseSession(pool, ids);
    const forked = { tenant: ids.tenant, session: to };
    expect(await replayed(pool, forked)).toHaveLength(6);
    expect(await digestsLeft(ids.tenant)).toEqual(expect.arrayContaining(digestKeys));
    expect((await loadSession(pool, forked)).forkOf).toBeNull();
    // Its executions are still to be deleted.
    expect(await rowsHolding(pool, [ids.session])).toEqual({ erasures: 1 });
  });

  it('counts forks of a fork as forks of the first session', async () => {
    const ids = await sessionWith(pool, talk(6));
    const of = (session: string) => ({ tenant: ids.tenant, session });
    const [first, second] = [randomUUID(), randomUUID()];
    await fork(pool, ids, { to: first, throughSeq: 4 });
    await appendTurn(pool, { ...of(first), turnId: 'more', messages: talk(2) });
    await fork(pool, of(first), { to: second, throughSeq: 6 });
    await eraseSession(pool, of(first));
    expect((await loadSession(pool, of(second))).forkOf).toEqual({ session: ids.session, throughSeq: 4 });
  });

  it('with its forks also erases theirs, and one that begins at this moment', async () => {
    const ids = await sessionWith(pool, talk(6));
    const of = (session: string) => ({ tenant: ids.tenant, session });
    const [first, second, third] = [randomUUID(), randomUUID(), randomUUID()];
    await fork(pool, ids, { to: first, throughSeq: 4 });
    await fork(pool, of(first), { to: second, throughSeq: 4 });
    const erased: [string, number][] = [];
    await eraseWithForks(pool, ids, async ({ session }, { messages }) => {
      erased.push([session, messages]);
      // The origin is erased last: until then it can be forked.
      if (erased.length === 1) await fork(pool, ids, { to: third, throughSeq: 2 });
    });
    expect(erased).toEqual([
      [second, 4],
      [first, 4],
      [third, 2],
      [ids.session, 6],
    ]);
    expect(await rowsHolding(pool, [ids.session])).toEqual({ erasures: 1 });
  });

  it('cut off in the middle of its forks, is repeated', async () => {
    const ids = await sessionWith(pool, talk(6));
    for (const throughSeq of [2, 4]) await fork(pool, ids, { to: randomUUID(), throughSeq });
    const cut = () => Promise.reject(new Error('killed'));
    await expect(eraseWithForks(pool, ids, cut)).rejects.toThrow('killed');
    let again = 0;
    await eraseWithForks(pool, ids, async () => void again++);
    expect(again).toBe(2);
    expect(await rowsHolding(pool, [ids.session])).toEqual({ erasures: 1 });
  });

  it('names another payer of a digest that others refer to, and postpones one that a commit has locked', async () => {
    const tenant = randomUUID();
    const [gone, stays] = [
      await sessionWith(pool, talk(4), tenant),
      await sessionWith(pool, talk(4), tenant),
    ];
    const [shared, held] = [await digest(tenant, gone.session), await digest(tenant, gone.session)];
    await compactThrough(pool, stays, 2, { digestKeys: [shared] });
    const other = await ownerOf(pool).connect();
    await other.query('begin');
    await other.query('select from palimpsest.digests where tenant_id = $1 and key = $2 for key share', [
      tenant,
      held,
    ]);
    await eraseSession(pool, gone);
    await other.query('rollback');
    other.release();
    const payers = async () => {
      const found = await pool.query(
        'select key, payer_session from palimpsest.digests where tenant_id = $1',
        [tenant],
      );
      return Object.fromEntries(found.rows.map((row) => [row.key, row.payer_session]));
    };
    expect(await payers()).toEqual({ [shared]: stays.session, [held]: gone.session });
    await releaseLeftDigests(pool, (await findErasure(pool, gone))!);
    expect(await payers()).toEqual({ [shared]: stays.session });
  });

  it('deletes a digest inherited from an erased session, once the commit that locked it has failed', async () => {
    const tenant = randomUUID();
    const [first, heir] = [
      await sessionWith(pool, talk(4), tenant),
      await sessionWith(pool, talk(4), tenant),
    ];
    const inherited = await digest(tenant, first.session);
    await compactThrough(pool, heir, 2, { digestKeys: [inherited] });
    await eraseSession(pool, first);
    const other = await ownerOf(pool).connect();
    await other.query('begin');
    await other.query('select from palimpsest.digests where tenant_id = $1 and key = $2 for key share', [
      tenant,
      inherited,
    ]);
    await eraseSession(pool, heir);
    await other.query('rollback');
    other.release();
    await releaseLeftDigests(pool, (await findErasure(pool, heir))!);
    expect(await digestsLeft(tenant)).toEqual([]);
    expect(await rowsHolding(pool, [heir.session])).toEqual({ erasures: 1 });
  });

  it('succeeds although the compaction that uses a digest of it ends at that moment', async () => {
    const tenant = randomUUID();
    const [gone, compacting] = [
      await sessionWith(pool, talk(4), tenant),
      await sessionWith(pool, talk(4), tenant),
    ];
    const held = await digest(tenant, gone.session);
    await holdDigest(pool, { ...compacting, runId: 'run', forMs: 60_000 }, held);
    // Stops the erasure where it deletes digests.
    const lock = 4_711;
    await pool.query(`create function palimpsest.stop_here() returns trigger language plpgsql
      as 'begin perform pg_advisory_xact_lock(${lock}); return null; end'`);
    await pool.query(`create trigger stop_here after delete on palimpsest.digests
      for each statement execute function palimpsest.stop_here()`);
    const stopper = await ownerOf(pool).connect();
    try {
      await stopper.query('select pg_advisory_lock($1)', [lock]);
      const erasure = eraseSession(pool, gone);
      const outcome = erasure.catch((error: unknown) => error);
      const waiting = async () =>
        (await stopper.query("select from pg_locks where locktype = 'advisory' and not granted")).rowCount;
      await expect.poll(waiting).toBe(1);
      await withTransaction(pool, compacting, ({ query }) => releaseHolds(query, compacting, 'run'));
      await stopper.query('select pg_advisory_unlock($1)', [lock]);
      expect(await outcome).toEqual({ messages: 4, generations: 0, digests: 0 });
    } finally {
      stopper.release();
      await pool.query('drop function palimpsest.stop_here cascade');
    }
    await eraseSession(pool, compacting);
    expect(await digestsLeft(tenant)).toEqual([]);
  });

  it('frees its id for another session', async () => {
    const ids = await sessionWith(pool, talk(2));
    await eraseSession(pool, ids);
    await appendTurn(pool, { ...ids, turnId: 'first', messages: talk(1, 3) });
    expect(await replayed(pool, ids)).toHaveLength(1);
  });
});

describe('the guards of the log, while a session is erased', () => {
  const restrictViolation = { code: '23001' };

  async function whileErasing(ids: { tenant: string; session: string }, statement: string): Promise<void> {
    const client = await ownerOf(pool).connect();
    try {
      await client.query('begin');
      await client.query('select palimpsest.erase_only($1, $2)', [ids.tenant, ids.session]);
      await client.query(statement);
      await client.query('commit');
    } finally {
      await client.query('rollback');
      client.release();
    }
  }

  it('refuse to delete from another session, and to change anything', async () => {
    const [mine, other] = [await sessionWith(pool, talk(2)), await sessionWith(pool, talk(2))];
    const of = ({ session }: { session: string }) => `where session_id = '${session}'`;
    for (const statement of [
      `delete from palimpsest.messages ${of(other)}`,
      `update palimpsest.messages set body = '{}' ${of(mine)}`,
      'truncate palimpsest.messages cascade',
    ])
      await expect(whileErasing(mine, statement)).rejects.toMatchObject(restrictViolation);
    expect(await replayed(pool, other)).toHaveLength(2);
  });

  it('apply again as soon as its transaction has ended', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: 'first', messages: talk(2) });
    const one = openPool(database.url, { max: 1 });
    try {
      await expect(eraseSession(one, { ...ids, session: 'nobody' })).rejects.toThrow();
      await one.query('begin');
      await one.query('select palimpsest.erase_only($1, $2)', [ids.tenant, ids.session]);
      await one.query('commit');
      const attempt = one.query('delete from palimpsest.messages where session_id = $1', [ids.session]);
      await expect(attempt).rejects.toMatchObject(restrictViolation);
    } finally {
      await one.end();
    }
  });
});
