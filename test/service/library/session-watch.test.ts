/** Waiting callers share checks of a session, and sessions share the capacity for checks. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { asCaller, CallerGone } from '../../../src/store/connection/places.js';
import { Notices } from '../../../src/store/connection/notices.js';
import { type Look, SessionWatch } from '../../../src/library/session-watch.js';
import { openPool } from '../../support/pool.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { SessionWorkflows } from '../../../src/temporal/session-workflows.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;
let workflows: SessionWorkflows;
let notices: Notices;

beforeAll(async () => {
  stack = await startStack({ worker: false });
  pool = openPool(stack.databaseUrl, { max: 2 });
  notices = new Notices({ url: stack.databaseUrl, pool });
  workflows = new SessionWorkflows(await connectClient(stack.temporal), stack.queuePrefix);
});

afterAll(async () => {
  await workflows.close();
  await notices.close();
  await pool.end();
  await stack.stop();
});

const eventually = <T>(look: () => T) => expect.poll(look);
const idsOf = (session: string) => ({ tenant: stack.queuePrefix, session });
const withinMs = 60_000;

/** False for a look at the row alone, which a notice may bring at any time. */
const seenLive = ({ live }: Look) => live !== null;

/** Looks as they are asked of Temporal; each waits until `open` is called. */
function gated() {
  const asked: string[] = [];
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  const status: SessionWorkflows['status'] = async (ids, within) => {
    asked.push(ids.session);
    await gate;
    return workflows.status(ids, within);
  };
  const watch = new SessionWatch(pool, { status }, notices);
  return { asked, watch, open };
}

test('one check serves all earlier callers; later ones get the next', async () => {
  const { asked, watch, open } = gated();
  const first = watch.until(idsOf('a'), seenLive, { withinMs });
  await eventually(() => asked.length).toBe(1);
  const later = Array.from({ length: 20 }, () => watch.until(idsOf('a'), seenLive, { withinMs }));
  open();
  expect(await first).toEqual({ done: true, look: { live: 'asleep', row: null } });
  expect((await Promise.all(later)).every(({ done }) => done)).toBe(true);
  expect(asked).toEqual(['a', 'a']);
});

test('few checks run concurrently, and each session gets its turn', async () => {
  const { asked, watch, open } = gated();
  const waits = Array.from({ length: 20 }, (_, n) => watch.until(idsOf(`s-${n}`), seenLive, { withinMs }));
  await eventually(() => asked.length).toBe(8);
  open();
  await Promise.all(waits);
  expect(asked).toEqual(Array.from({ length: 20 }, (_, n) => `s-${n}`));
});

test('a session without waiting callers is not checked', async () => {
  const { asked, watch, open } = gated();
  open();
  const callers = Array.from({ length: 3 }, () => new AbortController());
  const waits = callers.map(({ signal }) =>
    asCaller({ tenant: 't', lane: 'hot', signal }, () =>
      watch.until(idsOf('left'), () => false, { withinMs, signal }),
    ),
  );
  await eventually(() => asked.length).toBeGreaterThan(3);
  for (const caller of callers) caller.abort(new CallerGone());
  for (const wait of waits) await expect(wait).rejects.toBeInstanceOf(CallerGone);
  // Whatever was under way has ended once another session was looked at several times.
  const seen = asked.filter((session) => session === 'left').length;
  let looks = 0;
  await watch.until(idsOf('other'), () => ++looks === 8, { withinMs });
  expect(asked.filter((session) => session === 'left').length).toBeLessThanOrEqual(seen + 1);
});

test('a settled session is seen even with no time to wait', async () => {
  const { watch, open } = gated();
  open();
  const now = watch.until(idsOf('rest'), () => true, { withinMs: 0, atLeastOnce: true });
  expect(await now).toMatchObject({ done: true });
});
