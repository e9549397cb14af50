/** The calls that wait end with the commit itself, not with what the workflow does after it. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SessionStatus } from '../../../src/contract/workflows.js';
import { SessionWatch } from '../../../src/library/session-watch.js';
import { atRest, committedAfter, compactionEnded } from '../../../src/library/waiting.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { Notices } from '../../../src/store/connection/notices.js';
import { asCaller, CallerGone } from '../../../src/store/connection/places.js';
import { standOf } from '../../../src/store/sessions/sessions.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { SessionWorkflows } from '../../../src/temporal/session-workflows.js';
import { openPool } from '../../support/pool.js';
import { startStack, type Stack } from '../../support/stack.js';
import { compactThrough, sessionWith, talk } from '../../support/store.js';

let stack: Stack;
let pool: Pool;
let notices: Notices;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl);
  notices = new Notices({ url: stack.databaseUrl, pool });
  // It wakes everybody when it begins to listen.
  await new Promise<void>((resolve) => notices.subscribe({ tenant: 'any', session: 'any' }, resolve));
  expect(notices.isListening).toBe(true);
});

afterAll(async () => {
  await notices.close();
  await pool.end();
  await stack.stop();
});

/** A watch whose workflow reports a compaction in flight once, and then answers no more. */
function mute(workflowId: string, unstored = 0) {
  let asked = 0;
  const status: SessionStatus = {
    phase: 'compacting',
    inbox: unstored,
    unstored,
    generation: 0,
    tokens: null,
    compaction: { generation: 1, workflowId, startedAt: 0 },
    compactions: 0,
    paused: false,
    lastError: null,
    rejectedTurns: [],
  };
  const watch = new SessionWatch(
    pool,
    { status: () => (asked++ === 0 ? Promise.resolve(status) : new Promise(() => undefined)) },
    notices,
  );
  return { watch, asked: () => asked };
}

const withinMs = 60_000;

test('settled and context return with the commit, without asking the workflow again', async () => {
  const ids = await sessionWith(pool, talk(6));
  const { watch, asked } = mute('c/1');
  const settled = atRest({ watch }, ids, withinMs);
  const context = compactionEnded({ pool, watch }, ids, withinMs);
  // From the second question on, only a notice can end the waits.
  await expect.poll(asked).toBe(2);
  await compactThrough(pool, ids, 2, { workflowId: 'c/1' });
  await Promise.all([settled, context]);
});

test.each([
  ['another workflow committed', { workflowId: 'c/2' }, 0],
  ['the workflow holds messages of its own', { workflowId: 'c/1' }, 1],
  [
    'the context has reached its mark again',
    { workflowId: 'c/1', measureAt: { tokens: 1, messages: null } },
    0,
  ],
] as const)('settled goes on waiting where %s', async (_, commit, unstored) => {
  const ids = await sessionWith(pool, talk(6));
  const { watch, asked } = mute('c/1', unstored);
  const caller = new AbortController();
  const settled = asCaller({ tenant: ids.tenant, lane: 'hot', signal: caller.signal }, () =>
    atRest({ watch }, ids, withinMs),
  );
  const refused = expect(settled).rejects.toBeInstanceOf(CallerGone);
  await expect.poll(asked).toBe(2);
  // It sees the row with the commit after the waiter before it.
  const seen = watch.until(ids, ({ row }) => row?.generation === 1, { rowOnly: true });
  await compactThrough(pool, ids, 2, commit);
  await seen;
  caller.abort(new CallerGone());
  await refused;
});

test('a compaction on request returns with its commit, and with no other', async () => {
  const ids = await sessionWith(pool, talk(8));
  const { watch, asked } = mute('c/1');
  const from = (await standOf(pool, ids))!;
  const over = new AbortController();
  const asks = (resummarize: boolean) =>
    committedAfter({ pool, watch }, ids, from, { resummarize }, over.signal);
  const [plain, resummarized] = [asks(false), asks(true)];
  await compactThrough(pool, ids, 2, { reason: 'backfill' });
  await compactThrough(pool, ids, 4, { reason: 'manual' });
  expect(await plain).toMatchObject({ generation: 2, reason: 'manual' });
  await compactThrough(pool, ids, 4, { reason: 'resummarize' });
  expect(await resummarized).toMatchObject({ generation: 3 });
  // Requests look at rows alone.
  expect(asked()).toBe(0);
  const never = asks(true);
  over.abort(new Error('over'));
  await expect(never).rejects.toThrow('over');
});

test('a request after a commit gets a compaction of its own', async () => {
  const { palimpsest } = stack;
  const session = 'twice';
  const messages = talk(20, 60);
  await palimpsest.appendTurn({ session, turnId: '1', messages, policy: { contextWindow: 4_000 } });
  const first = await palimpsest.compact({ session });
  expect(first).toMatchObject({ generation: 1 });
  expect(await palimpsest.status({ session })).toMatchObject({ generation: 1 });
  await palimpsest.appendTurn({ session, turnId: '2', messages });
  const second = await palimpsest.compact({ session });
  expect(second?.generation).toBeGreaterThan(1);
  await palimpsest.settled({ session });
});

test('settled waits for a due turn whose signal was lost', async () => {
  const { palimpsest, queuePrefix: tenant } = stack;
  const ids = { tenant, session: 'unheard' };
  await appendTurn(pool, { ...ids, turnId: '1', messages: talk(60, 60), policy: { contextWindow: 4_000 } });
  const settled = palimpsest.settled({ session: ids.session, timeoutMs: 200 });
  await expect(settled).rejects.toMatchObject({
    type: 'Temporal.Unavailable',
    message: expect.stringMatching(/not yet heard/) as unknown,
  });
  const workflows = new SessionWorkflows(await connectClient(stack.temporal), tenant);
  try {
    await workflows.signalMeasure(ids, 60_000);
    await palimpsest.settled({ session: ids.session });
    expect((await palimpsest.status({ session: ids.session })).generation).toBe(1);
  } finally {
    await workflows.close();
  }
});
