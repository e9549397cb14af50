import { sql, type SQL } from 'drizzle-orm';
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import type { LastError, ListRequest, SessionList, SessionSummary } from '../../contract/sessions.js';
import { marksBeyond, measureAt } from '../../limits/limits.js';
import { prepared } from '../connection/prepared.js';
import { read, withSession } from '../connection/transaction.js';
import { storable } from '../connection/values.js';
import { sessions } from '../schema/log.js';
import { upToDate } from './configure.js';
import { checkIds, factsOf, notFound, type SessionRow } from './session-row.js';
import { lockSession, noticedBy, readSession, unlessMeasured, updateSession } from './session-table.js';
import { limitsOfSession, settingsOf } from './settings.js';

/**
 * Reads the session with its tenant's present policy; null if there is none. Throws `Input.Invalid` for ids that
 * no session can have.
 */
export async function findSession(pool: Pool, ids: SessionIds): Promise<SessionRow | null> {
  const { row } = await readSession(pool, ids);
  return row && upToDate(pool, row);
}

/** Throws `Store.SessionNotFound`. */
export async function loadSession(pool: Pool, ids: SessionIds): Promise<SessionRow> {
  return (await findSession(pool, ids)) ?? notFound(ids);
}

/** Reads the newest generation of the session. Throws `Store.SessionNotFound`. */
export async function generationOf(pool: Pool, ids: SessionIds): Promise<number> {
  checkIds(ids);
  const [row] = await read<{ generation: number }>(
    pool,
    ids,
    'select generation from palimpsest.sessions where tenant_id = $1 and session_id = $2',
    [ids.tenant, ids.session],
  );
  return row?.generation ?? notFound(ids);
}

/** The facts of a session's row that waiting calls look at. */
export interface SessionStand extends Record<string, unknown> {
  generation: number;
  incarnation: string;
  /** The workflow that committed the newest generation; null for none. */
  committedBy: string | null;
  /** The context has reached a mark, so that the next measurement may find a compaction due. */
  reachesMark: boolean;
  /** Something is due, and no workflow has measured the session since: its signal is under way or was lost. */
  unheard: boolean;
}

/** Null if there is no such session. */
export async function standOf(pool: Pool, ids: SessionIds): Promise<SessionStand | null> {
  checkIds(ids);
  const [row] = await read<SessionStand>(pool, ids, standStatement, [ids.tenant, ids.session]);
  return row ?? null;
}

/** A measuring workflow postpones `overdue_at` beyond the time in which it must have been signalled; a failure has its retry there. */
const standStatement = prepared(
  'session_stand',
  `select s.generation, s.incarnation, c.workflow_id as "committedBy",
     coalesce(s.live_tokens >= s.measure_at_tokens, false)
       or coalesce(s.live_messages >= s.measure_at_messages, false) as "reachesMark",
     coalesce(s.overdue_at <= ${noticedBy}, false) and s.retry_at is null as unheard
   from palimpsest.sessions s
   left join palimpsest.compactions c
     on c.tenant_id = s.tenant_id and c.session_id = s.session_id and c.generation = s.generation
   where s.tenant_id = $1 and s.session_id = $2`,
);

/**
 * Marks the session as one that compaction cannot help (invariant 9), or removes the mark. A marked session is
 * measured again only once it has grown by the policy's `minGain`. `judged` is the session as it was read: if
 * its policy or messages have changed since, nothing is written, because the change causes a new measurement.
 */
export async function setExhausted(
  pool: Pool,
  ids: SessionIds,
  exhausted: { atSeq: number; tokens: number; reason: string } | null,
  judged?: Pick<SessionRow, 'policyVersion' | 'nextSeq'>,
): Promise<void> {
  await withSession(pool, ids, async (tx) => {
    const row = await lockSession(tx, ids);
    if (judged && (judged.policyVersion !== row.policyVersion || judged.nextSeq !== row.nextSeq)) return;
    const { policy, limits } = limitsOfSession(row);
    const size = { tokens: row.liveTokens, messages: row.liveMessages };
    const own = settingsOf(row.policy, factsOf(row), row.liveTokens);
    const beyond = marksBeyond(policy, limits, size);
    await updateSession(tx, ids, {
      exhausted: exhausted && { ...exhausted, reason: storable(exhausted.reason) },
      measureAtTokens: exhausted ? beyond.tokens : own.measureAtTokens,
      measureAtMessages: exhausted ? beyond.messages : own.measureAtMessages,
    });
  });
}

/**
 * Records that arguments were examined and that too little could be truncated: the session is measured again when a trigger
 * is met. `judged`: see `setExhausted`.
 */
export async function passReduceMark(
  pool: Pool,
  ids: SessionIds,
  judged: Pick<SessionRow, 'policyVersion' | 'nextSeq'>,
): Promise<void> {
  await withSession(pool, ids, async (tx) => {
    const row = await lockSession(tx, ids);
    if (judged.policyVersion !== row.policyVersion || judged.nextSeq !== row.nextSeq) return;
    const { tokens, messages } = measureAt(limitsOfSession(row).limits);
    await updateSession(tx, ids, { measureAtTokens: tokens, measureAtMessages: messages });
  });
}

/**
 * Counts a failed attempt, except one that only waited for the deployment's own limit. `retryAt` is the time of the
 * next attempt.
 */
export async function recordFailure(
  pool: Pool,
  ids: SessionIds,
  {
    type,
    message,
    retryAt,
    fallback,
    onlyWaited,
  }: { type: string; message: string; retryAt: Date | null; fallback?: boolean; onlyWaited?: boolean },
): Promise<void> {
  const lastError = { type, message: storable(message), ...(fallback ? { fallback } : {}) };
  await withSession(pool, ids, (tx) =>
    updateSession(tx, ids, {
      failures: sql`${sessions.failures} + ${onlyWaited ? 0 : 1}`,
      lastError,
      retryAt,
      overdueAt: sql`case when overdue_at is not null then ${retryAt}::timestamptz end`,
    }),
  );
}

/** Records that no more turns are expected. Closing twice keeps the first time. A later append opens the session again. */
export async function closeSession(pool: Pool, ids: SessionIds): Promise<void> {
  const closedAt: SQL = sql`coalesce(${sessions.closedAt}, now())`;
  await withSession(pool, ids, (tx) => updateSession(tx, ids, { closedAt }));
}

/** Stops or allows new compactions. A running compaction continues. Throws `Store.SessionNotFound`. */
export async function setPaused(pool: Pool, ids: SessionIds, paused: boolean): Promise<void> {
  const pausedAt: SQL = paused ? sql`coalesce(${sessions.pausedAt}, now())` : sql`null`;
  const overdueAt = paused ? null : unlessMeasured;
  await withSession(pool, ids, (tx) => updateSession(tx, ids, { pausedAt, overdueAt }));
}

/**
 * Lists sessions of a tenant in the order of their ids' code points, after one id. `next` is the id to continue from,
 * null at the end.
 */
export async function listSessions(
  pool: Pool,
  tenant: string,
  { after, limit = 100, prefix, failed = false }: ListRequest = {},
): Promise<SessionList> {
  // One row more than requested shows whether there are more.
  const rows = await read<ListedRow>(pool, { tenant }, listStatement, [
    tenant,
    after ?? '',
    prefix ?? '',
    failed,
    limit + 1,
  ]);
  const sessions = rows.slice(0, limit).map(toListed);
  return { sessions, next: rows.length > limit ? (sessions.at(-1)?.session ?? null) : null };
}

interface ListedRow extends Omit<SessionSummary, 'lastError' | 'closedAt' | 'createdAt' | 'updatedAt'> {
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

function toListed({ error, closed, created, updated, ...row }: ListedRow): SessionSummary {
  return {
    ...row,
    lastError: error && { type: error.type, message: error.message },
    closedAt: closed?.toISOString() ?? null,
    createdAt: created.toISOString(),
    updatedAt: updated.toISOString(),
  };
}
