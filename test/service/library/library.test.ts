/** The library beyond single calls: views of tenants, waits without a worker, erasures during a compaction. */
import { WorkflowNotFoundError } from '@temporalio/client';
import { afterEach, describe, expect, it } from 'vitest';
import { openPool } from '../../support/pool.js';
import { sessionWorkflowId } from '../../../src/temporal/names.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { dialogue, smallPolicy, words } from '../../support/dialogue.js';
import { startStack, type Stack, type StackOptions } from '../../support/stack.js';

const stacks: Stack[] = [];

afterEach(async () => {
  for (const stack of stacks.splice(0)) await stack.stop();
});

async function stackOf(options?: StackOptions): Promise<Stack> {
  const stack = await startStack(options);
  stacks.push(stack);
  return stack;
}

const hello = [{ role: 'user' as const, content: 'Hello' }];
const long = [1, 2, 3].map((index) => ({ role: 'user' as const, content: words(1_500, index) }));

describe('views of tenants', () => {
  it('share the connections, see their own sessions only, and leave the connections open', async () => {
    const { palimpsest, queuePrefix } = await stackOf({ worker: false });
    const [a, b] = [palimpsest.forTenant(`${queuePrefix}-a`), palimpsest.forTenant(`${queuePrefix}-b`)];
    await a.appendTurn({ session: 'mine', turnId: '1', messages: hello });
    expect((await a.sessions()).sessions.map(({ session }) => session)).toEqual(['mine']);
    expect((await b.sessions()).sessions).toEqual([]);
    await expect(b.context({ session: 'mine' })).rejects.toMatchObject({ type: 'Store.SessionNotFound' });
    await a.close();
    expect((await a.context({ session: 'mine' })).messages).toEqual(hello);
    expect((await palimpsest.forTenant(a.tenant).context({ session: 'mine' })).messages).toEqual(hello);
  });

  it('have ids that fit into a workflow id', async () => {
    const { palimpsest } = await stackOf({ worker: false });
    for (const tenant of ['', 'x'.repeat(201), 'half \ud800', 'NUL \u0000'])
      expect(() => palimpsest.forTenant(tenant)).toThrow(/tenant/);
  });
});

describe('a context that is waited for', () => {
  it('is read at the deadline if no worker answers', async () => {
    const { palimpsest } = await stackOf({ worker: false });
    await palimpsest.appendTurn({ session: 's', turnId: '1', messages: long, policy: smallPolicy });
    const { generation } = await palimpsest.context({ session: 's', waitMs: 700 });
    expect(generation).toBe(0);
  });

  it('is read at once if nothing is in flight', async () => {
    const { palimpsest } = await stackOf();
    await palimpsest.appendTurn({ session: 's', turnId: '1', messages: hello });
    await palimpsest.settled({ session: 's' });
    const read = palimpsest.context({ session: 's', waitMs: 30_000 });
    const later = new Promise((resolve) => setTimeout(resolve, 25_000, 'later'));
    expect(await Promise.race([read, later])).toMatchObject({ generation: 0 });
  });

  it('is read at the deadline if the compaction takes longer, else right after its commit', async () => {
    const { palimpsest, model } = await stackOf();
    model.hold();
    await palimpsest.appendTurn({ session: 's', turnId: '1', messages: long, policy: smallPolicy });
    await model.waitForRequests(1);
    expect((await palimpsest.context({ session: 's', waitMs: 300 })).generation).toBe(0);
    const waited = palimpsest.context({ session: 's', waitMs: 60_000 });
    model.release();
    expect((await waited).generation).toBe(1);
  });
});

describe('erasing a session whose compaction is in flight', () => {
  it('ends both workflows, and stores no later answer of the model', async () => {
    const stack = await stackOf({ worker: false });
    const { palimpsest, model, databaseUrl, temporal, queuePrefix: tenant } = stack;
    const worker = await stack.work();
    model.hold();
    for (const [index, messages] of dialogue(30, 100).entries())
      await palimpsest.appendTurn({ session: 's', turnId: `${index}`, messages, policy: smallPolicy });
    await model.waitForRequests(1);
    const waiting = expect(palimpsest.compact({ session: 's' })).rejects.toMatchObject({
      type: 'Temporal.Unavailable',
      hint: expect.stringContaining('erased') as unknown,
    });
    // The request has been accepted by the time that the workflow has answered a question asked after it.
    await palimpsest.status({ session: 's' });
    expect(await palimpsest.erase({ session: 's' })).toMatchObject({ messages: 60, executions: 2 });
    await waiting;
    model.release();
    // Lets the step that asked the model come to its end.
    await worker.shutdown();
    const client = await connectClient(temporal);
    const pool = openPool(databaseUrl);
    try {
      for (const id of [sessionWorkflowId({ tenant, session: 's' }), `compaction/${tenant}/s/1`]) {
        const handle = client.workflow.getHandle(id);
        // Deleted a moment later.
        const state = await handle.describe().then(
          ({ status }) => status.name,
          (error: unknown) => (error instanceof WorkflowNotFoundError ? 'TERMINATED' : error),
        );
        expect([id, state]).toEqual([id, 'TERMINATED']);
      }
      for (const table of ['sessions', 'messages', 'digests', 'message_texts']) {
        const { rows } = await pool.query(`select from palimpsest.${table} where tenant_id = $1`, [tenant]);
        expect([table, rows.length]).toEqual([table, 0]);
      }
    } finally {
      await pool.end();
      await client.connection.close();
    }
    await palimpsest.appendTurn({ session: 's', turnId: '0', messages: hello });
    expect((await palimpsest.context({ session: 's' })).messages).toEqual(hello);
  });
});
