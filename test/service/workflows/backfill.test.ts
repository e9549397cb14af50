/** A job over many old sessions: each due session is compacted once, and the report has the outcome of every one. */
import type { Client } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { backfillWorkflowId, compactionWorkflowId } from '../../../src/temporal/names.js';
import {
  commitsOf,
  ended,
  fillSessions,
  openBackfills,
  until,
  type BackfillBench,
} from '../../support/backfills.js';
import { dialogue, smallPolicy, words } from '../../support/dialogue.js';
import { materialOf, ok, status } from '../../support/model-replies.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let bench: BackfillBench;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  bench = await openBackfills(stack, { pageSize: 20 });
  client = await connectClient(stack.temporal);
});

afterAll(async () => {
  await client.connection.close();
  await bench.close();
  await stack.stop();
});

/** Tenants tell the tests apart: jobs select all sessions of theirs. */
const tenantOf = (name: string) => `${name}-${stack.queuePrefix}`;
const priced: PolicyInput = { ...smallPolicy, prices: { input: 1_000 } };

async function commits(tenant: string): Promise<number[]> {
  return [...(await commitsOf(bench.pool, tenant)).values()].sort();
}

test('every due session is compacted once, over several pages and runs; others cost nothing', async () => {
  const tenant = tenantOf('pages');
  const backfills = bench.of(tenant);
  const due = await fillSessions(bench.pool, tenant, 40);
  await fillSessions(bench.pool, tenant, 30, { prefix: 'quiet-', turns: 2 });
  const asked = stack.model.requests.length;
  const started = await backfills.start({ job: 'j/1', concurrency: 8 });
  expect(started).toMatchObject({ job: 'j/1', state: 'running', concurrency: 8, spendLimit: null });

  const report = await until(backfills, 'j/1', ended);
  const counts = {
    selected: 70,
    compacted: 40,
    unchanged: 30,
    failed: 0,
    pending: 0,
    running: 0,
    skipped: 0,
  };
  expect(report).toMatchObject({ state: 'completed', reason: null, selecting: false, failures: {}, counts });
  const found = await commitsOf(bench.pool, tenant);
  expect(due.map((session) => found.get(session))).toEqual(due.map(() => 1));
  expect(stack.model.requests.length - asked).toBe(40);
  expect(report.modelCalls).toBe(40);
  const { items, next } = await backfills.items({ job: 'j/1', state: 'compacted', limit: 1_000 });
  expect(next).toBeNull();
  expect(items).toHaveLength(40);
  for (const item of items)
    expect(item).toMatchObject({ attempts: 1, generation: 1, error: null, cost: null });
  const sum = (of: 'tokensBefore' | 'tokensAfter') => items.reduce((all, item) => all + (item[of] ?? 0), 0);
  expect([report.tokensBefore, report.tokensAfter]).toEqual([sum('tokensBefore'), sum('tokensAfter')]);
  expect(report.tokensAfter).toBeLessThan(report.tokensBefore / 2);
  // One run a page, and no compaction for a quiet session.
  const described = () => client.workflow.getHandle(backfillWorkflowId({ tenant, job: 'j/1' })).describe();
  await expect.poll(async () => (await described()).status.name).toBe('COMPLETED');
  const description = await described();
  expect(description.historyLength).toBeLessThan(1_000);
  await expect(
    client.workflow.getHandle(compactionWorkflowId({ tenant, session: 'quiet-00000' }, 1)).describe(),
  ).rejects.toThrow(/not found/);
  // What ran is found by its job, and the workflow's own answer is the report.
  const result: object = await client.workflow.getHandle(backfillWorkflowId({ tenant, job: 'j/1' })).result();
  expect(result).toMatchObject({ state: 'completed', counts });
  await expect
    .poll(async () => (await client.workflow.count(`BackfillJob = "j/1" and TenantId = "${tenant}"`)).count)
    .toBeGreaterThanOrEqual(41);
});

test('the items can be read page by page', async () => {
  const tenant = tenantOf('paged');
  await fillSessions(bench.pool, tenant, 5, { turns: 1 });
  const backfills = bench.of(tenant);
  await backfills.start({ job: 'j' });
  await until(backfills, 'j', ended);
  const seen: string[] = [];
  for (let after: string | undefined; ;) {
    const { items, next } = await backfills.items({ job: 'j', limit: 2, ...(after ? { after } : {}) });
    seen.push(...items.map(({ session }) => session));
    if (next === null) break;
    after = next;
  }
  expect(seen).toEqual(['old-00000', 'old-00001', 'old-00002', 'old-00003', 'old-00004']);
});

test.each([
  ['0000-01-01T00:00:00Z', 0],
  ['9999-12-31T23:59:59-23:59', 3],
])(
  'a job for sessions idle since %s, which PostgreSQL does not read, selects %i',
  async (idleSince, selected) => {
    const tenant = tenantOf(`idle-${selected}`);
    await fillSessions(bench.pool, tenant, 3, { turns: 1 });
    const backfills = bench.of(tenant);
    expect(await backfills.estimate({ select: { idleSince } })).toMatchObject({ selected });
    await backfills.start({ job: 'j', select: { idleSince } });
    const report = await until(backfills, 'j', ended);
    expect(report).toMatchObject({ state: 'completed', selecting: false, counts: { selected } });
  },
);

describe('the request', () => {
  test('starting the same job twice is one job; another request under its name is refused', async () => {
    const tenant = tenantOf('twice');
    const backfills = bench.of(tenant);
    await fillSessions(bench.pool, tenant, 3);
    const request = { job: 'j', select: { prefix: 'old-', minTokens: 10 } };
    const both = await Promise.all([backfills.start(request), backfills.start(request)]);
    expect(both[0].createdAt).toBe(both[1].createdAt);
    await until(backfills, 'j', ended);
    expect(await backfills.start(request)).toMatchObject({ state: 'completed' });
    expect(await commits(tenant)).toEqual([1, 1, 1]);
    await expect(backfills.start({ ...request, mode: 'all' })).rejects.toMatchObject({
      type: 'Input.Invalid',
      path: 'job',
    });
    expect((await backfills.list()).map(({ job }) => job)).toEqual(['j']);
  });

  test.for([
    [{ job: '' }, 'job'],
    [{ job: 'x'.repeat(201) }, 'job'],
    [{ job: 'a', mode: 'some' }, 'mode'],
    [{ job: 'a', concurrency: 0 }, 'concurrency'],
    [{ job: 'a', concurrency: 501 }, 'concurrency'],
    [{ job: 'a', concurrency: 1.5 }, 'concurrency'],
    [{ job: 'a', spendLimit: 0 }, 'spendLimit'],
    [{ job: 'a', limit: 3 }, 'limit'],
    [{ job: 'a', select: { format: 'word' } }, 'select.format'],
    [{ job: 'a', select: { idleSince: 'yesterday' } }, 'select.idleSince'],
    [{ job: 'a', select: { minTokens: -1 } }, 'select.minTokens'],
    [{ job: 'a', select: { prefix: 'a\0' } }, 'select.prefix'],
    [{ job: 'a', select: { suffix: 'b' } }, 'select.suffix'],
  ])('%j is refused at %s', async ([request, path]) => {
    const backfills = bench.of(tenantOf('wrong'));
    const refused = { type: 'Input.Invalid', path };
    await expect(backfills.start(request as never)).rejects.toMatchObject(refused);
    expect(await backfills.list()).toEqual([]);
  });

  test('an unknown job is refused in every call', async () => {
    const backfills = bench.of(tenantOf('nothing'));
    const job = { job: 'nowhere' };
    const missing = { type: 'Store.BackfillNotFound' };
    await expect(backfills.report(job)).rejects.toMatchObject(missing);
    await expect(backfills.items(job)).rejects.toMatchObject(missing);
    await expect(backfills.pause(job)).rejects.toMatchObject(missing);
    await expect(backfills.resume(job)).rejects.toMatchObject(missing);
    await expect(backfills.cancel(job)).rejects.toMatchObject(missing);
    await expect(backfills.retry(job)).rejects.toMatchObject(missing);
    await expect(backfills.resize({ ...job, concurrency: 2 })).rejects.toMatchObject(missing);
  });

  test('compacts only the selected sessions of the tenant', async () => {
    const [tenant, other] = [tenantOf('chosen'), tenantOf('other')];
    await fillSessions(bench.pool, tenant, 2, { prefix: 'a-' });
    await fillSessions(bench.pool, tenant, 2, { prefix: 'b-' });
    await fillSessions(bench.pool, other, 2, { prefix: 'a-' });
    const backfills = bench.of(tenant);
    const before = { idleSince: '2020-01-01T00:00:00Z' };
    for (const [job, select, selected] of [
      ['long ago', before, 0],
      ['since', { idleSince: '2999-01-01T00:00:00+01:00', minTokens: 1_000_000 }, 0],
      ['format', { format: 'anthropic' as const }, 0],
      ['prefix', { prefix: 'a-', format: 'openai-chat' as const, idleSince: '2999-01-01T00:00:00Z' }, 2],
    ] as const) {
      await backfills.start({ job, select });
      expect((await until(backfills, job, ended)).counts.selected).toBe(selected);
    }
    expect(await commitsOf(bench.pool, tenant)).toEqual(
      new Map([
        ...['a-00000', 'a-00001'].map((one) => [one, 1] as const),
        ...['b-00000', 'b-00001'].map((one) => [one, 0] as const),
      ]),
    );
    expect(await commits(other)).toEqual([0, 0]);
    await expect(bench.of(other).report({ job: 'prefix' })).rejects.toMatchObject({
      type: 'Store.BackfillNotFound',
    });
    expect(await bench.of(other).list()).toEqual([]);
  });

  test('mode all compacts each session that can become smaller once; others are unchanged', async () => {
    const tenant = tenantOf('all');
    await fillSessions(bench.pool, tenant, 3, { policy: { contextWindow: 128_000 } });
    await fillSessions(bench.pool, tenant, 2, { prefix: 'small-', turns: 1 });
    await fillSessions(bench.pool, tenant, 1, { prefix: 'off-', policy: { enabled: false } });
    const backfills = bench.of(tenant);
    await backfills.start({ job: 'due' });
    expect((await until(backfills, 'due', ended)).counts).toMatchObject({ compacted: 0, unchanged: 6 });
    await backfills.start({ job: 'all', mode: 'all' });
    expect((await until(backfills, 'all', ended)).counts).toMatchObject({ compacted: 3, unchanged: 3 });
    expect(await commits(tenant)).toEqual([0, 0, 0, 1, 1, 1]);
  });
});

test('a session far above its target is compacted until it is below its threshold, as one item', async () => {
  const tenant = tenantOf('large');
  // A chunk is at least 256 tokens and 500 of them go into one compaction.
  const policy: PolicyInput = { ...smallPolicy, summary: { method: 'extractive', chunkTokens: 256 } };
  await fillSessions(bench.pool, tenant, 1, { turns: 1_000, policy });
  const backfills = bench.of(tenant);
  await backfills.start({ job: 'j' });
  const report = await until(backfills, 'j', ended);
  expect(report.counts).toMatchObject({ selected: 1, compacted: 1 });
  const [count = 0] = await commits(tenant);
  expect(count).toBeGreaterThan(1);
  const { items } = await backfills.items({ job: 'j' });
  expect(items[0]).toMatchObject({ state: 'compacted', attempts: 1, generation: count });
  expect(items[0]?.tokensBefore).toBeGreaterThan(200_000);
  expect(items[0]?.tokensAfter).toBeLessThan(3_400);
});

describe('sessions that fail', () => {
  const rejecting = (request: Parameters<ReturnType<typeof ok>>[0]) =>
    /This is bad-/.test(materialOf(request)) ? status(400)(request) : ok()(request);
  const policy: PolicyInput = { ...smallPolicy, summary: { fallback: 'none' } };

  test('have their typed reason, and are the only ones that a retry tries again', async () => {
    const tenant = tenantOf('failing');
    await fillSessions(bench.pool, tenant, 6, { policy });
    await fillSessions(bench.pool, tenant, 2, { prefix: 'bad-', policy });
    const backfills = bench.of(tenant);
    stack.model.reply(rejecting);
    await backfills.start({ job: 'j' });
    const report = await until(backfills, 'j', ended);
    expect(report).toMatchObject({ state: 'completed', failures: { 'Llm.Rejected': 2 } });
    expect(report.counts).toMatchObject({ compacted: 6, failed: 2 });
    const { items } = await backfills.items({ job: 'j', state: 'failed' });
    expect(items.map(({ session, attempts, error }) => [session, attempts, error?.type])).toEqual([
      ['bad-00000', 1, 'Llm.Rejected'],
      ['bad-00001', 1, 'Llm.Rejected'],
    ]);
    const asked = stack.model.requests.length;
    stack.model.reply(ok());
    expect(await backfills.retry({ job: 'j' })).toMatchObject({ state: 'running', endedAt: null });
    const again = await until(backfills, 'j', ended);
    expect(again).toMatchObject({ state: 'completed', failures: {}, counts: { compacted: 8, failed: 0 } });
    expect(stack.model.requests.length - asked).toBe(2);
    expect(await commits(tenant)).toEqual([1, 1, 1, 1, 1, 1, 1, 1]);
    const { items: all } = await backfills.items({ job: 'j' });
    expect(all.map(({ attempts }) => attempts).sort()).toEqual([1, 1, 1, 1, 1, 1, 2, 2]);
  });

  test('can be retried while others still run', async () => {
    const tenant = tenantOf('retried');
    await fillSessions(bench.pool, tenant, 1, { prefix: 'bad-', policy });
    await fillSessions(bench.pool, tenant, 3, { policy });
    const backfills = bench.of(tenant);
    const { model } = stack;
    const asked = model.requests.length;
    model.reply(rejecting);
    model.hold();
    await backfills.start({ job: 'j', concurrency: 1 });
    await model.waitForRequests(asked + 1);
    model.release(1);
    await until(backfills, 'j', ({ counts }) => counts.failed === 1);
    await model.waitForRequests(asked + 2);
    model.reply(ok());
    await backfills.retry({ job: 'j' });
    model.release();
    const report = await until(backfills, 'j', ended);
    expect(report.counts).toMatchObject({ selected: 4, compacted: 4, failed: 0 });
    expect(await commits(tenant)).toEqual([1, 1, 1, 1]);
  });

  test('a paused session is reported', async () => {
    const tenant = stack.queuePrefix;
    await fillSessions(bench.pool, tenant, 1, { prefix: 'held-' });
    await stack.palimpsest.pause({ session: 'held-00000' });
    await stack.palimpsest.startBackfill({ job: 'held', select: { prefix: 'held-' } });
    const report = await until(bench.backfills, 'held', ended);
    expect(report.failures).toEqual({ 'Input.Invalid': 1 });
    await stack.palimpsest.resume({ session: 'held-00000' });
    await stack.palimpsest.retryBackfill({ job: 'held' });
    await until(bench.backfills, 'held', ended);
    expect((await stack.palimpsest.compactions({ session: 'held-00000' })).length).toBe(1);
  });
});

describe('money', () => {
  test('at its spend limit the job stops and skips the rest; a higher limit continues it', async () => {
    const tenant = tenantOf('money');
    await fillSessions(bench.pool, tenant, 30, { policy: priced });
    const backfills = bench.of(tenant);
    // One session costs about 4 (thousand tokens at 1,000 a million).
    await backfills.start({ job: 'j', concurrency: 2, spendLimit: 20 });
    const report = await until(backfills, 'j', ended);
    expect(report).toMatchObject({ state: 'stopped', reason: 'spend limit' });
    expect(report.cost).toBeGreaterThanOrEqual(20);
    const { compacted, skipped } = report.counts;
    const each = report.cost! / compacted;
    // Only compactions in flight exceed it.
    expect(report.cost! - 20).toBeLessThanOrEqual(2 * each);
    expect(skipped).toBeGreaterThan(0);
    const { items } = await backfills.items({ job: 'j', state: 'compacted' });
    expect(items.reduce((sum, { cost }) => sum + (cost ?? 0), 0)).toBeCloseTo(report.cost!, 6);

    await expect(backfills.retry({ job: 'j' })).rejects.toMatchObject({
      type: 'Input.Invalid',
      path: 'spendLimit',
    });
    await backfills.retry({ job: 'j', spendLimit: 10_000 });
    const all = await until(backfills, 'j', ended);
    expect(all).toMatchObject({
      state: 'completed',
      reason: null,
      spendLimit: 10_000,
      request: { spendLimit: 20 },
    });
    expect(all.counts).toMatchObject({ selected: 30, compacted: 30, skipped: 0 });
    expect(await commits(tenant)).toEqual(Array.from({ length: 30 }, () => 1));
  });

  test('the cost of failed attempts counts, and not twice when a retry reuses it', async () => {
    const tenant = tenantOf('in-vain');
    const summary = { fallback: 'none' as const, chunkTokens: 600, concurrency: 1 };
    const policy: PolicyInput = { ...priced, summary };
    await fillSessions(bench.pool, tenant, 1, { policy });
    const backfills = bench.of(tenant);
    let asked = 0;
    stack.model.reply((request) => (++asked > 3 ? status(400) : ok())(request));
    await backfills.start({ job: 'j', spendLimit: 1 });
    const failed = await until(backfills, 'j', ended);
    expect(failed.counts).toMatchObject({ failed: 1 });
    expect(failed.cost).toBeGreaterThan(1);
    stack.model.reply(ok());
    await expect(backfills.retry({ job: 'j' })).rejects.toMatchObject({ path: 'spendLimit' });
    await backfills.retry({ job: 'j', spendLimit: 1_000 });
    const report = await until(backfills, 'j', ended);
    expect(report.counts).toMatchObject({ compacted: 1 });
    const { rows } = await bench.pool.query<{ cost: number }>(
      'select cost from palimpsest.compactions where tenant_id = $1 and generation = 1',
      [tenant],
    );
    expect(report.cost).toBeCloseTo(rows[0]!.cost, 9);
    expect(report.cost).toBeGreaterThan(failed.cost!);
  });

  test('a session whose policy has no prices is not compacted under a spend limit', async () => {
    const tenant = tenantOf('priceless');
    await fillSessions(bench.pool, tenant, 1);
    await bench.of(tenant).start({ job: 'j', spendLimit: 1 });
    const report = await until(bench.of(tenant), 'j', ended);
    expect(report).toMatchObject({ state: 'completed', failures: { 'Input.Invalid': 1 } });
  });

  test('the estimate is close to the usage of the job', async () => {
    const tenant = tenantOf('estimate');
    await fillSessions(bench.pool, tenant, 4, { policy: priced });
    await fillSessions(bench.pool, tenant, 4, { prefix: 'long-', turns: 120, policy: priced });
    await fillSessions(bench.pool, tenant, 4, { prefix: 'quiet-', turns: 2, policy: priced });
    const backfills = bench.of(tenant);
    const estimate = await backfills.estimate({});
    expect(estimate).toMatchObject({ selected: 12, due: 8, currency: 'USD' });
    expect(await commits(tenant)).toEqual(Array.from({ length: 12 }, () => 0));
    await backfills.start({ job: 'j' });
    const report = await until(backfills, 'j', ended);
    expect(estimate.tokensBefore).toBe(report.tokensBefore);
    expect(estimate.tokensAfter / report.tokensAfter).toBeGreaterThan(0.5);
    expect(estimate.tokensAfter / report.tokensAfter).toBeLessThan(2);
    expect(estimate.modelCalls / report.modelCalls).toBeGreaterThan(0.67);
    expect(estimate.modelCalls / report.modelCalls).toBeLessThan(1.5);
    expect(estimate.modelInputTokens / report.modelInputTokens).toBeGreaterThan(0.67);
    expect(estimate.modelInputTokens / report.modelInputTokens).toBeLessThan(1.5);
    // Answers are taken as long as they may be.
    expect(estimate.modelOutputTokens).toBeGreaterThanOrEqual(report.modelOutputTokens);
    expect(estimate.cost).toBeGreaterThan(report.cost! * 0.67);
  });
});

test('a session erased in the middle of a job leaves no trace, and delays no other', async () => {
  const { palimpsest, queuePrefix: tenant } = stack;
  await fillSessions(bench.pool, tenant, 3, { prefix: 'gone-' });
  stack.model.hold();
  const asked = stack.model.requests.length;
  await palimpsest.startBackfill({ job: 'gone', select: { prefix: 'gone-' }, concurrency: 1 });
  await stack.model.waitForRequests(asked + 1);
  await palimpsest.erase({ session: 'gone-00000' });
  await palimpsest.erase({ session: 'gone-00002' });
  stack.model.release();
  const report = await until(bench.backfills, 'gone', ended);
  expect(report).toMatchObject({ state: 'completed', counts: { selected: 1, compacted: 1 } });
  const { items } = await palimpsest.backfillItems({ job: 'gone' });
  expect(items.map(({ session }) => session)).toEqual(['gone-00001']);
});

describe('a session that is compacted live at the same time', () => {
  test('is measured again after its compaction: one commit, and the job reports unchanged', async () => {
    const { palimpsest } = stack;
    stack.model.hold();
    const asked = stack.model.requests.length;
    for (const [index, messages] of dialogue(18).entries())
      await palimpsest.appendTurn({ session: 'live-1', turnId: `t-${index}`, messages, policy: smallPolicy });
    await stack.model.waitForRequests(asked + 1);
    await palimpsest.startBackfill({ job: 'live', select: { prefix: 'live-' } });
    await until(bench.backfills, 'live', ({ counts }) => counts.running === 1);
    stack.model.release();
    const report = await until(bench.backfills, 'live', ended);
    expect(report).toMatchObject({ state: 'completed', counts: { selected: 1, unchanged: 1 } });
    await palimpsest.settled({ session: 'live-1' });
    expect((await palimpsest.compactions({ session: 'live-1' })).map(({ reason }) => reason)).toEqual([
      'trigger',
    ]);
  });

  test('turns appended while the job compacts it are kept, and its workflow continues', async () => {
    const { palimpsest } = stack;
    await fillSessions(bench.pool, stack.queuePrefix, 1, { prefix: 'joined-' });
    const session = 'joined-00000';
    stack.model.hold();
    const asked = stack.model.requests.length;
    await palimpsest.startBackfill({ job: 'joined', select: { prefix: 'joined-' } });
    await stack.model.waitForRequests(asked + 1);
    await palimpsest.appendTurn({ session, turnId: 'new', messages: [{ role: 'user', content: words(50) }] });
    stack.model.release();
    await until(bench.backfills, 'joined', ended);
    await palimpsest.settled({ session });
    const made = await palimpsest.compactions({ session });
    expect(made.map(({ reason }) => reason)).toEqual(['backfill']);
    const { messages } = await palimpsest.context({ session });
    expect(messages.at(-1)).toEqual({ role: 'user', content: words(50) });
  });
});
