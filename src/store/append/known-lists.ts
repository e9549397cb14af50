import type { Pool } from 'pg';
import { continuationNames } from '../../contract/continuation.js';
import type { SessionIds } from '../../contract/ids.js';
import { read, reading, type Query } from '../connection/transaction.js';

/** The first items of a list, and the last message of the log that they stand for. */
export interface KnownPart {
  items: number;
  throughSeq: number;
}

/** A list, by the digest of all its items (`beginningDigests`). */
export interface KnownList extends KnownPart {
  digest: string;
}

/** Beginnings asked for in the first statement; later ones ask for eight times as many. What is new is nearly always shorter. */
const firstPage = 256;

/** The longest beginning of a list that the session knows; `digests` has one for each beginning, shortest first. */
export async function longestKnown(
  pool: Pool,
  ids: SessionIds,
  digests: readonly string[],
): Promise<KnownPart | null> {
  const query = reading(pool, ids);
  for (let end = digests.length, page = firstPage; end > 0; end -= page, page *= 8) {
    const [found] = await query<KnownPart & Record<string, unknown>>(
      `select items, through_seq as "throughSeq" from palimpsest.known_lists
       where tenant_id = $1 and session_id = $2
         and digest = any (array(select decode(each, 'hex') from unnest($3::text[]) each))
       order by items desc limit 1`,
      [ids.tenant, ids.session, digests.slice(Math.max(0, end - page), end)],
    );
    if (found) return found;
  }
  return null;
}

/**
 * Notes what lists stand for. A list that is known already keeps its place. Nothing is noted for a session that was erased since
 * the caller read it.
 */
export async function noteLists(
  query: Query,
  { tenant, session, incarnation }: SessionIds,
  lists: readonly KnownList[],
): Promise<void> {
  await query(
    `insert into palimpsest.known_lists (tenant_id, session_id, digest, items, through_seq)
     select s.tenant_id, s.session_id, decode(list.digest, 'hex'), list.items, list.through_seq
     from (select tenant_id, session_id from palimpsest.sessions
           where tenant_id = $1 and session_id = $2 and incarnation = coalesce($3::uuid, incarnation) for key share) s,
       unnest($4::text[], $5::int[], $6::int[]) list (digest, items, through_seq)
     on conflict do nothing`,
    [
      ...[tenant, session, incarnation ?? null],
      ...[lists.map(({ digest }) => digest), lists.map(({ items }) => items)],
      lists.map(({ throughSeq }) => throughSeq),
    ],
  );
}

/** A session, and the number of the first items of a list that it knows; null if it knows none. */
export interface Branch {
  [column: string]: unknown;
  session: string;
  items: number | null;
  /** Whether they stand for its whole log. */
  isWhole: boolean;
}

/**
 * A session and the forks in which it has gone on, oldest first. A branch is recognized by a list that is noted; of beginnings that
 * are much shorter than the list, none is asked for.
 */
export function branchesOf(pool: Pool, origin: SessionIds, digests: readonly string[]): Promise<Branch[]> {
  return read<Branch>(
    pool,
    origin,
    `with recursive family as (
       select session_id, next_seq, created_at from palimpsest.sessions where tenant_id = $1 and session_id = $2
       union all
       select fork.session_id, fork.next_seq, fork.created_at from family join palimpsest.sessions fork
         on fork.tenant_id = $1 and fork.fork_of is not null and fork.fork_of->>'session' = family.session_id
         and substring(fork.session_id from '^(.*)~[0-9]+$') = any ($3::text[])
     )
     select family.session_id as session, known.items,
       coalesce(known.through_seq = family.next_seq - 1, false) as "isWhole"
     from family left join lateral (
       select items, through_seq from palimpsest.known_lists
       where tenant_id = $1 and session_id = family.session_id
         and digest = any (array(select decode(each, 'hex') from unnest($4::text[]) each))
       order by items desc limit 1
     ) known on true
     order by family.created_at, family.session_id`,
    [origin.tenant, origin.session, continuationNames(origin.session), digests.slice(-firstPage)],
  );
}
