/** The chaos checker distinguishes violations from allowed states, also in cases that a run alone does not decide. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPool } from '../../support/pool.js';
import { expireDigests, digestTexts, storeDigest } from '../../../src/store/compactions/digests.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { checkDatabase, rememberAnswers } from '../../chaos/checker.js';
import { acknowledged, Journal } from '../../chaos/journal.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { compactThrough, newSession, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  await rememberAnswers(database.ownerUrl);
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

test.for([
  { charged: 3, violations: [] },
  { charged: 4, violations: ['charged'] },
])(
  'an unreferenced answer expires and still counts as paid: $charged of 3 calls charged',
  async ({ charged, violations }) => {
    const ids = newSession(`charged-${charged}`);
    const journal = new Journal();
    const messages = talk(6);
    const { throughSeq } = await appendTurn(pool, { ...ids, turnId: '1', messages });
    acknowledged(journal.begin(ids.tenant, ids.session), '1', messages, throughSeq);
    for (const [key, calls] of [
      ['read', 1],
      ['written ahead in vain', 2],
    ] as const)
      await storeDigest(pool, {
        ...{ tenant: ids.tenant, key, text: '- said', tokens: 3, calls, inputTokens: 9, outputTokens: 3 },
        ...{ payerSession: ids.session, payerGeneration: 1 },
      });
    const usage = {
      modelCalls: charged,
      modelInputTokens: 0,
      modelOutputTokens: 0,
      modelMs: 0,
      overheadMs: 0,
    };
    await compactThrough(pool, ids, 4, { method: 'model', digestKeys: ['read'], usage });
    expect(await expireDigests(pool, ids.tenant, 0)).toBe(1);
    expect(await digestTexts(pool, ids.tenant, ['written ahead in vain'])).toEqual(new Map());
    const checked = await checkDatabase({
      ...{ databaseUrl: database.ownerUrl, journal, junk: 'zqjunk', patienceMs: 60_000 },
    });
    const found = checked.violations.filter(({ what }) => what.startsWith(`${ids.tenant}/`));
    expect(found.map(({ kind }) => kind).filter((kind) => kind === 'charged')).toEqual(violations);
  },
);
