import type { Pool } from 'pg';
import { unheld } from './digest-holds.js';
import { checkIds, notFound, type SessionIds } from './session-row.js';
import { withTransaction, type Query } from './transaction.js';

/** Children before their parents; the head of the session and its compactions point at each other, checked at the end. */
const tables = [
  'reductions',
  'compaction_digests',
  'digest_holds',
  'archive_parts',
  'compactions',
  'message_texts',
  'messages',
  'turns',
  'backfill_items',
  'sessions',
] as const;

/**
 * Deletes a session with everything stored of it, and of the texts that models wrote about it those that no other session
 * refers to or is compacting with. Answers how many messages there were. The guards of the log let this transaction delete rows of this one
 * session (migrations/0008_erase_a_session.sql). Throws `Store.SessionNotFound`.
 */
export async function eraseSession(pool: Pool, ids: SessionIds): Promise<number> {
  checkIds(ids);
  return withTransaction(pool, async ({ query }) => {
    // Also against those who store what a model wrote about it.
    const [row] = await query<{ messages: number }>(
      `select next_seq - 1 as messages from palimpsest.sessions where tenant_id = $1 and session_id = $2 for update`,
      [ids.tenant, ids.session],
    );
    if (!row) return notFound(ids);
    const keys = await digestsOf(query, ids);
    await query(`select palimpsest.erase_only($1, $2)`, [ids.tenant, ids.session]);
    for (const table of tables)
      await query(`delete from palimpsest.${table} where tenant_id = $1 and session_id = $2`, [
        ids.tenant,
        ids.session,
      ]);
    await query(
      `delete from palimpsest.digests d where d.tenant_id = $1 and d.key = any($2)
       and not exists (select from palimpsest.compaction_digests used where used.tenant_id = $1 and used.key = d.key)
       and ${unheld('d')}`,
      [ids.tenant, keys],
    );
    await handOver(query, ids, keys);
    return row.messages;
  });
}

/**
 * What this session paid for or refers to, locked: from here on no compaction can come to use it. In one order for all that
 * lock several, so that none of them waits for another in a circle.
 */
async function digestsOf(query: Query, { tenant, session }: SessionIds): Promise<string[]> {
  const rows = await query<{ key: string }>(
    `select key from palimpsest.digests where tenant_id = $1 and (payer_session = $2 or key in (
       select key from palimpsest.compaction_digests where tenant_id = $1 and session_id = $2))
     order by key for update`,
    [tenant, session],
  );
  return rows.map(({ key }) => key);
}

/**
 * Digests that the running compaction of another session holds are that session's from now on, since it has the same
 * messages: they go when it is erased. It pays nothing for them.
 */
async function handOver(
  query: Query,
  { tenant, session }: SessionIds,
  keys: readonly string[],
): Promise<void> {
  await query(
    `update palimpsest.digests d set payer_session = heir.session_id, payer_generation = 0
     from (select key, min(session_id) as session_id from palimpsest.digest_holds
       where tenant_id = $1 and key = any($3) and held_until > now() group by key) heir
     where d.tenant_id = $1 and d.key = heir.key and d.payer_session = $2`,
    [tenant, session, keys],
  );
}
