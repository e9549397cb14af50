import type { Pool } from 'pg';
import { read } from '../connection/transaction.js';
import { spentBy } from './spend.js';

/** What a tenant has used of its limits. */
export interface TenantUsage {
  /** USD by the operator's prices; days and months begin at midnight UTC. */
  spendToday: number;
  spendThisMonth: number;
  modelTokensToday: number;
  modelTokensThisMonth: number;
  callsInFlight: number;
  /** Bytes of the bodies of all messages. */
  storedBytes: number;
  /** Sessions that are not closed. */
  sessions: number;
}

export async function usageOf(pool: Pool, tenant: string): Promise<TenantUsage> {
  const { day, month } = await spentBy(pool, tenant);
  const [row] = await read<{ calls: number; bytes: number; sessions: number }>(
    pool,
    { tenant },
    `select coalesce(sum(stored_bytes), 0)::float8 as bytes, (count(*) filter (where closed_at is null))::int as sessions,
       (select count(*)::int from palimpsest.digest_flights
        where tenant_id = $1 and failure is null and expires_at > clock_timestamp()) as calls
     from palimpsest.sessions where tenant_id = $1`,
    [tenant],
  );
  return {
    ...{ spendToday: day.cost, spendThisMonth: month.cost },
    ...{ modelTokensToday: day.tokens, modelTokensThisMonth: month.tokens },
    ...{ callsInFlight: row?.calls ?? 0, storedBytes: row?.bytes ?? 0, sessions: row?.sessions ?? 0 },
  };
}
