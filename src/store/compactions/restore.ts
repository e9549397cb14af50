import { randomUUID } from 'node:crypto';
import { and, eq } from 'drizzle-orm';
import type { Pool } from 'pg';
import { marksBeyond } from '../../limits/limits.js';
import { PalimpsestError } from '../../errors.js';
import { toCompaction, type CompactionRow } from './generations.js';
import { type Generation, isStale, presentRedaction, redactedGeneration } from './redacted.js';
import { liveSizes, recount } from '../sessions/recount.js';
import { compactions } from '../schema/compactions.js';
import { limitsOfSession } from '../sessions/settings.js';
import { loadSession } from '../sessions/sessions.js';
import { lockSession, updateSession } from '../sessions/session-table.js';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from '../sessions/session-row.js';
import { reading, withSession, type Query, type Transaction } from '../connection/transaction.js';

/** How many times the messages are counted outside the lock. After that, they are counted under the lock. */
const attemptsOutsideLock = 3;

/**
 * Restores the context as it was after the commit of `generation`, followed by everything appended since. Commits a
 * new generation with the head, snapshot, exact values and committed reductions of `generation`, which becomes the
 * parent of the new one. 0 restores the whole log. Nothing is deleted, and the generations in between can be restored
 * as well. A running compaction fails with `Store.StaleGeneration`. The session is compacted again only after it has
 * grown.
 * Throws `Store.SessionNotFound`; `Input.Invalid` for a generation that does not exist.
 */
export async function restore(pool: Pool, ids: SessionIds, generation: number): Promise<CompactionRow> {
  const outside = reading(pool, ids);
  for (let attempt = 1; ; attempt++) {
    const before = await loadSession(pool, ids);
    // Messages that were evicted under another tokenizer still have their old counts.
    const stale = before.policyVersion > 1;
    const rangeOf = (session: SessionRow, throughSeq: number) => ({ ...session, generation, throughSeq });
    const through = await throughOf(outside, before, generation);
    const early =
      stale && attempt <= attemptsOutsideLock
        ? await recount(outside, rangeOf(before, through), before.tokenizer)
        : null;
    const restored = await withSession(pool, ids, async (tx) => {
      const session = await lockSession(tx, before);
      const moved = session.nextSeq !== before.nextSeq || session.policyVersion !== before.policyVersion;
      if (early && moved) return null;
      if (early) await early.store(tx.query);
      else if (session.policyVersion > 1)
        await (await recount(tx.query, rangeOf(session, through), session.tokenizer)).store(tx.query);
      return commitRestored(tx, session, generation);
    });
    if (restored !== null) return restored;
  }
}

/**
 * Redacts the session's memory if it was written under another redaction than the policy's: by code, in a new generation that
 * evicts nothing. Resolves to whether it was.
 */
export async function redactMemory(pool: Pool, ids: SessionIds): Promise<boolean> {
  return withSession(pool, ids, async (tx) => {
    const session = await lockSession(tx, ids);
    const present = await generationRow(tx, session, session.generation);
    if (!isStale(present, session)) return false;
    const shown = redactedGeneration(present, session);
    if (shown !== present) await commitCopy(tx, session, present, shown, 'redact');
    else
      await tx.query(
        `update palimpsest.compactions set redaction = $4
         where tenant_id = $1 and session_id = $2 and generation = $3`,
        [session.tenant, session.session, session.generation, presentRedaction(session)],
      );
    return true;
  });
}

async function throughOf(query: Query, session: SessionRow, generation: number): Promise<number> {
  if (generation <= session.generation) {
    const [row] = await query<{ through: number }>(
      `select through_seq as through from palimpsest.compactions
       where tenant_id = $1 and session_id = $2 and generation = $3`,
      [session.tenant, session.session, generation],
    );
    if (row) return row.through;
  }
  throw new PalimpsestError('Input.Invalid', `session ${session.session} has no generation ${generation}`, {
    path: 'generation',
    hint: `Choose a generation from 0 (the whole log) to ${session.generation} (the present one).`,
    details: { generation: session.generation },
  });
}

async function commitRestored(
  tx: Transaction,
  session: SessionRow,
  restored: number,
): Promise<CompactionRow> {
  const parent = await generationRow(tx, session, restored);
  const { row, live } = await commitCopy(tx, session, parent, redactedGeneration(parent, session), 'restore');
  const { policy, limits } = limitsOfSession(session);
  const marks = marksBeyond(policy, limits, { tokens: live.liveTokens, messages: live.liveMessages });
  await updateSession(tx, session, {
    exhausted: { atSeq: session.nextSeq - 1, tokens: live.liveTokens, reason: 'restored' },
    measureAtTokens: marks.tokens,
    measureAtMessages: marks.messages,
  });
  return toCompaction(row);
}

/** Commits a generation with these texts and the reductions of its parent. */
async function commitCopy(
  tx: Transaction,
  session: SessionRow,
  parent: Generation,
  shown: Generation,
  reason: 'restore' | 'redact',
): Promise<{ row: Generation; live: Awaited<ReturnType<typeof liveSizes>> }> {
  const { tenant, session: name } = session;
  const generation = session.generation + 1;
  const { throughSeq } = parent;
  // The new generation has the same messages and reductions, so only its head has another size.
  const before = await liveSizes(tx.query, { ...session, generation: parent.generation, throughSeq });
  const grown = sum(shown.headTokens) - sum(parent.headTokens);
  const live = { ...before, liveTokens: before.liveTokens + grown };
  const committing = tx.db.insert(compactions).values({
    ...shown,
    generation,
    parentGeneration: parent.generation,
    parentThroughSeq: throughSeq,
    fromSeq: throughSeq + 1,
    reason,
    method: 'none',
    coverage: [],
    evicted: 0,
    ...{ chunks: 0, chunksByRule: 0 },
    tokensBefore: session.liveTokens,
    tokensAfter: live.liveTokens,
    cachedTokens: null,
    ...withoutModel,
    archivePart: null,
    workflowId: '',
    runId: `${reason} ${randomUUID()}`,
    createdAt: undefined,
  });
  const [row] = await committing.returning();
  if (!row) throw new Error('the database returned no row for an insert');
  await tx.query(
    `insert into palimpsest.reductions (tenant_id, session_id, generation, budget,
       position, from_seq, through_seq, kind, body, tokens)
     select tenant_id, session_id, $4, budget, position, from_seq, through_seq, kind, body, tokens
     from palimpsest.reductions where tenant_id = $1 and session_id = $2 and generation = $3 and budget = 0`,
    [tenant, name, parent.generation, generation],
  );
  await updateSession(tx, session, { generation, throughSeq, ...live });
  return { row, live };
}

const withoutModel = {
  modelCalls: 0,
  modelInputTokens: 0,
  modelOutputTokens: 0,
  modelMs: 0,
  overheadMs: 0,
  cost: null,
  currency: null,
  paysBackAfter: null,
} as const;

const sum = (tokens: readonly number[]) => tokens.reduce((total, count) => total + count, 0);

async function generationRow(
  { db }: Transaction,
  { tenant, session }: SessionIds,
  generation: number,
): Promise<Generation> {
  const [row] = await db
    .select()
    .from(compactions)
    .where(
      and(
        eq(compactions.tenantId, tenant),
        eq(compactions.sessionId, session),
        eq(compactions.generation, generation),
      ),
    );
  if (row) return row;
  throw new Error(`generation ${generation} existed before the session was locked and is missing now`);
}
