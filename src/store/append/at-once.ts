import type { Pool } from 'pg';
import type { FormatName } from '../../conversation/format-names.js';
import type { PreparedTurn } from '../../intake/prepare.js';
import { policyOf } from '../../policy/layers.js';
import { withStatements, type Query } from '../connection/transaction.js';
import { knownTenants } from '../connection/pool.js';
import { toSession } from '../sessions/session-row.js';
import { insertAtOnce, type NotInserted, type ReadTurn } from './insert-turn.js';
import { progressed } from './learnt.js';
import { forgetSeen, lastSeen, noteSeen, type SeenSession } from './seen-sessions.js';
import { answer, type AppendResult, refusalOf, answerToStored } from './turn-answers.js';

/** Attempts while other processes write to the session. The lock of a transaction then gives it a turn. */
const mostAttempts = 3;

/**
 * Stores the turn with one statement, in one round trip, if the session's row is as this process saw it last; if another process
 * has changed it, with a second one. Returns null, and has stored nothing, if a transaction must decide.
 */
export async function appendAtOnce(
  pool: Pool,
  turn: ReadTurn,
  prepared: PreparedTurn & { format: FormatName },
): Promise<AppendResult | null> {
  if (lastSeen(pool, turn) === undefined) return null;
  return withStatements(pool, turn, async (query) => {
    // Read where this process's appends to the session run one after another.
    let seen = lastSeen(pool, turn);
    for (let attempt = 1; attempt <= mostAttempts; attempt++) {
      if (seen === undefined || !isFree(turn, prepared, seen)) return null;
      const found: SeenSession | NotInserted | null = await attemptOn(query, turn, prepared, seen);
      if (found === null) {
        forgetSeen(pool, turn);
        return null;
      }
      if ('row' in found) {
        noteSeen(pool, found);
        const range = { fromSeq: seen.row.nextSeq, throughSeq: found.row.nextSeq - 1 };
        return answer(turn, found.row, policyOf(seen.row.policy), range, seen.row);
      }
      seen = {
        row: toSession(found.record, knownTenants(pool).limits),
        version: found.version,
        moved: found.record.generation > 0 && (found.moved ?? true),
      };
      noteSeen(pool, seen);
      if (found.stored) return answerToStored(turn, prepared, seen.row, found.stored);
    }
    return null;
  });
}

async function attemptOn(
  query: Query,
  turn: ReadTurn,
  prepared: PreparedTurn,
  seen: SeenSession,
): Promise<SeenSession | NotInserted | null> {
  const reported = { ...prepared, usage: turn.usage };
  const next = await progressed(seen.row, policyOf(seen.row.policy), reported, () => seen.moved);
  return insertAtOnce({ query }, turn, prepared, seen, next);
}

/** Whether nothing but the row's version decides about the turn. */
function isFree(
  turn: ReadTurn,
  prepared: PreparedTurn & { format: FormatName },
  { row: session, version }: SeenSession,
): boolean {
  const { list } = turn;
  return (
    (list === undefined || (list.origin === turn.session && session.continuedIn === null)) &&
    (list?.after === undefined || list.after.version === version) &&
    turn.receivedAt === undefined &&
    (turn.incarnation === undefined || turn.incarnation === session.incarnation) &&
    session.policy.limits === undefined &&
    session.tokenizer === prepared.tokenizer &&
    session.format === prepared.format &&
    session.newerTenantPolicy === undefined &&
    session.outdatedSizes === undefined &&
    refusalOf(turn, session) === null
  );
}
