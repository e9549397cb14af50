/**
 * Who is asking a model for which answer, over all workers: a lease by content key, renewed while the call is in flight.
 * No transaction is open meanwhile. A lease that is not renewed ends by the database's clock.
 */
import type { Pool } from 'pg';
import { read } from './transaction.js';

/** One attempt of one step. A later attempt of the same step takes over at once: its predecessor is dead. */
export interface Asker {
  step: string;
  attempt: number;
}

/** The answer that is asked for. */
export interface Flight {
  tenant: string;
  key: string;
}

/** How a call failed whose next attempt may succeed. */
export interface PassingFailure {
  type: string;
  retryAfterMs: number | null;
}

export interface FlightSeen extends Asker {
  /** The lease holds. */
  live: boolean;
  /** What the call that ended came to; null while it goes on. */
  failure: PassingFailure | null;
}

const leaseSeconds = 15;
/** A fifth of the lease, so that some late renewals do no harm. */
export const renewEveryMs = 3_000;
/** Leases that nobody took over go after this long. */
const forgottenAfter = '1 hour';

/** True: this asker is the one that asks, and nobody else is until it ends the flight or its lease runs out. */
export async function claimFlight(
  pool: Pool,
  { tenant, key }: Flight,
  { step, attempt }: Asker,
): Promise<boolean> {
  const claimed = await read(
    pool,
    `insert into palimpsest.digest_flights as flight (tenant_id, key, step, attempt, expires_at)
     values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => ${leaseSeconds}))
     on conflict (tenant_id, key) do update
       set step = excluded.step, attempt = excluded.attempt, expires_at = excluded.expires_at, failure = null
       where flight.expires_at <= clock_timestamp()
         or (flight.step = excluded.step and flight.attempt <= excluded.attempt)
     returning 1`,
    [tenant, key, step, attempt],
  );
  return claimed.length > 0;
}

/** Null: nobody asks, nor has lately failed to get an answer. */
export async function seeFlight(pool: Pool, { tenant, key }: Flight): Promise<FlightSeen | null> {
  const [seen] = await read<FlightSeen>(
    pool,
    `select step, attempt, failure, expires_at > clock_timestamp() as live
     from palimpsest.digest_flights where tenant_id = $1 and key = $2`,
    [tenant, key],
  );
  return seen ?? null;
}

export async function renewFlight(
  pool: Pool,
  { tenant, key }: Flight,
  { step, attempt }: Asker,
): Promise<void> {
  await read(
    pool,
    `update palimpsest.digest_flights set expires_at = clock_timestamp() + make_interval(secs => ${leaseSeconds})
     where tenant_id = $1 and key = $2 and step = $3 and attempt = $4`,
    [tenant, key, step, attempt],
  );
}

/** The call has ended, and somebody else may ask. A passing failure is left for those who wait for this very call. */
export async function endFlight(
  pool: Pool,
  { tenant, key }: Flight,
  { step, attempt }: Asker,
  failure: PassingFailure | null,
): Promise<void> {
  const own = [tenant, key, step, attempt];
  const mine = 'tenant_id = $1 and key = $2 and step = $3 and attempt = $4';
  if (failure === null) await read(pool, `delete from palimpsest.digest_flights where ${mine}`, own);
  else
    await read(
      pool,
      `update palimpsest.digest_flights set expires_at = clock_timestamp(), failure = $5::jsonb where ${mine}`,
      [...own, JSON.stringify(failure)],
    );
}

/** Statement that deletes what ended long ago; $1 is the tenant. */
export const forgetFlights = `delete from palimpsest.digest_flights
  where tenant_id = $1 and expires_at < now() - interval '${forgottenAfter}'`;
