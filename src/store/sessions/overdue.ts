/**
 * Sessions that have reached a mark while there may be no workflow working on them. Causes are lost signals, failed compactions
 * whose retry is due, and forks. `overdue_at` is the time since which this has been so; `sweep_at` is the time of the sweep's
 * next look at the session.
 */
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from './session-row.js';
import { read } from '../connection/transaction.js';

/** The sweep can ignore the session for the next `ms`, because the workflow that measures it is responsible for it. */
export async function takeInHand(
  pool: Pool,
  { tenant, session, incarnation }: SessionRow,
  ms: number,
): Promise<void> {
  await read(
    pool,
    `update palimpsest.sessions set overdue_at = now() + make_interval(secs => $3)
     where tenant_id = $1 and session_id = $2 and incarnation = $4 and overdue_at is not null`,
    [tenant, session, ms / 1_000, incarnation],
  );
}

/** Records that the session needs nothing, unless a turn or a policy was stored after the row was read. */
export async function asksForNothing(
  pool: Pool,
  { tenant, session, incarnation, nextSeq, policyVersion }: SessionRow,
): Promise<void> {
  await read(
    pool,
    `update palimpsest.sessions set overdue_at = null
     where tenant_id = $1 and session_id = $2 and incarnation = $3 and next_seq = $4 and policy_version = $5
       and overdue_at is not null`,
    [tenant, session, incarnation, nextSeq, policyVersion],
  );
}

export interface OverdueSession extends SessionIds {
  /** JSON of the policy's layers. */
  policy: string;
  /** A running backfill has selected the session or will select it. */
  inBackfill: boolean;
}

/** Maximum number of tenants in one sweep. Later sweeps read the others. */
const mostOwners = 10_000;

/** A backfill gives the model this long for a summary. A session that it has not reached by then counts as not covered. */
const longestBackfill = "interval '1 day'";

/**
 * Reads at most `most` sessions that are due: the same number from every tenant that has some, longest waiting first.
 * Finds them with the partial index alone, by two probes for each tenant and as many entries as it returns.
 */
export async function readOverdue(pool: Pool, most: number): Promise<OverdueSession[]> {
  const rows = await read<{ tenant: string; session: string; policy: string; in_backfill: boolean }>(
    pool,
    selectOverdue,
    [most],
  );
  return rows.map(({ in_backfill: inBackfill, ...session }) => ({ ...session, inBackfill }));
}

/** @internal A test runs EXPLAIN on it. */
export const selectOverdue = `
with recursive owner (tenant_id) as (
  (select tenant_id from palimpsest.sessions where sweep_at is not null order by tenant_id limit 1)
  union all
  select (select s.tenant_id from palimpsest.sessions s
          where s.sweep_at is not null and s.tenant_id > owner.tenant_id order by s.tenant_id limit 1)
  from owner where owner.tenant_id is not null
), owners as (
  select tenant_id from owner where tenant_id is not null
    and exists (select from palimpsest.sessions s where s.tenant_id = owner.tenant_id and s.sweep_at <= now())
  limit ${mostOwners}
)
select s.tenant_id as tenant, s.session_id as session, s.policy,
  s.overdue_at > now() - ${longestBackfill} and exists (
    select from palimpsest.backfills b
    where b.tenant_id = s.tenant_id and b.ended_at is null and b.state = 'running' and (
      exists (select from palimpsest.backfill_items i
              where i.tenant_id = b.tenant_id and i.job = b.job and i.session_id = s.session_id
                and i.state in ('pending', 'running'))
      or b.selecting and (b.cursor is null or s.session_id > b.cursor)
        and starts_with(s.session_id, coalesce(b.request->'select'->>'prefix', ''))
        and s.format = coalesce(b.request->'select'->>'format', s.format)
        and s.live_tokens >= coalesce((b.request->'select'->>'minTokens')::bigint, 0))) as in_backfill
from owners cross join lateral (
  select waiting.*, row_number() over (order by sweep_at) as place from (
    select * from palimpsest.sessions of_owner
    where of_owner.tenant_id = owners.tenant_id and of_owner.sweep_at <= now()
    order by of_owner.sweep_at
    limit greatest(1, ceil($1::numeric / (select count(*) from owners)))
  ) waiting
) s
order by s.place, s.sweep_at
limit $1`;

/**
 * Postpones sessions that the sweep has looked at. They stay overdue until a workflow measures them. The next look comes after
 * the time that they have waited so far (at least a minute, at most an hour), or after a minute if they could not be signalled
 * (`told` is false).
 */
export async function postpone(pool: Pool, sessions: readonly SessionIds[], told: boolean): Promise<void> {
  if (sessions.length === 0) return;
  await read(
    pool,
    `update palimpsest.sessions s
     set sweep_at = now() + case when $3 then greatest(interval '1 minute', least(interval '1 hour', now() - overdue_at))
       else interval '1 minute' end
     from unnest($1::text[], $2::text[]) as swept (tenant_id, session_id)
     where s.tenant_id = swept.tenant_id and s.session_id = swept.session_id and s.overdue_at <= now()`,
    [sessions.map(({ tenant }) => tenant), sessions.map(({ session }) => session), told],
  );
}

export interface Overdue {
  sessions: number;
  /** Start of the longest wait. */
  since: Date | null;
}

/** Counts the overdue sessions of all tenants. Reads the partial index alone, whatever the number of sessions. */
export async function countOverdue(pool: Pool): Promise<Overdue> {
  const [row] = await read<{ sessions: number; since: Date | null }>(
    pool,
    `select count(*) as sessions, min(overdue_at) as since from palimpsest.sessions
     where sweep_at is not null and overdue_at <= now()`,
  );
  return { sessions: row?.sessions ?? 0, since: row?.since ?? null };
}
