/**
 * The row of a session says since when it has waited for work without a workflow, for every kind of write, and the sweep finds
 * such sessions without reading the others.
 */
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { fork } from '../../../src/store/compactions/fork.js';
import {
  asksForNothing,
  countOverdue,
  postpone,
  readOverdue,
  takeInHand,
} from '../../../src/store/sessions/overdue.js';
import { importedTurnId } from '../../../src/store/append/imported.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { restore } from '../../../src/store/compactions/restore.js';
import {
  closeSession,
  loadSession,
  recordFailure,
  setExhausted,
  setPaused,
} from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { compactThrough, configureSession, newSession, talk } from '../../support/store.js';

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

/** Six messages reach it. */
const small: PolicyInput = { trigger: [{ messages: 6 }], keep: { messages: 2 } };
const quiet: PolicyInput = { trigger: [{ messages: 100 }] };

async function overMark(tenant = 'acme', imported = false): Promise<SessionIds> {
  const ids = newSession(tenant);
  await appendTurn(pool, { ...ids, turnId: '1', messages: talk(6), policy: small, imported });
  return ids;
}

async function marks(ids: SessionIds): Promise<{ overdueAt: Date | null; sweepAt: Date | null }> {
  const { overdueAt, sweepAt } = await loadSession(pool, ids);
  return { overdueAt, sweepAt };
}

const nothing = { overdueAt: null, sweepAt: null };

/** Lets the time for a measurement pass. */
async function unnoticed(...sessions: SessionIds[]): Promise<void> {
  for (const { tenant, session } of sessions)
    await pool.query(
      `update palimpsest.sessions set overdue_at = now() where tenant_id = $1 and session_id = $2 and overdue_at is not null`,
      [tenant, session],
    );
}

/** Sessions that a sweep would look at now. */
async function found(tenant: string, most = 100): Promise<string[]> {
  const sessions = await readOverdue(pool, most);
  return sessions.filter((one) => one.tenant === tenant).map(({ session }) => session);
}

describe('a session needs a measurement', () => {
  test('from the append that reaches a size on, and is overdue if no workflow measures it soon', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2), policy: small });
    expect(await marks(ids)).toEqual(nothing);
    const before = Date.now();
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(4) });
    const { overdueAt, sweepAt } = await marks(ids);
    expect(overdueAt!.getTime()).toBeGreaterThan(before + 5_000);
    expect(sweepAt).toEqual(overdueAt);
    await unnoticed(ids);
    const since = (await marks(ids)).overdueAt;
    await appendTurn(pool, { ...ids, turnId: '3', messages: talk(2) });
    expect((await marks(ids)).overdueAt).toEqual(since);
  });

  test('not after an import, but after the next live turn', async () => {
    const ids = await overMark('acme', true);
    expect(await marks(ids)).toEqual(nothing);
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) });
    expect((await marks(ids)).overdueAt).not.toBeNull();
  });

  test('after a policy with smaller sizes, after a fork, and after resume', async () => {
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(6), policy: quiet });
    expect(await marks(ids)).toEqual(nothing);
    await configureSession(pool, ids, small);
    expect((await marks(ids)).overdueAt).not.toBeNull();
    const to = { ...ids, session: randomUUID() };
    await fork(pool, ids, { throughSeq: 6, to: to.session });
    expect((await marks(to)).overdueAt!.getTime()).toBeLessThanOrEqual(Date.now());
    await setPaused(pool, ids, true);
    expect(await marks(ids)).toEqual(nothing);
    await setPaused(pool, ids, false);
    expect((await marks(ids)).overdueAt).not.toBeNull();
  });
});

describe('a session needs no measurement', () => {
  const ends: [string, (ids: SessionIds) => Promise<unknown>][] = [
    ['paused', (ids) => setPaused(pool, ids, true)],
    ['closed', (ids) => closeSession(pool, ids)],
    ['switched off', (ids) => configureSession(pool, ids, { enabled: false })],
    [
      'exhausted',
      (ids) => setExhausted(pool, ids, { atSeq: 6, tokens: 100, reason: 'nothing may be evicted' }),
    ],
    ['compacted', (ids) => compactThrough(pool, ids, 4)],
    ['restored', (ids) => compactThrough(pool, ids, 4).then(() => restore(pool, ids, 0))],
  ];
  test.each(ends)('once it is %s', async (_, end) => {
    const ids = await overMark();
    await unnoticed(ids);
    expect(await found('acme')).toContain(ids.session);
    await end(ids);
    expect(await marks(ids)).toEqual(nothing);
    expect(await found('acme')).not.toContain(ids.session);
  });

  test('once it was measured without a result, unless a turn came meanwhile', async () => {
    const ids = await overMark();
    const judged = await loadSession(pool, ids);
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) });
    await asksForNothing(pool, judged);
    expect((await marks(ids)).overdueAt).not.toBeNull();
    await asksForNothing(pool, await loadSession(pool, ids));
    expect(await marks(ids)).toEqual(nothing);
    await appendTurn(pool, { ...ids, turnId: '3', messages: talk(1) });
    expect((await marks(ids)).overdueAt).not.toBeNull();
  });

  test('before the next attempt after a failure', async () => {
    const ids = await overMark();
    const retryAt = new Date(Date.now() + 3_600_000);
    await recordFailure(pool, ids, { type: 'Llm.Unavailable', message: 'away', retryAt });
    expect(await marks(ids)).toEqual({ overdueAt: retryAt, sweepAt: retryAt });
    // A backfill's failure asks for nothing either: its session waits for the job to be retried.
    const old = await overMark('acme', true);
    await recordFailure(pool, old, { type: 'Llm.Unavailable', message: 'away', retryAt });
    expect(await marks(old)).toEqual(nothing);
  });

  test('as long as a workflow works on it', async () => {
    const ids = await overMark();
    const row = await loadSession(pool, ids);
    const before = await marks(ids);
    // A measurement of a session that was erased meanwhile says nothing of the one that has its id now.
    const erased = { ...row, incarnation: randomUUID() };
    await takeInHand(pool, erased, 600_000);
    await asksForNothing(pool, erased);
    expect(await marks(ids)).toEqual(before);
    await takeInHand(pool, row, 600_000);
    expect((await marks(ids)).overdueAt!.getTime()).toBeGreaterThan(Date.now() + 500_000);
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) });
    expect((await marks(ids)).overdueAt!.getTime()).toBeGreaterThan(Date.now() + 500_000);
  });
});

test('sessions that waited before the migration are found after it, except imported ones', async () => {
  const [live, old] = [await overMark('before'), newSession('before')];
  await appendTurn(pool, {
    ...old,
    turnId: importedTurnId(1, []),
    messages: talk(6),
    policy: small,
    imported: true,
  });
  await pool.query(`update palimpsest.sessions set overdue_at = null where tenant_id = 'before'`);
  const folder = new URL('../../../migrations/', import.meta.url);
  const name = (await readdir(folder)).find((file) => file.endsWith('_find_overdue_sessions.sql'))!;
  const statements = (await readFile(new URL(name, folder), 'utf8')).split('--> statement-breakpoint');
  await pool.query(statements.find((statement) => /^UPDATE /m.test(statement))!);
  expect(await found('before', 1_000)).toEqual([live.session]);
});

describe('the sweep', () => {
  test('checks a session again only after as long as it has waited, at most an hour', async () => {
    const ids = await overMark('patient');
    const waited = async (minutes: number) => {
      await pool.query(
        `update palimpsest.sessions set overdue_at = now() - make_interval(mins => $2) where session_id = $1`,
        [ids.session, minutes],
      );
      await postpone(pool, [ids], true);
      const { sweepAt, overdueAt } = await marks(ids);
      expect(overdueAt!.getTime()).toBeLessThanOrEqual(Date.now());
      return Math.round((sweepAt!.getTime() - Date.now()) / 60_000);
    };
    expect([await waited(0), await waited(7), await waited(600)]).toEqual([1, 7, 60]);
    expect(await found('patient')).toEqual([]);
    await postpone(pool, [ids], false);
    expect(Math.round(((await marks(ids)).sweepAt!.getTime() - Date.now()) / 60_000)).toBe(1);
  });

  test('does not postpone a session that a workflow has measured since', async () => {
    const ids = await overMark('measured');
    await unnoticed(ids);
    await takeInHand(pool, await loadSession(pool, ids), 600_000);
    const before = await marks(ids);
    await postpone(pool, [ids], true);
    expect(await marks(ids)).toEqual(before);
  });

  test('takes the same share of every tenant, the longest waiting first', async () => {
    const many = [];
    for (let index = 0; index < 8; index++) many.push(await overMark('fair-large'));
    const few = [await overMark('fair-small'), await overMark('fair-small')];
    await unnoticed(...many, ...few);
    const others = (await readOverdue(pool, 1_000)).filter(({ tenant }) => !tenant.startsWith('fair-'));
    await postpone(pool, others, true);
    const page = await readOverdue(pool, 4);
    expect(page.map(({ tenant }) => tenant).sort()).toEqual([
      ...['fair-large', 'fair-large', 'fair-small', 'fair-small'],
    ]);
    const ofLarge = page.filter(({ tenant }) => tenant === 'fair-large').map(({ session }) => session);
    expect(ofLarge).toEqual(many.slice(0, 2).map(({ session }) => session));
  });
});

test('a tenant is served although 10,000 others before it have sessions that are not yet due', async () => {
  const other = await createDatabase();
  const large = openPool(other.url);
  try {
    await large.query(
      `with added as (
         insert into palimpsest.sessions
           (tenant_id, session_id, policy, policy_version, tokenizer, budget, live_tokens, measure_at_tokens, overdue_at, sweep_at)
         select case when n <= 10000 then 'before-' else 'last-' end || n, 's', '{}', 1, 'o200k_base', 1000, 2, 1, due, due
         from generate_series(1, 10001) n,
           lateral (select now() + case when n <= 10000 then interval '1 hour' else interval '0' end as due) as at returning tenant_id, session_id)
       insert into palimpsest.compactions (tenant_id, session_id, generation, from_seq, through_seq, reason, method)
       select tenant_id, session_id, 0, 1, 0, 'genesis', 'none' from added`,
    );
    expect((await readOverdue(large, 200)).map(({ tenant }) => tenant)).toEqual(['last-10001']);
  } finally {
    await large.end();
    await other.drop();
  }
});

describe('sessions of a backfill', () => {
  async function job(tenant: string, state: string, selecting: boolean, cursor: string | null, select = {}) {
    const name = randomUUID();
    await pool.query(
      `insert into palimpsest.backfills (tenant_id, job, request, state, selecting, cursor) values ($1, $2, $3, $4, $5, $6)`,
      [tenant, name, JSON.stringify({ job: name, select }), state, selecting, cursor],
    );
    return name;
  }
  async function isLeft(ids: SessionIds): Promise<boolean> {
    await unnoticed(ids);
    return (await readOverdue(pool, 1_000)).find(({ session }) => session === ids.session)!.inBackfill;
  }

  test('are left to it while it runs, for a day', async () => {
    const ids = await overMark('jobs-1');
    expect(await isLeft(ids)).toBe(false);
    const name = await job('jobs-1', 'running', false, ids.session);
    expect(await isLeft(ids)).toBe(false);
    const item = `insert into palimpsest.backfill_items (tenant_id, job, session_id, state) values ($1, $2, $3, 'running')`;
    await pool.query(item, ['jobs-1', name, ids.session]);
    expect(await isLeft(ids)).toBe(true);
    await pool.query(
      `update palimpsest.sessions set overdue_at = now() - interval '25 hours' where session_id = $1`,
      [ids.session],
    );
    expect((await readOverdue(pool, 1_000)).find(({ session }) => session === ids.session)!.inBackfill).toBe(
      false,
    );
    await pool.query(`update palimpsest.backfill_items set state = 'compacted' where job = $1`, [name]);
    expect(await isLeft(ids)).toBe(false);
  });

  test('are also left to it before it selects them, unless it is paused or selects others', async () => {
    const ids = await overMark('jobs-2');
    await job('jobs-2', 'paused', true, null);
    await job('jobs-2', 'running', true, null, { prefix: 'no-uuid-begins-so' });
    await job('jobs-2', 'running', true, null, { format: 'anthropic' });
    await job('jobs-2', 'running', true, null, { minTokens: 1_000_000 });
    await job('jobs-2', 'running', true, ids.session);
    expect(await isLeft(ids)).toBe(false);
    await job('jobs-2', 'running', true, null, { prefix: ids.session.slice(0, 4) });
    expect(await isLeft(ids)).toBe(true);
  });
});

test('among 100,000 sessions of 50 tenants the index finds those that wait and reads no other', async () => {
  const other = await createDatabase();
  const large = openPool(other.url);
  try {
    const client = await ownerOf(large).connect();
    await client.query('begin');
    await client.query('set constraints all deferred');
    await client.query(
      `insert into palimpsest.sessions (tenant_id, session_id, policy, policy_version, tokenizer, budget, live_tokens, measure_at_tokens)
       select 'tenant-' || n % 50, 'session-' || n, '{}', 1, 'o200k_base', 1000, 2000, 1000 from generate_series(1, 100000) n`,
    );
    await client.query(
      `insert into palimpsest.compactions (tenant_id, session_id, generation, from_seq, through_seq, reason, method)
       select tenant_id, session_id, 0, 1, 0, 'genesis', 'none' from palimpsest.sessions`,
    );
    await client.query('commit');
    client.release();
    await large.query(
      `update palimpsest.sessions set overdue_at = now() where substr(session_id, 9)::int % 99 = 0`,
    );
    await large.query('vacuum analyze palimpsest.sessions');
    const scans = (await planOf(large, 'overdue_sessions')).filter(
      (node) => node['Relation Name'] === 'sessions',
    );
    expect(new Set(scans.map((node) => node['Index Name']))).toEqual(new Set(['sessions_to_sweep']));
    const touched = scans.reduce((sum, node) => {
      const each = node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0);
      return sum + each * node['Actual Loops'];
    }, 0);
    expect(touched).toBeLessThan(500);
    expect((await readOverdue(large, 200)).length).toBe(200);
    expect((await countOverdue(large)).sessions).toBe(1_010);
    const [scan] = (await planOf(large, 'count_overdue')).filter((node) => node['Relation Name']);
    expect(scan).toMatchObject({ 'Node Type': 'Index Only Scan', 'Index Name': 'sessions_to_sweep' });
  } finally {
    await large.end();
    await other.drop();
  }
});

/** The plan of the statement in a function that works across tenants, as the owner of the tables runs it. */
async function planOf(pool: Pool, name: string): Promise<Node[]> {
  const client = await ownerOf(pool).connect();
  try {
    const { rows } = await client.query<{ prosrc: string }>('select prosrc from pg_proc where proname = $1', [
      name,
    ]);
    const [, body] = /RETURN QUERY([^;]*);/.exec(rows[0]!.prosrc)!;
    const statement = body!.replaceAll(/\bmost\b/g, '200');
    await client.query("begin; set local role palimpsest_migrator; set local palimpsest.tenants = 'all'");
    const explained = await client.query<{ 'QUERY PLAN': [{ Plan: Node }] }>(
      `explain (analyze, format json) ${statement}`,
    );
    await client.query('rollback');
    return nodesOf(explained.rows[0]!['QUERY PLAN'][0].Plan);
  } finally {
    client.release();
  }
}

interface Node {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  Plans?: Node[];
}

function nodesOf(plan: Node): Node[] {
  return [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];
}
