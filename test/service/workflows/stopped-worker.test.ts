/**
 * Invariants 2 and 5 under SIGSTOP: a worker that is stopped inside its commit loses the session's row in bounded time, no
 * other session waits for it meanwhile, and when it continues, it commits once or not at all.
 */
import { once } from 'node:events';
import pg from 'pg';
import { expect, test } from 'vitest';
import { isFailure } from '../../../src/errors.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { spawnWorker } from '../../support/spawned-worker.js';
import { startStack } from '../../support/stack.js';

const session = 's-1';

/** Lets the insert of a compaction wait for a lock that this connection holds. */
const gateSql = `
  create function palimpsest.test_gate() returns trigger language plpgsql as $$
    begin perform pg_advisory_xact_lock(7); return new; end $$;
  create trigger test_gate before insert on palimpsest.compactions
    for each row when (new.reason <> 'genesis') execute function palimpsest.test_gate();
  select pg_advisory_lock(7)`;

test('a worker stopped inside its commit', async () => {
  const stack = await startStack({ worker: false });
  const { palimpsest } = stack;
  const gate = new pg.Client({ connectionString: stack.ownerUrl });
  await gate.connect();
  await gate.query(gateSql);
  const count = async (condition: string): Promise<number> => {
    const { rows } = await gate.query<{ count: number }>(
      `select count(*)::int as count from pg_stat_activity where application_name = 'doomed' and ${condition}`,
    );
    return rows[0]?.count ?? 0;
  };
  const turns = dialogue(18);
  const store = (index: number) =>
    palimpsest.appendTurn({ session, turnId: `t-${index}`, messages: turns[index]!, policy: smallPolicy });
  for (let index = 0; index < 16; index++) await store(index);
  // It waits for the gate however late it is stopped, and stays in its transaction long enough to be seen there.
  const timeouts = { lockTimeoutMs: 270_000, idleTransactionTimeoutMs: 8_000 };
  const worker = spawnWorker(stack, { timeouts });
  const exited = once(worker, 'exit');
  try {
    await expect.poll(() => count(`wait_event = 'advisory'`)).toBe(1);
    worker.kill('SIGSTOP');
    await gate.query('select pg_advisory_unlock(7)');
    await expect.poll(() => count(`state = 'idle in transaction'`)).toBe(1);

    // Two agents that repeat their appends, as often as they like.
    const repeated = Array.from({ length: 40 }, (_, n) => store(16 + (n % 2)));
    const other = palimpsest.appendTurn({ session: 's-2', turnId: 't', messages: turns[0]! });
    expect(await other).toMatchObject({ fromSeq: 1 });
    const outcomes = await Promise.allSettled(repeated);
    for (const outcome of outcomes)
      if (outcome.status === 'rejected') expect(isFailure(outcome.reason, 'Store.Busy')).toBe(true);
    await expect.poll(() => count(`state = 'idle in transaction'`)).toBe(0);
    expect(await store(16)).toMatchObject({ throughSeq: expect.any(Number) });
    expect(await store(17)).toMatchObject({ throughSeq: expect.any(Number) });
    expect((await palimpsest.context({ session })).generation).toBe(0);
    expect(await palimpsest.archive({ session })).toEqual([]);

    worker.kill('SIGCONT');
    await palimpsest.settled({ session });
    const compactions = await palimpsest.compactions({ session });
    expect(compactions.map(({ generation }) => generation)).toEqual([1]);
    expect(await palimpsest.archive({ session })).toHaveLength(1);
    const replayed = [];
    for await (const { message } of palimpsest.replay({ session })) replayed.push(message.content);
    expect(replayed.toSorted()).toEqual(
      turns
        .flat()
        .map(({ content }) => content)
        .toSorted(),
    );
  } finally {
    worker.kill('SIGKILL');
    await exited;
    await gate.end();
    await stack.stop();
  }
});
