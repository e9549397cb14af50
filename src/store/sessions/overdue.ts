/**
 * Overdue sessions: they have reached a mark (`measureAt…`), and possibly no workflow works on them. Causes are lost signals,
 * failed compactions whose retry is due, and forks. A session is overdue from `overdue_at` on; the sweep next looks at it at
 * `sweep_at`.
 */
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from './session-row.js';
import { noticeAt, noticeKey } from '../connection/notices.js';
import { maintenanceOf } from '../connection/pool.js';
import { read } from '../connection/transaction.js';

/** The sweep can ignore the session for the next `ms`, because the workflow that measures it is responsible for it. */
export async function takeInHand(
  pool: Pool,
  { tenant, session, incarnation }: SessionRow,
  ms: number,
): Promise<void> {
  await read(
    pool,
    { tenant },
    `update palimpsest.sessions set overdue_at = now() + make_interval(secs => $3)
     where tenant_id = $1 and session_id = $2 and incarnation = $4 and overdue_at is not null`,
    [tenant, session, ms / 1_000, incarnation],
  );
}

/**
 * Records that the session needs nothing, unless a turn or a policy was stored after the row was read. Wakes whoever waits for
 * the session.
 */
export async function asksForNothing(
  pool: Pool,
  { tenant, session, incarnation, nextSeq, policyVersion }: SessionRow,
): Promise<void> {
  await read(
    pool,
    { tenant },
    `update palimpsest.sessions set overdue_at = null
     where tenant_id = $1 and session_id = $2 and incarnation = $3 and next_seq = $4 and policy_version = $5
       and overdue_at is not null
     returning ${noticeAt(6)}`,
    [tenant, session, incarnation, nextSeq, policyVersion, noticeKey({ tenant, session })],
  );
}

export interface OverdueSession extends SessionIds {
  /** JSON of the policy's layers. */
  policy: string;
  /** A running backfill has selected the session or will select it. */
  inBackfill: boolean;
}

/**
 * Reads at most `most` sessions that are due: the same number from every tenant that has some, longest waiting first.
 * Finds them with the partial index alone, by two probes for each tenant and as many entries as it returns.
 */
export async function readOverdue(pool: Pool, most: number): Promise<OverdueSession[]> {
  const found = await read<Omit<OverdueSession, 'policy'> & Record<string, unknown>>(
    maintenanceOf(pool),
    'shared',
    'select tenant, session, in_backfill as "inBackfill" from palimpsest.overdue_sessions($1)',
    [most],
  );
  const policies = new Map<string, Map<string, string>>();
  for (const tenant of new Set(found.map((one) => one.tenant))) {
    const sessions = found.filter((one) => one.tenant === tenant).map(({ session }) => session);
    policies.set(tenant, await policiesOf(pool, tenant, sessions));
  }
  return found.flatMap((one) => {
    const policy = policies.get(one.tenant)?.get(one.session);
    // A session without a row was erased meanwhile.
    return policy === undefined ? [] : [{ ...one, policy }];
  });
}

async function policiesOf(
  pool: Pool,
  tenant: string,
  sessions: readonly string[],
): Promise<Map<string, string>> {
  const rows = await read<{ session: string; policy: string }>(
    pool,
    { tenant },
    'select session_id as session, policy from palimpsest.sessions where tenant_id = $1 and session_id = any($2)',
    [tenant, sessions],
  );
  return new Map(rows.map(({ session, policy }) => [session, policy]));
}

/**
 * Postpones sessions that the sweep has looked at. They stay overdue until a workflow measures them. The next look comes after
 * the time that they have waited so far (at least a minute, at most an hour), or after a minute if they could not be signalled
 * (`told` is false).
 */
export async function postpone(pool: Pool, sessions: readonly SessionIds[], told: boolean): Promise<void> {
  if (sessions.length === 0) return;
  await read(maintenanceOf(pool), 'shared', 'select palimpsest.postpone_overdue($1, $2, $3)', [
    sessions.map(({ tenant }) => tenant),
    sessions.map(({ session }) => session),
    told,
  ]);
}

export interface Overdue {
  sessions: number;
  /** Start of the longest wait. */
  since: Date | null;
}

/** Counts the overdue sessions of all tenants. Reads the partial index alone, whatever the number of sessions. */
export async function countOverdue(pool: Pool): Promise<Overdue> {
  const [row] = await read<{ sessions: number; since: Date | null }>(
    maintenanceOf(pool),
    'shared',
    'select sessions, since from palimpsest.count_overdue()',
  );
  return { sessions: row?.sessions ?? 0, since: row?.since ?? null };
}
