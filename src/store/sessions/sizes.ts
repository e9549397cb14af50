import type { Query } from '../connection/transaction.js';

export interface ContextRange {
  tenant: string;
  session: string;
  generation: number;
  /** Last seq that the head replaces. */
  throughSeq: number;
  systemThroughSeq: number;
}

/**
 * Tokens and messages of the context by stored counts: leading system messages, head, tail, with the reductions
 * committed with the generation in place of what they stand for. An upper bound but for synthetic results: empty
 * messages count although they are never shown.
 */
export async function liveSizes(
  query: Query,
  { tenant, session, generation, throughSeq, systemThroughSeq }: ContextRange,
): Promise<{ liveTokens: number; liveMessages: number }> {
  const [sizes] = await query<{ tokens: number; messages: number }>(statement, [
    tenant,
    session,
    generation,
    systemThroughSeq,
    Math.max(throughSeq, systemThroughSeq),
  ]);
  return { liveTokens: sizes?.tokens ?? 0, liveMessages: sizes?.messages ?? 0 };
}

const statement = `
with reduced as (
  select from_seq, through_seq, tokens, (body <> 'null')::int as shown from palimpsest.reductions r
  where tenant_id = $1 and session_id = $2 and generation = $3 and budget = 0
    and not exists (
      select from palimpsest.reductions later
      where later.tenant_id = $1 and later.session_id = $2 and later.generation = $3 and later.budget = 0
        and later.position > r.position and later.from_seq <= r.from_seq and later.through_seq >= r.through_seq)
), parts (tokens, messages) as (
  select sum(tokens), count(*) from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq <= $4
  union all
  select sum(tokens), count(*) from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq > $5
  union all
  select sum(tokens), count(*) from palimpsest.compactions, unnest(head_tokens) tokens
  where tenant_id = $1 and session_id = $2 and generation = $3
  union all
  select sum(reduced.tokens - original.tokens), sum(shown - original.messages)::bigint from reduced, lateral (
    select coalesce(sum(tokens), 0) as tokens, count(*) as messages from palimpsest.messages
    where tenant_id = $1 and session_id = $2 and seq between reduced.from_seq and reduced.through_seq) original
)
select coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(messages), 0)::bigint as messages from parts`;
