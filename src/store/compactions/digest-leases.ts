/**
 * Leases on digests, by content key: of all workers, only the holder of the lease asks a model for the digest. The holder
 * renews its lease during the call. No transaction is open meanwhile. A lease that is not renewed expires by the database's clock.
 */
import type { Pool } from 'pg';
import { prepared } from '../connection/prepared.js';
import { read, withTransaction } from '../connection/transaction.js';
import { lockCalls } from '../tenants/spend.js';
import { type HeldDigest, holdDigest, type Holder, holdParameters, holdStored } from './digest-holds.js';

/** One attempt of one step. A later attempt of the same step takes over at once, because its predecessor is dead. */
export interface Asker {
  step: string;
  attempt: number;
}

/** The digest that the answer becomes, by content key. */
export interface LeasedDigest {
  tenant: string;
  key: string;
}

/** A failed call whose next attempt may succeed, with the delay that the endpoint requested. */
export interface PassingFailure {
  type: string;
  retryAfterMs: number | null;
}

/** A lease that another asker holds. */
export interface LeaseSeen {
  /** Failure of the latest call; null while it runs. */
  failure: PassingFailure | null;
  /** Milliseconds until another step may ask, unless the lease ends earlier. */
  remainingMs: number;
}

const leaseSeconds = 15;
/** A fifth of the lease, so that a few late renewals do no harm. */
export const renewEveryMs = 3_000;
/** Pause after a passing failure, so that many steps that need the same answer do not fail one after the other. */
const shortestCoolMs = 1_000;
/** The endpoint may have requested a longer delay than other steps can wait. After this time, they send the request themselves. */
const longestCoolMs = 30_000;
/** Age at which expired leases are deleted. */
const forgottenAfter = '1 hour';

/**
 * Finds and holds the digest, or claims the lease on it. No other asker gets the lease until it ends or expires. An answer that
 * another asker stored during the claim is not found: look again with `holdDigest`. `most`: maximum number of the tenant's leases
 * with a call in flight. Claims of a tenant with such a limit wait for each other, so that no two of them take its last place.
 */
export async function findOrClaim(
  pool: Pool,
  holder: Holder,
  { key, most }: { key: string; most?: number },
  asker: Asker,
): Promise<{ found: HeldDigest | null; claimed: boolean }> {
  const { tenant } = holder;
  if (most !== undefined) {
    const found = await holdDigest(pool, holder, key);
    return { found, claimed: found === null && (await claimPlace(pool, { tenant, key, most }, asker)) };
  }
  const parameters = [...holdParameters(holder), key, asker.step, asker.attempt];
  const [row] = await read<HeldDigest & { claimed: boolean }>(pool, holder, findStatement, parameters);
  if (!row) return { found: null, claimed: false };
  const { claimed, ...found } = row;
  return { found: claimed ? null : found, claimed };
}

function claimPlace(
  pool: Pool,
  { tenant, key, most }: LeasedDigest & { most: number },
  asker: Asker,
): Promise<boolean> {
  return withTransaction(pool, { tenant }, async ({ query }) => {
    await query(lockCalls, [tenant]);
    const [row] = await query<{ others: number }>(
      `select count(*)::int as others from palimpsest.digest_flights
       where tenant_id = $1 and key <> $2 and failure is null and expires_at > clock_timestamp()`,
      [tenant, key],
    );
    if ((row?.others ?? 0) >= most) return false;
    const claimed = await query(claim('(values ($1, $2, $3, $4::int)) asker (tenant, key, step, attempt)'), [
      ...[tenant, key, asker.step, asker.attempt],
    ]);
    return claimed.length > 0;
  });
}

const claim = (asker: string): string => `
  insert into palimpsest.digest_flights as lease (tenant_id, key, step, attempt, expires_at)
  select tenant, key, step, attempt, clock_timestamp() + make_interval(secs => ${leaseSeconds}) from ${asker}
  on conflict (tenant_id, key) do update
    set step = excluded.step, attempt = excluded.attempt, expires_at = excluded.expires_at, failure = null
    where lease.expires_at <= clock_timestamp()
      or (lease.step = excluded.step and lease.attempt <= excluded.attempt)
  returning 1`;

const findStatement = prepared(
  'find_or_claim',
  `with ${holdStored}, lease as (${claim(`(values ($1, $5, $6, $7::int)) asker (tenant, key, step, attempt)
     where not exists (select from found)`)})
   select text, tokens, false as claimed from found
   union all select null, null, true from lease`,
);

/** Null if there is no valid lease. */
export async function seeLease(pool: Pool, { tenant, key }: LeasedDigest): Promise<LeaseSeen | null> {
  const [seen] = await read<LeaseSeen & Record<string, unknown>>(
    pool,
    { tenant },
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
    { tenant },
    `update palimpsest.digest_flights set expires_at = clock_timestamp() + make_interval(secs => ${leaseSeconds})
     where tenant_id = $1 and key = $2 and step = $3 and attempt = $4`,
    [tenant, key, step, attempt],
  );
}

/** Ends the lease after the call. Another step may ask at once, or, after a passing failure, when the pause is over. */
export async function endLease(
  pool: Pool,
  { tenant, key }: LeasedDigest,
  { step, attempt }: Asker,
  failure: PassingFailure | null,
): Promise<void> {
  const own = [tenant, key, step, attempt];
  const mine = 'tenant_id = $1 and key = $2 and step = $3 and attempt = $4';
  if (failure === null) {
    await read(pool, { tenant }, `delete from palimpsest.digest_flights where ${mine}`, own);
    return;
  }
  const coolMs = Math.min(longestCoolMs, Math.max(shortestCoolMs, failure.retryAfterMs ?? 0));
  await read(
    pool,
    { tenant },
    `update palimpsest.digest_flights
     set expires_at = clock_timestamp() + make_interval(secs => $5), failure = $6::jsonb where ${mine}`,
    [...own, coolMs / 1_000, JSON.stringify(failure)],
  );
}

/** Deletes leases that expired long ago; $1 is the tenant. */
export const forgetLeases = `delete from palimpsest.digest_flights
  where tenant_id = $1 and expires_at < now() - interval '${forgottenAfter}'`;
