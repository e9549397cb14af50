import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { eraserOf, maintenanceOf } from '../connection/pool.js';
import { read, type Query } from '../connection/transaction.js';

/** Erased sessions whose executions must still be deleted. This work outlives the call that erased the session. */
export interface Erasure extends SessionIds {
  /** Executions that began earlier belong to the erased session. */
  erasedAt: Date;
  /** The last generation that a compaction of the session may have prepared. */
  generation: number;
  /** When Temporal was last told to delete all executions found; null: never. */
  toldAt: Date | null;
}

/**
 * Records that the executions of a session must be deleted. Runs in the transaction that erases the session, or alone if only
 * executions of the session are left.
 */
export async function noteErasure(
  query: Query,
  { tenant, session }: SessionIds,
  generation: number,
): Promise<void> {
  await query(
    `insert into palimpsest.erasures as e (tenant_id, session_id, erased_at, generation)
     values ($1, $2, clock_timestamp(), $3)
     on conflict (tenant_id, session_id) do update
       set erased_at = excluded.erased_at, generation = greatest(e.generation, excluded.generation), told_at = null`,
    [tenant, session, generation],
  );
}

/** Erasures never reported to Temporal come first, then those whose latest report is oldest. */
export async function pendingErasures(pool: Pool, most: number): Promise<Erasure[]> {
  return read<Erasure & Record<string, unknown>>(
    maintenanceOf(pool),
    'shared',
    `select tenant, session, erased_at as "erasedAt", generation, told_at as "toldAt"
     from palimpsest.pending_erasures($1)`,
    [most],
  );
}

export async function findErasure(pool: Pool, { tenant, session }: SessionIds): Promise<Erasure | null> {
  const [found] = await read<Erasure & Record<string, unknown>>(
    pool,
    { tenant },
    `select tenant_id as tenant, session_id as session, erased_at as "erasedAt", generation,
       told_at as "toldAt"
     from palimpsest.erasures where tenant_id = $1 and session_id = $2`,
    [tenant, session],
  );
  return found ?? null;
}

export async function noteTold(pool: Pool, { tenant, session, erasedAt }: Erasure): Promise<void> {
  await read(
    eraserOf(pool),
    { tenant },
    `update palimpsest.erasures set told_at = clock_timestamp()
     where tenant_id = $1 and session_id = $2 and date_trunc('milliseconds', erased_at) <= $3`,
    [tenant, session, erasedAt],
  );
}

/** Removes an erasure that is complete. A newer erasure of a session under the same id stays. */
export async function forgetErasure(pool: Pool, { tenant, session, erasedAt }: Erasure): Promise<void> {
  await read(
    eraserOf(pool),
    { tenant },
    `delete from palimpsest.erasures
     where tenant_id = $1 and session_id = $2 and date_trunc('milliseconds', erased_at) <= $3`,
    [tenant, session, erasedAt],
  );
}

/** Whether another session has the id now. */
export async function isBegunAnew(pool: Pool, { tenant, session }: SessionIds): Promise<boolean> {
  const rows = await read(
    pool,
    { tenant },
    'select from palimpsest.sessions where tenant_id = $1 and session_id = $2',
    [tenant, session],
  );
  return rows.length > 0;
}

/** Whether a session was erased at this moment or later. Erasures whose executions are deleted do not count. */
export async function erasedSince(
  query: Query,
  { tenant, session }: SessionIds,
  moment: Date,
): Promise<boolean> {
  const rows = await query(
    'select from palimpsest.erasures where tenant_id = $1 and session_id = $2 and erased_at >= $3',
    [tenant, session, moment],
  );
  return rows.length > 0;
}
