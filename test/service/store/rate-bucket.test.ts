/**
 * Tokens per minute that all workers share: one row with many concurrent callers. The waits are real, at rates of thousands per
 * second.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openPool } from '../../support/pool.js';
import {
  bucketLevel,
  correctTokens,
  deploymentBucket,
  drawTokens,
} from '../../../src/store/rate-limit/tokens-per-minute.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url, { max: 16 });
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

beforeEach(() => pool.query('delete from palimpsest.rate_buckets'));

const draw = (tokens: number, perMinute: number, caller = String(Math.random()), backfill = false) =>
  drawTokens(pool, { shares: [{ bucket: deploymentBucket, amount: tokens, perMinute }], caller, backfill });

/** Comes back until it may go. */
async function drawn(tokens: number, perMinute: number): Promise<void> {
  const caller = String(Math.random());
  for (;;) {
    const { waitMs } = await draw(tokens, perMinute, caller);
    if (waitMs === 0) return;
    await sleep(waitMs);
  }
}

describe('a live call', () => {
  test('is made at once while the bucket has enough, and the bucket has the tokens of one minute', async () => {
    expect(await draw(40, 100)).toEqual({ waitMs: 0 });
    expect(await draw(60, 100)).toEqual({ waitMs: 0 });
    expect(await bucketLevel(pool, 100)).toBeLessThan(1);
    const { waitMs } = await draw(50, 100);
    expect(waitMs).toBeGreaterThan(25_000);
    expect(waitMs).toBeLessThanOrEqual(30_000);
  });

  test('keeps its place: it waits once, whatever arrives in between', async () => {
    const perMinute = 60_000;
    await draw(perMinute, perMinute);
    const askedAt = Date.now();
    const { waitMs } = await draw(2_500, perMinute, 'large');
    expect(waitMs).toBeGreaterThan(500);
    // Later ones, however small, come after it.
    const later = await draw(1, perMinute, 'small');
    expect(Date.now() + later.waitMs).toBeGreaterThanOrEqual(askedAt + waitMs);
    expect((await draw(2_500, perMinute, 'large')).waitMs).toBeGreaterThan(0);
    await sleep(waitMs);
    expect(await draw(2_500, perMinute, 'large')).toEqual({ waitMs: 0 });
    // The place is used up.
    expect((await draw(2_500, perMinute, 'large')).waitMs).toBeGreaterThan(0);
  });

  test('loses its place when it comes much too late', async () => {
    await draw(100, 100);
    expect((await draw(10, 100, 'late')).waitMs).toBeGreaterThan(5_000);
    const back = `update palimpsest.rate_buckets set updated_at = updated_at - interval '20 seconds' where name like '%/late'`;
    await pool.query(back);
    const { waitMs } = await draw(10, 100, 'late');
    expect(waitMs).toBeGreaterThan(2_000);
    // Its reserved tokens were returned, so it does not wait for itself.
    expect(waitMs).toBeLessThanOrEqual(6_000);
  });

  test('is postponed if the next minute is already reserved', async () => {
    await draw(100, 100);
    await draw(60, 100);
    await draw(60, 100);
    const level = await bucketLevel(pool, 100);
    expect(level).toBeLessThan(-100);
    const { waitMs } = await draw(1, 100);
    expect(waitMs).toBeLessThanOrEqual(12_000);
    expect(await bucketLevel(pool, 100)).toBeGreaterThanOrEqual(level);
  });

  test('larger than the bucket is made when the bucket is full, and the others after it', async () => {
    const perMinute = 60_000;
    expect(await draw(3 * perMinute, perMinute)).toEqual({ waitMs: 0 });
    expect(await bucketLevel(pool, perMinute)).toBeLessThan(-1.9 * perMinute);
    await pool.query('delete from palimpsest.rate_buckets');
    await draw(9_000, perMinute);
    const { waitMs } = await draw(2 * perMinute, perMinute, 'large');
    expect(waitMs).toBeGreaterThan(5_000);
    expect(waitMs).toBeLessThanOrEqual(9_000);
  });
});

describe('a backfill', () => {
  test('leaves 30 % of the bucket to live calls', async () => {
    expect(await draw(50, 100, 'a', true)).toEqual({ waitMs: 0 });
    const { waitMs } = await draw(30, 100, 'b', true);
    expect(waitMs).toBeGreaterThan(2_000);
    expect(waitMs).toBeLessThanOrEqual(6_000);
    expect(await draw(45, 100)).toEqual({ waitMs: 0 });
  });

  test('gets no tokens while live calls take all, and continues afterwards', async () => {
    const perMinute = 120_000;
    await draw(perMinute, perMinute);
    // 1.2 s of live calls at the rate of the inflow.
    for (let call = 0; call < 12; call++) {
      await drawn(200, perMinute);
      expect((await draw(1_000, perMinute, 'backfill', true)).waitMs).toBeGreaterThan(3_000);
    }
    // Nothing but time brings it back: 30 % and its own.
    await pool.query(`update palimpsest.rate_buckets set updated_at = updated_at - interval '20 seconds'`);
    expect(await draw(1_000, perMinute, 'backfill', true)).toEqual({ waitMs: 0 });
  });

  test('with a call that could never leave 30 % makes it when the bucket is full', async () => {
    expect(await draw(90, 100, 'a', true)).toEqual({ waitMs: 0 });
    expect((await draw(90, 100, 'a', true)).waitMs).toBeGreaterThan(50_000);
  });
});

test('unused tokens of a call are returned, additional ones are taken', async () => {
  await draw(100, 100);
  await correctTokens(pool, 70);
  // And the inflow meanwhile, 1.7 per second.
  const given = await bucketLevel(pool, 100);
  expect(given).toBeGreaterThanOrEqual(70);
  expect(given).toBeLessThan(80);
  await correctTokens(pool, -90);
  const taken = await bucketLevel(pool, 100);
  expect(taken).toBeGreaterThanOrEqual(given - 90);
  expect(taken).toBeLessThan(given - 80);
});

test('many concurrent calls take at most the inflow and one bucket, and large calls do not starve among small ones', async () => {
  const perMinute = 60_000;
  const went: { at: number; tokens: number }[] = [];
  const startedAt = Date.now();
  const go = async (tokens: number): Promise<void> => {
    await drawn(tokens, perMinute);
    went.push({ at: Date.now() - startedAt, tokens });
  };
  await draw(perMinute, perMinute);
  const until = Date.now() + 6_000;
  const small = Array.from({ length: 12 }, async () => {
    while (Date.now() < until) await go(100);
  });
  // Asked for amid a demand well above the inflow of 1,000 a second.
  await expect.poll(() => went.length).toBeGreaterThan(small.length / 3);
  await go(1_500);
  await Promise.all(small);
  const last = Math.max(...went.map(({ at }) => at));
  const total = went.reduce((sum, { tokens }) => sum + tokens, 0);
  // It did not have to wait until there were no other callers.
  expect(went.find(({ tokens }) => tokens === 1_500)!.at).toBeLessThan(last);
  expect(total).toBeLessThanOrEqual((perMinute * last) / 60_000 + 50);
  expect(total).toBeGreaterThan(0.5 * ((perMinute * last) / 60_000));
});
