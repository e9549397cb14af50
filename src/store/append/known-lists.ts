import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { reading, type Query } from '../connection/transaction.js';

/** The first items of a list, and the last message of the log that they stand for. */
export interface KnownPart {
  items: number;
  throughSeq: number;
}

/** Prefixes asked for in one statement. What is new since the last call is nearly always shorter. */
const pageItems = 256;

/** The longest beginning of a list that the session knows; `digests` has one for each beginning, shortest first. */
export async function longestKnown(
  pool: Pool,
  ids: SessionIds,
  digests: readonly string[],
): Promise<KnownPart | null> {
  const query = reading(pool, ids);
  for (let end = digests.length; end > 0; end -= pageItems) {
    const [found] = await query<KnownPart & Record<string, unknown>>(
      `select items, through_seq as "throughSeq" from palimpsest.known_lists
       where tenant_id = $1 and session_id = $2
         and digest = any (array(select decode(each, 'hex') from unnest($3::text[]) each))
       order by items desc limit 1`,
      [ids.tenant, ids.session, digests.slice(Math.max(0, end - pageItems), end)],
    );
    if (found) return found;
  }
  return null;
}

/** Notes that a list stands for the log through `throughSeq`. A list that is known already keeps its place. */
export async function noteList(
  query: Query,
  { tenant, session }: SessionIds,
  { digest, items }: { digest: string; items: number },
  throughSeq: number,
): Promise<void> {
  await query(
    `insert into palimpsest.known_lists (tenant_id, session_id, digest, items, through_seq)
     values ($1, $2, decode($3, 'hex'), $4, $5) on conflict do nothing`,
    [tenant, session, digest, items, throughSeq],
  );
}
