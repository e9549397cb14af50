import type { Pool } from 'pg';
import type { ChainLink } from '../../compaction/plan/plan-types.js';
import type { CallLink, MessageMeta, Role } from '../../conversation/message.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import type { SessionIds } from '../../contract/ids.js';
import { prepared } from '../connection/prepared.js';
import { read } from '../connection/transaction.js';

/** The generations along the chain of parents: this one first, the genesis last. */
export async function readChain(pool: Pool, ids: SessionIds, generation: number): Promise<ChainLink[]> {
  const rows = await read<{
    generation: number;
    through_seq: number;
    snapshot_tokens: number;
    fallback: boolean;
    method: string;
    layers: KeptLayer[] | null;
    state_tokens: number;
  }>(pool, ids, chainStatement, [ids.tenant, ids.session, generation]);
  return rows.map((row) => ({
    generation: row.generation,
    throughSeq: row.through_seq,
    snapshotTokens: row.snapshot_tokens,
    fallback: row.fallback,
    readByModel: row.method === 'model',
    layers: row.layers?.map(({ added: _added, waiting: _waiting, ...layer }) => layer) ?? null,
    stateTokens: row.state_tokens,
  }));
}

const chainStatement = prepared(
  'chain',
  `with recursive chain as (
     select * from palimpsest.compactions where tenant_id = $1 and session_id = $2 and generation = $3
     union all
     select parent.* from chain join palimpsest.compactions parent
       on parent.tenant_id = $1 and parent.session_id = $2 and parent.generation = chain.parent_generation
   )
   select generation, through_seq, snapshot_tokens, fallback, method, case when generation = $3 then layers end as layers, state_tokens
   from chain order by generation desc`,
);

/** Cost of the session's compactions so far, in the currency of its prices. */
export async function spentOn(pool: Pool, ids: SessionIds): Promise<number> {
  const [row] = await read<{ spent: number }>(
    pool,
    ids,
    `select coalesce(sum(cost), 0)::float8 as spent from palimpsest.compactions
     where tenant_id = $1 and session_id = $2`,
    [ids.tenant, ids.session],
  );
  return row?.spent ?? 0;
}

/** Whether a range of the log (both ends included) holds a message of at least `tokens` that calls one of these tools. */
export async function callsTools(
  pool: Pool,
  ids: SessionIds,
  {
    fromSeq,
    throughSeq,
    tokens,
    tools,
  }: { fromSeq: number; throughSeq: number; tokens: number; tools: string[] },
): Promise<boolean> {
  const rows = await read(
    pool,
    ids,
    `select from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and seq between $3 and $4 and tokens >= $5 and calls is not null
       and exists (select from unnest($6::text[]) tool where position(tool in calls) > 0) limit 1`,
    [
      ids.tenant,
      ids.session,
      fromSeq,
      throughSeq,
      tokens,
      tools.map((tool) => `"name":${JSON.stringify(tool)}`),
    ],
  );
  return rows.length > 0;
}

/** Sizes and links of a range of the log, both ends included. */
export async function readMetas(
  pool: Pool,
  ids: SessionIds,
  fromSeq: number,
  throughSeq: number,
): Promise<MessageMeta[]> {
  const rows = await read<{
    seq: number;
    role: Role;
    tokens: number;
    calls: string | null;
    answers: string | null;
    empty: boolean;
    at: number;
  }>(
    pool,
    ids,
    `select seq, role, tokens, calls, answers, empty, extract(epoch from created_at)::float8 * 1000 as at
     from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq between $3 and $4 order by seq`,
    [ids.tenant, ids.session, fromSeq, throughSeq],
  );
  return rows.map((row): MessageMeta => {
    const calls: CallLink[] = row.calls === null ? [] : (JSON.parse(row.calls) as CallLink[]);
    const answers: string | null = row.answers === null ? null : (JSON.parse(row.answers) as string | null);
    return { ...row, calls, answers };
  });
}
