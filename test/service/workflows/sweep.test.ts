/**
 * Nothing waits for ever: after every cause of a lost signal or retry a sweep finds the session, on real servers, but it does
 * not touch sessions in progress or those that must not be compacted.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { Metrics } from '../../../src/process/metrics.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { type FullRequest, insertBackfill, loadBackfill } from '../../../src/store/backfills/jobs.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { findErasure } from '../../../src/store/sessions/erasures.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { BackfillWorkflows } from '../../../src/temporal/backfill-workflows.js';
import {
  backfillWorkflowId,
  compactionWorkflowId,
  sessionWorkflowId,
  sweepId,
} from '../../../src/temporal/names.js';
import { startWorker } from '../../../src/worker/worker.js';
import { fillSessions, openBackfills } from '../../support/backfills.js';
import { samplesOf } from '../../support/cli-worker.js';
import { program } from '../../support/compiled.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import type { DoomedAppend } from '../../support/doomed-append.js';
import { ok, status } from '../../support/model-replies.js';
import { startStack, type Stack } from '../../support/stack.js';
import { Way } from '../../support/way.js';

const sweepIntervalMs = 2_000;

const metrics = new Metrics();

let stack: Stack;
let pool: Pool;
let client: Client;

beforeAll(async () => {
  stack = await startStack({ settings: { sweepIntervalMs, metrics } });
  pool = openPool(stack.databaseUrl);
  client = await connectClient(stack.temporal);
});

afterAll(async () => {
  stack.model.release();
  await client.schedule.getHandle(sweepId(stack.queuePrefix)).delete();
  await client.connection.close();
  await pool.end();
  await stack.stop();
});

/** Two turns, of which the second outgrows the trigger. Equal messages would be summarized once for the whole tenant. */
function outgrowing(session: string): [ChatMessage[], ChatMessage[]] {
  const talk = dialogue(18).map((turn) =>
    turn.map((message) => ({ ...message, content: `${String(message.content)} (${session})` })),
  );
  return [talk.slice(0, 9).flat(), talk.slice(9).flat()];
}

async function outgrow(
  session: string,
  policy: PolicyInput = smallPolicy,
  by = stack.palimpsest,
): Promise<boolean> {
  let signalled = true;
  for (const [index, messages] of outgrowing(session).entries())
    ({ signalled } = await by.appendTurn({ session, turnId: `t-${index}`, messages, policy }));
  return signalled;
}

const statusOf = (session: string) => stack.palimpsest.status({ session });
const generationOf = async (session: string) => (await statusOf(session)).generation;

const workflowOf = (session: string) =>
  client.workflow.getHandle(sessionWorkflowId({ tenant: stack.queuePrefix, session }));

/** Ends the time for which the session's row names a workflow as responsible. */
async function letTimePass(session: string): Promise<void> {
  const { rowCount } = await pool.query(
    `update palimpsest.sessions set overdue_at = now()
     where tenant_id = $1 and session_id = $2 and overdue_at is not null`,
    [stack.queuePrefix, session],
  );
  expect(rowCount).toBe(1);
}

/** This many sweeps begin from now on, and all but the last of them end. */
async function sweeps(count: number): Promise<void> {
  const schedule = client.schedule.getHandle(sweepId(stack.queuePrefix));
  const before = (await schedule.describe()).info.numActionsTaken;
  await expect
    .poll(async () => (await schedule.describe()).info.numActionsTaken - before)
    .toBeGreaterThan(count);
}

async function withoutSweeps(act: () => Promise<void>): Promise<void> {
  const schedule = client.schedule.getHandle(sweepId(stack.queuePrefix));
  await schedule.pause();
  try {
    await expect.poll(async () => (await schedule.describe()).info.runningActions).toEqual([]);
    await act();
  } finally {
    await schedule.unpause();
  }
}

async function signalsOf(session: string): Promise<number> {
  const { events } = await workflowOf(session).fetchHistory();
  return (events ?? []).filter((event) => event.workflowExecutionSignaledEventAttributes).length;
}

describe('a session without a workflow is compacted without another turn', () => {
  test('its process was killed between the commit of the turn and the signal', async () => {
    const session = 'killed';
    const settings: DoomedAppend = {
      ...{ databaseUrl: stack.databaseUrl, address: stack.temporal.address, queuePrefix: stack.queuePrefix },
      ...{ session, turns: outgrowing(session), policy: smallPolicy },
    };
    await withoutSweeps(async () => {
      const child = spawn(process.execPath, [program('test/support/doomed-append.ts')], {
        env: { ...process.env, APPEND: JSON.stringify(settings) },
        stdio: 'inherit',
      });
      expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
      expect(await statusOf(session)).toMatchObject({ messages: 36, generation: 0 });
      await letTimePass(session);
      expect((await statusOf(session)).overdue).not.toBeNull();
    });
    await expect.poll(() => generationOf(session)).toBe(1);
    expect((await statusOf(session)).overdue).toBeNull();
  });

  test('Temporal was away when the turn was appended', async () => {
    const session = 'away';
    const way = new Way(stack.temporal.address);
    const temporal = { address: `127.0.0.1:${await way.open()}` };
    const { databaseUrl, queuePrefix } = stack;
    const apart = await Palimpsest.connect({ databaseUrl, temporal, tenant: queuePrefix, queuePrefix });
    try {
      way.cut();
      expect(await outgrow(session, smallPolicy, apart)).toBe(false);
    } finally {
      await apart.close();
    }
    await expect.poll(() => generationOf(session)).toBe(1);
  });

  test('its compaction failed, its workflow ended, and the next attempt is due', async () => {
    const session = 'failed';
    stack.model.reply(status(401, { error: { message: 'no such key' } }));
    const policy = {
      ...smallPolicy,
      idleAfter: 500,
      summary: { fallback: 'none', retryAfterFailure: 3_600_000 },
    } as const;
    await outgrow(session, policy);
    await expect.poll(async () => (await statusOf(session)).failures).toBe(1);
    await expect.poll(async () => (await statusOf(session)).phase).toBe('asleep');
    expect(await statusOf(session)).toMatchObject({ overdue: null, generation: 0 });
    stack.model.reply(ok());
    await pool.query(
      'update palimpsest.sessions set retry_at = now() where tenant_id = $1 and session_id = $2',
      [stack.queuePrefix, session],
    );
    await letTimePass(session);
    await expect.poll(() => generationOf(session)).toBe(1);
    expect(await statusOf(session)).toMatchObject({ failures: 0, retryAt: null, lastError: null });
  });

  test('it is a fork that is due from the start', async () => {
    const session = 'source';
    await outgrow(session);
    await expect.poll(() => generationOf(session)).toBe(1);
    await stack.palimpsest.restore({ session, generation: 0 });
    const { generation } = await stack.palimpsest.fork({ session, throughSeq: 36, to: 'forked' });
    await expect.poll(() => generationOf('forked')).toBeGreaterThan(generation);
    // A restored session waits until it has grown.
    expect(await generationOf(session)).toBe(2);
  });

  test('its workflow and its compaction were terminated by an operator', async () => {
    const session = 'terminated';
    const ids = { tenant: stack.queuePrefix, session };
    stack.model.hold();
    const asked = stack.model.requests.length;
    await outgrow(session);
    await stack.model.waitForRequests(asked + 1);
    await workflowOf(session).terminate('by hand');
    await client.workflow.getHandle(compactionWorkflowId(ids, 1)).terminate('by hand');
    // Its step gives up the call; an answer before that would still be committed.
    await expect.poll(() => stack.model.inFlight()).toBe(0);
    stack.model.release();
    expect(await statusOf(session)).toMatchObject({ phase: 'asleep', overdue: null, generation: 0 });
    await letTimePass(session);
    await expect.poll(() => generationOf(session)).toBe(1);
  });

  test('an earlier session cannot be signalled', async () => {
    const tenant = `stuck-${stack.queuePrefix}`;
    // More than a workflow id may hold; the library refuses it, the store takes it.
    const long = 'ä'.repeat(100);
    for (const session of [long, 'behind'])
      for (const [index, messages] of outgrowing(session).entries())
        await appendTurn(pool, { tenant, session, turnId: `t-${index}`, messages, policy: smallPolicy });
    const behind = stack.palimpsest.forTenant(tenant);
    await expect.poll(async () => (await behind.status({ session: 'behind' })).generation).toBe(1);
    const { rows } = await pool.query<{ waits: boolean }>(
      `select sweep_at > overdue_at as waits from palimpsest.sessions where tenant_id = $1 and session_id = $2`,
      [tenant, long],
    );
    expect(rows).toEqual([{ waits: true }]);
    const text = await metrics.text();
    const sample = (name: string) => Number(samplesOf(text, `palimpsest_${name}`).values().next().value);
    expect(sample('sessions_overdue')).toBeGreaterThanOrEqual(1);
    const swept = samplesOf(text, 'palimpsest_sessions_swept_total');
    expect(swept.get('{result="signalled"}')).toBeGreaterThanOrEqual(1);
    expect(swept.get('{result="failed"}')).toBeGreaterThanOrEqual(1);
  });
});

test('the sweep finishes an erasure whose process was killed before its step in Temporal', async () => {
  const session = 'erased';
  await outgrow(session);
  await expect.poll(() => generationOf(session)).toBe(1);
  const ids = { tenant: stack.queuePrefix, session };
  const compaction = client.workflow.getHandle(compactionWorkflowId(ids, 1));
  const held = await ownerOf(pool).connect();
  try {
    // Another session's commit, which fails later: the digest has to wait for its end.
    await held.query('begin');
    await held.query('select from palimpsest.digests where tenant_id = $1 for key share', [ids.tenant]);
    await eraseSession(pool, ids);
  } finally {
    await held.query('rollback');
    held.release();
  }
  const gone = async (of: { describe(): Promise<unknown> }) =>
    of.describe().then(
      () => false,
      (error: unknown) => error instanceof WorkflowNotFoundError,
    );
  await expect.poll(() => gone(workflowOf(session))).toBe(true);
  await expect.poll(() => gone(compaction)).toBe(true);
  const digests = async () =>
    (
      await pool.query('select from palimpsest.digests where tenant_id = $1 and payer_session = $2', [
        ids.tenant,
        session,
      ])
    ).rowCount;
  await expect.poll(digests).toBe(0);
  // A minute later nothing is found any more, and the erasure is forgotten.
  await pool.query("update palimpsest.erasures set erased_at = erased_at - interval '1 minute'");
  await expect.poll(() => findErasure(pool, ids)).toBeNull();
});

describe('an unfinished backfill without a workflow', () => {
  const ids = (job: string) => ({ tenant: stack.queuePrefix, job });
  const request = (job: string, prefix: string): FullRequest => ({
    ...{ job, mode: 'due', select: { prefix }, concurrency: 16 },
  });
  const stateOf = async (job: string) => (await loadBackfill(pool, ids(job))).state;
  const jobOf = (job: string) => client.workflow.getHandle(backfillWorkflowId(ids(job)));

  test('is continued: Temporal was away when it was stored, or its workflow was terminated', async () => {
    const sessions = await fillSessions(pool, stack.queuePrefix, 2, { prefix: 'terminated-' });
    await insertBackfill(pool, stack.queuePrefix, request('stored', 'nobody-'));
    await expect.poll(() => stateOf('stored')).toBe('completed');

    stack.model.hold();
    const before = stack.model.requests.length;
    const backfills = new BackfillWorkflows(client, stack.queuePrefix);
    await insertBackfill(pool, stack.queuePrefix, request('terminated', 'terminated-'));
    await backfills.start(ids('terminated'));
    await expect.poll(() => stack.model.requests.length - before).toBeGreaterThan(0);
    await jobOf('terminated').terminate('by an operator');
    stack.model.release();
    await expect.poll(() => stateOf('terminated')).toBe('completed');
    for (const session of sessions) expect(await generationOf(session)).toBe(1);
  });

  test('is not started while it is paused', async () => {
    await pool.query(
      "insert into palimpsest.backfills (tenant_id, job, request, state) values ($1, 'paused', $2, 'paused')",
      [stack.queuePrefix, request('paused', 'nobody-')],
    );
    await sweeps(2);
    await expect(jobOf('paused').describe()).rejects.toThrow(WorkflowNotFoundError);
  });
});

describe('a session is not signalled', () => {
  test('again and again while its compaction runs', async () => {
    const session = 'busy';
    stack.model.hold();
    const asked = stack.model.requests.length;
    await outgrow(session);
    await stack.model.waitForRequests(asked + 1);
    const before = await signalsOf(session);
    await sweeps(2);
    expect(await signalsOf(session)).toBe(before);
    // Even if no workflow should work on it any more: once, not with every sweep.
    await letTimePass(session);
    await sweeps(3);
    expect(await signalsOf(session)).toBe(before + 1);
    expect((await statusOf(session)).overdue).not.toBeNull();
    stack.model.release();
    await expect.poll(() => generationOf(session)).toBe(1);
    expect((await statusOf(session)).overdue).toBeNull();
  });

  test('while it is paused, closed or switched off, nor before its next attempt', async () => {
    stack.model.reply(status(401, { error: { message: 'no such key' } }));
    const later = { ...smallPolicy, summary: { fallback: 'none', retryAfterFailure: 3_600_000 } } as const;
    const { palimpsest } = stack;
    const ends: Record<string, () => Promise<unknown>> = {
      paused: () => palimpsest.pause({ session: 'paused' }),
      closed: () => palimpsest.closeSession({ session: 'closed' }),
      off: () => palimpsest.configure({ session: 'off', policy: { enabled: false } }),
      later: async () => undefined,
    };
    for (const [session, end] of Object.entries(ends)) {
      await outgrow(session, later);
      await expect.poll(async () => (await statusOf(session)).failures).toBe(1);
      await end();
      await palimpsest.settled({ session });
    }
    stack.model.reply(ok());
    const sessions = Object.keys(ends);
    const signals = () => Promise.all(sessions.map(signalsOf));
    const before = await signals();
    await sweeps(3);
    expect(await signals()).toEqual(before);
    for (const session of sessions)
      expect(await statusOf(session)).toMatchObject({ overdue: null, generation: 0 });
  });

  test('if its turns were imported, or a backfill selected it', async () => {
    const bench = await openBackfills(stack);
    const tenant = `old-${stack.queuePrefix}`;
    const jobs = bench.of(tenant);
    try {
      const [first = '', ...rest] = await fillSessions(pool, tenant, 3);
      stack.model.hold();
      await jobs.start({ job: 'old', concurrency: 1 });
      await expect.poll(async () => (await jobs.report({ job: 'old' })).counts.running).toBe(1);
      // A live turn causes the work that the backfill is about to do.
      for (const session of rest)
        await appendTurn(pool, {
          tenant,
          session,
          turnId: 'live',
          messages: [{ role: 'user', content: 'And?' }],
        });
      await pool.query(
        `update palimpsest.sessions set overdue_at = now() where tenant_id = $1 and overdue_at is not null`,
        [tenant],
      );
      await sweeps(2);
      for (const session of [first, ...rest]) {
        const workflow = client.workflow.getHandle(sessionWorkflowId({ tenant, session }));
        await expect(workflow.describe()).rejects.toThrow(/not found/);
      }
      stack.model.release();
      await expect.poll(async () => (await jobs.report({ job: 'old' })).state).toBe('completed');
      expect((await jobs.report({ job: 'old' })).counts).toMatchObject({ compacted: 3 });
    } finally {
      stack.model.release();
      await bench.close();
    }
  });
});

describe('the schedule', () => {
  const own = (prefix: string) => ({ ...stack.settings, queuePrefix: prefix, roles: ['workflow' as const] });
  const schedules = async (prefix: string) => {
    const found = [];
    for await (const { scheduleId } of client.schedule.list())
      if (scheduleId.includes(prefix)) found.push(scheduleId);
    return found;
  };

  test('exists once, even if workers start at the same moment, and the last interval counts', async () => {
    const prefix = `two-${stack.queuePrefix}`;
    const workers = await Promise.all([1, 2, 3].map(() => startWorker(own(prefix))));
    const schedule = client.schedule.getHandle(sweepId(prefix));
    try {
      await expect.poll(() => schedules(prefix)).toEqual([sweepId(prefix)]);
      const { spec, policies, action } = await schedule.describe();
      expect(spec.intervals).toMatchObject([{ every: sweepIntervalMs }]);
      expect(policies.overlap).toBe('SKIP');
      expect(action).toMatchObject({ workflowType: 'sweep', taskQueue: `${prefix}-wf` });
      await schedule.pause('by an operator');
      const slower = await startWorker({ ...own(prefix), sweepIntervalMs: 7_000 });
      workers.push(slower);
      const changed = await schedule.describe();
      expect(changed.spec.intervals).toMatchObject([{ every: 7_000 }]);
      expect(changed.state).toMatchObject({ paused: true, note: 'by an operator' });
    } finally {
      await Promise.all(workers.map((worker) => worker.shutdown()));
      await schedule.delete();
    }
  });

  test('starts the next sweep after one that failed', async () => {
    const prefix = `fails-${stack.queuePrefix}`;
    const schedule = client.schedule.getHandle(sweepId(prefix));
    const without = await startWorker({ ...own(prefix), sweepIntervalMs: 1_000 });
    try {
      // No worker serves its steps.
      const running = async () => (await schedule.describe()).info.runningActions[0]?.workflow.workflowId;
      await expect.poll(running).toBeDefined();
      const first = (await running())!;
      await client.workflow.getHandle(first).terminate('by hand');
      await expect.poll(running).not.toBe(first);
    } finally {
      await without.shutdown();
      await schedule.delete();
    }
  });
});
