import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import {
  backfillWorkflowId,
  compactionWorkflowId,
  sessionWorkflowId,
  sweepId,
  taskQueues,
} from '../../src/temporal/names.js';
import { ended, fillSessions, openBackfills, until, type BackfillBench } from '../support/backfills.js';
import { smallPolicy } from '../support/dialogue.js';
import { failure, status } from '../support/model-replies.js';
import { appendTurns } from '../support/sessions.js';
import { chunky, startRecorder, talk, type Recorder } from './recorder.js';

let recorder: Recorder;
let bench: BackfillBench;

beforeAll(async () => {
  recorder = await startRecorder();
  bench = await openBackfills(recorder.stack, { pageSize: 5 });
});

afterAll(async () => {
  await bench.close();
  await recorder.close();
});

beforeEach(() => recorder.stack.model.reply([]));

const runOf = async (workflowId: string) =>
  (await recorder.client.workflow.getHandle(workflowId).describe()).runId;

test('paused, resized, continued from page to page, ended early, retried, cancelled', async () => {
  const { model, queuePrefix } = recorder.stack;
  const tenant = `jobs-${queuePrefix}`;
  const ids = { tenant, job: 'recorded' };
  const workflowId = backfillWorkflowId(ids);
  const jobs = bench.of(tenant);
  const policy = { ...chunky, prices: { input: 1_000 } };
  await fillSessions(bench.pool, tenant, 12, { policy });
  model.hold();
  await jobs.start({ job: ids.job, concurrency: 2, spendLimit: 60 });
  await expect.poll(() => model.inFlight()).toBeGreaterThan(1);
  const first = await runOf(workflowId);
  await jobs.pause({ job: ids.job });
  await jobs.resize({ job: ids.job, concurrency: 3 });
  await jobs.resume({ job: ids.job });
  model.release();
  await until(jobs, ids.job, ended);
  await recorder.record('backfill-handing-over', workflowId, first);
  await recorder.record('backfill-stopped', workflowId);
  await recorder.record('compaction-of-backfill', compactionWorkflowId({ tenant, session: 'old-00000' }, 1));
  model.hold();
  await jobs.retry({ job: ids.job, spendLimit: 10_000 });
  await expect.poll(() => model.inFlight()).toBeGreaterThan(1);
  await jobs.cancel({ job: ids.job });
  model.release();
  await until(jobs, ids.job, ended);
  await recorder.record('backfill-cancelled', workflowId);
});

test('all sessions fail, and succeed at the second attempt', async () => {
  const { model, queuePrefix } = recorder.stack;
  const tenant = `failing-${queuePrefix}`;
  const ids = { tenant, job: 'failing' };
  const jobs = bench.of(tenant);
  await fillSessions(bench.pool, tenant, 3, { policy: { ...smallPolicy, summary: { fallback: 'none' } } });
  model.reply(status(401, failure('no such key')));
  await jobs.start({ job: ids.job, concurrency: 2 });
  expect((await until(jobs, ids.job, ended)).counts).toMatchObject({ failed: 3 });
  model.reply([]);
  await recorder.record('backfill-failed', backfillWorkflowId(ids));
  await jobs.retry({ job: ids.job });
  const all = await until(jobs, ids.job, ({ counts, endedAt }) => counts.compacted === 3 && endedAt !== null);
  expect(all.counts).toMatchObject({ failed: 0 });
  await recorder.record('backfill-retried', backfillWorkflowId(ids));
});

test('a backfill meets a session whose own compaction is running', async () => {
  const { palimpsest, model, queuePrefix } = recorder.stack;
  const asked = model.requests.length;
  model.hold();
  await appendTurns(palimpsest, 'live', talk('live', 18), { policy: smallPolicy });
  await model.waitForRequests(asked + 1);
  await palimpsest.startBackfill({ job: 'live', select: { prefix: 'live' } });
  await expect.poll(async () => (await palimpsest.backfill({ job: 'live' })).counts.running).toBe(1);
  model.release();
  await expect.poll(async () => (await palimpsest.backfill({ job: 'live' })).endedAt).not.toBeNull();
  const ids = { tenant: queuePrefix, job: 'live' };
  await recorder.record('backfill-waiting', backfillWorkflowId(ids));
});

test('a sweep finds a session that waits, and nothing more', async () => {
  const { palimpsest, queuePrefix } = recorder.stack;
  const [session = ''] = await fillSessions(bench.pool, queuePrefix, 1, { prefix: 'waits-' });
  await bench.pool.query('update palimpsest.sessions set overdue_at = now() where session_id = $1', [
    session,
  ]);
  const workflowId = `${sweepId(queuePrefix)}-recorded`;
  const taskQueue = taskQueues(queuePrefix).workflow;
  const swept: unknown = await recorder.client.workflow.execute('sweep', {
    ...{ workflowId, taskQueue, args: [{ v: 1 }] },
  });
  expect(swept).toEqual({ signalled: 1, failed: 0, left: 0 });
  await palimpsest.settled({ session });
  await recorder.record('sweep', workflowId);
  await recorder.record('session-swept', sessionWorkflowId(recorder.ids(session)));
});
