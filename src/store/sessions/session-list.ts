import type { Pool } from 'pg';
import { invalid } from '../../errors.js';
import type { LastError, ListedSession } from '../../contract/sessions.js';
import { checkId } from '../connection/values.js';
import { read } from '../connection/transaction.js';

const mostListed = 1_000;

/**
 * Sessions of a tenant in the order of their ids' code points, after one id. `next` is the id to go on from, null at
 * the end. Throws `Input.Invalid` with the field's path.
 */
export async function listSessions(
  pool: Pool,
  tenant: string,
  {
    after,
    limit = 100,
    prefix,
    failed = false,
  }: { after?: string; limit?: number; prefix?: string; failed?: boolean } = {},
): Promise<{ sessions: ListedSession[]; next: string | null }> {
  checkId(tenant, 'tenant');
  if (after !== undefined) checkId(after, 'after');
  if (prefix !== undefined) checkId(prefix, 'prefix');
  if (!Number.isInteger(limit) || limit < 1 || limit > mostListed)
    throw invalid(`limit must be a whole number from 1 to ${mostListed}`, 'limit');
  // One more than asked for tells whether there are more.
  const rows = await read<ListedRow>(pool, listStatement, [
    tenant,
    after ?? '',
    prefix ?? '',
    failed,
    limit + 1,
  ]);
  const sessions = rows.slice(0, limit).map(toListed);
  return { sessions, next: rows.length > limit ? (sessions.at(-1)?.session ?? null) : null };
}

interface ListedRow extends Omit<ListedSession, 'lastError' | 'closedAt' | 'createdAt' | 'updatedAt'> {
  [column: string]: unknown;
  error: LastError | null;
  closed: Date | null;
  created: Date;
  updated: Date;
}

const listStatement = `
select session_id as session, format, next_seq - 1 as messages, turns, live_tokens as tokens, budget, generation,
  exhausted is not null as exhausted, paused_at is not null as paused, last_error as error,
  closed_at as closed, created_at as created, updated_at as updated
from palimpsest.sessions
where tenant_id = $1 and session_id collate "C" > $2 and session_id collate "C" ^@ $3
  and (not $4 or last_error is not null)
order by session_id collate "C" limit $5`;

function toListed({ error, closed, created, updated, ...row }: ListedRow): ListedSession {
  return {
    ...row,
    lastError: error && { type: error.type, message: error.message },
    closedAt: closed?.toISOString() ?? null,
    createdAt: created.toISOString(),
    updatedAt: updated.toISOString(),
  };
}
