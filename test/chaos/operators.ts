/** Operators who act on random sessions concurrently. Their calls may fail, but only with a type. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { HttpPalimpsest } from '../../src/http-client/index.js';
import { chaosPolicy } from './agents.js';
import type { Journal } from './journal.js';
import type { Observations } from './observations.js';
import type { Random } from './random.js';

interface Scene {
  client: HttpPalimpsest;
  tenant: string;
  random: Random;
  session: string;
}

/** Bounded, so that an operator never waits out a fault. */
const waitMs = 5_000;

const acts = {
  compact: ({ client, session }: Scene) => client.compact({ session, wait: false }),
  resummarize: ({ client, session }: Scene) => client.resummarize({ session, wait: false }),
  restore: async ({ client, session, random }: Scene) => {
    if (random.chance(0.5)) {
      await client.compact({ session, wait: false });
      await sleep(random.between(0, 1_500));
    }
    const { generation } = await client.status({ session });
    await client.restore({ session, generation: random.between(0, generation) });
  },
  configure: ({ client, session, random }: Scene) =>
    client.configure({
      session,
      policy: {
        ...chaosPolicy,
        contextWindow: random.pick([5_000, 6_000, 9_000]),
        summary: {
          ...chaosPolicy.summary,
          mode: random.pick(['incremental', 'full_rewrite', 'journal']),
        },
      },
    }),
  pause: async ({ client, session, random }: Scene) => {
    await client.pause({ session });
    await sleep(random.between(100, 3_000));
    await client.resume({ session });
  },
  /** Sessions adopt it with their next turn. */
  switchSignal: ({ client, random }: Scene) =>
    client.configureTenant({ policy: { signal: random.pick(['due', 'always'] as const) } }),
  close: ({ client, session }: Scene) => client.closeSession({ session }),
  search: ({ client, session, random }: Scene) =>
    client.search({ session, query: random.pick(['ledger', 'request 3']) }),
  status: ({ client, session }: Scene) => client.status({ session }),
  waitForContext: ({ client, session }: Scene) => client.context({ session, waitMs }),
  backfill: async ({ client, random }: Scene) => {
    const job = `job-${random.between(0, 1e9)}`;
    await client.startBackfill({ job, mode: random.pick(['due', 'all']), concurrency: random.between(1, 4) });
    await sleep(random.between(0, 4_000));
    if (random.chance(0.5)) await client.pauseBackfill({ job }).then(() => client.resumeBackfill({ job }));
    if (random.chance(0.4)) await client.cancelBackfill({ job });
    if (random.chance(0.3)) await client.retryBackfill({ job });
  },
} satisfies Record<string, (scene: Scene) => Promise<unknown>>;

const weights: Record<keyof typeof acts, number> = {
  ...{ compact: 4, resummarize: 1, restore: 3, configure: 2, pause: 2, close: 2 },
  ...{ search: 2, status: 2, waitForContext: 2, backfill: 2, switchSignal: 2 },
};

/** Acts until the signal says so; resolves once the last act has ended. */
export async function operate(
  clients: ReadonlyMap<string, HttpPalimpsest>,
  journal: Journal,
  random: Random,
  seen: Observations,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    const living = journal.living();
    const { tenant, session } = random.pick(
      random.chance(0.1) || living.length === 0 ? journal.all() : living,
    );
    const client = clients.get(tenant)!;
    const name = random.weighted(weights);
    seen.act(name);
    try {
      await acts[name]({ client, tenant, session, random });
    } catch (error) {
      seen.failed(name, error);
    }
    await sleep(random.between(100, 1_200));
  }
}

/**
 * Ends unfinished actions of operators: paused sessions, paused jobs. The faults have ended, but a failed request of an
 * operator may still take effect, so this is repeated until the system is quiet.
 */
export async function tidyUp(
  clients: ReadonlyMap<string, HttpPalimpsest>,
  journal: Journal,
  seen: Observations,
): Promise<void> {
  for (const { tenant, session, erased } of journal.all()) {
    if (erased) continue;
    const client = clients.get(tenant)!;
    try {
      // A session that is missing is the checker's to report.
      if ((await client.status({ session })).paused) await client.resume({ session });
    } catch (error) {
      seen.failed('resume', error);
    }
  }
  for (const client of clients.values())
    for (const { job, state } of await client.backfills())
      if (state === 'paused')
        await client.resumeBackfill({ job }).catch((error: unknown) => seen.failed('resumeBackfill', error));
}
