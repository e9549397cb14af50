/**
 * The library behind PgBouncer in transaction mode, where each transaction may run on another connection: the tenant, prepared
 * statements and LISTEN must not depend on one. Skipped where Debian's package `pgbouncer` is not installed.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { Notices } from '../../../src/store/connection/notices.js';
import { openPool } from '../../../src/store/connection/pool.js';
import { hasPgBouncer, type PgBouncer, startPgBouncer } from '../../support/pgbouncer.js';
import { startStack, type Stack } from '../../support/stack.js';
import { talk } from '../../support/store.js';

const name = hasPgBouncer
  ? 'behind PgBouncer'
  : 'behind PgBouncer: not installed (`apt-get install pgbouncer`)';

describe.skipIf(!hasPgBouncer)(name, () => {
  let stack: Stack;
  let pooler: PgBouncer;
  /** All connections go through the pooler. */
  let pooled: Palimpsest;
  /** Waiting calls listen on a connection of their own. */
  let direct: Palimpsest;

  beforeAll(async () => {
    stack = await startStack();
    const { eraserUrl } = stack.settings;
    pooler = await startPgBouncer([stack.databaseUrl, eraserUrl ?? '']);
    const options = {
      databaseUrl: pooler.through(stack.databaseUrl),
      eraserUrl: pooler.through(eraserUrl ?? ''),
      temporal: stack.temporal,
      tenant: stack.queuePrefix,
      queuePrefix: stack.queuePrefix,
    };
    pooled = await Palimpsest.connect(options);
    direct = await Palimpsest.connect({ ...options, directUrl: stack.databaseUrl });
  });

  afterAll(async () => {
    await pooled?.close();
    await direct?.close();
    await pooler?.stop();
    await stack?.stop();
  });

  it('appends, contexts, compactions and waits give what they give without it', async () => {
    for (const [way, client] of [
      ['pooled', pooled],
      ['direct', direct],
    ] as const) {
      const policy = { contextWindow: 4_000 };
      for (let turn = 0; turn < 4; turn++) {
        const messages = talk(10, 20);
        const appended = await client.appendTurn({ session: way, turnId: `t-${turn}`, messages, policy });
        expect(appended).toMatchObject({ fromSeq: 10 * turn + 1, throughSeq: 10 * turn + 10 });
      }
      await client.settled({ session: way });
      const outcome = await client.compact({ session: way });
      await client.settled({ session: way });
      const context = await client.context({ session: way, waitMs: 10_000 });
      expect(context.generation).toBe(
        outcome?.generation ?? (await client.status({ session: way })).generation,
      );
      expect(context).toEqual(await stack.palimpsest.context({ session: way }));
    }
  });

  it('concurrent calls of two tenants see their own sessions only', async () => {
    const tenants = ['one', 'two'].map((tenant) => pooled.forTenant(`${stack.queuePrefix}-${tenant}`));
    const turns = Array.from({ length: 6 }, (_, at) => ({ turnId: `t-${at}`, messages: talk(1) }));
    await Promise.all(
      tenants.flatMap((client, which) =>
        turns.map((turn) => client.appendTurn({ session: `s-${which}`, ...turn })),
      ),
    );
    for (const [which, client] of tenants.entries()) {
      expect((await client.sessions()).sessions).toMatchObject([{ session: `s-${which}`, messages: 6 }]);
      const other = client.context({ session: `s-${1 - which}` });
      await expect(other).rejects.toMatchObject({ type: 'Store.SessionNotFound' });
    }
  });

  it('LISTEN is tried, found silent, and given up; a direct connection hears', async () => {
    const pool = openPool(pooler.through(stack.databaseUrl));
    const deaf = new Notices({ url: pooler.through(stack.databaseUrl), pool, answerMs: 500 });
    const hears = new Notices({ url: stack.databaseUrl, pool });
    let woken = 0;
    try {
      deaf.subscribe({ tenant: 't', session: 's' }, () => woken++);
      hears.subscribe({ tenant: 't', session: 's' }, () => undefined);
      await expect.poll(() => hears.isListening).toBe(true);
      // It says so when it gives up.
      await expect.poll(() => woken).toBeGreaterThan(0);
      expect(deaf.isListening).toBe(false);
    } finally {
      await Promise.all([deaf.close(), hears.close()]);
      await pool.end();
    }
  });
});
