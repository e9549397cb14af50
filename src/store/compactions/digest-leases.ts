/**
 * The right to ask a model for an answer, over all workers: a lease by content key, renewed while the call goes on. No
 * transaction is open meanwhile. A lease that is not renewed ends by the database's clock.
 */
import type { Pool } from 'pg';
import { read } from '../connection/transaction.js';

/** One attempt of one step. A later attempt of the same step takes over at once: its predecessor is dead. */
export interface Asker {
  step: string;
  attempt: number;
}

/** The digest that the answer becomes, by content key. */
export interface LeasedDigest {
  tenant: string;
  key: string;
}

/** A failed call whose next attempt may succeed, with the delay that the endpoint asked for. */
export interface PassingFailure {
  type: string;
  retryAfterMs: number | null;
}

/** A lease that another asker holds. */
export interface LeaseSeen {
  /** Of the latest call; null while it goes on. */
  failure: PassingFailure | null;
  /** Milliseconds until another may ask, if nothing happens before. */
  remainingMs: number;
}

const leaseSeconds = 15;
/** A fifth of the lease, so that some late renewals do no harm. */
export const renewEveryMs = 3_000;
/** Rest after a passing failure, so that many steps that need the same answer do not fail one after the other. */
const shortestCoolMs = 1_000;
/** The endpoint may have asked for more than others can wait: then they ask for themselves. */
const longestCoolMs = 30_000;
/** Ended leases are deleted after this long. */
const forgottenAfter = '1 hour';

/** True where this asker holds the lease: nobody else asks until it ends or runs out. */
export async function claimLease(
  pool: Pool,
  { tenant, key }: LeasedDigest,
  { step, attempt }: Asker,
): Promise<boolean> {
  const claimed = await read(
    pool,
    `insert into palimpsest.digest_flights as lease (tenant_id, key, step, attempt, expires_at)
     values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => ${leaseSeconds}))
     on conflict (tenant_id, key) do update
       set step = excluded.step, attempt = excluded.attempt, expires_at = excluded.expires_at, failure = null
       where lease.expires_at <= clock_timestamp()
         or (lease.step = excluded.step and lease.attempt <= excluded.attempt)
     returning 1`,
    [tenant, key, step, attempt],
  );
  return claimed.length > 0;
}

/** Null where nobody holds it. */
export async function seeLease(pool: Pool, { tenant, key }: LeasedDigest): Promise<LeaseSeen | null> {
  const [seen] = await read<LeaseSeen & Record<string, unknown>>(
    pool,
    `select failure, 1000 * extract(epoch from expires_at - clock_timestamp())::float8 as "remainingMs"
     from palimpsest.digest_flights where tenant_id = $1 and key = $2 and expires_at > clock_timestamp()`,
    [tenant, key],
  );
  return seen ?? null;
}

export async function renewLease(
  pool: Pool,
  { tenant, key }: LeasedDigest,
  { step, attempt }: Asker,
): Promise<void> {
  await read(
    pool,
    `update palimpsest.digest_flights set expires_at = clock_timestamp() + make_interval(secs => ${leaseSeconds})
     where tenant_id = $1 and key = $2 and step = $3 and attempt = $4`,
    [tenant, key, step, attempt],
  );
}

/** The call has ended. Somebody else may ask at once; after a passing failure, once that has cooled down. */
export async function endLease(
  pool: Pool,
  { tenant, key }: LeasedDigest,
  { step, attempt }: Asker,
  failure: PassingFailure | null,
): Promise<void> {
  const own = [tenant, key, step, attempt];
  const mine = 'tenant_id = $1 and key = $2 and step = $3 and attempt = $4';
  if (failure === null) {
    await read(pool, `delete from palimpsest.digest_flights where ${mine}`, own);
    return;
  }
  const coolMs = Math.min(longestCoolMs, Math.max(shortestCoolMs, failure.retryAfterMs ?? 0));
  await read(
    pool,
    `update palimpsest.digest_flights
     set expires_at = clock_timestamp() + make_interval(secs => $5), failure = $6::jsonb where ${mine}`,
    [...own, coolMs / 1_000, JSON.stringify(failure)],
  );
}

/** Statement that deletes leases that ended long ago; $1 is the tenant. */
export const forgetLeases = `delete from palimpsest.digest_flights
  where tenant_id = $1 and expires_at < now() - interval '${forgottenAfter}'`;
