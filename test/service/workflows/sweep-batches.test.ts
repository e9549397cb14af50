/**
 * Hundreds of waiting sessions are signalled in pages of a bounded size, with all tenants from the first page on, each session
 * once.
 */
import { defaultPayloadConverter } from '@temporalio/common';
import { expect, test } from 'vitest';
import type { FinishedErasures, Swept } from '../../../activities/sweep.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { countOverdue } from '../../../src/store/sessions/overdue.js';
import { openPool } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { sweepId, taskQueues } from '../../../src/temporal/names.js';
import type { SweepStart } from '../../../src/contract/workflows.js';
import type { sweep } from '../../../workflows/sweep.js';
import { words } from '../../support/dialogue.js';
import { sized } from '../../support/size.js';
import { startStack } from '../../support/stack.js';

const pageSize = sized(40, 200);
const tenants = { large: 4.5 * pageSize, middle: 0.45 * pageSize, small: 0.05 * pageSize };

test(`${5 * pageSize} sessions of three tenants`, async () => {
  const stack = await startStack({ settings: { roles: ['workflow', 'database'], databaseSteps: 16 } });
  const pool = openPool(stack.databaseUrl);
  const client = await connectClient(stack.temporal);
  const { queuePrefix } = stack;
  try {
    // Its size asks to be measured, and the measurement finds nothing to do.
    const policy = { trigger: [{ tokens: 3_000, messages: 100 }] };
    const messages = [{ role: 'user' as const, content: words(3_100) }];
    const waiting = Object.entries(tenants).flatMap(([tenant, sessions]) =>
      Array.from({ length: sessions }, (_, index) => ({
        tenant: `${tenant}-${queuePrefix}`,
        session: `waits-${index}`,
      })),
    );
    const queue = waiting.values();
    const fill = async () => {
      for (const ids of queue) await appendTurn(pool, { ...ids, turnId: 't', messages, policy });
    };
    await Promise.all(Array.from({ length: 8 }, fill));
    await pool.query('update palimpsest.sessions set overdue_at = now() where overdue_at is not null');
    expect(await countOverdue(pool)).toMatchObject({ sessions: 5 * pageSize });

    const run = async () => {
      const input: SweepStart = { v: 1, pageSize };
      const handle = await client.workflow.start<typeof sweep>('sweep', {
        workflowId: `${sweepId(queuePrefix)}-by-hand`,
        taskQueue: taskQueues(queuePrefix).workflow,
        args: [input],
      });
      const all = await handle.result();
      const { events } = await client.workflow
        .getHandle(handle.workflowId, handle.firstExecutionRunId)
        .fetchHistory();
      const pages = (events ?? []).flatMap(({ activityTaskCompletedEventAttributes: completed }) => {
        const [payload] = completed?.result?.payloads ?? [];
        const answer = payload && defaultPayloadConverter.fromPayload<Swept | FinishedErasures>(payload);
        return answer && 'signalled' in answer ? [answer] : [];
      });
      return { all, pages };
    };
    const { all, pages } = await run();
    expect(all).toEqual({ signalled: 5 * pageSize, failed: 0, left: 0 });
    for (const page of pages) expect(page.signalled).toBeLessThanOrEqual(pageSize);
    expect(pages.filter(({ signalled }) => signalled > 0).length).toBeGreaterThanOrEqual(5);
    // A first page of two thirds for the tenants that have so many, and all that the smallest has.
    const share = Math.ceil(pageSize / 3);
    expect(pages[0]?.signalled).toBe(share + Math.min(share, tenants.middle) + tenants.small);

    const asking = async () =>
      (await pool.query<{ n: number }>('select count(overdue_at)::int as n from palimpsest.sessions')).rows[0]
        ?.n;
    await expect.poll(asking, { timeout: 240_000 }).toBe(0);
    expect((await run()).all).toEqual({ signalled: 0, failed: 0, left: 0 });
  } finally {
    await client.connection.close();
    await pool.end();
    await stack.stop();
  }
});
