/** The operator's limits while compactions run: live sessions and backfills, limits lowered meanwhile, several calls at once. */
import type { Pool } from 'pg';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import type { PolicyInput } from '../../../src/policy/schema.js';
import type { TenantLimits, TenantOverrides } from '../../../src/policy/tenant-limits.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { changeLimits } from '../../../src/store/tenants/limits.js';
import { spentBy } from '../../../src/store/tenants/spend.js';
import { validateView } from '../../../src/context/view/validity.js';
import { Metrics } from '../../../src/process/metrics.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { ok } from '../../support/model-replies.js';
import { openPool } from '../../support/pool.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;
let metrics: Metrics;

beforeEach(async () => {
  metrics = new Metrics();
  stack = await startStack({ settings: { metrics } });
  pool = openPool(stack.databaseUrl, { max: 4 });
  stack.model.reply(ok());
});

afterEach(async () => {
  await pool.end();
  await stack.stop();
});

const limit = (limits: TenantOverrides) => changeLimits(pool, stack.queuePrefix, limits);

async function live(session: string, policy: PolicyInput = smallPolicy, count = 16): Promise<void> {
  for (const [index, messages] of dialogue(count).entries()) {
    const own = messages.map((one) => ({ ...one, content: `<<${session}>> ${String(one.content)}` }));
    await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages: own, policy });
  }
}

async function compacted(session: string, policy?: PolicyInput): Promise<void> {
  await live(session, policy);
  await stack.palimpsest.settled({ session });
}

/** The newest compaction was written by the rules, for this reason, and the context is valid and within its budget. */
async function expectByRule(session: string, name: string): Promise<void> {
  const newest = (await stack.palimpsest.compactions({ session })).at(-1);
  expect(newest).toMatchObject({ method: 'extractive' });
  const status = await stack.palimpsest.status({ session });
  expect(status).toMatchObject({
    failures: 0,
    lastError: {
      type: 'Tenant.BeyondLimit',
      message: expect.stringContaining(name) as string,
      fallback: true,
    },
  });
  const context = await stack.palimpsest.context({ session });
  expect(context.tokens).toBeLessThanOrEqual(context.budget);
  expect(validateView(context.messages)).toEqual([]);
}

const spent = async () => (await spentBy(pool, stack.queuePrefix)).day;

/** Each request of the model as the endpoint saw it. */
const models = () => stack.model.requests.map(({ body }) => body.model);

/** Many calls, one after another. */
const manyCalls: PolicyInput = { ...smallPolicy, summary: { chunkTokens: 256, concurrency: 1 } };

const perToken = { '*': { input: 1_000_000, output: 1_000_000 } };

const spendLimits: [keyof TenantLimits, (most: number) => TenantLimits][] = [
  ['spendPerDay', (most) => ({ spendPerDay: most, prices: perToken })],
  ['spendPerMonth', (most) => ({ spendPerMonth: most, prices: perToken })],
  ['modelTokensPerDay', (most) => ({ modelTokensPerDay: most })],
  ['modelTokensPerMonth', (most) => ({ modelTokensPerMonth: most })],
];

describe.each(spendLimits)('%s', (name, of) => {
  it('used up: the rules write the summary, with the reason; raised: a model writes again', async () => {
    await limit(of(100));
    await compacted('poor');
    expect(models()).toEqual([]);
    await expectByRule('poor', name);
    await limit(of(1_000_000));
    for (const [index, messages] of dialogue(16).entries())
      await stack.palimpsest.appendTurn({ session: 'poor', turnId: `more-${index}`, messages });
    await stack.palimpsest.settled({ session: 'poor' });
    expect((await stack.palimpsest.compactions({ session: 'poor' })).at(-1)).toMatchObject({
      method: 'model',
    });
    expect((await stack.palimpsest.status({ session: 'poor' })).lastError).toBeNull();
    expect((await spent()).tokens).toBeGreaterThan(100);
  });
});

test('a limit lowered while a compaction runs ends its calls, and the context stays valid', async () => {
  await limit({ modelTokensPerDay: 1_000_000 });
  stack.model.hold();
  await live('lowered', manyCalls);
  await stack.model.waitForRequests(1);
  await limit({ modelTokensPerDay: 1 });
  stack.model.release();
  await stack.palimpsest.settled({ session: 'lowered' });
  expect(models()).toHaveLength(1);
  await expectByRule('lowered', 'modelTokensPerDay');
  expect(await metrics.text()).toMatch(
    /palimpsest_model_calls_beyond_limits_total\{limit="modelTokensPerDay"\} 1/,
  );
});

test('sessions compacted at once never spend more than the limit together', async () => {
  const most = 12_000;
  await limit({ modelTokensPerDay: most });
  const sessions = Array.from({ length: 8 }, (_, index) => `session-${index}`);
  await Promise.all(sessions.map((session) => compacted(session)));
  const { rows } = await pool.query<{ tokens: number }>(
    'select sum(input_tokens + output_tokens)::int as tokens from palimpsest.digests',
  );
  const used = (await spent()).tokens;
  expect(used).toBe(rows[0]?.tokens);
  expect(used).toBeGreaterThan(0);
  expect(used).toBeLessThanOrEqual(most);
  const ends = await Promise.all(sessions.map((session) => stack.palimpsest.compactions({ session })));
  const methods = ends.map(([newest]) => newest?.method);
  expect(new Set(methods)).toEqual(new Set(['model', 'extractive']));
});

test('a refused answer costs as well', async () => {
  await limit({ modelTokensPerDay: 1_000_000 });
  stack.model.reply(ok('No.'));
  await compacted('bad');
  expect((await stack.palimpsest.compactions({ session: 'bad' }))[0]).toMatchObject({ method: 'extractive' });
  const { rows } = await pool.query('select 1 from palimpsest.digests where calls > 0');
  expect(rows).toEqual([]);
  expect((await spent()).tokens).toBeGreaterThan(1_000);
});

test('a backfill stays within the limits as live sessions do', async () => {
  await limit({ modelTokensPerDay: 100 });
  const ids = { tenant: stack.queuePrefix, session: 'old' };
  await appendTurn(pool, {
    ...{ ...ids, turnId: 'all', messages: dialogue(16).flat(), policy: smallPolicy, imported: true },
  });
  await stack.palimpsest.startBackfill({ job: 'job' });
  await expect.poll(async () => (await stack.palimpsest.backfill({ job: 'job' })).state).toBe('completed');
  expect(models()).toEqual([]);
  await expectByRule('old', 'modelTokensPerDay');
});

describe('models', () => {
  it('beyond the list are not called', async () => {
    await limit({ models: ['another*'] });
    await compacted('none');
    expect(models()).toEqual([]);
    await expectByRule('none', 'test-summarizer');
  });

  it('lowered later: the model of the worker is called in place of the one of the policy', async () => {
    const policy = { ...smallPolicy, summary: { model: 'expensive' } };
    const [first = [], ...others] = dialogue(16);
    await stack.palimpsest.appendTurn({ session: 'narrowed', turnId: '0', messages: first, policy });
    await limit({ models: ['test-*'] });
    for (const [index, messages] of others.entries())
      await stack.palimpsest.appendTurn({ session: 'narrowed', turnId: `t-${index}`, messages });
    await stack.palimpsest.settled({ session: 'narrowed' });
    expect(new Set(models())).toEqual(new Set(['test-summarizer']));
    const { knobs, policy: shown } = await stack.palimpsest.status({ session: 'narrowed' });
    expect(shown.summary.model).toBeNull();
    expect(knobs.find(({ path }) => path === 'summary.model')).toMatchObject({
      ...{ value: null, warning: expect.stringContaining('expensive') as string },
    });
  });

  it('lowered while a compaction runs are called no more', async () => {
    stack.model.hold();
    await live('running', manyCalls);
    await stack.model.waitForRequests(1);
    await limit({ models: ['another*'] });
    stack.model.release();
    await stack.palimpsest.settled({ session: 'running' });
    expect(models()).toHaveLength(1);
    await expectByRule('running', 'test-summarizer');
  });

  it('without a price are not called under a limit of their cost', async () => {
    await limit({ spendPerDay: 1_000, prices: { other: { input: 1, output: 1 } } });
    await compacted('unpriced');
    expect(models()).toEqual([]);
    await expectByRule('unpriced', 'price');
  });
});

describe('calls in flight', () => {
  it('are at most the limit, for all sessions together', async () => {
    await limit({ concurrency: 2 });
    stack.model.hold();
    const sessions = Array.from({ length: 5 }, (_, index) => `session-${index}`);
    await Promise.all(sessions.map((session) => live(session)));
    await stack.model.waitUntil(() => stack.model.inFlight() === 2, 'two calls in flight');
    stack.model.release();
    for (const session of sessions) await stack.palimpsest.settled({ session });
    expect(stack.model.mostInFlight()).toBe(2);
    for (const session of sessions) {
      expect((await stack.palimpsest.compactions({ session })).map(({ method }) => method)).toContain(
        'model',
      );
      expect(await stack.palimpsest.status({ session })).toMatchObject({ failures: 0, lastError: null });
    }
  });

  it('past the deadline: the rules write the summary, and no model has failed', async () => {
    await limit({ concurrency: 1 });
    stack.model.hold();
    await live('first');
    await stack.model.waitForRequests(1);
    await compacted('late', { ...smallPolicy, summary: { deadline: 12_000 } });
    expect((await stack.palimpsest.compactions({ session: 'late' }))[0]).toMatchObject({
      method: 'extractive',
    });
    expect(await stack.palimpsest.status({ session: 'late' })).toMatchObject({
      ...{ failures: 0, lastError: { type: 'Llm.RateLimited' } },
    });
    stack.model.release();
    await stack.palimpsest.settled({ session: 'first' });
  });
});

describe.each([
  ['tokensPerMinute', { tokensPerMinute: 60_000 }, 'tokens-per-minute'],
  ['requestsPerMinute', { requestsPerMinute: 60 }, 'requests-per-minute'],
] satisfies [string, TenantLimits, string][])('%s', (_, limits, bucket) => {
  /** Nothing flows in for an hour. */
  const setLevel = (level: number) =>
    pool.query(
      `insert into palimpsest.rate_buckets values ($1, $2, clock_timestamp() + interval '1 hour')
       on conflict (name) do update set level = excluded.level, updated_at = excluded.updated_at`,
      [`tenant/${stack.queuePrefix}/${bucket}`, level],
    );
  const perMinute = Object.values(limits)[0] ?? 0;

  it('used up: calls wait for the inflow', async () => {
    await limit(limits);
    // A call gets a place that is reached after five seconds, and what it takes.
    await setLevel(-perMinute / 12);
    const policy = { ...smallPolicy, memory: { eager: false } };
    await live('waits', policy);
    await stack.palimpsest.settled({ session: 'waits' });
    expect((await stack.palimpsest.compactions({ session: 'waits' })).map(({ method }) => method)).toContain(
      'model',
    );
    expect(await metrics.text()).toMatch(/palimpsest_token_waits_total\{traffic="live"\} [1-9]/);
    expect(await stack.palimpsest.status({ session: 'waits' })).toMatchObject({
      failures: 0,
      lastError: null,
    });
  });

  it('used up beyond the deadline: the rules write the summary', async () => {
    await limit(limits);
    await setLevel(-0.99 * perMinute);
    await compacted('late', { ...smallPolicy, summary: { deadline: 30_000 } });
    expect(models()).toEqual([]);
    expect((await stack.palimpsest.compactions({ session: 'late' }))[0]).toMatchObject({
      method: 'extractive',
    });
    expect(await stack.palimpsest.status({ session: 'late' })).toMatchObject({
      ...{ failures: 0, lastError: { type: 'Llm.RateLimited' } },
    });
  });
});

test('defaults of the configuration hold for tenants without limits of their own', async () => {
  const worker = await startStack({ settings: { limits: { modelTokensPerDay: 100 } } });
  try {
    const { palimpsest, model } = worker;
    for (const [index, messages] of dialogue(16).entries())
      await palimpsest.appendTurn({ session: 'plain', turnId: `t-${index}`, messages, policy: smallPolicy });
    await palimpsest.settled({ session: 'plain' });
    expect((await palimpsest.compactions({ session: 'plain' }))[0]).toMatchObject({ method: 'extractive' });
    expect(model.requests).toEqual([]);
  } finally {
    await worker.stop();
  }
});

test('without a fallback: a compaction that a lowered limit cut off leaves the context unchanged, and reads shorten it', async () => {
  const policy = {
    ...manyCalls,
    summary: { ...manyCalls.summary, fallback: 'none' as const, retryAfterFailure: 1 },
  };
  stack.model.hold();
  await live('strict', { ...policy, memory: { eager: false } });
  await stack.model.waitForRequests(1);
  await limit({ modelTokensPerDay: 1 });
  stack.model.release();
  await expect
    .poll(async () => (await stack.palimpsest.status({ session: 'strict' })).lastError)
    .toMatchObject({ type: 'Tenant.BeyondLimit' });
  const { failures, retryAt } = await stack.palimpsest.status({ session: 'strict' });
  expect(failures).toBe(0);
  // However soon the policy retries failures of a model.
  expect(Date.parse(retryAt ?? '')).toBeGreaterThan(Date.now() + 20_000);
  expect(await stack.palimpsest.compactions({ session: 'strict' })).toEqual([]);
  const context = await stack.palimpsest.context({ session: 'strict' });
  expect(context.tokens).toBeLessThanOrEqual(context.budget);
  expect(validateView(context.messages)).toEqual([]);
});
