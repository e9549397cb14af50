import type { Pool } from 'pg';
import type { Reduction } from '../../context/view/view.js';
import { lockSession } from '../sessions/session-table.js';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from '../sessions/session-row.js';
import type { InSnakeCase } from '../schema/columns.js';
import type { reductions } from '../schema/compactions.js';
import { withSession, type Query, type Transaction } from '../connection/transaction.js';

export interface ReadReductions {
  /** The generation that the reader saw, and how many reductions it saw: committed with the generation, or stored for `budget`. */
  generation: number;
  seen: number;
  /** Context tokens for which the reductions were made; above 0. */
  budget: number;
  /** The reductions that the reader adds. */
  reductions: Reduction[];
}

/**
 * Stores the emergency reductions of a reader, so that every later read of this generation for this budget begins
 * with the same prefix (invariant 10). Returns all reductions that apply now. Returns null if a commit, another
 * reader or an erasure came first and the reader has not seen its result; in this case the caller reads again.
 */
export async function saveReductions(
  pool: Pool,
  ids: SessionIds,
  { generation, seen, budget, reductions }: ReadReductions,
): Promise<Reduction[] | null> {
  return withSession(pool, ids, async (tx) => {
    const session = await lockSession(tx, { tenant: ids.tenant, session: ids.session });
    const another = ids.incarnation !== undefined && ids.incarnation !== session.incarnation;
    if (another || session.generation !== generation) return null;
    const stored = await storedReductions(tx.query, session, budget);
    // Reductions of a generation are only added, so a different number means that the reader missed some.
    if (stored.length !== seen) return null;
    await addReductions(tx, session, budget, reductions);
    return [...stored.map(toReduction), ...reductions];
  });
}

/** Appends reductions to those that the session's generation has for this budget. The session must be locked. */
export async function addReductions(
  tx: Transaction,
  session: SessionRow,
  budget: number,
  reductions: readonly Reduction[],
): Promise<void> {
  const [last] = await tx.query<{ position: number }>(
    `select coalesce(max(position), 0) as position from palimpsest.reductions
     where tenant_id = $1 and session_id = $2 and generation = $3 and budget = $4`,
    [session.tenant, session.session, session.generation, budget],
  );
  await insertReductions(tx, session, budget, (last?.position ?? 0) + 1, reductions);
}

export async function insertReductions(
  { query }: Transaction,
  session: Pick<SessionRow, 'tenant' | 'session' | 'generation'>,
  budget: number,
  firstPosition: number,
  reductions: readonly Reduction[],
): Promise<void> {
  if (reductions.length === 0) return;
  await query(
    `insert into palimpsest.reductions (tenant_id, session_id, generation, budget,
       position, from_seq, through_seq, kind, body, tokens)
     select $1, $2, $3, $4, $5 + ordinality - 1, from_seq, through_seq, kind, body, tokens
     from unnest($6::int[], $7::int[], $8::text[], $9::text[], $10::int[])
       with ordinality as new (from_seq, through_seq, kind, body, tokens, ordinality)`,
    [
      session.tenant,
      session.session,
      session.generation,
      budget,
      firstPosition,
      reductions.map(({ fromSeq }) => fromSeq),
      reductions.map(({ throughSeq }) => throughSeq),
      reductions.map(({ kind }) => kind),
      reductions.map(({ body }) => body),
      reductions.map(({ tokens }) => tokens),
    ],
  );
}

type StoredReduction = InSnakeCase<typeof reductions.$inferSelect>;

/** Sorts committed reductions first, then the reductions of the budget, each in the order in which they were made. */
function storedReductions(query: Query, session: SessionRow, budget: number): Promise<StoredReduction[]> {
  return query<StoredReduction>(
    `select * from palimpsest.reductions
     where tenant_id = $1 and session_id = $2 and generation = $3 and budget in (0, $4) order by budget, position`,
    [session.tenant, session.session, session.generation, budget],
  );
}

function toReduction({ from_seq, through_seq, kind, body, tokens }: StoredReduction): Reduction {
  return { fromSeq: from_seq, throughSeq: through_seq, kind, body, tokens };
}
