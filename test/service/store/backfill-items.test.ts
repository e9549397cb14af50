import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { insertPage, listItems, recordItems, type ItemResult } from '../../../src/store/backfills/items.js';
import { insertBackfill } from '../../../src/store/backfills/jobs.js';
import { readSelection } from '../../../src/store/backfills/estimate.js';
import { openPool } from '../../../src/store/connection/pool.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { sessionWith, talk } from '../../support/store.js';

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

const at = Date.UTC(2026, 10, 23);
const step = {
  ...{ generation: 1, tokensBefore: 900, tokensAfter: 300, cost: 0.5 },
  ...{ modelCalls: 2, modelInputTokens: 800, modelOutputTokens: 100 },
};

/** A job of one session, and its first result. */
async function begun(state: ItemResult['state']) {
  const { tenant, session } = await sessionWith(pool, talk(12), randomUUID());
  const ids = { tenant, job: 'job' };
  await insertBackfill(pool, tenant, { job: ids.job, select: {}, mode: 'all', concurrency: 1 });
  const [selected] = await readSelection(pool, tenant, {}, null, 10);
  const { incarnation, tokens } = selected!;
  await insertPage(pool, ids, null, [{ session, incarnation, tokens, state: 'pending', error: null }], true);
  const result = { session, incarnation, at, step, error: null, unsettled: null };
  const record = (change: Partial<ItemResult> & Pick<ItemResult, 'state'>) =>
    recordItems(pool, ids, [{ session, incarnation, at }], [{ ...result, ...change }]);
  await record({ state });
  const item = async () => (await listItems(pool, ids, {}))[0];
  return { record, item };
}

test('a repeated record ends a session that was due again at the first attempt and is not any more', async () => {
  const { record, item } = await begun('running');
  expect(await item()).toMatchObject({ state: 'running', cost: 0.5, endedAt: null });
  for (const _attempt of [2, 3]) {
    await record({ state: 'compacted' });
    expect(await item()).toMatchObject({
      ...{ state: 'compacted', attempts: 1, generation: 1, cost: 0.5 },
      endedAt: new Date(at).toISOString(),
    });
  }
});

test('a session that only a repeated record finds due again counts its next compaction too', async () => {
  const { record, item } = await begun('compacted');
  await record({ state: 'running' });
  expect(await item()).toMatchObject({ state: 'compacted', generation: 1, cost: 0.5 });
  for (const _attempt of [1, 2]) {
    await record({ state: 'compacted', step: { ...step, generation: 2, tokensAfter: 200, cost: 0.25 } });
    expect(await item()).toMatchObject({
      ...{ state: 'compacted', generation: 2, cost: 0.75, tokensBefore: 900, tokensAfter: 200 },
    });
  }
});
