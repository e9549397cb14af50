/**
 * After an erasure no data of the session is left: the tests search every row of every table, and every history in Temporal of
 * its tenant, for its id and for a text that only it had.
 */
import { randomUUID } from 'node:crypto';
import { WorkflowNotFoundError, type Client } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Erased } from '../../../src/contract/sessions.js';
import type { SessionStatus } from '../../../src/contract/workflows.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { finishErasures } from '../../../src/erase/executions.js';
import { sessionWorkflowId, taskQueues } from '../../../src/temporal/names.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { rowsHolding } from '../../support/rows.js';
import { appendTurns } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';
import { Way } from '../../support/way.js';

let stack: Stack;
let pool: Pool;
let client: Client;

beforeAll(async () => {
  stack = await startStack({ settings: { inlineTurnTenants: ['*'] } });
  pool = openPool(stack.databaseUrl);
  client = await connectClient(stack.temporal);
});

afterAll(async () => {
  await pool.end();
  await client.connection.close();
  await stack.stop();
});

/** Payloads are base64 in the JSON of a history. */
const decoded = (key: string, value: unknown) =>
  key === 'data' && typeof value === 'string' ? Buffer.from(value, 'base64').toString() : value;

/** Workflow ids of the tenant's executions whose history holds one of these texts. */
async function historiesHolding(texts: readonly string[]): Promise<string[]> {
  const holding = new Set<string>();
  for await (const { workflowId, runId } of client.workflow.list({
    query: `TenantId = '${stack.queuePrefix}'`,
  })) {
    const history = await client.workflow
      .getHandle(workflowId, runId)
      .fetchHistory()
      .catch(() => null);
    // Deleted since it was listed.
    if (history === null) continue;
    const whole = JSON.stringify(JSON.parse(historyToJSON(history)), decoded);
    if (texts.some((text) => whole.includes(text))) holding.add(workflowId);
  }
  return [...holding].sort();
}

interface Played {
  session: string;
  fork: string;
  forkOfFork: string;
  /** Stands in messages, pins, summaries, searches. */
  marker: string;
}

async function signalInline(session: string, turnId: string, messages: unknown[]): Promise<void> {
  const ids = { tenant: stack.queuePrefix, session };
  await client.workflow.signalWithStart('session', {
    workflowId: sessionWorkflowId(ids),
    taskQueue: taskQueues(stack.queuePrefix).workflow,
    args: [{ v: 1, ...ids, idleAfterMs: 600_000 }],
    signal: 'turn',
    signalArgs: [{ turnId, messages }],
  });
}

/** As its workflow says it, whether or not the session is stored. */
function statusOf(session: string): Promise<SessionStatus> {
  const workflowId = sessionWorkflowId({ tenant: stack.queuePrefix, session });
  return client.workflow.getHandle(workflowId).query<SessionStatus>('status');
}

/** Whatever can be done with a session, done once. */
async function play(): Promise<Played> {
  const { palimpsest, queuePrefix: tenant } = stack;
  const marker = `marker-${randomUUID()}`;
  const [session, fork, forkOfFork] = [randomUUID(), `fork-${randomUUID()}`, `fork-${randomUUID()}`];
  const marked = dialogue(18).map((turn) =>
    turn.map((message) => ({ ...message, content: `${marker} ${String(message.content)}` })),
  );
  await appendTurns(palimpsest, session, marked, { policy: { ...smallPolicy, pins: [marker] } });
  await palimpsest.settled({ session });
  expect(await palimpsest.compactions({ session })).not.toEqual([]);
  await signalInline(session, 'inline', [{ role: 'user', content: `${marker} inline` }]);
  await signalInline(session, 'refused', [{ role: 'nobody', content: `${marker} refused` }]);
  const rejected = async () => (await palimpsest.status({ session })).rejectedTurns.length;
  await expect.poll(rejected).toBe(1);
  await palimpsest.settled({ session });
  expect((await palimpsest.search({ session, query: 'inline' })).hits).not.toEqual([]);
  await palimpsest.context({ session, budget: 1_200 });
  const { messages } = await palimpsest.status({ session });
  await palimpsest.fork({ session, to: fork, throughSeq: messages });
  await palimpsest.fork({ session: fork, to: forkOfFork, throughSeq: messages - 1 });
  const job = `job-${randomUUID()}`;
  await palimpsest.startBackfill({ job, mode: 'all', select: { prefix: session } });
  const ended = async () => (await palimpsest.backfill({ job })).endedAt;
  await expect.poll(ended).not.toBeNull();
  await palimpsest.settled({ session });
  // Every place of which this test speaks is filled.
  const { rows } = await pool.query<{ cursor: string }>(
    'select cursor from palimpsest.backfills where tenant_id = $1 and job = $2',
    [tenant, job],
  );
  expect(rows).toEqual([{ cursor: session }]);
  expect(await historiesHolding([marker])).toContain(sessionWorkflowId({ tenant, session }));
  return { session, fork, forkOfFork, marker };
}

/** Temporal deletes with a delay; then the erasure itself is forgotten. */
async function finished(): Promise<void> {
  const pending = async () => {
    await finishErasures({ pool, client }, { settleMs: 0 });
    const { rows } = await pool.query('select from palimpsest.erasures');
    return rows.length;
  };
  await expect.poll(pending, { timeout: 150_000, interval: 1_000 }).toBe(0);
}

const isOfBackfill = (workflowId: string) => workflowId.startsWith('backfill/');

async function expectGone(session: string): Promise<void> {
  await finished();
  expect(await rowsHolding(pool, [session])).toEqual({});
  // A job's history names its sessions until Temporal's retention ends.
  expect((await historiesHolding([session])).filter((id) => !isOfBackfill(id))).toEqual([]);
}

const nothingLeft = { remaining: 0 } satisfies Partial<Erased>;

describe('an erased session is erased everywhere', () => {
  test('its forks stay, without the reference to it', async () => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const { session, fork, forkOfFork, marker } = await play();
    const erased = await palimpsest.erase({ session });
    expect(erased).toMatchObject({ ...nothingLeft, forks: 0, messages: 37 });
    expect(erased.generations).toBeGreaterThanOrEqual(1);
    expect(erased.executions).toBeGreaterThanOrEqual(2);
    await expectGone(session);
    // Only the forks still have the text.
    const { rows } = await pool.query<{ session: string; text: string }>(
      'select session_id as session, s::text as text from palimpsest.sessions s where tenant_id = $1',
      [tenant],
    );
    expect(rows.map((row) => row.session).sort()).toEqual([fork, forkOfFork].sort());
    expect(await historiesHolding([marker])).toEqual([]);
    await palimpsest.erase({ session: fork, forks: true });
    await expectGone(fork);
    expect(await rowsHolding(pool, [marker, forkOfFork])).toEqual({});
  });

  test('with all its forks, no row and no history remains', async () => {
    const { palimpsest } = stack;
    const { session, fork, forkOfFork, marker } = await play();
    const erased = await palimpsest.erase({ session, forks: true });
    expect(erased).toMatchObject({ ...nothingLeft, forks: 2, messages: 37 + 37 + 36 });
    expect(erased.digests).toBeGreaterThanOrEqual(1);
    for (const one of [session, fork, forkOfFork]) await expectGone(one);
    expect(await rowsHolding(pool, [marker])).toEqual({});
    expect(await historiesHolding([marker])).toEqual([]);
    await expect(palimpsest.erase({ session, forks: true })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });

  test('also if it exists only as a refused turn in its workflow', async () => {
    const { palimpsest } = stack;
    const [session, marker] = [randomUUID(), `marker-${randomUUID()}`];
    await signalInline(session, 'refused', [{ role: 'nobody', content: marker }]);
    const rejected = async () => (await statusOf(session)).rejectedTurns.length;
    await expect.poll(rejected).toBe(1);
    const none = { messages: 0, generations: 0, digests: 0, forks: 0 };
    expect(await palimpsest.erase({ session })).toEqual({ ...none, executions: 1, remaining: 0 });
    await expectGone(session);
    expect(await historiesHolding([marker])).toEqual([]);
  });

  test('while Temporal is away: from PostgreSQL at once, from Temporal later', async () => {
    const { databaseUrl, queuePrefix, settings } = stack;
    const way = new Way(stack.temporal.address);
    const address = `127.0.0.1:${await way.open()}`;
    const palimpsest = await Palimpsest.connect({
      ...{ databaseUrl, eraserUrl: settings.eraserUrl, tenant: queuePrefix, queuePrefix },
      temporal: { address },
    });
    const session = randomUUID();
    await appendTurns(palimpsest, session, dialogue(1));
    await palimpsest.settled({ session });
    way.cut();
    try {
      const none = { messages: 0, generations: 0, digests: 0, forks: 0 };
      expect(await palimpsest.erase({ session })).toEqual({
        ...{ ...none, messages: 2 },
        ...{ executions: 0, remaining: null },
      });
      await expect(palimpsest.context({ session })).rejects.toMatchObject({ type: 'Store.SessionNotFound' });
      // Nobody knows more than before; a client that reaches Temporal finishes it.
      expect(await palimpsest.erase({ session })).toMatchObject({ ...none, remaining: null });
      expect(await stack.palimpsest.erase({ session })).toEqual({ ...none, executions: 1, remaining: 0 });
      await expectGone(session);
    } finally {
      await palimpsest.close();
      way.cut();
    }
  });

  test('a caller erases only its session in Temporal: the sweep continues the others', async () => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const session = randomUUID();
    await appendTurns(palimpsest, session, dialogue(1));
    await palimpsest.settled({ session });
    await pool.query(
      'insert into palimpsest.erasures (tenant_id, session_id, generation, erased_at) values ($1, $2, 1, now())',
      [tenant, 'earlier'],
    );
    expect(await palimpsest.erase({ session })).toMatchObject(nothingLeft);
    const { rows } = await pool.query(
      'select told_at from palimpsest.erasures where tenant_id = $1 and session_id = $2',
      [tenant, 'earlier'],
    );
    expect(rows).toEqual([{ told_at: null }]);
    await expectGone(session);
  });

  test('while a transaction locks a digest of it: the digest is deleted after the transaction', async () => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const session = randomUUID();
    await appendTurns(palimpsest, session, dialogue(18), { policy: smallPolicy });
    await palimpsest.settled({ session });
    const paid = async () =>
      (
        await pool.query('select from palimpsest.digests where tenant_id = $1 and payer_session = $2', [
          tenant,
          session,
        ])
      ).rowCount;
    expect(await paid()).toBe(1);
    const { databaseUrl, temporal, queuePrefix, settings } = stack;
    const hasty = await Palimpsest.connect({
      ...{ databaseUrl, eraserUrl: settings.eraserUrl, temporal, queuePrefix, tenant },
      database: { lockTimeoutMs: 1_000 },
    });
    const holder = await ownerOf(pool).connect();
    try {
      await holder.query('begin');
      await holder.query('select from palimpsest.digests where tenant_id = $1 for key share', [tenant]);
      expect(await hasty.erase({ session })).toMatchObject({ ...nothingLeft, messages: 36, digests: 0 });
    } finally {
      await holder.query('rollback');
      holder.release();
      await hasty.close();
    }
    expect(await paid()).toBe(1);
    await expectGone(session);
  });

  test('a workflow that outlives its session continues as new, and its run is deleted without the new session', async () => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const ids = { tenant, session: randomUUID() };
    const { session } = ids;
    await appendTurns(palimpsest, session, dialogue(18), { policy: smallPolicy });
    await palimpsest.settled({ session });
    await signalInline(session, 'refused', [{ role: 'nobody', content: 'refused' }]);
    const live = () => statusOf(session);
    await expect.poll(async () => (await live()).rejectedTurns.length).toBe(1);
    await palimpsest.settled({ session });
    const { runId: first } = await client.workflow.getHandle(sessionWorkflowId(ids)).describe();
    // Like an erasure that was killed before its step in Temporal.
    await eraseSession(pool, ids);
    await appendTurns(palimpsest, session, dialogue(18), { policy: smallPolicy });
    await palimpsest.settled({ session });
    const runId = async () => (await client.workflow.getHandle(sessionWorkflowId(ids)).describe()).runId;
    await expect.poll(runId).not.toBe(first);
    const second = await runId();
    // The call above returns with the commit, which the workflow learns a moment later.
    await expect
      .poll(live)
      .toMatchObject({ generation: 1, compactions: 1, rejectedTurns: [], lastError: null });
    await finished();
    const gone = client.workflow.getHandle(sessionWorkflowId(ids), first).describe();
    await expect(gone).rejects.toThrow(WorkflowNotFoundError);
    expect(await runId()).toBe(second);
    expect((await palimpsest.compactions({ session })).map(({ generation }) => generation)).toEqual([1]);
  });

  test('a late signal of a turn does not keep it alive, and a turn of a new session is not affected', async () => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const [late, anew] = [randomUUID(), randomUUID()];
    for (const session of [late, anew]) {
      await appendTurns(palimpsest, session, dialogue(1));
      await palimpsest.settled({ session });
      await palimpsest.erase({ session });
    }
    const told = { turnId: 't', seq: 2, due: true };
    await client.workflow.signalWithStart('session', {
      workflowId: sessionWorkflowId({ tenant, session: late }),
      taskQueue: taskQueues(tenant).workflow,
      args: [{ v: 1, tenant, session: late, idleAfterMs: 600_000 }],
      signal: 'turn',
      signalArgs: [told],
    });
    await appendTurns(palimpsest, anew, dialogue(1));
    await palimpsest.settled({ session: anew });
    await expectGone(late);
    const { status } = await client.workflow
      .getHandle(sessionWorkflowId({ tenant, session: anew }))
      .describe();
    expect(status.name).toBe('RUNNING');
    expect((await palimpsest.context({ session: anew })).messages).toHaveLength(2);
  });
});
