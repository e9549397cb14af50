/**
 * Invariant 6 when an answer has arrived and must be stored: another transaction with the needed locks (of a stopped worker or
 * a migration) delays the compaction and does not make it pay again. Calls are counted at the endpoint.
 */
import pg from 'pg';
import { expect, test } from 'vitest';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack } from '../../support/stack.js';

test.for([{ table: 'rate_buckets' }, { table: 'digests' }])(
  'an answer is paid once although $table is locked when it arrives',
  async ({ table }) => {
    const stack = await startStack({ worker: false });
    const holder = new pg.Client({ connectionString: stack.ownerUrl });
    await holder.connect();
    try {
      const { settings, model, palimpsest } = stack;
      settings.database = { ...settings.database, lockTimeoutMs: 2_000 };
      settings.model.tokensPerMinute = 1_000_000;
      await stack.work();
      model.hold();
      const session = 's';
      const messages = dialogue(18).flat();
      await palimpsest.appendTurn({ session, turnId: 't', messages, policy: smallPolicy });
      await model.waitForRequests(1);
      await holder.query('begin');
      await holder.query(`lock table palimpsest.${table} in access exclusive mode`);
      model.release();
      const committed = async () => (await palimpsest.status({ session })).generation === 1;
      // A waiting step has failed and was retried, or no step had to wait.
      const waits = new Set<string>();
      const wentOn = async () => {
        const { rows } = await holder.query<{ since: string }>(
          `select pid || ' ' || waitstart as since from pg_locks
           where not granted and relation = 'palimpsest.${table}'::regclass and waitstart is not null`,
        );
        for (const { since } of rows) waits.add(since);
        return waits.size >= 2 || (await committed());
      };
      await expect.poll(wentOn, { interval: 20 }).toBe(true);
      expect(waits.size).toBeGreaterThan(0);
      await holder.query('rollback');
      await expect.poll(committed).toBe(true);
      expect(model.requests).toHaveLength(1);
      expect(await palimpsest.compactions({ session })).toMatchObject([{ method: 'model', modelCalls: 1 }]);
    } finally {
      await holder.end();
      stack.model.release();
      await stack.stop();
    }
  },
);
