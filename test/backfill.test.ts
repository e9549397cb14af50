/** A job over many old sessions: each that is due is compacted once, and the report says what became of every one. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  commitsOf,
  ended,
  fillSessions,
  openBackfills,
  until,
  type BackfillBench,
} from './support/backfills.js';
import { startStack, type Stack } from './support/stack.js';

let stack: Stack;
let bench: BackfillBench;

beforeAll(async () => {
  stack = await startStack();
  bench = await openBackfills(stack, { pageSize: 20 });
});
afterAll(async () => {
  await bench.close();
  await stack.stop();
});

test(
  'every due session once, over several pages; quiet ones cost nothing',
  { timeout: 120_000 },
  async () => {
    const tenant = 'pages-' + stack.queuePrefix;
    const due = await fillSessions(bench.pool, tenant, 90);
    await fillSessions(bench.pool, tenant, 60, { prefix: 'quiet-', turns: 2 });
    const backfills = bench.of(tenant);
    const started = await backfills.start({ job: 'j', concurrency: 8 });
    expect(started).toMatchObject({ job: 'j', state: 'running', concurrency: 8 });
    const report = await until(backfills, 'j', ended);
    expect(report).toMatchObject({
      state: 'completed',
      selecting: false,
      counts: { selected: 150, compacted: 90, unchanged: 60, failed: 0, pending: 0, running: 0, skipped: 0 },
    });
    const commits = await commitsOf(bench.pool, tenant);
    expect(due.map((session) => commits.get(session))).toEqual(due.map(() => 1));
  },
);
