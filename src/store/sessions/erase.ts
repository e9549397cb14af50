import type { Pool } from 'pg';
import { isFailure } from '../../errors.js';
import { noteErasure, type Erasure } from './erasures.js';
import { forget } from './session-table.js';
import { notFound } from './session-row.js';
import { noticeAt, noticeKey } from '../connection/notices.js';
import { eraserOf } from '../connection/pool.js';
import type { SessionIds } from '../../contract/ids.js';
import { reading, withSession, withTransaction, type Query } from '../connection/transaction.js';

/**
 * Tables in the order of deletion, children before parents. The session's head and its compactions refer to each
 * other; that constraint is checked at the end.
 */
const tables = [
  'reductions',
  'compaction_digests',
  'digest_holds',
  'archive_parts',
  'compactions',
  'message_vectors',
  'message_texts',
  'messages',
  'turns',
  'known_lists',
  'backfill_items',
  'sessions',
] as const;

/** The number of deleted rows. */
export interface ErasedRows {
  messages: number;
  /** Committed compactions. */
  generations: number;
  /** Deleted digests that no other session uses. */
  digests: number;
}

/**
 * Deletes a session with everything stored for it, including the digests that no other session refers to and no running
 * compaction holds. Records that the session's executions must still be deleted. Forks of the session stay and become forks of
 * its origin. The guards of the log let this transaction delete rows of this one session (migrations/0008_erase_a_session.sql).
 * Throws `Store.SessionNotFound`.
 */
export async function eraseSession(pool: Pool, ids: SessionIds): Promise<ErasedRows> {
  return (await erase(pool, ids, false)) ?? notFound(ids);
}

/**
 * Erases all descendants of a session, then the session itself. Each erasure has its own transaction and the origin
 * comes last, so that a repeated call continues where an aborted one ended. Calls `erased` for each session.
 * Throws `Store.SessionNotFound`.
 */
export async function eraseWithForks(
  pool: Pool,
  ids: SessionIds,
  erased: (ids: SessionIds, rows: ErasedRows) => Promise<void>,
): Promise<void> {
  for (;;) {
    for (const session of await forksOf(reading(pool, ids), ids)) {
      const fork = { tenant: ids.tenant, session };
      await eraseWithForks(pool, fork, erased).catch((error: unknown) => {
        if (!isFailure(error, 'Store.SessionNotFound')) throw error;
      });
    }
    const rows = await erase(pool, ids, true);
    // Another fork was begun meanwhile.
    if (rows === null) continue;
    return erased(ids, rows);
  }
}

/** Returns null and erases nothing if `withoutForks` is set and the session has forks. */
async function erase(pool: Pool, ids: SessionIds, withoutForks: boolean): Promise<ErasedRows | null> {
  const { tenant, session } = ids;
  const rows = await withSession(eraserOf(pool), ids, async ({ query }) => {
    // The lock also excludes transactions that store a digest for the session or fork it.
    const [row] = await query<{ messages: number; generation: number }>(
      `select next_seq - 1 as messages, generation from palimpsest.sessions
       where tenant_id = $1 and session_id = $2 for update`,
      [tenant, session],
    );
    if (!row) return notFound(ids);
    if (withoutForks && (await forksOf(query, ids)).length > 0) return null;
    const keys = await digestsOf(query, ids);
    await giveForksToOrigin(query, ids);
    await query(`select palimpsest.erase_only($1, $2)`, [tenant, session]);
    const deleted = new Map<string, number>();
    for (const table of tables) {
      const [of] = await query<{ count: number }>(
        `with gone as (delete from palimpsest.${table} where tenant_id = $1 and session_id = $2 returning 1)
         select count(*) from gone`,
        [tenant, session],
      );
      deleted.set(table, of?.count ?? 0);
    }
    const digests = await releaseDigests(query, ids, keys);
    await forgetInBackfills(query, ids);
    await noteErasure(query, ids, row.generation + 1);
    await query(`select ${noticeAt(1)}`, [noticeKey(ids)]);
    // The genesis does not count as a compaction.
    return { messages: row.messages, generations: (deleted.get('compactions') ?? 1) - 1, digests };
  });
  if (rows !== null) forget(pool, ids);
  return rows;
}

async function forksOf(query: Query, { tenant, session }: SessionIds): Promise<string[]> {
  const rows = await query<{ session: string }>(
    `select session_id as session from palimpsest.sessions
     where tenant_id = $1 and fork_of->>'session' = $2 and fork_of is not null order by session_id`,
    [tenant, session],
  );
  return rows.map((row) => row.session);
}

/** A fork of a fork also holds messages of the first session and must remain a known fork of it. */
async function giveForksToOrigin(query: Query, { tenant, session }: SessionIds): Promise<void> {
  await query(
    `update palimpsest.sessions f set fork_of = case when origin.fork_of is not null then jsonb_build_object(
         'session', origin.fork_of->>'session',
         'throughSeq', least((f.fork_of->>'throughSeq')::int, (origin.fork_of->>'throughSeq')::int)) end
     from palimpsest.sessions origin
     where f.tenant_id = $1 and f.fork_of->>'session' = $2 and f.fork_of is not null
       and origin.tenant_id = $1 and origin.session_id = $2`,
    [tenant, session],
  );
}

/**
 * Locks the digests that this session paid for or refers to, so that no compaction can begin to use them. Skips
 * digests that a running commit locks: they belong to another session as well, and `releaseLeftDigests` handles them.
 */
async function digestsOf(query: Query, { tenant, session }: SessionIds): Promise<string[]> {
  const rows = await query<{ key: string }>(
    `select key from palimpsest.digests where tenant_id = $1 and (payer_session = $2 or key in (
       select key from palimpsest.compaction_digests where tenant_id = $1 and session_id = $2))
     order by key for update skip locked`,
    [tenant, session],
  );
  return rows.map(({ key }) => key);
}

/**
 * Deletes the digests that no session refers to or holds for a compaction. Each remaining digest gets a new payer, to which no
 * cost is charged: a session that uses the digest and therefore has the same messages. The digest is deleted when that session
 * is erased. One statement does both, so that both parts see a compaction that ends meanwhile, or neither does.
 */
async function releaseDigests(
  query: Query,
  { tenant, session }: SessionIds,
  keys: readonly string[],
): Promise<number> {
  const [released] = await query<{ gone: number }>(
    `with needed as (
       select d.key, coalesce(
         (select min(used.session_id) from palimpsest.compaction_digests used
          where used.tenant_id = $1 and used.key = d.key),
         (select min(held.session_id) from palimpsest.digest_holds held
          where held.tenant_id = $1 and held.key = d.key and held.held_until > now())) as payer
       from palimpsest.digests d where d.tenant_id = $1 and d.key = any($2)
     ), gone as (
       delete from palimpsest.digests d using needed
       where d.tenant_id = $1 and d.key = needed.key and needed.payer is null returning 1
     ), kept as (
       update palimpsest.digests d set payer_generation = 0, payer_session = needed.payer from needed
       where d.tenant_id = $1 and d.key = needed.key and needed.payer is not null and d.payer_session = $3
     )
     select count(*) as gone from gone`,
    [tenant, keys, session],
  );
  return released?.gone ?? 0;
}

/** Releases the digests that a commit of another session was about to refer to when this session was erased. */
export async function releaseLeftDigests(pool: Pool, { tenant, session, erasedAt }: Erasure): Promise<void> {
  await withTransaction(eraserOf(pool), { tenant }, async ({ query }) => {
    const rows = await query<{ key: string }>(
      `select key from palimpsest.digests where tenant_id = $1 and payer_session = $2 and created_at < $3
       order by key for update`,
      [tenant, session, erasedAt],
    );
    const keys = rows.map(({ key }) => key);
    if (keys.length > 0) await releaseDigests(query, { tenant, session }, keys);
  });
}

/** Moves the cursor of a job to the session before, and removes the id from a job that selected only this session. */
async function forgetInBackfills(query: Query, { tenant, session }: SessionIds): Promise<void> {
  await query(
    `update palimpsest.backfills b set "cursor" = (select max(i.session_id) from palimpsest.backfill_items i
         where i.tenant_id = $1 and i.job = b.job and i.session_id < $2)
     where b.tenant_id = $1 and b."cursor" = $2`,
    [tenant, session],
  );
  await query(
    `update palimpsest.backfills set request = jsonb_set(request, '{select,prefix}', '"(erased)"')
     where tenant_id = $1 and not selecting and request->'select'->>'prefix' = $2`,
    [tenant, session],
  );
}
