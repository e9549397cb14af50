import type { Pool } from 'pg';
import type { Reduction } from '../../context/view/view.js';
import { lockSession } from '../sessions/session-table.js';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from '../sessions/session-row.js';
import { withSession, type Query, type Transaction } from '../connection/transaction.js';

export interface ReadReductions {
  /** The generation that the reader saw, and how many reductions of it: those committed with it and those of `budget`. */
  generation: number;
  seen: number;
  /** Context tokens for which they were made; above 0. */
  budget: number;
  /** What must come on top of the reductions that the reader saw. */
  reductions: Reduction[];
}

/**
 * Keeps the emergency reductions of a reader, so that every later read of this generation for this budget begins with
 * the same prefix (invariant 10). Answers all that hold now; null where a commit or another reader came first, or an
 * erasure, whose result this one has not seen: the caller reads again.
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
    // Within a generation reductions are only added: another number means that some were not seen.
    if (stored.length !== seen) return null;
    await addReductions(tx, session, budget, reductions);
    return [...stored.map(toReduction), ...reductions];
  });
}

/** Stores them behind those that the session's generation has for this budget. The session must be locked. */
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

interface StoredReduction {
  [column: string]: unknown;
  from_seq: number;
  through_seq: number;
  kind: Reduction['kind'];
  body: string;
  tokens: number;
}

/** Committed ones first, then those of the budget, each in the order in which they were made. */
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
