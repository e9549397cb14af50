/** An operator's control of a running job: pause, resume, resize, end, and continue it. */
import type { Client } from '@temporalio/client';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import { backfillWorkflowId } from '../../../src/temporal/names.js';
import type { BackfillProgress } from '../../../src/contract/workflows.js';
import {
  commitsOf,
  ended,
  fillSessions,
  openBackfills,
  until,
  type BackfillBench,
} from '../../support/backfills.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let bench: BackfillBench;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  // Pages smaller than the concurrency, so that compactions are passed from run to run.
  bench = await openBackfills(stack, { pageSize: 4 });
  client = await connectClient(stack.temporal);
});

afterAll(async () => {
  await client.connection.close();
  await bench.close();
  await stack.stop();
});

let jobs = 0;
let tenant: string;

beforeEach(() => {
  tenant = `t${++jobs}-${stack.queuePrefix}`;
  return () => stack.model.release();
});

const job = 'j';
const ours = () => bench.of(tenant);
const handle = () => client.workflow.getHandle(backfillWorkflowId({ tenant, job }));

/** A job whose first model calls hang until they are released; nothing else asks this model. */
async function held(sessions: number, concurrency: number): Promise<void> {
  await fillSessions(bench.pool, tenant, sessions);
  stack.model.hold();
  await ours().start({ job, concurrency });
  await inFlight(concurrency);
}

const inFlight = (count: number) => expect.poll(() => stack.model.inFlight()).toBe(count);

async function expectAllOnce(sessions: number): Promise<void> {
  const commits = await commitsOf(bench.pool, tenant);
  expect([...commits.values()]).toEqual(Array.from({ length: sessions }, () => 1));
}

test('while it is paused no compaction begins and those in flight finish; after resume it continues', async () => {
  await held(12, 6);
  expect(await ours().pause({ job })).toMatchObject({ state: 'paused' });
  expect(await ours().pause({ job })).toMatchObject({ state: 'paused' });
  stack.model.release();
  const paused = await until(ours(), job, ({ counts }) => counts.compacted === 6 && counts.running === 0);
  expect(paused).toMatchObject({ state: 'paused', endedAt: null });
  expect(stack.model.inFlight()).toBe(0);
  expect(await ours().resume({ job })).toMatchObject({ state: 'running' });
  const report = await until(ours(), job, ended);
  expect(report).toMatchObject({ state: 'completed', counts: { selected: 12, compacted: 12 } });
  await expectAllOnce(12);
});

test('a signal pauses it, and the query reports it', async () => {
  await held(12, 6);
  await handle().signal('pause');
  await until(ours(), job, ({ state }) => state === 'paused');
  stack.model.release();
  await until(ours(), job, ({ counts }) => counts.compacted === 6);
  const status = await handle().query<BackfillProgress>('status');
  expect(status).toMatchObject({ state: 'paused', running: 0, concurrency: 6 });
  await handle().signal('resume');
  expect(await until(ours(), job, ended)).toMatchObject({ state: 'completed', counts: { compacted: 12 } });
  await expectAllOnce(12);
});

test('after a resize more or fewer compactions run concurrently', async () => {
  await held(16, 2);
  expect(await ours().resize({ job, concurrency: 7 })).toMatchObject({
    concurrency: 7,
    request: { concurrency: 2 },
  });
  await inFlight(7);
  await ours().resize({ job, concurrency: 3 });
  stack.model.release(5);
  await until(ours(), job, ({ counts }) => counts.compacted === 5);
  await inFlight(3);
  await expect(ours().resize({ job, concurrency: 501 })).rejects.toMatchObject({
    type: 'Input.Invalid',
    path: 'concurrency',
  });
  await expect(handle().executeUpdate('resize', { args: [{ concurrency: 0 }] })).rejects.toThrow();
  await expect(handle().executeUpdate('resize', { args: [] })).rejects.toThrow();
  // It begins with the same request still, whatever it was resized to.
  expect(await ours().start({ job, concurrency: 2 })).toMatchObject({ concurrency: 3 });
  stack.model.release();
  await until(ours(), job, ended);
  await expectAllOnce(16);
});

test('after a cancellation compactions in flight finish and the rest is skipped; a retry runs the rest', async () => {
  await held(20, 5);
  const cancelled = await ours().cancel({ job });
  expect(cancelled).toMatchObject({ state: 'cancelled', reason: 'cancelled by an operator', endedAt: null });
  expect(await ours().cancel({ job })).toMatchObject({ state: 'cancelled' });
  await expect(ours().pause({ job })).rejects.toMatchObject({ type: 'Input.Invalid' });
  stack.model.release();
  const report = await until(ours(), job, ended);
  expect(report.counts).toMatchObject({ compacted: 5, pending: 0, running: 0, failed: 0 });
  expect(report.counts.skipped + 5).toBe(report.counts.selected);
  expect(report).toMatchObject({ state: 'cancelled', selecting: false });
  await expect(ours().resume({ job })).rejects.toMatchObject({ type: 'Input.Invalid', path: 'job' });
  expect(await ours().start({ job, concurrency: 5 })).toMatchObject({ state: 'cancelled' });

  expect(await ours().retry({ job })).toMatchObject({ state: 'running', reason: null });
  const all = await until(ours(), job, ended);
  expect(all).toMatchObject({ state: 'completed', counts: { selected: 20, compacted: 20, skipped: 0 } });
  await expectAllOnce(20);
});

test('a cancellation in the Temporal UI has the same effect', async () => {
  await held(10, 3);
  await handle().cancel();
  await until(ours(), job, ({ state }) => state === 'cancelled');
  stack.model.release();
  const report = await until(ours(), job, ended);
  expect(report).toMatchObject({ reason: 'cancelled in Temporal', counts: { compacted: 3 } });
  await expect.poll(async () => (await handle().describe()).status.name).toBe('COMPLETED');
});

test('compactions in flight are passed from run to run', async () => {
  await held(24, 10);
  // Ten run at once, four a page: this is the third run.
  const query = `WorkflowId = "${backfillWorkflowId({ tenant, job })}" and ExecutionStatus = "ContinuedAsNew"`;
  await expect.poll(async () => (await client.workflow.count(query)).count).toBeGreaterThanOrEqual(2);
  stack.model.release();
  const report = await until(ours(), job, ended);
  expect(report).toMatchObject({ state: 'completed', counts: { selected: 24, compacted: 24 } });
  await expectAllOnce(24);
});

test('after a termination a repeated start continues the job: no session twice, none left out', async () => {
  await held(10, 6);
  await until(ours(), job, ({ counts }) => counts.running === 6);
  await handle().terminate('by somebody');
  stack.model.release();
  await expect
    .poll(async () => [...(await commitsOf(bench.pool, tenant)).values()].filter(Boolean).length)
    .toBe(6);
  await ours().start({ job, concurrency: 6 });
  const report = await until(ours(), job, ended);
  expect(report).toMatchObject({ state: 'completed', counts: { selected: 10, compacted: 10 } });
  expect(report.modelCalls).toBe(10);
  await expectAllOnce(10);
});

test('a repeated start continues a terminated job while its compactions still run', async () => {
  await held(8, 3);
  await until(ours(), job, ({ counts }) => counts.running === 3);
  await handle().terminate('by somebody');
  await ours().resize({ job, concurrency: 4 });
  await inFlight(4);
  stack.model.release();
  const report = await until(ours(), job, ended);
  expect(report).toMatchObject({ state: 'completed', counts: { selected: 8, failed: 0 } });
  await expectAllOnce(8);
});

test('after a termination in a pause, a resume continues the job', async () => {
  await held(6, 2);
  await ours().pause({ job });
  stack.model.release();
  await until(ours(), job, ({ counts }) => counts.compacted === 2);
  await handle().terminate('by somebody');
  expect(await ours().resume({ job })).toMatchObject({ state: 'running' });
  expect(await until(ours(), job, ended)).toMatchObject({ state: 'completed', counts: { compacted: 6 } });
  await expectAllOnce(6);
});

test('the page shows the progress', async () => {
  await fillSessions(bench.pool, tenant, 6);
  await ours().start({ job });
  await until(ours(), job, ended);
  // The status tells the stored counts before the page does.
  await handle().result();
  const page = await handle().query<{ currentDetails?: string; definition?: unknown }>(
    '__temporal_workflow_metadata',
  );
  expect(page.currentDetails).toContain('Backfill `j`: **completed**');
  expect(page.currentDetails).toContain('| done | 6 (100 %) |');
  expect(page.currentDetails).toMatch(/\| tokens \| [\d,]+ → [\d,]+ \|/);
  const { typedSearchAttributes } = await handle().describe();
  expect(JSON.stringify(typedSearchAttributes)).toContain('completed');
});

test('the page is updated even if no compaction ends for a long time', async () => {
  await held(9, 3);
  stack.model.release(3);
  await expect
    .poll(async () => {
      const { currentDetails } = await handle().query<{ currentDetails: string }>(
        '__temporal_workflow_metadata',
      );
      return currentDetails;
    })
    .toMatch(/\| selected \| 8[^]*\| compacted \| 3 \|[^]*\| running \| 3 of 3/);
  stack.model.release();
  await until(ours(), job, ended);
});
