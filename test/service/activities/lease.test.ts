/** Invariant 6 between a lookup and a claim: another step may store the answer there. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Pool } from 'pg';
import { findOrLease } from '../../../activities/lease.js';
import { seeLease } from '../../../src/store/compactions/digest-leases.js';
import { storeDigest } from '../../../src/store/compactions/digests.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { sessionWith, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  const patient = { lockTimeoutMs: 300_000, statementTimeoutMs: 300_000, idleTransactionTimeoutMs: 300_000 };
  pool = openPool(database.url, patient);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

it('an answer that is stored during the claim is found, and the lease ends', async () => {
  const waiter = await sessionWith(pool, talk(1));
  const payer = await sessionWith(pool, talk(1), waiter.tenant);
  const digest = { tenant: waiter.tenant, key: `of ${waiter.session}` };
  const leased = { ...digest, holder: { ...waiter, runId: 'run', forMs: 60_000 } };
  const attempt = {
    ...{ number: 1, draw: 1, backfill: false, deadline: Date.now() + 60_000, runId: 'run' },
    ...{ signal: new AbortController().signal, givenUp: () => false, asker: { step: 'run/1', attempt: 1 } },
  };
  const locker = await ownerOf(pool).connect();
  try {
    // The statement that looks and claims has begun, and so sees no later answer.
    await locker.query('begin');
    await locker.query('select from palimpsest.sessions where session_id = $1 for update', [waiter.session]);
    let looks = 0;
    const found = findOrLease(pool, leased, attempt, () => void looks++);
    const waiting = `select from pg_stat_activity where datname = current_database() and application_name = 'palimpsest' and wait_event_type = 'Lock'`;
    await expect.poll(async () => (await locker.query(waiting)).rowCount).toBe(1);
    const paid = { calls: 1, inputTokens: 100, outputTokens: 10, payerGeneration: 1 };
    await storeDigest(pool, { ...digest, ...paid, text: 'stored', tokens: 2, payerSession: payer.session });
    await locker.query('rollback');
    expect(await found).toMatchObject({ text: 'stored', tokens: 2 });
    expect(looks).toBe(1);
    expect(await seeLease(pool, digest)).toBeNull();
  } finally {
    locker.release(true);
  }
});
