/** Which sessions a backfill means, page by page, in the order of their ids. */
import type { Pool } from 'pg';
import type { BackfillSelection } from '../../contract/backfills.js';
import { toSession, type SessionRecord, type SessionRow } from '../sessions/session-row.js';
import { read } from '../connection/transaction.js';

export interface SelectedSession {
  session: string;
  incarnation: string;
  tokens: number;
  /** By its counters it may be due, or have a policy of its tenant that it has not taken over. */
  candidate: boolean;
  /** Nothing stands behind its head: no compaction could do anything. */
  empty: boolean;
}

/** One page after the cursor; shorter than `most` at the end only. Reads counters alone: no policy, no text. */
export async function readSelection(
  pool: Pool,
  tenant: string,
  select: BackfillSelection,
  after: string | null,
  most: number,
): Promise<SelectedSession[]> {
  const { prefix = null, format = null, idleSince = null, minTokens = null } = select;
  return read<SelectedSession & Record<string, unknown>>(
    pool,
    `select s.session_id as session, s.incarnation, s.live_tokens as tokens, s.through_seq >= s.next_seq - 1 as empty,
       coalesce(s.live_tokens >= s.measure_at_tokens, false)
         or coalesce(s.live_messages >= s.measure_at_messages, false)
         or exists (select from palimpsest.tenants t
              where t.tenant_id = s.tenant_id and t.policy_version <> s.tenant_policy_version) as candidate
     from palimpsest.sessions s
     where s.tenant_id = $1 and ($2::text is null or s.session_id > $2)
       and ($3::text is null or starts_with(s.session_id, $3)) and ($4::text is null or s.format = $4)
       and ($5::timestamptz is null or coalesce((select last.created_at from palimpsest.turns last
             where last.tenant_id = s.tenant_id and last.session_id = s.session_id
             order by last.from_seq desc limit 1), s.created_at) < $5)
       and ($6::bigint is null or s.live_tokens >= $6)
     order by s.session_id limit $7`,
    [tenant, after, prefix, format, idleSince, minTokens, most],
  );
}

/** Rows of these sessions, with their tenant's policy where that is newer. */
export async function readSessions(
  pool: Pool,
  tenant: string,
  sessions: readonly string[],
): Promise<SessionRow[]> {
  const records = await read<SessionRecord & Record<string, unknown>>(
    pool,
    `select s.*, t.policy as newer_tenant_policy, t.policy_version as newer_tenant_version
     from palimpsest.sessions s
     left join palimpsest.tenants t
       on t.tenant_id = s.tenant_id and t.policy_version is distinct from s.tenant_policy_version
     where s.tenant_id = $1 and s.session_id = any($2) order by s.session_id`,
    [tenant, sessions],
  );
  return records.map(toSession);
}
