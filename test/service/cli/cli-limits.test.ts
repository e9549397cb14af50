/** `palimpsest limits` and what `doctor` says of tenants at their limits. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { appendTurn } from '../../../src/store/append/turns.js';
import { addSpend } from '../../../src/store/tenants/spend.js';
import { findOverrides } from '../../../src/store/tenants/limits.js';
import { linesOf, runCli } from '../../support/cli.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { openPool } from '../../support/pool.js';
import { talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;
let env: Record<string, string>;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url, { max: 2 });
  env = { DATABASE_URL: database.url, PALIMPSEST_MAINTENANCE_URL: database.maintenanceUrl };
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

const limits = (args: string[], more: Record<string, string> = {}) =>
  runCli(['limits', ...args], { ...env, ...more });

interface Shown {
  tenant: string;
  limits: object;
  own: object;
  used: object;
}

test('set changes the named limits, show tells where each comes from, clear returns to the configuration', async () => {
  const configured = { PALIMPSEST_LIMIT_CONCURRENCY: '16', PALIMPSEST_LIMIT_SESSIONS: '1000' };
  await appendTurn(pool, { tenant: 'acme', session: 'one', turnId: '1', messages: talk(2) });
  await addSpend(pool, 'acme', { cost: 1.25, tokens: 3_000 });
  const set = await limits(
    [
      ...['set', 'acme', '--spend-per-day', '5', '--models', 'gpt-4o-mini*,small', '--sessions', 'none'],
      ...['--prices', '{"small": {"input": 1, "output": 2}}', '--stored-bytes', '1_000_000'],
    ],
    configured,
  );
  expect(set.code).toBe(0);
  expect(set.stdout).toMatch(/spendPerDay .* 5 .* 1\.25 .* tenant/);
  expect(set.stdout).toMatch(/concurrency .* 16 .* 0 .* configuration/);
  expect(set.stdout).toMatch(/sessions .* none .* 1 .* tenant/);
  const prices = { small: { input: 1, output: 2 } };
  const own = { spendPerDay: 5, models: ['gpt-4o-mini*', 'small'], sessions: null, prices, storedBytes: 1e6 };
  expect(await findOverrides(pool, 'acme')).toEqual(own);

  const dropped = await limits(
    ['set', 'acme', '--models', 'default', '--concurrency', '4', '--json'],
    configured,
  );
  const { models: _models, sessions: _sessions, ...kept } = own;
  expect(linesOf<Shown>(dropped.stdout)).toEqual([
    {
      tenant: 'acme',
      limits: { ...kept, concurrency: 4 },
      own: { ...kept, sessions: null, concurrency: 4 },
      used: {
        ...{ spendToday: 1.25, spendThisMonth: 1.25, modelTokensToday: 3_000, modelTokensThisMonth: 3_000 },
        ...{
          callsInFlight: 0,
          sessions: 1,
          storedBytes: Buffer.byteLength(
            talk(2)
              .map((one) => JSON.stringify(one))
              .join(''),
          ),
        },
      },
    },
  ]);

  await limits(['clear', 'acme']);
  const [cleared] = linesOf<Shown>((await limits(['show', 'acme', '--json'], configured)).stdout);
  expect(cleared).toMatchObject({ limits: { concurrency: 16, sessions: 1_000 }, own: {} });
});

test.each([
  [['set', 'acme'], /No limit is given/],
  [['set', 'acme', '--concurrency', '0'], /--concurrency must be at least 1, not 0/],
  [['set', 'acme', '--spend-per-day', 'much'], /--spend-per-day must be a number, not "much"/],
  [['set', 'acme', '--models', 'a*b'], /--models/],
  [['set', 'acme', '--prices', 'free'], /--prices must be an object/],
  [['show', 'acme', '--url', 'http://127.0.0.1:1'], /--url/],
])('%j is refused', async (args, message) => {
  const ended = await limits(args);
  expect(ended.code).toBe(2);
  expect(ended.stderr).toMatch(message);
});

test('without the role of maintenance the limits can be seen, but not changed', async () => {
  const app = { PALIMPSEST_MAINTENANCE_URL: '' };
  expect((await limits(['show', 'acme'], app)).code).toBe(0);
  const ended = await limits(['set', 'acme', '--concurrency', '64'], app);
  expect(ended.code).toBe(1);
  expect(ended.stderr).toMatch(/permission denied/);
  expect(await findOverrides(pool, 'acme')).toBeNull();
});

describe('doctor', () => {
  const finding = async () => {
    const { stdout } = await runCli(['doctor', '--json'], { ...env, TEMPORAL_ADDRESS: '127.0.0.1:1' });
    const [report] = linesOf<{ checks: { check: string; level: string; detail: string }[] }>(stdout);
    return report?.checks.find(({ check }) => check === 'limits');
  };

  test('names the tenants whose spend is used up', async () => {
    expect(await finding()).toMatchObject({
      level: 'ok',
      detail: expect.stringContaining('1 tenant') as string,
    });
    await limits(['set', 'acme', '--model-tokens-per-month', '3000', '--spend-per-day', '2']);
    expect(await finding()).toMatchObject({
      level: 'warn',
      detail: expect.stringContaining('acme (modelTokensPerMonth)') as string,
    });
  });
});
