/**
 * A token bucket that all workers of a deployment draw from: one row, refilled by the database's clock in the statement that
 * draws. It holds what flows in within a minute.
 *
 * A live call always gets a place: its tokens are taken at once, also from what is still to flow in, and where they are not
 * there yet the caller is told when they will be. Calls go in the order in which they asked, large and small alike, so none
 * starves; what went within any span of time is at most the inflow of that span and one minute's worth (and, of a call larger
 * than that, the call). A backfill's call gets no place: it may draw only what leaves 30 % for live calls.
 */
import type { Pool } from 'pg';
import { read, withTransaction, type Query } from '../connection/transaction.js';

export interface Draw {
  tokens: number;
  perMinute: number;
  /** Serves a backfill. */
  backfill: boolean;
  /** Who asks: the same one comes back for the place it was given. */
  caller: string;
}

export interface Drawn {
  /** 0: the tokens are drawn. Otherwise nothing may be done for this long. */
  waitMs: number;
}

const bucketName = 'tokens-per-minute';
/** Share of the bucket that a backfill leaves to live calls. */
const liveShare = 0.3;
/** Minutes of inflow that may be given away in advance: who waits longer than that may well be gone when his turn comes. */
const minutesAhead = 1;
/** Who comes this late to his place has lost it: many at once would be more than the bucket holds. */
const keptMs = 5_000;
const forgottenAfter = '15 minutes';

/** The level now; $1 bucket, $2 tokens per minute. Clocks may step back, levels do not. */
const refilled =
  'least($2::float8, bucket.level + $2::float8 / 60 * greatest(0, extract(epoch from clock_timestamp() - bucket.updated_at)))';

/** $3 tokens, $4 the level that must be there before they are drawn. The bucket is made full. */
const drawSql = `
  insert into palimpsest.rate_buckets as bucket (name, level, updated_at)
  values ($1, $2::float8 - $3::float8, clock_timestamp())
  on conflict (name) do update
    set level = ${refilled} - $3::float8, updated_at = greatest(bucket.updated_at, clock_timestamp())
    where ${refilled} >= $4::float8
  returning level`;

const levelSql = `select ${refilled} as level from palimpsest.rate_buckets as bucket where name = $1`;
const correctSql = 'update palimpsest.rate_buckets set level = level + $2::float8 where name = $1';

/** Draws, or says how long to wait. Throws `Store.Unavailable`. */
export function drawTokens(pool: Pool, draw: Draw): Promise<Drawn> {
  return withTransaction(pool, ({ query }) =>
    draw.backfill ? drawLeftover(query, draw) : takeTurn(query, draw),
  );
}

async function drawLeftover(query: Query, { tokens, perMinute }: Draw): Promise<Drawn> {
  // A call that would not leave the share even of a full bucket goes when it is full.
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
  // Goes when all of it has flowed in; larger than the bucket, when that was full.
  const waitMs = inflowMs(Math.min(0, perMinute - tokens) - drawn.level, perMinute);
  if (waitMs > 0) await keepPlace(query, place, tokens, waitMs);
  return { waitMs };
}

/** The place given to this caller before, which is gone once its time has come; null: none. */
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

/** Gives back what a call did not use; below zero: takes what it used beyond what was drawn. */
export async function correctTokens(pool: Pool, unused: number): Promise<void> {
  if (unused !== 0) await read(pool, correctSql, [bucketName, unused]);
}

/** Tokens that may be drawn now; below zero: given away in advance. */
export async function bucketLevel(pool: Pool, perMinute: number): Promise<number> {
  return levelBy((text, values) => read(pool, text, values), perMinute);
}

async function levelBy(query: Query, perMinute: number): Promise<number> {
  const [row] = await query<{ level: number }>(levelSql, [bucketName, perMinute]);
  return row?.level ?? perMinute;
}

/** Milliseconds in which as many tokens flow in; 0 for none. */
function inflowMs(tokens: number, perMinute: number): number {
  return Math.max(0, Math.ceil((60_000 * tokens) / perMinute));
}
