/**
 * Workflow code must stay deterministic against runs that are under way: recorded histories of the main paths are
 * replayed against today's code. After an intended, versioned change record them anew:
 * `RECORD_HISTORIES=1 npx vitest run test/service/workflows/replay.test.ts`.
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { historyFromJSON, historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { Worker } from '@temporalio/worker';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import {
  backfillWorkflowId,
  compactionWorkflowId,
  sessionWorkflowId,
  sweepId,
  taskQueues,
} from '../../../src/temporal/names.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { ended, fillSessions, openBackfills, until } from '../../support/backfills.js';
import { status, withWindow } from '../../support/model-replies.js';
import { dialogue, smallPolicy, startStack, type Stack } from '../../support/stack.js';

const folder = fileURLToPath(new URL('../../histories/', import.meta.url));
const bundle = () => ({ codePath: inject('workflowBundlePath') });
const chunky: PolicyInput = { ...smallPolicy, summary: { chunkTokens: 500 } };

describe.runIf(process.env['RECORD_HISTORIES'])('recording', { timeout: 120_000 }, () => {
  let stack: Stack;
  let client: Client;
  beforeAll(async () => {
    stack = await startStack();
    client = new Client({ connection: await Connection.connect({ address: stack.temporal.address }) });
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder);
  });
  afterAll(async () => {
    await client.connection.close();
    await stack.stop();
  });

  async function play(session: string, policy: PolicyInput, turns = 18): Promise<void> {
    for (const [index, messages] of dialogue(turns).entries()) {
      await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
    }
  }

  async function record(name: string, workflowId: string, runId?: string): Promise<void> {
    const history = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    // Where it was recorded is nobody's business: stack traces and worker identities hold paths and host names.
    const clean = (key: string, value: unknown) => (key === 'stackTrace' || key === 'identity' ? '' : value);
    await writeFile(`${folder}${name}.json`, JSON.stringify(JSON.parse(historyToJSON(history)), clean, 1));
  }

  const ids = (session: string) => ({ tenant: stack.queuePrefix, session });

  test('chunks, consolidation, commit', async () => {
    await play('chunks', chunky);
    await stack.palimpsest.settled({ session: 'chunks' });
    await record('session-triggered', sessionWorkflowId(ids('chunks')));
    await record('compaction-chunks', compactionWorkflowId(ids('chunks'), 1));
  });

  test('a chunk that does not fit is halved', async () => {
    stack.model.reply(withWindow(1_800));
    await play('halved', smallPolicy);
    await stack.palimpsest.settled({ session: 'halved' });
    stack.model.reply([]);
    await record('compaction-halved', compactionWorkflowId(ids('halved'), 1));
  });

  test('the deadline passes and the fallback serves', async () => {
    stack.model.reply(status(500));
    await play('fallback', { ...smallPolicy, summary: { deadline: 1_500 } });
    await stack.palimpsest.settled({ session: 'fallback' });
    await record('session-fallback', sessionWorkflowId(ids('fallback')));
    await record('compaction-fallback', compactionWorkflowId(ids('fallback'), 1));
    await play('unchanged', { ...smallPolicy, summary: { deadline: 1_500, fallback: 'none' } });
    await stack.palimpsest.settled({ session: 'unchanged' });
    await record('session-unchanged', sessionWorkflowId(ids('unchanged')));
    await record('compaction-unchanged', compactionWorkflowId(ids('unchanged'), 1));
    stack.model.reply([]);
  });

  test('asked for by hand, twice at once', async () => {
    await play('manual', { contextWindow: 32_000 }, 6);
    const { palimpsest } = stack;
    await Promise.all([palimpsest.compact({ session: 'manual' }), palimpsest.compact({ session: 'manual' })]);
    await record('session-manual', sessionWorkflowId(ids('manual')));
  });

  test('cancelled in the middle of a model call', async () => {
    stack.model.hold();
    const asked = stack.model.requests.length;
    await play('cancelled', smallPolicy);
    await stack.model.waitForRequests(asked + 1);
    await client.workflow.getHandle(compactionWorkflowId(ids('cancelled'), 1)).cancel();
    await stack.palimpsest.settled({ session: 'cancelled' });
    stack.model.release();
    await record('session-cancelled', sessionWorkflowId(ids('cancelled')));
    await record('compaction-cancelled', compactionWorkflowId(ids('cancelled'), 1));
  });

  test('continue-as-new hands over what is left', async () => {
    const workflowId = sessionWorkflowId(ids('handed-over'));
    await stack.palimpsest.appendTurn({
      session: 'handed-over',
      turnId: 't',
      messages: dialogue(1)[0]!,
      policy: smallPolicy,
    });
    await client.workflow.getHandle(workflowId).terminate('to start it with a short history');
    const { firstExecutionRunId } = await client.workflow.start('session', {
      workflowId,
      taskQueue: taskQueues(stack.queuePrefix).workflow,
      args: [{ v: 1, ...ids('handed-over'), idleAfterMs: 60_000, maxHistoryEvents: 60 }],
    });
    await play('handed-over', smallPolicy);
    await stack.palimpsest.settled({ session: 'handed-over' });
    await record('session-handing-over', workflowId, firstExecutionRunId);
    await record('session-handed-over', workflowId);
  });

  test('a backfill: paused, resized, handed from page to page, cut short and tried again', async () => {
    const tenant = `jobs-${stack.queuePrefix}`;
    const ids = { tenant, job: 'recorded' };
    const bench = await openBackfills(stack, { pageSize: 5 });
    const jobs = bench.of(tenant);
    const running = async () => (await client.workflow.getHandle(backfillWorkflowId(ids)).describe()).runId;
    try {
      const policy = { ...chunky, prices: { input: 1_000 } };
      await fillSessions(bench.pool, tenant, 12, { policy });
      stack.model.hold();
      await jobs.start({ job: ids.job, concurrency: 2, spendLimit: 60 });
      await expect.poll(() => stack.model.inFlight()).toBeGreaterThan(1);
      const first = await running();
      await jobs.pause(ids);
      await jobs.resize({ ...ids, concurrency: 3 });
      await jobs.resume(ids);
      stack.model.release();
      await until(jobs, ids.job, ended);
      await record('backfill-handing-over', backfillWorkflowId(ids), first);
      await record('backfill-stopped', backfillWorkflowId(ids));
      await record('compaction-backfill', compactionWorkflowId({ tenant, session: 'old-00000' }, 1));
      stack.model.hold();
      await jobs.retry({ ...ids, spendLimit: 10_000 });
      await expect.poll(() => stack.model.inFlight()).toBeGreaterThan(1);
      await jobs.cancel(ids);
      stack.model.release();
      await until(jobs, ids.job, ended);
      await record('backfill-cancelled', backfillWorkflowId(ids));
    } finally {
      await bench.close();
    }
  });

  test('a sweep finds a session that waits, and nothing more', async () => {
    const bench = await openBackfills(stack);
    try {
      const [session] = await fillSessions(bench.pool, stack.queuePrefix, 1, { prefix: 'waits-' });
      await bench.pool.query('update palimpsest.sessions set overdue_at = now() where session_id = $1', [
        session,
      ]);
      const workflowId = `${sweepId(stack.queuePrefix)}-recorded`;
      const taskQueue = taskQueues(stack.queuePrefix).workflow;
      expect(await client.workflow.execute('sweep', { workflowId, taskQueue, args: [{ v: 1 }] })).toEqual({
        ...{ signalled: 1, failed: 0, left: 0 },
      });
      await stack.palimpsest.settled({ session: session! });
      await record('sweep', workflowId);
    } finally {
      await bench.close();
    }
  });

  test('a backfill meets a session that compacts itself', async () => {
    stack.model.hold();
    const asked = stack.model.requests.length;
    // Asked for otherwise than the sessions before, so that no answer is stored yet.
    await play('live', { ...smallPolicy, summary: { maxTokens: 300 } });
    await stack.model.waitForRequests(asked + 1);
    await stack.palimpsest.startBackfill({ job: 'live', select: { prefix: 'live' } });
    const query = async () => (await stack.palimpsest.backfill({ job: 'live' })).counts.running;
    await expect.poll(query, { timeout: 10_000 }).toBe(1);
    stack.model.release();
    const over = async () => (await stack.palimpsest.backfill({ job: 'live' })).endedAt;
    await expect.poll(over, { timeout: 30_000 }).not.toBeNull();
    await record('backfill-waiting', backfillWorkflowId({ tenant: stack.queuePrefix, job: 'live' }));
  });
});

test('recorded histories replay against the present code', async () => {
  expect(existsSync(folder)).toBe(true);
  const names = (await readdir(folder)).filter((name) => name.endsWith('.json'));
  expect(names.length).toBeGreaterThanOrEqual(18);
  for (const name of names) {
    const history = historyFromJSON(JSON.parse(await readFile(folder + name, 'utf8')));
    await Worker.runReplayHistory({ workflowBundle: bundle() }, history, name);
  }
});

test('a history that the code does not follow is noticed', async () => {
  const [session] = (await readdir(folder)).filter((name) => name.startsWith('session-triggered'));
  const recorded = JSON.parse(await readFile(folder + session, 'utf8')) as {
    events: { activityTaskScheduledEventAttributes?: { activityType: { name: string } } }[];
  };
  const scheduled = recorded.events.find((event) => event.activityTaskScheduledEventAttributes);
  scheduled!.activityTaskScheduledEventAttributes!.activityType.name = 'somethingElse';
  await expect(
    Worker.runReplayHistory({ workflowBundle: bundle() }, historyFromJSON(recorded)),
  ).rejects.toThrow(/[Dd]etermin/);
});
