import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';

const lookEveryMs = 25;

/** Samples the states of the database's connections; returns the mean number of connections in each state. */
export function watchActivity(pool: Pool): () => Promise<string> {
  const seen = new Map<string, number>();
  let looks = 0;
  let stopped = false;
  const look = async () => {
    for (; !stopped; looks++) {
      const { rows } = await pool.query<{ what: string; count: number }>(
        `select case when state = 'idle in transaction' then 'waiting for the client in a transaction'
                     when wait_event_type = 'Client' then 'waiting for the client'
                     when wait_event_type is null then 'running'
                     else 'waiting for ' || wait_event end as what, count(*)::int
         from pg_stat_activity
         where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()
         group by 1`,
      );
      for (const { what, count } of rows) seen.set(what, (seen.get(what) ?? 0) + count);
      await sleep(lookEveryMs);
    }
  };
  const looking = look();
  // A failure shows when the answer is asked for.
  looking.catch(() => undefined);
  return async () => {
    stopped = true;
    await looking;
    return [...seen]
      .map(([what, count]) => ({ what, mean: count / looks }))
      .sort((a, b) => b.mean - a.mean)
      .slice(0, 4)
      .map(({ what, mean }) => `${mean.toFixed(1)} ${what}`)
      .join(', ');
  };
}
