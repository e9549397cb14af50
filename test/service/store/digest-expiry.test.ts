/** Digests survive a crash, and only those to which no compaction refers expire. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expireDigests, digestTexts, storeDigest } from '../../../src/store/compactions/digests.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { talk } from '../../support/store.js';

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

async function digest(tenant: string, key: string, ageDays: number): Promise<void> {
  await appendTurn(pool, { tenant, session: 's', turnId: '1', messages: talk(1) });
  await storeDigest(pool, {
    ...{ tenant, key, text: '- said', tokens: 3 },
    ...{ calls: 1, inputTokens: 9, outputTokens: 3, payerSession: 's', payerGeneration: 1 },
  });
  // Rows are written once, by anyone who uses the store; a test may make them older.
  await pool.query('alter table palimpsest.digests disable trigger digests_text_written_once');
  await pool.query(
    `update palimpsest.digests set created_at = now() - make_interval(days => $3) where tenant_id = $1 and key = $2`,
    [tenant, key, ageDays],
  );
  await pool.query('alter table palimpsest.digests enable trigger digests_text_written_once');
}

test('old unreferenced digests of the tenant are deleted; used, young and foreign ones stay', async () => {
  const tenant = 'expiring';
  await digest(tenant, 'old', 40);
  await digest(tenant, 'used', 40);
  await digest(tenant, 'young', 1);
  await digest('other', 'old', 40);
  const client = await ownerOf(pool).connect();
  try {
    await client.query('begin');
    await client.query(
      `insert into palimpsest.sessions (tenant_id, session_id, policy, policy_version, tokenizer, budget)
       values ($1, 'kept', '{}', 1, 'chars/4', 100)`,
      [tenant],
    );
    await client.query(
      `insert into palimpsest.compactions (tenant_id, session_id, generation, from_seq, through_seq, reason, method)
       values ($1, 'kept', 0, 1, 0, 'genesis', 'none')`,
      [tenant],
    );
    await client.query(
      `insert into palimpsest.compaction_digests (tenant_id, session_id, generation, position, key)
       values ($1, 'kept', 0, 1, 'used')`,
      [tenant],
    );
    await client.query('commit');
  } finally {
    client.release();
  }
  const days = 24 * 3_600_000;
  expect(await expireDigests(pool, tenant, 30 * days)).toBe(1);
  const left = await digestTexts(pool, tenant, ['old', 'used', 'young']);
  expect([...left.keys()].sort()).toEqual(['used', 'young']);
  expect([...(await digestTexts(pool, 'other', ['old'])).keys()]).toEqual(['old']);
  expect(await expireDigests(pool, tenant, 30 * days)).toBe(0);
});
