/** The composition of the present context by stored counts, for `status`. */
import type { Pool } from 'pg';
import { breakdownBySizes } from '../../context/view/breakdown.js';
import type { SessionMemory } from '../../contract/sessions.js';
import { describeJournal } from '../../summary/journal/rewrites.js';
import { counterFor } from '../../tokens/counter.js';
import { read } from '../connection/transaction.js';
import type { InSnakeCase } from '../schema/columns.js';
import type { compactions } from '../schema/compactions.js';
import { notFound, type SessionRow } from '../sessions/session-row.js';

type GenerationColumn =
  'head_tokens' | 'carried_seq' | 'layout' | 'layers' | 'snapshot' | 'tokens_after' | 'cached_tokens';
type GenerationRow = Pick<InSnakeCase<typeof compactions.$inferSelect>, GenerationColumn> & {
  system: number;
};

/** @param overhead tokens of a request before its context */
export async function memoryOf(pool: Pool, session: SessionRow, overhead: number): Promise<SessionMemory> {
  const [row] = await read<GenerationRow>(
    pool,
    session,
    `select head_tokens, carried_seq, layout, layers, snapshot, tokens_after, cached_tokens, (
       select coalesce(sum(tokens), 0)::bigint from palimpsest.messages
       where tenant_id = $1 and session_id = $2 and seq <= $4) as system
     from palimpsest.compactions where tenant_id = $1 and session_id = $2 and generation = $3`,
    [session.tenant, session.session, session.generation, session.systemThroughSeq],
  );
  // The session was erased after its row was read.
  if (!row) notFound(session);
  const {
    system,
    head_tokens: tokens,
    carried_seq: carriedSeq,
    layout,
    layers,
    snapshot,
    cached_tokens: cached,
    tokens_after: after,
  } = row;
  return {
    breakdown: breakdownBySizes(session.liveTokens, system, { tokens, carriedSeq, layout }),
    journal: layers && describeJournal(layers, snapshot ?? '', counterFor(session.tokenizer)),
    promptCache: cached === null ? null : { tokens: overhead + cached, requestTokens: overhead + after },
  };
}
