/**
 * Tokens per minute that all workers share: one row with many concurrent callers. Tokens flow in while a test runs, so the bounds
 * of levels and waits allow for the time that it has taken.
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

let begun: number;

beforeEach(async () => {
  begun = Date.now();
  await pool.query('delete from palimpsest.rate_buckets');
});

/** Milliseconds of this test so far, rounded up. */
const elapsed = () => Date.now() - begun + 1;

/** The most that has flowed in during this test. */
const inflow = (perMinute: number) => (elapsed() * perMinute) / 60_000;

/** A wait of this long when the test began. */
function expectWait(waitMs: number, most: number): void {
  expect(waitMs).toBeGreaterThanOrEqual(most - elapsed());
  expect(waitMs).toBeLessThanOrEqual(most);
}

/** Lets time pass for the bucket, and for the places of callers. */
const pass = (ms: number) =>
  pool.query(`update palimpsest.rate_buckets set updated_at = updated_at - make_interval(secs => $1)`, [
    ms / 1_000,
  ]);

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
    const level = await bucketLevel(pool, 100);
    expect(level).toBeLessThanOrEqual(inflow(100));
    expectWait((await draw(50, 100)).waitMs, 30_000);
  });

  test('keeps its place: it waits once, whatever arrives in between', async () => {
    const perMinute = 60_000;
    await draw(perMinute, perMinute);
    const askedAt = Date.now();
    const { waitMs } = await draw(30_000, perMinute, 'large');
    expectWait(waitMs, 30_000);
    // Later ones, however small, come after it.
    const later = await draw(1, perMinute, 'small');
    expect(Date.now() + later.waitMs).toBeGreaterThanOrEqual(askedAt + waitMs);
    const again = await draw(30_000, perMinute, 'large');
    expectWait(again.waitMs, 30_000);
    await pass(again.waitMs);
    expect(await draw(30_000, perMinute, 'large')).toEqual({ waitMs: 0 });
    // The place is used up.
    expect((await draw(30_000, perMinute, 'large')).waitMs).toBeGreaterThan(0);
  });

  test('loses its place when it comes much too late', async () => {
    await draw(100, 100);
    expectWait((await draw(40, 100, 'late')).waitMs, 24_000);
    const back = `update palimpsest.rate_buckets set updated_at = updated_at - interval '40 seconds' where name like '%/late'`;
    await pool.query(back);
    // Its reserved tokens were returned, so it does not wait for itself.
    expectWait((await draw(40, 100, 'late')).waitMs, 24_000);
  });

  test('is postponed if the next minute is already reserved', async () => {
    await draw(100, 100);
    await draw(60, 100);
    await draw(100, 100);
    const level = await bucketLevel(pool, 100);
    expect(level).toBeLessThanOrEqual(-160 + inflow(100));
    expectWait((await draw(1, 100)).waitMs, 36_000);
    expect(await bucketLevel(pool, 100)).toBeGreaterThanOrEqual(level);
  });

  test('larger than the bucket is made when the bucket is full, and the others after it', async () => {
    const perMinute = 60_000;
    expect(await draw(3 * perMinute, perMinute)).toEqual({ waitMs: 0 });
    const level = await bucketLevel(pool, perMinute);
    expect(level).toBeLessThanOrEqual(-2 * perMinute + inflow(perMinute));
    await pool.query('delete from palimpsest.rate_buckets');
    await draw(9_000, perMinute);
    expectWait((await draw(2 * perMinute, perMinute, 'large')).waitMs, 9_000);
  });
});

describe('a backfill', () => {
  test('leaves 30 % of the bucket to live calls', async () => {
    expect(await draw(50, 100, 'a', true)).toEqual({ waitMs: 0 });
    expectWait((await draw(60, 100, 'b', true)).waitMs, 24_000);
    expect(await draw(45, 100)).toEqual({ waitMs: 0 });
  });

  test('gets no tokens while live calls take all, and continues afterwards', async () => {
    const perMinute = 120_000;
    await draw(perMinute, perMinute);
    for (let call = 0; call < 12; call++) {
      // All that has flowed in, and a little more.
      await drawn(200 + Math.max(0, Math.floor(await bucketLevel(pool, perMinute))), perMinute);
      expect((await draw(1_000, perMinute, 'backfill', true)).waitMs).toBeGreaterThan(3_000);
    }
    // Nothing but time brings it back: 30 % and its own.
    await pass(20_000);
    expect(await draw(1_000, perMinute, 'backfill', true)).toEqual({ waitMs: 0 });
  });

  test('with a call that could never leave 30 % makes it when the bucket is full', async () => {
    expect(await draw(90, 100, 'a', true)).toEqual({ waitMs: 0 });
    expectWait((await draw(90, 100, 'a', true)).waitMs, 54_000);
  });
});

test('unused tokens of a call are returned, additional ones are taken', async () => {
  await draw(100, 100);
  await correctTokens(pool, 70);
  const given = await bucketLevel(pool, 100);
  expect(given).toBeGreaterThanOrEqual(70);
  expect(given).toBeLessThanOrEqual(70 + inflow(100));
  await correctTokens(pool, -90);
  const taken = await bucketLevel(pool, 100);
  expect(taken).toBeGreaterThanOrEqual(given - 90);
  expect(taken).toBeLessThanOrEqual(-20 + inflow(100));
});

test('many concurrent calls take at most the inflow and one bucket, and large calls do not starve among small ones', async () => {
  const perMinute = 60_000;
  let total = 0;
  let excess = 0;
  let largeHasGone = false;
  const go = async (tokens: number): Promise<void> => {
    await drawn(tokens, perMinute);
    total += tokens;
    excess = Math.max(excess, total - inflow(perMinute));
  };
  await draw(perMinute, perMinute);
  const since = Date.now();
  // Their demand is well above the inflow of 1,000 a second, and does not end before the large call has gone.
  const small = Promise.allSettled(
    Array.from({ length: 12 }, async () => {
      while (!largeHasGone) await go(100);
    }),
  );
  try {
    await expect.poll(() => total).toBeGreaterThan(400);
    await go(1_500);
  } finally {
    largeHasGone = true;
    await small;
  }
  expect(excess).toBeLessThanOrEqual(50);
  // What was not taken is still there.
  const least = Date.now() - since;
  expect(total + (await bucketLevel(pool, perMinute))).toBeGreaterThanOrEqual(
    Math.min(least, perMinute) - 50,
  );
});
