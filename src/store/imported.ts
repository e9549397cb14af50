/** Turns that an import wrote: the same messages at the same place have the same id, however often it is run. */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import type { SessionIds } from './session-row.js';
import { read } from './transaction.js';

const prefix = 'import-';

export function importedTurnId(fromSeq: number, hashes: readonly string[]): string {
  return `${prefix}${fromSeq}-${createHash('sha256').update(hashes.join()).digest('hex').slice(0, 24)}`;
}

/** No more turns are expected of a session whose last turn an import wrote. One that has gone on since stays open. */
export async function closeImported(pool: Pool, { tenant, session }: SessionIds): Promise<void> {
  await read(
    pool,
    `update palimpsest.sessions s set closed_at = now(), updated_at = now()
     where tenant_id = $1 and session_id = $2 and closed_at is null
       and exists (select from palimpsest.turns t where t.tenant_id = $1 and t.session_id = $2
                   and t.through_seq = s.next_seq - 1 and starts_with(t.turn_id, $3))`,
    [tenant, session, prefix],
  );
}
