/** The operator's limits of a tenant in the database: who sets them, what they refuse, and what several callers at once may do. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import type { Embedder } from '../../../src/llm/embedder.js';
import type { TenantLimits, TenantOverrides } from '../../../src/policy/tenant-limits.js';
import { appendTurn, appendTurns } from '../../../src/store/append/turns.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { configureTenant } from '../../../src/store/sessions/configure.js';
import { closeSession, findSession, loadSession } from '../../../src/store/sessions/sessions.js';
import { endLease, findOrClaim } from '../../../src/store/compactions/digest-leases.js';
import { admitCall } from '../../../src/store/tenants/admission.js';
import {
  changeLimits,
  clearLimits,
  findOverrides,
  limitsOfTenant,
} from '../../../src/store/tenants/limits.js';
import { reserveSpend, spendOfTenants, spentBy } from '../../../src/store/tenants/spend.js';
import { usageOf } from '../../../src/store/tenants/usage.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { embedWithin } from '../../../src/store/search/embed-texts.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { openPool } from '../../support/pool.js';
import { configureSession, countRows, newSession, sessionWith, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;
/** Another process. */
let elsewhere: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url, { max: 16, tenantShare: 1 });
  elsewhere = openPool(database.url, { max: 8, tenantShare: 1 });
});

afterAll(async () => {
  await pool.end();
  await elsewhere.end();
  await database.drop();
});

let tenants = 0;
async function tenantWith(limits: TenantOverrides): Promise<string> {
  const tenant = `tenant-${++tenants}`;
  await changeLimits(pool, tenant, limits);
  return tenant;
}

const beyond = (limit: string) => ({ type: 'Tenant.BeyondLimit', details: { limit } });
const append = (ids: { tenant: string; session: string }, turnId: string, messages = talk(2)) =>
  appendTurn(pool, { ...ids, turnId, messages });
const settled = async (tasks: Promise<unknown>[]) => {
  const ends = await Promise.allSettled(tasks);
  const reasons = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as object] : []));
  return { done: ends.length - reasons.length, reasons };
};

describe('the limits of a tenant', () => {
  it('are the defaults of the process, with its own in their place', async () => {
    const defaults: TenantLimits = { concurrency: 4, sessions: 7 };
    const withDefaults = openPool(database.url, { max: 2, limits: defaults });
    const tenant = await tenantWith({ concurrency: 8, models: ['a*'] });
    expect(await limitsOfTenant(withDefaults, tenant)).toEqual({
      ...{ concurrency: 8, sessions: 7, models: ['a*'] },
    });
    await changeLimits(pool, tenant, { sessions: null, spendPerDay: 1 }, ['models']);
    expect(await findOverrides(pool, tenant)).toEqual({ concurrency: 8, sessions: null, spendPerDay: 1 });
    expect(await limitsOfTenant(withDefaults, tenant)).toEqual({ concurrency: 8, spendPerDay: 1 });
    await clearLimits(pool, tenant);
    expect(await findOverrides(pool, tenant)).toBeNull();
    expect(await limitsOfTenant(withDefaults, tenant)).toEqual(defaults);
    await withDefaults.end();
  });

  it('arrive with the row of a session, and with no other tenant', async () => {
    const tenant = await tenantWith({ concurrency: 2 });
    const ids = await sessionWith(pool, talk(2), tenant);
    expect((await loadSession(pool, ids)).policy.limits).toEqual({ concurrency: 2 });
    expect((await readContextSource(pool, ids, 'own')).session.policy.limits).toEqual({ concurrency: 2 });
    const other = await sessionWith(pool, talk(2), `${tenant}-other`);
    expect((await loadSession(pool, other)).policy).not.toHaveProperty('limits');
  });

  it('are not stored with the session', async () => {
    const tenant = await tenantWith({ concurrency: 2 });
    const ids = await sessionWith(pool, talk(2), tenant);
    await configureSession(pool, ids, { target: 0.5 });
    const { rows } = await pool.query<{ policy: string }>(
      'select policy from palimpsest.sessions where tenant_id = $1',
      [tenant],
    );
    expect(rows.map(({ policy }) => JSON.parse(policy) as object)).toEqual([{ session: { target: 0.5 } }]);
  });

  it('that cannot be read stop no other tenant', async () => {
    const tenant = await tenantWith({});
    await pool.query(
      `update palimpsest.tenant_limits set limits = '{"concurrency": "x"}' where tenant_id = $1`,
      [tenant],
    );
    await expect(sessionWith(pool, talk(2), tenant)).rejects.toMatchObject({
      type: 'Store.Corrupt',
      hint: expect.stringContaining('palimpsest limits') as string,
    });
    await sessionWith(pool, talk(2), `${tenant}-other`);
  });
});

describe('a policy beyond a limit', () => {
  const summary = { concurrency: 32 };

  it('is refused for the tenant, a session and a first turn, and changes nothing', async () => {
    const tenant = await tenantWith({ concurrency: 8 });
    const refused = { ...beyond('concurrency'), path: 'policy.summary.concurrency' };
    await expect(configureTenant(pool, tenant, { summary })).rejects.toMatchObject(refused);
    const ids = newSession(tenant);
    const first = { ...ids, turnId: '1', messages: talk(2) };
    await expect(appendTurn(pool, { ...first, policy: { summary } })).rejects.toMatchObject(refused);
    expect(await findSession(pool, ids)).toBeNull();
    await appendTurn(pool, { ...first, policy: { summary: { concurrency: 8 } } });
    await expect(configureSession(pool, ids, { summary })).rejects.toMatchObject(refused);
    expect((await loadSession(pool, ids)).policy.session).toEqual({ summary: { concurrency: 8 } });
    expect(await countRows(pool, 'turns', ids)).toBe(1);
  });

  it('was accepted before the limit was lowered: the session works on, and other fields can be changed', async () => {
    const tenant = `lowered-${++tenants}`;
    const ids = newSession(tenant);
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2), policy: { summary } });
    await configureTenant(pool, tenant, { summary });
    await changeLimits(pool, tenant, { concurrency: 8 });
    await append(ids, '2');
    await configureSession(pool, ids, { summary, target: 0.5 });
    await configureTenant(pool, tenant, { summary, target: 0.5 });
    await expect(configureSession(pool, ids, { summary: { concurrency: 33 } })).rejects.toMatchObject(
      beyond('concurrency'),
    );
    await appendTurn(pool, { ...newSession(tenant), turnId: '1', messages: talk(2) });
  });
});

describe('stored bytes', () => {
  const bytesOf = (messages: object[]) =>
    messages.reduce((sum, one) => sum + Buffer.byteLength(JSON.stringify(one)), 0);

  it('are counted for each session: appends, imports, forks and erasures', async () => {
    const tenant = `bytes-${++tenants}`;
    const ids = await sessionWith(pool, [...talk(3), { role: 'user', content: 'größer 🎉' }], tenant);
    await append(ids, 'second');
    await append(ids, 'second');
    const { rows } = await pool.query<{ bytes: number }>(
      'select sum(octet_length(body))::int as bytes from palimpsest.messages where tenant_id = $1',
      [tenant],
    );
    expect((await usageOf(pool, tenant)).storedBytes).toBe(rows[0]?.bytes);
    await fork(pool, ids, { throughSeq: 2, to: 'fork' });
    expect((await usageOf(pool, tenant)).storedBytes).toBe((rows[0]?.bytes ?? 0) + bytesOf(talk(2)));
    await eraseSession(pool, ids);
    expect(await usageOf(pool, tenant)).toMatchObject({ storedBytes: bytesOf(talk(2)), sessions: 1 });
  });

  it('beyond the limit are refused with nothing half-written; repeats, reads and erasures go on', async () => {
    const most = 3 * bytesOf(talk(2));
    const tenant = await tenantWith({ storedBytes: most });
    const ids = newSession(tenant);
    for (const turn of ['1', '2', '3']) await append(ids, turn);
    const before = await loadSession(pool, ids);
    await expect(append(ids, '4')).rejects.toMatchObject({ ...beyond('storedBytes'), details: { most } });
    await expect(append(newSession(tenant), '1')).rejects.toMatchObject(beyond('storedBytes'));
    await expect(fork(pool, ids, { throughSeq: 2, to: 'fork' })).rejects.toMatchObject(beyond('storedBytes'));
    expect(await findSession(pool, { tenant, session: 'fork' })).toBeNull();
    expect(await loadSession(pool, ids)).toEqual(before);
    expect(await append(ids, '3')).toMatchObject({ repeated: true });
    expect((await readContextSource(pool, ids, 'own')).source.tail).toHaveLength(6);
    expect(await usageOf(pool, tenant)).toMatchObject({ storedBytes: most, sessions: 1 });

    await eraseSession(pool, ids);
    // Another process has counted nothing yet; this one counts again after some seconds.
    await appendTurn(elsewhere, { ...newSession(tenant), turnId: '1', messages: talk(2) });
    await expect
      .poll(() =>
        append(newSession(tenant), '1').then(
          () => true,
          () => false,
        ),
      )
      .toBe(true);
  });

  it('hold for several turns in one transaction', async () => {
    const tenant = await tenantWith({ storedBytes: bytesOf(talk(2)) });
    const ids = newSession(tenant);
    const turn = (turnId: string, expectedSeq: number) => ({
      ...{ ...ids, turnId, expectedSeq },
      logged: { messages: talk(2), times: [] },
    });
    expect(await appendTurns(pool, [turn('1', 0), turn('2', 2)])).toBe(false);
    expect(await findSession(pool, ids)).toBeNull();
    expect(await appendTurns(pool, [turn('1', 0)])).toBe(true);
  });

  it('of many appends at once exceed the limit by less than these appends', async () => {
    const size = bytesOf(talk(2));
    const tenant = await tenantWith({ storedBytes: 10 * size });
    const ids = Array.from({ length: 4 }, () => newSession(tenant));
    // Each session's turns run one after another: at most four appends are checked at the same time.
    const tasks = ids.flatMap((one) => Array.from({ length: 10 }, (_, index) => append(one, `t-${index}`)));
    const { done, reasons } = await settled(tasks);
    expect(done).toBeGreaterThanOrEqual(10);
    expect(done).toBeLessThan(10 + ids.length);
    for (const reason of reasons) expect(reason).toMatchObject(beyond('storedBytes'));
    expect((await usageOf(pool, tenant)).storedBytes).toBe(done * size);
  });
});

describe('sessions', () => {
  it('beyond the limit are refused: begun, forked or reopened', async () => {
    const tenant = await tenantWith({ sessions: 2 });
    const first = await sessionWith(pool, talk(2), tenant);
    const second = await sessionWith(pool, talk(2), tenant);
    const third = newSession(tenant);
    await expect(append(third, '1')).rejects.toMatchObject(beyond('sessions'));
    await expect(fork(pool, first, { throughSeq: 2, to: 'fork' })).rejects.toMatchObject(beyond('sessions'));
    expect(await usageOf(pool, tenant)).toMatchObject({ sessions: 2 });
    await append(first, 'more');
    await closeSession(pool, second);
    await append(third, '1');
    // The first turn of a known session comes again, and a closed session would be the third.
    expect(await append(second, 'first')).toMatchObject({ repeated: true });
    await expect(append(second, 'again')).rejects.toMatchObject(beyond('sessions'));
    await eraseSession(pool, third);
    await append(second, 'again');
    expect(await usageOf(pool, tenant)).toMatchObject({ sessions: 2 });
  });

  it('begun at once by two processes never exceed it', async () => {
    const tenant = await tenantWith({ sessions: 5 });
    const begin = (of: Pool) => appendTurn(of, { ...newSession(tenant), turnId: '1', messages: talk(2) });
    const { done, reasons } = await settled(
      Array.from({ length: 24 }, (_, index) => begin(index % 2 === 0 ? pool : elsewhere)),
    );
    expect(done).toBe(5);
    for (const reason of reasons) expect(reason).toMatchObject(beyond('sessions'));
    expect(await usageOf(pool, tenant)).toMatchObject({ sessions: 5 });
  });
});

describe('model calls', () => {
  const prices = { model: { input: 1_000_000, output: 2_000_000 } };
  const call = (tenant: string, limits: TenantLimits, more: Partial<Parameters<typeof admitCall>[1]> = {}) =>
    admitCall(pool, {
      ...{
        tenant,
        limits,
        model: 'model',
        perMinute: undefined,
        backfill: false,
        caller: String(Math.random()),
      },
      ...{ most: () => ({ inputTokens: 3, outputTokens: 1 }), ...more },
    });

  it('without limits are counted by what they used', async () => {
    const tenant = `counted-${++tenants}`;
    const admitted = await admitCall(pool, {
      ...{ tenant, limits: undefined, model: 'model', perMinute: undefined, backfill: false, caller: 'c' },
      most: () => ({ inputTokens: 30, outputTokens: 10 }),
    });
    if (!('settle' in admitted)) throw new Error('not admitted');
    await admitted.settle({ inputTokens: 3, outputTokens: 2 });
    const used = { cost: 0, tokens: 5 };
    expect(await spentBy(pool, tenant)).toEqual({ day: used, month: used });
  });

  it.each([
    ['spendPerDay', { spendPerDay: 12, prices }],
    ['spendPerMonth', { spendPerMonth: 12, prices }],
    ['modelTokensPerDay', { modelTokensPerDay: 10 }],
    ['modelTokensPerMonth', { modelTokensPerMonth: 10 }],
  ] satisfies [string, TenantLimits][])('at once never exceed %s together', async (limit, limits) => {
    const tenant = `spend-${++tenants}`;
    const ends = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        reserveSpend(index % 2 === 0 ? pool : elsewhere, tenant, limits, { cost: 5, tokens: 4 }),
      ),
    );
    // Two of them fit: 10 of 12 USD, 8 of 10 tokens.
    expect(ends.filter((end) => 'day' in end)).toHaveLength(2);
    for (const end of ends)
      if ('refused' in end) {
        expect(end.refused).toMatchObject(beyond(limit));
        expect(end.refused.hint).toContain('palimpsest limits set');
      }
    expect((await spentBy(pool, tenant)).month).toEqual({ cost: 10, tokens: 8 });
  });

  it('give back what they did not use, and keep what is unknown', async () => {
    const tenant = `settled-${++tenants}`;
    const limits = { spendPerDay: 10, prices };
    const first = await call(tenant, limits);
    expect(await call(tenant, limits, { most: () => ({ inputTokens: 6, outputTokens: 0 }) })).toMatchObject({
      refused: beyond('spendPerDay'),
    });
    if ('settle' in first) await first.settle({ inputTokens: 1, outputTokens: 0 });
    expect((await spentBy(pool, tenant)).day).toEqual({ cost: 1, tokens: 1 });
    const second = await call(tenant, limits);
    if ('settle' in second) await second.settle(null);
    expect((await spentBy(pool, tenant)).day).toEqual({ cost: 6, tokens: 5 });
  });

  it('of an earlier day or month do not count', async () => {
    const tenant = `days-${++tenants}`;
    await pool.query(
      `insert into palimpsest.tenant_spend values
         ($1, date_trunc('month', now() at time zone 'UTC')::date - 1, 100, 100)`,
      [tenant],
    );
    expect(await call(tenant, { spendPerMonth: 5, modelTokensPerDay: 4, prices })).toHaveProperty('settle');
  });

  it.each([
    ['tokensPerMinute', { tokensPerMinute: 4 }],
    ['requestsPerMinute', { requestsPerMinute: 1 }],
  ] satisfies [string, TenantLimits][])(
    'beyond %s wait, those of other tenants do not',
    async (_, limits) => {
      const tenant = `rate-${++tenants}`;
      expect(await call(tenant, limits)).toHaveProperty('settle');
      const waiting = await call(tenant, limits);
      expect(waiting).toMatchObject({ waitMs: expect.any(Number) as number });
      expect(await call(tenant, limits, { backfill: true })).toHaveProperty('waitMs');
      expect(await call(`${tenant}-other`, limits)).toHaveProperty('settle');
      // Nothing was spent on the calls that wait.
      expect((await spentBy(pool, tenant)).day.tokens).toBe(0);
    },
  );

  it('that wait for one rate keep their place in the other', async () => {
    const tenant = `places-${++tenants}`;
    const limits = { tokensPerMinute: 1_000, requestsPerMinute: 1 };
    await call(tenant, limits);
    const level = async () => {
      const { rows } = await pool.query<{ level: number }>(
        'select level from palimpsest.rate_buckets where name = $1',
        [`tenant/${tenant}/tokens-per-minute`],
      );
      return rows[0]?.level ?? 0;
    };
    const waiting = await call(tenant, limits, { caller: 'waits' });
    if (!('waitMs' in waiting)) throw new Error('admitted');
    expect(waiting.waitMs).toBeGreaterThan(30_000);
    const taken = await level();
    expect(await call(tenant, limits, { caller: 'waits' })).toHaveProperty('waitMs');
    expect(await level()).toBe(taken);
    // A backfill's call has no place: what it took goes back.
    expect(await call(tenant, limits, { caller: 'backfill', backfill: true })).toHaveProperty('waitMs');
    expect(await level()).toBeGreaterThanOrEqual(taken);
  });

  it('in flight of two processes are at most the limit', async () => {
    const tenant = `flights-${++tenants}`;
    const holder = { tenant, session: 's', runId: 'run', forMs: 60_000 };
    const claim = async (of: Pool, index: number) => {
      const asker = { step: `step-${index}`, attempt: 1 };
      return (await findOrClaim(of, holder, { key: `key-${index}`, most: 3 }, asker)).claimed;
    };
    const claims = await Promise.all(
      Array.from({ length: 20 }, (_, index) => claim(index % 2 === 0 ? pool : elsewhere, index)),
    );
    expect(claims.filter(Boolean)).toHaveLength(3);
    expect((await usageOf(pool, tenant)).callsInFlight).toBe(3);
    const held = claims.indexOf(true);
    await endLease(pool, { tenant, key: `key-${held}` }, { step: `step-${held}`, attempt: 1 }, null);
    expect(await claim(elsewhere, 100)).toBe(true);
    expect(await claim(elsewhere, 101)).toBe(false);
  });

  it('for embeddings count as well', async () => {
    const tenant = `embeddings-${++tenants}`;
    const asked: (readonly string[])[] = [];
    const embedder: Embedder = {
      ...{ name: 'embedding', scan: 10, tokensPerMinute: undefined },
      embed: (texts) => {
        asked.push(texts);
        return Promise.resolve(texts.map(() => [1, 2]));
      },
    };
    const of = { tenant, policy: { limits: { modelTokensPerDay: 10, models: ['other'] } } };
    await embedWithin(pool, of, embedder, ['x'.repeat(24)], 'first');
    await expect(embedWithin(pool, of, embedder, ['x'.repeat(24)], 'second')).rejects.toMatchObject(
      beyond('modelTokensPerDay'),
    );
    expect(asked).toHaveLength(1);
    expect((await spentBy(pool, tenant)).day.tokens).toBe(8);
  });
});

test('the operator sees what all tenants spend, most first', async () => {
  const tenant = await tenantWith({ spendPerDay: 1_000_000 });
  await reserveSpend(pool, tenant, { spendPerDay: 1_000_000 }, { cost: 900_000, tokens: 7 });
  const [first] = await spendOfTenants(pool, 1);
  const amount = { cost: 900_000, tokens: 7 };
  expect(first).toEqual({
    tenant,
    limits: { spendPerDay: 1_000_000 },
    spent: { day: amount, month: amount },
  });
});
