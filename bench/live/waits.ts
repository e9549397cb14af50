/** The time that live sessions wait for their compaction: from the turn that made it due to the commit. */
import type { Pool } from 'pg';
import type { Phase, PlayedSession } from './players.js';

export interface Waits {
  /** Milliseconds, of compactions that became due in the phase. */
  ms: number[];
  /** Due in the phase, and not committed by the end. */
  open: number;
}

export async function compactionWaits(
  pool: Pool,
  played: readonly PlayedSession[],
  { from, to }: Phase,
): Promise<Waits> {
  const { rows } = await pool.query<{ session: string; at: number }>(
    `select session_id as session, (extract(epoch from created_at) * 1000)::float8 as at from palimpsest.compactions
     where tenant_id = 'default' and generation > 0 and starts_with(session_id, 'live-') order by session_id, generation`,
  );
  const commits = new Map<string, number[]>();
  for (const { session, at } of rows) commits.set(session, [...(commits.get(session) ?? []), at]);
  const waits: Waits = { ms: [], open: 0 };
  for (const { session, due } of played) {
    let before = 0;
    for (const at of [...(commits.get(session) ?? []), Infinity]) {
      // What became due while the one before ran is measured when that one has ended.
      const first = due.find((moment) => moment > before && moment <= at);
      if (first !== undefined && first >= from && first < to) {
        if (at === Infinity) waits.open++;
        else waits.ms.push(at - first);
      }
      before = at;
    }
  }
  return waits;
}
