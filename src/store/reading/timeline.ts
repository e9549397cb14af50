/** The history of a session's size: the context after each turn, and each compaction. */
import type { Pool } from 'pg';
import { loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import type { Timeline, TimelineCompaction, TimelineTurn } from '../../contract/compactions.js';
import { read } from '../connection/transaction.js';

/**
 * Between two compactions, the context size is the size after the earlier one plus the turns since, by the session's
 * present tokenizer. A compaction brings its own sizes before and after. Throws `Store.SessionNotFound`.
 */
export async function timeline(pool: Pool, ids: SessionIds): Promise<Timeline> {
  const { liveTokens, budget, measureAtTokens } = await loadSession(pool, ids);
  const key = [ids.tenant, ids.session];
  const [turns, compactions] = await Promise.all([
    read<TurnRow>(
      pool,
      ids,
      `select t.turn_id as "turnId", t.created_at as at, t.from_seq as "fromSeq", t.through_seq as "throughSeq",
         sum(m.tokens)::bigint as tokens, min(m.at) as "saidAt"
       from palimpsest.turns t join palimpsest.messages m
         on m.tenant_id = t.tenant_id and m.session_id = t.session_id and m.seq between t.from_seq and t.through_seq
       where t.tenant_id = $1 and t.session_id = $2
       group by t.tenant_id, t.session_id, t.turn_id order by t.from_seq`,
      key,
    ),
    read<CompactionRow>(
      pool,
      ids,
      `select generation, created_at as at, reason, method, tokens_before as "tokensBefore",
         tokens_after as "tokensAfter", evicted, chunks, chunks_by_rule as "chunksByRule", archive_part as part
       from palimpsest.compactions
       where tenant_id = $1 and session_id = $2 and generation > 0 order by generation`,
      key,
    ),
  ]);
  return {
    session: ids.session,
    tokens: liveTokens,
    budget,
    measureAt: measureAtTokens,
    ...joined(turns, compactions),
  };
}

interface TurnRow {
  [column: string]: unknown;
  turnId: string;
  at: Date;
  fromSeq: number;
  throughSeq: number;
  tokens: number;
  saidAt: Date | null;
}

interface CompactionRow extends Omit<TimelineCompaction, 'at' | 'turn'> {
  [column: string]: unknown;
  at: Date;
}

function joined(
  rows: readonly TurnRow[],
  commits: readonly CompactionRow[],
): Pick<Timeline, 'turns' | 'compactions'> {
  const turns: TimelineTurn[] = [];
  const compactions: TimelineCompaction[] = [];
  const waiting = [...commits];
  let context = 0;
  let log = 0;
  const commitBefore = (at: number): void => {
    for (let next = waiting[0]; next !== undefined && next.at.getTime() < at; next = waiting[0]) {
      waiting.shift();
      context = next.tokensAfter;
      compactions.push({ ...next, at: next.at.toISOString(), turn: turns.length });
    }
  };
  for (const { at, tokens, saidAt, ...row } of rows) {
    commitBefore(at.getTime());
    context += tokens;
    log += tokens;
    turns.push({
      ...row,
      tokens,
      turn: turns.length + 1,
      at: at.toISOString(),
      saidAt: saidAt?.toISOString() ?? null,
      logTokens: log,
      contextTokens: context,
    });
  }
  commitBefore(Infinity);
  return { turns, compactions };
}
