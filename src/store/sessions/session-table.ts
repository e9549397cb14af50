/** The statements on a session's own row, without its tenant's newer policy. */
import { and, eq, sql } from 'drizzle-orm';
import type { PgUpdateSetSource } from 'drizzle-orm/pg-core';
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import type { FormatName } from '../../conversation/format-names.js';
import { withoutLimits } from '../../policy/layers.js';
import type { TenantLimits } from '../../policy/tenant-limits.js';
import type { TokenizerName } from '../../tokens/counter.js';
import { knownTenants } from '../connection/pool.js';
import { noticeOf } from '../connection/notices.js';
import { prepared } from '../connection/prepared.js';
import { read, type Transaction } from '../connection/transaction.js';
import { sessions } from '../schema/log.js';
import {
  checkIds,
  checkIncarnation,
  limitsIn,
  notFound,
  replaced,
  type SessionRecord,
  type SessionRow,
  sessionWithTenant,
  type TenantPolicy,
  tenantPolicyOf,
  toSession,
} from './session-row.js';
import type { SessionSettings } from './settings.js';

/**
 * The overdue time of a session that may now need a measurement: the session is overdue unless a workflow measures it within
 * this time. A signal takes milliseconds and its measurement hardly more. Has no effect if the session has reached no
 * mark (`measureAt…`).
 */
export const noticedBy = "now() + interval '15 seconds'";
export const unlessMeasured = sql.raw(noticedBy);

/** Fields that a commit or a new policy clears: earlier failures, and the exhausted mark. */
export const cleared = { exhausted: null, failures: 0, retryAt: null, lastError: null } as const;

/**
 * Reads the stored row (null if there is none), the tenant's policy if the session has not adopted it, and the operator's
 * limits, in one round trip. Throws `Input.Invalid` for ids that no session can have, `Store.StaleGeneration` if the id now
 * belongs to another session.
 */
export async function readSession(
  pool: Pool,
  ids: SessionIds,
): Promise<{ row: SessionRow | null; tenantPolicy?: TenantPolicy; limits?: TenantLimits }> {
  checkIds(ids);
  const [record] = await read<SessionRecord | Nulls<SessionRecord>>(pool, ids, selectSession, [
    ids.tenant,
    ids.session,
  ]);
  if (!record) return { row: null };
  const defaults = knownTenants(pool).limits;
  const row = exists(record) ? toSession(record, defaults) : null;
  if (row) checkIncarnation(ids, row);
  return { row, tenantPolicy: tenantPolicyOf(record), limits: limitsIn(record, defaults) };
}

type Nulls<Record> = { [Column in keyof Record]: null };

function exists(record: SessionRecord | Nulls<SessionRecord>): record is SessionRecord {
  return record.session_id !== null;
}

const selectSession = prepared(
  'session',
  sessionWithTenant('(select $1::text as tenant_id, $2::text as session_id) ids'),
);

/**
 * Reads the session's row and locks it against every other writer of this session until the transaction ends. Throws
 * `Store.SessionNotFound`, `Store.StaleGeneration` if the id now belongs to another session.
 */
export async function lockSession({ query, known }: Transaction, ids: SessionIds): Promise<SessionRow> {
  const [record] = await query<SessionRecord>(lockStatement, [ids.tenant, ids.session]);
  if (!record) return notFound(ids);
  checkIncarnation(ids, record);
  return toSession(record, known.limits);
}

/** Selects the row of a session as `toSession` reads it, with `further` columns. */
export const oneSession = (further = ''): string =>
  `select s.*, t.policy as newer_tenant_policy, t.policy_version as newer_tenant_version, l.limits as tenant_limits${further}
   from palimpsest.sessions s
   left join palimpsest.tenants t on t.tenant_id = s.tenant_id and t.policy_version <> s.tenant_policy_version
   left join palimpsest.tenant_limits l on l.tenant_id = s.tenant_id
   where s.tenant_id = $1 and s.session_id = $2`;

const lockStatement = prepared('lock_session', `${oneSession()} for no key update of s`);

/** Blocks only an erasure until the transaction ends. Throws as `lockSession` does. */
export async function keepSession({ query }: Pick<Transaction, 'query'>, ids: SessionIds): Promise<void> {
  const [record] = await query<{ incarnation: string }>(
    'select incarnation from palimpsest.sessions where tenant_id = $1 and session_id = $2 for key share',
    [ids.tenant, ids.session],
  );
  if (!record) return notFound(ids);
  checkIncarnation(ids, record);
}

/**
 * Changes the row, and wakes whoever waits for the session. Throws `Store.SessionNotFound` if there is no row to update,
 * `Store.StaleGeneration` as `lockSession` does.
 */
export async function updateSession(
  { db, query }: Transaction,
  ids: SessionIds,
  change: PgUpdateSetSource<typeof sessions>,
): Promise<void> {
  const changed = await db
    .update(sessions)
    .set({ ...change, updatedAt: sql`now()` })
    .where(
      and(
        eq(sessions.tenantId, ids.tenant),
        eq(sessions.sessionId, ids.session),
        ids.incarnation === undefined ? undefined : eq(sessions.incarnation, ids.incarnation),
      ),
    )
    .returning({ told: noticeOf(ids) });
  if (changed.length > 0) return;
  await keepSession({ query }, ids);
  throw replaced(ids);
}

/**
 * Writes a new session and its genesis, the compaction from which all later ones descend. Does nothing if another
 * writer was first.
 */
export async function insertSession(
  { query }: Transaction,
  ids: SessionIds,
  settings: SessionSettings,
  tenantPolicyVersion = 0,
  format: FormatName = 'openai-chat',
): Promise<void> {
  await query(
    `with added as (
       insert into palimpsest.sessions (tenant_id, session_id, policy, policy_version, tokenizer, budget,
         measure_at_tokens, measure_at_messages, tenant_policy_version, format, begun_redact)
       values ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9,
         (select t.begun_redact from palimpsest.tenants t where t.tenant_id = $1))
       on conflict do nothing
       returning tenant_id, session_id)
     insert into palimpsest.compactions (tenant_id, session_id, generation, from_seq, through_seq, reason, method)
     select tenant_id, session_id, 0, 1, 0, 'genesis', 'none' from added`,
    [
      ids.tenant,
      ids.session,
      JSON.stringify(withoutLimits(settings.policy)),
      settings.tokenizer,
      settings.budget,
      settings.measureAtTokens,
      settings.measureAtMessages,
      tenantPolicyVersion,
      format,
    ],
  );
}

/**
 * The facts about a session that an append needs before its transaction: format and tokenizer. Both rarely change,
 * and the transaction detects a change, so that a process that knows the session need not ask.
 */
export interface KnownSession {
  format: FormatName;
  tokenizer: TokenizerName;
}

/**
 * Maximum number of sessions cached for each pool, about 200 bytes each. The least recently used session is dropped first.
 * @internal A test exceeds it.
 */
export const mostKnown = 10_000;

const byPool = new WeakMap<Pool, LRUCache<string, KnownSession>>();

export function recall(pool: Pool, ids: SessionIds): KnownSession | undefined {
  return byPool.get(pool)?.get(keyOf(ids));
}

export function remember(pool: Pool, ids: SessionIds, { format, tokenizer }: KnownSession): void {
  const known = byPool.get(pool) ?? new LRUCache<string, KnownSession>({ max: mostKnown });
  byPool.set(pool, known);
  known.set(keyOf(ids), { format, tokenizer });
}

export function forget(pool: Pool, ids: SessionIds): void {
  byPool.get(pool)?.delete(keyOf(ids));
}

function keyOf({ tenant, session }: SessionIds): string {
  return JSON.stringify([tenant, session]);
}
