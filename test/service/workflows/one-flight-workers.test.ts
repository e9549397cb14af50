/**
 * Invariant 6 over all workers: equal concurrent requests of several compactions make one model call. The waiting ones get the
 * answer and pay nothing; if the calling one dies or fails, another makes the call. Calls are counted at the endpoint.
 */
import { once } from 'node:events';
import type { ChildProcess } from 'node:child_process';
import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, inject, test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { openPool } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { compactionWorkflowId } from '../../../src/temporal/names.js';
import { ended, openBackfills, until } from '../../support/backfills.js';
import { dialogue, words } from '../../support/dialogue.js';
import { about, ok, rateLimited, status, type Script } from '../../support/model-replies.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { spawnWorker } from '../../support/spawned-worker.js';
import { startStack, type Stack } from '../../support/stack.js';
import { uniqueQueuePrefix } from '../../support/temporal.js';

let stack: Stack;
let pool: Pool;
let client: Client;
let standing: Promise<unknown> | undefined;
const workers: ChildProcess[] = [];
/** Of the test that runs: tenants share no digests. */
let tenant: string;
let palimpsest: Palimpsest;

beforeAll(async () => {
  stack = await startStack({ worker: false });
  pool = openPool(stack.databaseUrl, { max: 2 });
  client = await connectClient({ address: inject('temporalAddress') });
});

afterAll(async () => {
  for (const worker of workers) worker.kill('SIGKILL');
  await client.connection.close();
  await pool.end();
  await stack.stop();
});

beforeEach(async () => {
  tenant = uniqueQueuePrefix();
  palimpsest = await connect(tenant);
  stack.model.reply(ok());
  stack.model.requests.length = 0;
});

afterEach(async () => {
  stack.model.release();
  await palimpsest.close();
});

function connect(of: string): Promise<Palimpsest> {
  const { databaseUrl, temporal, queuePrefix } = stack;
  return Palimpsest.connect({ databaseUrl, temporal, queuePrefix, tenant: of });
}

async function startWorker(): Promise<ChildProcess> {
  const worker = spawnWorker(stack);
  workers.push(worker);
  await once(worker.stdout!, 'data');
  return worker;
}

/** Two for all tests that kill none. */
const twoWorkers = (): Promise<unknown> => (standing ??= Promise.all([startWorker(), startWorker()]));

/** No compaction is due without a request. */
const policy: PolicyInput = { contextWindow: 64_000, keep: { messages: 2 }, summary: { chunkTokens: 500 } };
const turns = dialogue(17);
const messages = turns.flat();
const family = ['source', 'fork-1', 'fork-2', 'fork-3'];

/** A session and three forks that no workflow knows: all of them have the same to summarize. */
async function fillFamily(own: PolicyInput = policy): Promise<void> {
  const source = { tenant, session: 'source' };
  await appendTurn(pool, { ...source, turnId: 't', messages, policy: own });
  for (const to of family.slice(1)) await fork(pool, source, { to, throughSeq: messages.length });
}

const compactAll = (sessions = family) =>
  Promise.all(sessions.map((session) => palimpsest.compact({ session })));

const compactionOf = (session: string) =>
  client.workflow.getHandle(compactionWorkflowId({ tenant, session }, 1));

/** Every one of these compactions has a model step that a worker has begun. */
async function allAsking(sessions = family): Promise<void> {
  for (const session of sessions) {
    const begun = async () => {
      const { raw } = await compactionOf(session).describe();
      return (raw.pendingActivities ?? []).some(
        ({ activityType, state }) => activityType?.name !== 'plan' && Number(state) === 2,
      );
    };
    await expect.poll(() => begun().catch(() => false)).toBe(true);
  }
}

/** Requests for each content key. */
function requestsByKey(): number[] {
  const counts = new Map<string, number>();
  for (const { key } of stack.model.requests) counts.set(key, (counts.get(key) ?? 0) + 1);
  return [...counts.values()];
}

// First: the workers of the others do not run yet.
test('a waiting compaction makes the call when the calling worker is killed', async () => {
  await fillFamily();
  stack.model.hold();
  const doomed = await startWorker();
  const first = palimpsest.compact({ session: 'source' }).catch((error: unknown) => error);
  await stack.model.waitForRequests(4);
  const asked = stack.model.requests.length;
  const other = await startWorker();
  const second = palimpsest.compact({ session: 'fork-1' });
  await allAsking(['source', 'fork-1']);
  expect(stack.model.requests).toHaveLength(asked);
  // No worker continues this compaction: only the end of its lease frees its requests.
  await compactionOf('source').terminate();
  doomed.kill('SIGKILL');
  stack.model.release();
  const outcome = await second;
  expect(outcome).toMatchObject({ method: 'model' });
  expect(stack.model.requests).toHaveLength(outcome!.chunks + 1 + asked);
  await first;
  other.kill('SIGKILL');
});

test('a session and three forks on two workers request each digest once, and only the payer counts it', async () => {
  await fillFamily();
  await twoWorkers();
  stack.model.hold();
  const compacting = compactAll();
  await allAsking();
  stack.model.release();
  const outcomes = await compacting;
  const [first] = outcomes;
  for (const outcome of outcomes) expect(outcome).toMatchObject({ method: 'model', chunks: first!.chunks });
  expect(first!.chunks).toBeGreaterThan(4);
  expect(stack.model.requests).toHaveLength(first!.chunks + 1);
  expect(stack.model.paidTwice()).toEqual([]);
  expect(outcomes.reduce((sum, outcome) => sum + outcome!.modelCalls, 0)).toBe(first!.chunks + 1);
  // No lease and no reference is left.
  for (const table of ['digest_flights', 'digest_holds'])
    expect(
      (await pool.query(`select 1 from palimpsest.${table} where tenant_id = $1`, [tenant])).rows,
    ).toEqual([]);
});

test('a repair is also requested once', async () => {
  await fillFamily({ contextWindow: 4_000, summary: { mode: 'incremental' } });
  const isRepair = ({ body }: RecordedRequest) =>
    body.messages.some(({ content }) => /too long|shorten|left out/i.test(content));
  const wordy = ok(`## Current state\n- ${words(2_000)}`.slice(0, 6_000));
  stack.model.reply((request) =>
    (isRepair(request) ? about('## Current state\n- In short.') : wordy)(request),
  );
  await twoWorkers();
  for (const outcome of await compactAll()) expect(outcome).toMatchObject({ method: 'model' });
  expect(stack.model.requests.filter(isRepair)).toHaveLength(1);
  expect(requestsByKey().every((count) => count === 1)).toBe(true);
});

test('a slow call of a live worker keeps its lease', async () => {
  await fillFamily();
  stack.model.hold();
  await twoWorkers();
  const compacting = compactAll(['source', 'fork-1']);
  await allAsking(['source', 'fork-1']);
  const leases = async () =>
    (
      await pool.query<{ key: string; over: boolean; at: Date }>(
        `select key, expires_at as at, expires_at < clock_timestamp() as over from palimpsest.digest_flights where tenant_id = $1 order by key`,
        [tenant],
      )
    ).rows;
  await expect.poll(async () => (await leases()).length).toBeGreaterThan(0);
  const begun = await leases();
  const last = Math.max(...begun.map(({ at }) => at.getTime()));
  const now = async () =>
    (await pool.query<{ now: Date }>('select clock_timestamp() as now')).rows[0]!.now.getTime();
  await expect.poll(now).toBeGreaterThan(last);
  expect((await leases()).filter(({ over }) => over)).toEqual([]);
  stack.model.release();
  const [outcome] = await compacting;
  expect(stack.model.requests).toHaveLength(outcome!.chunks + 1);
});

/** Each request is answered like this the first `times` times it is made. */
function failing(times: number, failure: Script): Script {
  const seen = new Map<string, number>();
  return (request) => {
    const before = seen.get(request.key) ?? 0;
    seen.set(request.key, before + 1);
    return (before < times ? failure : ok())(request);
  };
}

test.for([
  { name: '500', failure: status(500), apartMs: 1_000 },
  { name: '429', failure: rateLimited('2'), apartMs: 2_000 },
])(
  'a call that fails with $name is one failure for all that need the same answer',
  async ({ failure, apartMs }) => {
    await fillFamily();
    stack.model.reply(failing(2, failure));
    await twoWorkers();
    stack.model.hold();
    const compacting = compactAll();
    await allAsking();
    stack.model.release();
    const outcomes = await compacting;
    for (const outcome of outcomes) expect(outcome).toMatchObject({ method: 'model' });
    expect(requestsByKey()).toEqual(Array(outcomes[0]!.chunks + 1).fill(3));
    // Nobody asks before the delay of whoever failed: not those that waited, nor those that come just then.
    const { requests } = stack.model;
    for (const [index, { key, at }] of requests.entries()) {
      const next = requests.slice(index + 1).find((later) => later.key === key);
      if (next) expect(next.at - at).toBeGreaterThanOrEqual(apartMs);
    }
  },
);

test('a waiting compaction is cancelled at once, without an effect on the calling one', async () => {
  await fillFamily();
  stack.model.hold();
  await twoWorkers();
  const first = palimpsest.compact({ session: 'source' });
  await stack.model.waitForRequests(4);
  const second = palimpsest.compact({ session: 'fork-1' }).catch((error: unknown) => error);
  await allAsking(['source', 'fork-1']);
  await compactionOf('fork-1').cancel();
  expect(await second).toBeInstanceOf(Error);
  expect(stack.model.requests).toHaveLength(4);
  stack.model.release();
  expect(await first).toMatchObject({ method: 'model' });
  expect(stack.model.paidTwice()).toEqual([]);
});

test('tenants do not wait for each other: each makes its own call', async () => {
  const { model } = stack;
  const other = await connect(`${tenant}-b`);
  try {
    model.hold();
    await twoWorkers();
    for (const of of [palimpsest, other])
      await of.appendTurn({ session: 's', turnId: 't', messages, policy });
    const compacting = Promise.all([palimpsest, other].map((of) => of.compact({ session: 's' })));
    // Four chunks at once each, none of which is the other's.
    await model.waitForRequests(8);
    expect(model.inFlight()).toBe(8);
    model.release();
    const outcomes = await compacting;
    for (const outcome of outcomes) expect(outcome!.modelCalls).toBe(outcome!.chunks + 1);
    expect(model.requests).toHaveLength(2 * (outcomes[0]!.chunks + 1));
  } finally {
    await other.close();
  }
});

test('a backfill of a session and its forks requests each digest once', async () => {
  await fillFamily({ ...policy, contextWindow: 4_000 });
  const bench = await openBackfills(stack);
  try {
    stack.model.hold();
    await twoWorkers();
    const jobs = bench.of(tenant);
    await jobs.start({ job: 'j', concurrency: 4 });
    await allAsking();
    stack.model.release();
    const report = await until(jobs, 'j', ended);
    expect(report).toMatchObject({ counts: { compacted: 4, failed: 0 } });
    expect(report.modelCalls).toBe(stack.model.requests.length);
    expect(requestsByKey().every((count) => count === 1)).toBe(true);
  } finally {
    await bench.close();
  }
});

// Last: a step that was begun when its compaction went on without it may still ask.
test('a finally refused call ends its lease: the next compaction makes the call without a wait', async () => {
  await fillFamily();
  stack.model.reply(status(401));
  await twoWorkers();
  stack.model.hold();
  const compacting = compactAll();
  await allAsking();
  stack.model.release();
  for (const outcome of await compacting) expect(outcome).toMatchObject({ method: 'extractive' });
  expect(Math.max(...requestsByKey())).toBeLessThanOrEqual(family.length);
});
