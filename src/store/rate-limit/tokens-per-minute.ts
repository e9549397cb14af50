/**
 * A token bucket shared by all workers of a deployment: one row, which is refilled by the database's clock in the statement that
 * takes tokens from it. Its capacity is the inflow of one minute.
 *
 * A live call always gets a place. Its tokens are taken at once, if necessary from future inflow; in that case the
 * caller gets the time until they have flowed in. Calls, large and small alike, start in the order of their requests, so
 * none starves. The tokens used within any span of time are at most the inflow of that span plus the capacity (plus the
 * whole call if a call is larger than the capacity). A backfill's call gets no place: it may take tokens only while 30 % of the
 * bucket stays for live calls.
 */
import type { Pool } from 'pg';
import { read, withTransaction, type Query } from '../connection/transaction.js';

export interface Draw {
  tokens: number;
  perMinute: number;
  /** The call serves a backfill. */
  backfill: boolean;
  /** Id of the caller. With the same id, a later request finds the place of the earlier one. */
  caller: string;
}

export interface Drawn {
  /** 0: the tokens were taken. Otherwise the caller must wait this long and request them again. */
  waitMs: number;
}

const bucketName = 'tokens-per-minute';
/** Share of the bucket that a backfill leaves to live calls. */
const liveShare = 0.3;
/** Minutes of inflow that may be assigned in advance. A caller that must wait longer may have gone by then. */
const minutesAhead = 1;
/** A caller that is later than this loses its place: many late callers at once would exceed the bucket. */
const keptMs = 5_000;
const forgottenAfter = '15 minutes';

/** The present level; $1 bucket, $2 tokens per minute. Clocks may step back; levels do not. */
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

/** Takes the tokens, or returns the time to wait. Throws `Store.Unavailable`. */
export function drawTokens(pool: Pool, draw: Draw): Promise<Drawn> {
  return withTransaction(pool, ({ query }) =>
    draw.backfill ? drawLeftover(query, draw) : takeTurn(query, draw),
  );
}

async function drawLeftover(query: Query, { tokens, perMinute }: Draw): Promise<Drawn> {
  // A call that exceeds the backfill's share of a full bucket is made when the bucket is full.
  const needed = Math.min(tokens + liveShare * perMinute, perMinute);
  const [drawn] = await query(drawSql, [bucketName, perMinute, tokens, needed]);
  return { waitMs: drawn ? 0 : Math.max(1, inflowMs(needed - (await levelBy(query, perMinute)), perMinute)) };
}

async function takeTurn(query: Query, { tokens, perMinute, caller }: Draw): Promise<Drawn> {
  const place = `${bucketName}/${caller}`;
  const given = await returnTo(query, place);
  if (given !== null && given.waitMs > 0) return { waitMs: Math.ceil(given.waitMs) };
  if (given !== null && given.waitMs > -keptMs) return { waitMs: 0 };
  if (given !== null) await query(correctSql, [bucketName, given.tokens]);

  const [drawn] = await query<{ level: number }>(drawSql, [
    ...[bucketName, perMinute, tokens],
    -minutesAhead * perMinute,
  ]);
  if (!drawn) {
    const level = await levelBy(query, perMinute);
    return { waitMs: Math.max(1, inflowMs(-minutesAhead * perMinute - level, perMinute)) };
  }
  // The call is made when all its tokens have flowed in, or, if it is larger than the bucket, when the bucket is full.
  const waitMs = inflowMs(Math.min(0, perMinute - tokens) - drawn.level, perMinute);
  if (waitMs > 0) await keepPlace(query, place, tokens, waitMs);
  return { waitMs };
}

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

async function keepPlace(query: Query, place: string, tokens: number, waitMs: number): Promise<void> {
  await query(
    `insert into palimpsest.rate_buckets (name, level, updated_at)
     values ($1, $2::float8, clock_timestamp() + make_interval(secs => $3::float8))
     on conflict (name) do update set level = excluded.level, updated_at = excluded.updated_at`,
    [place, tokens, waitMs / 1000],
  );
  await query(
    `delete from palimpsest.rate_buckets
     where name like '${bucketName}/%' and updated_at < clock_timestamp() - interval '${forgottenAfter}'`,
  );
}

/**
 * Gives back to the bucket the tokens that a call did not use. A negative number takes from it what the call used beyond its
 * reservation.
 */
export async function correctTokens(pool: Pool, unused: number): Promise<void> {
  if (unused !== 0) await read(pool, correctSql, [bucketName, unused]);
}

/** Tokens that may be taken now; negative if future inflow is already assigned. */
export async function bucketLevel(pool: Pool, perMinute: number): Promise<number> {
  return levelBy((text, values) => read(pool, text, values), perMinute);
}

async function levelBy(query: Query, perMinute: number): Promise<number> {
  const [row] = await query<{ level: number }>(levelSql, [bucketName, perMinute]);
  return row?.level ?? perMinute;
}

/** Milliseconds in which this many tokens flow in; 0 for a negative number. */
function inflowMs(tokens: number, perMinute: number): number {
  return Math.max(0, Math.ceil((60_000 * tokens) / perMinute));
}
