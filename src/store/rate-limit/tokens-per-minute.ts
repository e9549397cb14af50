/**
 * Token buckets shared by all workers of a deployment: one row each, which is refilled by the database's clock in the statement that
 * takes tokens from it. Its capacity is the inflow of one minute.
 *
 * The tokens of a live call are taken at once, if necessary from future inflow. In that case the caller gets a place: the time
 * at which its tokens will have flowed in. Calls with a place, large and small alike, start in the order of their requests, so
 * none starves. If more than one minute of inflow is assigned already, nothing is taken, and the caller requests the tokens
 * again later. The tokens used within any span of time are at most the inflow of that span plus the capacity (plus the whole
 * call if a call is larger than the capacity).
 *
 * A backfill's call gets no place. Its tokens are taken only if 30 % of the bucket stays for live calls, or if the bucket is
 * full.
 */
import type { Pool } from 'pg';
import { reading, read, withTransaction, type Query } from '../connection/transaction.js';

/** The bucket of all tenants. */
export const deploymentBucket = 'tokens-per-minute';

/** A bucket, and what a call takes from it. */
export interface Share {
  bucket: string;
  /** Tokens, or 1 in a bucket of requests. */
  amount: number;
  perMinute: number;
}

export interface Draw {
  /** Taken together or not at all. Callers that share several buckets name them in the same order. */
  shares: readonly Share[];
  /** The call serves a backfill. */
  backfill: boolean;
  /** Id of the caller. With the same id, a later request finds the place of the earlier one. */
  caller: string;
}

export interface Drawn {
  /** 0: the tokens were taken. Otherwise the caller must wait this long and request them again. */
  waitMs: number;
}

/** Share of the bucket that a backfill leaves to live calls. */
const liveShare = 0.3;
/** Minutes of inflow that may be assigned in advance. A caller that must wait longer may have gone by then. */
const minutesAhead = 1;
/** A caller that is later than this loses its place: many late callers at once would exceed the bucket. */
const keptMs = 5_000;
const forgottenAfter = '15 minutes';

/** The present level; $1 bucket, $2 tokens per minute. If the clock steps back, nothing flows in. */
const refilled =
  'least($2::float8, bucket.level + $2::float8 / 60 * greatest(0, extract(epoch from clock_timestamp() - bucket.updated_at)))';

/** Parameters: $3 tokens, $4 the level required before they are taken. A new bucket is full. */
const drawSql = `
  insert into palimpsest.rate_buckets as bucket (name, level, updated_at)
  values ($1, $2::float8 - $3::float8, clock_timestamp())
  on conflict (name) do update
    set level = ${refilled} - $3::float8, updated_at = greatest(bucket.updated_at, clock_timestamp())
    where ${refilled} >= $4::float8
  returning level`;

const levelSql = `select ${refilled} as level from palimpsest.rate_buckets as bucket where name = $1`;
const correctSql = 'update palimpsest.rate_buckets set level = level + $2::float8 where name = $1';

/** Takes the amounts, or returns the time to wait. Throws `Store.Unavailable`. */
export function drawTokens(pool: Pool, { shares, backfill, caller }: Draw): Promise<Drawn> {
  return withTransaction(pool, 'shared', async ({ query }) => {
    const waits: number[] = [];
    for (const share of shares)
      waits.push(await (backfill ? drawLeftover(query, share) : takeTurn(query, share, caller)));
    const waitMs = Math.max(0, ...waits);
    if (waitMs === 0) return { waitMs };
    for (const [index, share] of shares.entries()) {
      if (waits[index] !== 0) continue;
      // The other buckets keep this call waiting: its amount stays taken until then, or goes back if it has no place.
      if (backfill) await query(correctSql, [share.bucket, share.amount]);
      else await keepPlace(query, share, caller, waitMs);
    }
    return { waitMs };
  });
}

async function drawLeftover(query: Query, { bucket, amount, perMinute }: Share): Promise<number> {
  // A call that exceeds the backfill's share of a full bucket is made when the bucket is full.
  const needed = Math.min(amount + liveShare * perMinute, perMinute);
  const [drawn] = await query(drawSql, [bucket, perMinute, amount, needed]);
  return drawn ? 0 : Math.max(1, inflowMs(needed - (await levelBy(query, bucket, perMinute)), perMinute));
}

async function takeTurn(query: Query, share: Share, caller: string): Promise<number> {
  const { bucket, amount, perMinute } = share;
  const given = await returnTo(query, placeOf(share, caller));
  if (given !== null && given.waitMs > 0) return Math.ceil(given.waitMs);
  if (given !== null && given.waitMs > -keptMs) return 0;
  if (given !== null) await query(correctSql, [bucket, given.tokens]);

  const [drawn] = await query<{ level: number }>(drawSql, [
    ...[bucket, perMinute, amount],
    -minutesAhead * perMinute,
  ]);
  if (!drawn) {
    const level = await levelBy(query, bucket, perMinute);
    return Math.max(1, inflowMs(-minutesAhead * perMinute - level, perMinute));
  }
  // The call is made when all its tokens have flowed in, or, if it is larger than the bucket, when the bucket is full.
  const waitMs = inflowMs(Math.min(0, perMinute - amount) - drawn.level, perMinute);
  if (waitMs > 0) await keepPlace(query, share, caller, waitMs);
  return waitMs;
}

const placeOf = ({ bucket }: Share, caller: string): string => `${bucket}/${caller}`;

/** The place that this caller got earlier; null if it has none. A place is deleted once its time has come. */
async function returnTo(query: Query, place: string): Promise<{ waitMs: number; tokens: number } | null> {
  const [given] = await query<{ waitMs: number; tokens: number }>(
    `select 1000 * extract(epoch from updated_at - clock_timestamp())::float8 as "waitMs", level as tokens
     from palimpsest.rate_buckets
     where name = $1 and updated_at > clock_timestamp() - interval '${forgottenAfter}' for update`,
    [place],
  );
  if (!given) return null;
  if (given.waitMs <= 0) await query('delete from palimpsest.rate_buckets where name = $1', [place]);
  return given;
}

async function keepPlace(query: Query, share: Share, caller: string, waitMs: number): Promise<void> {
  await query(
    `insert into palimpsest.rate_buckets (name, level, updated_at)
     values ($1, $2::float8, clock_timestamp() + make_interval(secs => $3::float8))
     on conflict (name) do update set level = excluded.level, updated_at = excluded.updated_at`,
    [placeOf(share, caller), share.amount, waitMs / 1000],
  );
  await query(
    `delete from palimpsest.rate_buckets
     where starts_with(name, $1) and updated_at < clock_timestamp() - interval '${forgottenAfter}'`,
    [placeOf(share, '')],
  );
}

/**
 * Gives back to the bucket what a call did not use. A negative number takes from it what the call used beyond its
 * reservation.
 */
export async function correctTokens(pool: Pool, unused: number, bucket = deploymentBucket): Promise<void> {
  if (unused !== 0) await read(pool, 'shared', correctSql, [bucket, unused]);
}

/** Tokens that may be taken now; negative if future inflow is already assigned. */
export async function bucketLevel(pool: Pool, perMinute: number): Promise<number> {
  return levelBy(reading(pool, 'shared'), deploymentBucket, perMinute);
}

async function levelBy(query: Query, bucket: string, perMinute: number): Promise<number> {
  const [row] = await query<{ level: number }>(levelSql, [bucket, perMinute]);
  return row?.level ?? perMinute;
}

/** Milliseconds in which this many tokens flow in; 0 for a negative number. */
function inflowMs(tokens: number, perMinute: number): number {
  return Math.max(0, Math.ceil((60_000 * tokens) / perMinute));
}
