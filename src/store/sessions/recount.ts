import { layoutOf } from '../../context/view/breakdown.js';
import type { HeadLayout } from '../../context/view/view.js';
import type { ChatMessage } from '../../conversation/message.js';
import { parseBody } from '../../formats/native.js';
import { countAll } from '../../intake/count.js';
import { counterFor, type TokenizerName } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';
import { prepared } from '../connection/prepared.js';
import type { Query } from '../connection/transaction.js';
import { headMessages, messagePages } from '../log/messages.js';

/** New counts of all parts of a context, not yet stored. */
export interface Recount {
  store(query: Query): Promise<void>;
}

/** Counts leading system messages, head, tail and reductions of the session's generation with another tokenizer. */
export async function recount(
  query: Query,
  session: ContextRange & { nextSeq: number },
  tokenizer: TokenizerName,
): Promise<Recount> {
  const counter = counterFor(tokenizer);
  const key = [session.tenant, session.session, session.generation];
  const seqs: number[] = [];
  const tokens: number[] = [];
  const tailFrom = Math.max(session.throughSeq, session.systemThroughSeq) + 1;
  for (const [from, through] of [
    [1, session.systemThroughSeq],
    [tailFrom, session.nextSeq - 1],
  ] as const) {
    for await (const page of messagePages(query, session, from, through)) {
      const bodies = page.map(({ body }) => body);
      const messages = bodies.map((body) => parseBody(body).message);
      seqs.push(...page.map(({ seq }) => seq));
      tokens.push(...(await countAll(messages, bodies, tokenizer, session.tenant)));
    }
  }
  const [head] = await query<{
    head: string | null;
    snapshot: string | null;
    state: string | null;
    layout: HeadLayout | null;
  }>(
    `select head, snapshot, state, layout from palimpsest.compactions
     where tenant_id = $1 and session_id = $2 and generation = $3`,
    key,
  );
  const shown = headMessages(head?.head ?? null);
  const headTokens = shown.map((message) => countMessage(message, counter));
  const snapshotTokens = head?.snapshot ? counter.count(head.snapshot) : 0;
  const stateTokens = head?.state ? counter.count(head.state) : 0;
  const text = shown[0]?.content;
  const layout =
    head?.layout && typeof text === 'string'
      ? layoutOf(text, head.layout.stretches, headTokens[0] ?? 0, counter)
      : null;
  const reductions = await query<{ budget: number; position: number; body: string }>(
    'select budget, position, body from palimpsest.reductions where tenant_id = $1 and session_id = $2 and generation = $3',
    key,
  );
  const reduced = reductions.map(({ body }) => countMessage(JSON.parse(body) as ChatMessage, counter));

  return {
    store: async (update) => {
      await update(
        `update palimpsest.messages m set tokens = new.tokens
         from unnest($3::int[], $4::int[]) as new (seq, tokens)
         where m.tenant_id = $1 and m.session_id = $2 and m.seq = new.seq`,
        [session.tenant, session.session, seqs, tokens],
      );
      await update(
        `update palimpsest.compactions set head_tokens = $4, snapshot_tokens = $5, state_tokens = $6, layout = $7
         where tenant_id = $1 and session_id = $2 and generation = $3`,
        [...key, headTokens, snapshotTokens, stateTokens, layout && JSON.stringify(layout)],
      );
      await update(
        `update palimpsest.reductions r set tokens = new.tokens
         from unnest($4::int[], $5::int[], $6::int[]) as new (budget, position, tokens)
         where r.tenant_id = $1 and r.session_id = $2 and r.generation = $3
           and r.budget = new.budget and r.position = new.position`,
        [...key, reductions.map(({ budget }) => budget), reductions.map(({ position }) => position), reduced],
      );
    },
  };
}

interface ContextRange {
  tenant: string;
  session: string;
  generation: number;
  /** Last seq that the head replaces. */
  throughSeq: number;
  systemThroughSeq: number;
}

/**
 * Tokens and messages of the context by stored counts: leading system messages, head and tail, with the reductions
 * committed with the generation in place of their originals. The context may be smaller, because empty messages count although
 * they are never shown. It is larger only if it contains synthetic results, which it adds for unanswered calls.
 */
export async function liveSizes(
  query: Query,
  { tenant, session, generation, throughSeq, systemThroughSeq }: ContextRange,
): Promise<{ liveTokens: number; liveMessages: number }> {
  const [sizes] = await query<{ tokens: number; messages: number }>(sizesStatement, [
    tenant,
    session,
    generation,
    systemThroughSeq,
    Math.max(throughSeq, systemThroughSeq),
  ]);
  return { liveTokens: sizes?.tokens ?? 0, liveMessages: sizes?.messages ?? 0 };
}

const sizesStatement = prepared(
  'live_sizes',
  `with reduced as (
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
select coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(messages), 0)::bigint as messages from parts`,
);
