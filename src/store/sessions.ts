import { and, eq, sql, type SQL } from 'drizzle-orm';
import type { PgUpdateSetSource } from 'drizzle-orm/pg-core';
import type { Pool } from 'pg';
import { limitsOf, measureAt } from '../policy/limits.js';
import { parsePolicy, resolvePolicy, type PolicyInput } from '../policy/schema.js';
import type { TokenizerName } from '../tokens/counter.js';
import { recount } from './recount.js';
import { sessions } from './schema.js';
import {
  checkIds,
  notFound,
  toSession,
  type SessionIds,
  type SessionRecord,
  type SessionRow,
} from './session-row.js';
import { liveSizes } from './sizes.js';
import { storable } from './text.js';
import { read, withTransaction, type Query, type Transaction } from './transaction.js';

export type { SessionIds, SessionRow } from './session-row.js';

/** What a policy fixes on the session row. */
export interface SessionSettings {
  policy: PolicyInput;
  tokenizer: TokenizerName;
  /** Context tokens. */
  budget: number;
  measureAtTokens: number | null;
  measureAtMessages: number | null;
}

/** Throws `Input.Invalid` for an unknown or wrong field, and where the window is smaller than overhead and reserve. */
export function settingsOf(input: PolicyInput): SessionSettings {
  const policy = parsePolicy(input);
  const resolved = resolvePolicy(policy);
  const limits = limitsOf(resolved);
  const mark = resolved.enabled ? measureAt(limits) : { tokens: null, messages: null };
  return {
    policy,
    tokenizer: limits.tokenizer,
    budget: limits.budget,
    measureAtTokens: mark.tokens,
    measureAtMessages: mark.messages,
  };
}

/** Null where there is none. Throws `Input.Invalid` for ids that no session can have. */
export async function findSession(pool: Pool, ids: SessionIds): Promise<SessionRow | null> {
  checkIds(ids);
  const [record] = await read<SessionRecord>(pool, selectSession, [ids.tenant, ids.session]);
  return record ? toSession(record) : null;
}

/** Throws `Store.SessionNotFound`. */
export async function loadSession(pool: Pool, ids: SessionIds): Promise<SessionRow> {
  return (await findSession(pool, ids)) ?? notFound(ids);
}

/** The session's row, locked against every other writer of this session until the transaction ends. */
export async function lockSession({ query }: Transaction, ids: SessionIds): Promise<SessionRow> {
  const [record] = await query<SessionRecord>(`${selectSession} for no key update`, [
    ids.tenant,
    ids.session,
  ]);
  return record ? toSession(record) : notFound(ids);
}

/** How often counting outside the lock is tried before it happens under the lock. */
const attemptsOutsideLock = 3;

/**
 * Replaces the policy. With another tokenizer, what the context is made of is counted anew: leading system messages,
 * head, tail and reductions; evicted messages keep their counts. Clears the exhausted mark and failures.
 * Throws `Input.Invalid`, `Store.SessionNotFound`.
 */
export async function configureSession(
  pool: Pool,
  ids: SessionIds,
  policy: PolicyInput,
): Promise<{ policyVersion: number }> {
  const settings = settingsOf(policy);
  for (let attempt = 1; ; attempt++) {
    const before = await loadSession(pool, ids);
    const outside: Query = (text, values) => read(pool, text, values);
    const early =
      attempt <= attemptsOutsideLock && before.tokenizer !== settings.tokenizer
        ? await recount(outside, before, settings.tokenizer)
        : null;
    const policyVersion = await withTransaction(pool, async (tx) => {
      const row = await lockSession(tx, ids);
      const moved = row.nextSeq !== before.nextSeq || row.generation !== before.generation;
      if (early && moved) return null;
      if (row.tokenizer !== settings.tokenizer) {
        const counts = early ?? (await recount(tx.query, row, settings.tokenizer));
        await counts.store(tx.query);
      }
      const version = row.policyVersion + 1;
      await updateSession(tx, ids, {
        ...settings,
        policy: JSON.stringify(settings.policy),
        policyVersion: version,
        ...(await liveSizes(tx.query, row)),
        ...cleared,
      });
      return version;
    });
    if (policyVersion !== null) return { policyVersion };
  }
}

/** What a commit or a new policy forgets: earlier failures, and that nothing could be done. */
export const cleared = { exhausted: null, failures: 0, retryAt: null, lastError: null } as const;

/**
 * Marks the session as one that compacting cannot help (invariant 9), or takes the mark away. While it stands, the
 * session asks to be measured again only once it has grown by the policy's `minGain`. `judged`: the session as it was
 * when that was found; where it has a new policy or new messages since, whoever brought them asks to be measured.
 */
export async function setExhausted(
  pool: Pool,
  ids: SessionIds,
  exhausted: { atSeq: number; tokens: number; reason: string } | null,
  judged?: Pick<SessionRow, 'policyVersion' | 'nextSeq'>,
): Promise<void> {
  await withTransaction(pool, async (tx) => {
    const row = await lockSession(tx, ids);
    if (judged && (judged.policyVersion !== row.policyVersion || judged.nextSeq !== row.nextSeq)) return;
    const marks = exhausted ? marksBeyond(row) : settingsOf(row.policy);
    await updateSession(tx, ids, {
      exhausted: exhausted && { ...exhausted, reason: storable(exhausted.reason) },
      ...{ measureAtTokens: marks.measureAtTokens, measureAtMessages: marks.measureAtMessages },
    });
  });
}

/** The policy's own marks, or where those are reached already, one `minGain` beyond the present size. */
function marksBeyond(row: SessionRow): Pick<SessionSettings, 'measureAtTokens' | 'measureAtMessages'> {
  const { measureAtTokens, measureAtMessages, budget } = settingsOf(row.policy);
  const { minGain } = resolvePolicy(row.policy).summary;
  const beyond = (mark: number | null, size: number, whole: number) =>
    mark === null || size < mark ? mark : size + Math.max(1, Math.ceil(minGain * whole));
  return {
    measureAtTokens: beyond(measureAtTokens, row.liveTokens, budget),
    measureAtMessages: beyond(measureAtMessages, row.liveMessages, row.liveMessages),
  };
}

/** Counts a failed attempt; `retryAt` is when the next one may be made. */
export async function recordFailure(
  pool: Pool,
  ids: SessionIds,
  { type, message, retryAt }: { type: string; message: string; retryAt: Date | null },
): Promise<void> {
  const lastError = { type, message: storable(message) };
  await withTransaction(pool, (tx) =>
    updateSession(tx, ids, { failures: sql`${sessions.failures} + 1`, lastError, retryAt }),
  );
}

export async function clearFailure(pool: Pool, ids: SessionIds): Promise<void> {
  await withTransaction(pool, (tx) =>
    updateSession(tx, ids, { failures: 0, lastError: null, retryAt: null }),
  );
}

/** No more turns are expected. Closing twice keeps the first time; a later append opens the session again. */
export async function closeSession(pool: Pool, ids: SessionIds): Promise<void> {
  const closedAt: SQL = sql`coalesce(${sessions.closedAt}, now())`;
  await withTransaction(pool, (tx) => updateSession(tx, ids, { closedAt }));
}

/** Throws `Store.SessionNotFound` where there is nothing to update. */
export async function updateSession(
  { db }: Transaction,
  ids: SessionIds,
  change: PgUpdateSetSource<typeof sessions>,
): Promise<void> {
  const { rowCount } = await db
    .update(sessions)
    .set({ ...change, updatedAt: sql`now()` })
    .where(and(eq(sessions.tenantId, ids.tenant), eq(sessions.sessionId, ids.session)));
  if (rowCount === 0) notFound(ids);
}

/**
 * Writes a new session and its genesis, the compaction every later one descends from. Does nothing where another
 * writer was first.
 */
export async function insertSession(
  { query }: Transaction,
  ids: SessionIds,
  settings: SessionSettings,
): Promise<void> {
  await query(
    `with added as (
       insert into palimpsest.sessions (tenant_id, session_id, policy, policy_version, tokenizer, budget,
         measure_at_tokens, measure_at_messages)
       values ($1, $2, $3, 1, $4, $5, $6, $7)
       on conflict do nothing
       returning tenant_id, session_id)
     insert into palimpsest.compactions (tenant_id, session_id, generation, from_seq, through_seq, reason, method)
     select tenant_id, session_id, 0, 1, 0, 'genesis', 'none' from added`,
    [
      ids.tenant,
      ids.session,
      JSON.stringify(settings.policy),
      settings.tokenizer,
      settings.budget,
      settings.measureAtTokens,
      settings.measureAtMessages,
    ],
  );
}

const selectSession = 'select * from palimpsest.sessions where tenant_id = $1 and session_id = $2';
