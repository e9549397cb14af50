/**
 * The queue of model calls is longer than its workers can serve: live work is served first, and tenants share the rest. The
 * model worker starts last and makes one call at a time, so that the order of the queue is the order at the endpoint.
 */
import type { Client } from '@temporalio/client';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openPool } from '../../support/pool.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { backfillPriority, compactionWorkflowId, taskQueues } from '../../../src/temporal/names.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { startWorker, type RunningWorker } from '../../../src/worker/worker.js';
import type { compaction } from '../../../workflows/compaction.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let client: Client;
let workers: RunningWorker[];

beforeEach(async () => {
  stack = await startStack({ worker: false });
  client = await connectClient({ address: stack.temporal.address });
  workers = [await startWorker({ ...stack.settings, roles: ['workflow', 'database'] })];
});

afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.shutdown()));
  await client.connection.close();
  await stack.stop();
});

/** Sessions whose whole compaction is one model call, with their name in the request. */
function turns(name: string) {
  return dialogue(14).map((messages) =>
    messages.map((one) => ({ ...one, content: `<<${name}>> ${one.content as string}` })),
  );
}

/** Compactions as a backfill starts them, waiting for a model worker. */
async function backfill(tenant: string, count: number): Promise<void> {
  const pool = openPool(stack.databaseUrl, { max: 4 });
  for (let index = 0; index < count; index++) await begin({ tenant, session: `${tenant}-${index}` });
  await pool.end();

  async function begin(ids: SessionIds): Promise<void> {
    const messages = turns(ids.session).flat();
    await appendTurn(pool, { ...ids, turnId: 'all', messages, policy: smallPolicy });
    const workflowId = compactionWorkflowId(ids, 1);
    await client.workflow.start<typeof compaction>('compaction', {
      ...{
        workflowId,
        taskQueue: taskQueues(stack.queuePrefix).workflow,
        priority: backfillPriority(tenant),
      },
      args: [{ v: 1, ...ids, reason: 'trigger', force: false }],
    });
    await waitsForModel(workflowId);
  }
}

/** The platform's own way: appended, measured, planned. */
async function live(session: string): Promise<void> {
  for (const [index, messages] of turns(session).entries())
    await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy: smallPolicy });
  await waitsForModel(compactionWorkflowId({ tenant: stack.queuePrefix, session }, 1));
}

async function waitsForModel(workflowId: string): Promise<void> {
  const handle = client.workflow.getHandle(workflowId);
  const pending = async () => {
    const { raw } = await handle.describe();
    return raw.pendingActivities?.some(({ activityType }) => activityType?.name === 'summarizeChunk');
  };
  await expect.poll(() => pending().catch(() => false)).toBe(true);
}

/** Names of the sessions in the order in which the endpoint was asked. */
function order(): string[] {
  const names = stack.model.requests.map(
    ({ body }) => /<<(.+?)>>/.exec(body.messages.map(({ content }) => content).join('\n'))?.[1] ?? '?',
  );
  return [...new Set(names)];
}

async function drain(calls: number): Promise<string[]> {
  workers.push(await startWorker({ ...stack.settings, roles: ['model'], modelCalls: 1 }));
  await expect.poll(() => order().length).toBe(calls);
  return order();
}

test('live work overtakes a queue full of backfills, and a small backfill does not wait for a large one', async () => {
  const [large, small] = [`${stack.queuePrefix}-large`, `${stack.queuePrefix}-small`];
  await backfill(large, 40);
  await backfill(small, 4);
  for (const session of ['live-1', 'live-2', 'live-3']) await live(session);

  const asked = await drain(47);
  expect([...asked.slice(0, 3)].sort()).toEqual(['live-1', 'live-2', 'live-3']);
  // Equal shares: of ten times as much in front of it, the small backfill waits for as much as it has itself.
  const positions = asked.slice(3).flatMap((name, index) => (name.startsWith(small) ? [index] : []));
  expect(positions).toHaveLength(4);
  expect(Math.max(...positions)).toBeLessThan(12);
});
