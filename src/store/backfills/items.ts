/** The sessions of a backfill with their outcomes, one row each. */
import type { Pool } from 'pg';
import type {
  BackfillItem,
  BackfillItemRequest,
  BackfillItemState,
  CommittedStep,
} from '../../contract/backfills.js';
import { lockBackfill, loadBackfillRow, updateBackfill } from './jobs.js';
import type { BackfillIds } from '../../contract/ids.js';
import { storable } from '../connection/values.js';
import { prepared } from '../connection/prepared.js';
import { read, withTransaction, type Query } from '../connection/transaction.js';

/** A session that is pending in a backfill. */
export interface PendingItem {
  session: string;
  /** Generation of its newest compaction; null if the session was erased meanwhile. */
  generation: number | null;
  incarnation: string | null;
}

/** Reads the next pending sessions in the order of their ids. */
export async function readPending(
  pool: Pool,
  { tenant, job }: BackfillIds,
  after: string | null,
  most: number,
): Promise<PendingItem[]> {
  return read<PendingItem & Record<string, unknown>>(
    pool,
    { tenant },
    `select i.session_id as session, s.generation, s.incarnation from palimpsest.backfill_items i
     left join palimpsest.sessions s on s.tenant_id = i.tenant_id and s.session_id = i.session_id
     where i.tenant_id = $1 and i.job = $2 and i.state = 'pending' and ($3::text is null or i.session_id > $3)
     order by i.session_id limit $4`,
    [tenant, job, after, most],
  );
}

/** A session with the state that the selection gave it. */
export interface SelectedItem {
  session: string;
  incarnation: string;
  state: Extract<BackfillItemState, 'pending' | 'unchanged' | 'failed'>;
  tokens: number;
  error: { type: string; message: string } | null;
}

/**
 * Writes the next page and moves the cursor to its last session, in one transaction. Leaves out sessions that were
 * erased after their rows were read. Returns false and writes nothing if the cursor is no longer at `from`: an earlier
 * attempt has written the page.
 */
export async function insertPage(
  pool: Pool,
  ids: BackfillIds,
  from: string | null,
  page: readonly SelectedItem[],
  last: boolean,
): Promise<boolean> {
  return withTransaction(pool, ids, async ({ query }) => {
    // Locks sessions before the job, in the same order as an erasure.
    const kept = await keepSelected(query, ids.tenant, page);
    const { cursor, selecting } = await lockBackfill(query, ids);
    if (cursor !== from || !selecting) return false;
    await query(
      `insert into palimpsest.backfill_items (tenant_id, job, session_id, state, tokens_before, tokens_after,
         error_type, error_message, ended_at)
       select $1, $2, e.session, e.state, case when e.state <> 'pending' then e.tokens end,
         case when e.state <> 'pending' then e.tokens end, e.error->>'type', e.error->>'message',
         case when e.state <> 'pending' then now() end
       from jsonb_to_recordset($3::jsonb) as e(session text, state text, tokens bigint, error jsonb)
       on conflict do nothing`,
      [ids.tenant, ids.job, JSON.stringify(kept)],
    );
    await query(
      `update palimpsest.backfills set cursor = $3, selecting = $4, updated_at = now()
       where tenant_id = $1 and job = $2`,
      [ids.tenant, ids.job, kept.at(-1)?.session ?? from, !last],
    );
    return true;
  });
}

/** The sessions that still exist. They cannot be erased until the transaction ends. */
async function keepSelected(
  query: Query,
  tenant: string,
  page: readonly SelectedItem[],
): Promise<SelectedItem[]> {
  const rows = await query<{ session: string; incarnations: string[] }>(
    `select session_id as session, former_incarnations || incarnation as incarnations from palimpsest.sessions
     where tenant_id = $1 and session_id = any($2) order by session_id for key share`,
    [tenant, page.map(({ session }) => session)],
  );
  const present = new Map(rows.map(({ session, incarnations }) => [session, incarnations]));
  return page.filter(({ session, incarnation }) => present.get(session)?.includes(incarnation));
}

export interface ItemResult {
  session: string;
  /** Absent in results of earlier versions, which mean any session with this id. */
  incarnation?: string;
  /** Unix milliseconds. */
  at: number;
  /** `running`: a compaction was committed and another one follows. */
  state: Extract<BackfillItemState, 'running' | 'compacted' | 'unchanged' | 'failed'>;
  step: CommittedStep | null;
  error: { type: string; message: string } | null;
  /** Money that a failed attempt at a generation cost. */
  unsettled: { generation: number; cost: number } | null;
}

export interface BegunItem {
  session: string;
  incarnation?: string;
  /** Unix milliseconds. */
  at: number;
}

/**
 * Records the sessions that have begun and the outcomes of others, in one transaction. A call may be repeated, and a session that
 * was due at the first call may not be due at the second, or the reverse. Only a pending session can begin, each generation
 * counts once, and the result of a newer generation counts even if the session had ended. Results of a session that was erased
 * and recreated since are dropped; those of a session of which only messages were erased count.
 */
export async function recordItems(
  pool: Pool,
  { tenant, job }: BackfillIds,
  begun: readonly BegunItem[],
  results: readonly ItemResult[],
): Promise<void> {
  await withTransaction(pool, { tenant }, async ({ query }) => {
    if (begun.length > 0)
      await query(
        `update palimpsest.backfill_items i set state = 'running', attempts = attempts + 1, ended_at = null,
           error_type = null, error_message = null, started_at = to_timestamp(e.at / 1000.0)
         from jsonb_to_recordset($3::jsonb) as e(session text, at float8, incarnation uuid)
         where i.tenant_id = $1 and i.job = $2 and i.session_id = e.session and i.state = 'pending'
           and ${sameSession('e.incarnation')}`,
        [tenant, job, JSON.stringify(begun)],
      );
    for (const result of results)
      if (!(await recordOne(query, { tenant, job }, result)))
        await endRecorded(query, { tenant, job }, result);
  });
}

/**
 * A session that was compacted once stays `compacted`, unless a later attempt fails. The cost of failed attempts counts
 * until a commit of the same generation includes it. Returns false if the result does not count.
 */
async function recordOne(query: Query, { tenant, job }: BackfillIds, result: ItemResult): Promise<boolean> {
  const { session, at, state, step, error, unsettled, incarnation = null } = result;
  const done = state !== 'running';
  const recorded = await query(recordStatement, [
    ...[tenant, job, session, state, done, at],
    ...[error?.type ?? null, error && storable(error.message.slice(0, shownCharacters))],
    ...[step?.generation ?? null, step?.tokensBefore ?? null, step?.tokensAfter ?? null],
    ...[step?.modelCalls ?? 0, step?.modelInputTokens ?? 0, step?.modelOutputTokens ?? 0, step?.cost ?? null],
    ...[unsettled?.cost ?? null, unsettled?.generation ?? null, incarnation],
  ]);
  return recorded.length > 0;
}

/**
 * Ends a session whose generation an earlier attempt of this call has counted. That attempt found the session due again, so it left
 * it running; since then another workflow has compacted it, and nothing follows.
 */
async function endRecorded(query: Query, { tenant, job }: BackfillIds, result: ItemResult): Promise<void> {
  const { session, at, state, step, incarnation = null } = result;
  if (state === 'running' || step === null) return;
  await query(
    `update palimpsest.backfill_items i set state = $4, ended_at = to_timestamp($5 / 1000.0)
     where i.tenant_id = $1 and i.job = $2 and i.session_id = $3 and i.state = 'running'
       and i.generation = $6 and ${sameSession('$7::uuid')}`,
    [tenant, job, session, state, at, step.generation, incarnation],
  );
}

const sameSession = (incarnation: string) =>
  `(${incarnation} is null or exists (select from palimpsest.sessions s where s.tenant_id = i.tenant_id
     and s.session_id = i.session_id and ${incarnation} = any (s.former_incarnations || s.incarnation)))`;

const recordStatement = prepared(
  'record_item',
  `update palimpsest.backfill_items i set
     state = case when $4 = 'unchanged' and i.generation is not null then 'compacted' else $4 end,
     ended_at = case when $5 then to_timestamp($6 / 1000.0) end,
     error_type = $7, error_message = $8,
     generation = coalesce($9, i.generation),
     tokens_before = coalesce(i.tokens_before, $10), tokens_after = coalesce($11, i.tokens_after),
     model_calls = i.model_calls + $12, model_input_tokens = i.model_input_tokens + $13,
     model_output_tokens = i.model_output_tokens + $14,
     cost = case when coalesce($15::float8, $16::float8) is null then i.cost else coalesce(i.cost, 0) + coalesce($15, $16)
       - case when i.unsettled_generation = coalesce($9, $17::int) then i.unsettled_cost else 0 end end,
     unsettled_cost = coalesce($16, case when $15::float8 is null then i.unsettled_cost else 0 end),
     unsettled_generation = coalesce($17, i.unsettled_generation)
   where i.tenant_id = $1 and i.job = $2 and i.session_id = $3
     and (i.state = 'running' or i.state = 'compacted' and i.generation < $9)
     and ($9::int is null or i.generation is null or i.generation < $9) and ${sameSession('$18::uuid')}
   returning i.session_id`,
);

const shownCharacters = 2_000;

/** Money that the job has spent so far. */
export async function spentBy(pool: Pool, { tenant, job }: BackfillIds): Promise<number> {
  const [row] = await read<{ spent: number }>(
    pool,
    { tenant },
    `select coalesce(sum(cost), 0) as spent from palimpsest.backfill_items where tenant_id = $1 and job = $2`,
    [tenant, job],
  );
  return row?.spent ?? 0;
}

/**
 * Ends the job as `completed`, or in the state that an operator or the spend limit gave it. In the latter case
 * unfinished sessions become `skipped`.
 */
export async function finishBackfill(pool: Pool, ids: BackfillIds): Promise<void> {
  await withTransaction(pool, ids, async ({ query }) => {
    const { state } = await lockBackfill(query, ids);
    const cut = state === 'cancelled' || state === 'stopped';
    if (cut)
      await query(
        `update palimpsest.backfill_items set state = 'skipped', ended_at = now()
         where tenant_id = $1 and job = $2 and state in ('pending', 'running')`,
        [ids.tenant, ids.job],
      );
    await updateBackfill(query, ids, { ...(cut ? {} : { state: 'completed' }), ended: true });
  });
}

/** Makes failed and skipped sessions pending again and lets the job run. */
export async function retryItems(pool: Pool, ids: BackfillIds, spendLimit?: number): Promise<void> {
  await withTransaction(pool, ids, async ({ query }) => {
    await lockBackfill(query, ids);
    await query(
      `update palimpsest.backfill_items set state = 'pending', ended_at = null
       where tenant_id = $1 and job = $2 and state in ('failed', 'skipped')`,
      [ids.tenant, ids.job],
    );
    await updateBackfill(query, ids, {
      ...{ state: 'running', reason: null, ended: false },
      ...(spendLimit === undefined ? {} : { spendLimit }),
    });
  });
}

/**
 * A run of the job that ended without a successor (its workflow was terminated) leaves sessions in state `running`.
 * Sessions whose compaction was committed become `compacted`; the others become pending again.
 */
export async function reopenItems(pool: Pool, { tenant, job }: BackfillIds): Promise<void> {
  await withTransaction(pool, { tenant }, async ({ query }) => {
    await query(
      `update palimpsest.backfill_items i set state = 'compacted', ended_at = now(), generation = c.generation,
         tokens_before = coalesce(i.tokens_before, c.tokens_before), tokens_after = c.tokens_after,
         model_calls = i.model_calls + c.model_calls, cost = coalesce(i.cost + coalesce(c.cost, 0), c.cost),
         model_input_tokens = i.model_input_tokens + c.model_input_tokens,
         model_output_tokens = i.model_output_tokens + c.model_output_tokens
       from palimpsest.compactions c
       where i.tenant_id = $1 and i.job = $2 and i.state = 'running' and c.tenant_id = $1
         and c.session_id = i.session_id and c.created_at >= i.started_at and c.workflow_id is not null
         and c.generation = (select max(l.generation) from palimpsest.compactions l
           where l.tenant_id = $1 and l.session_id = i.session_id)
         and c.generation > coalesce(i.generation, 0)`,
      [tenant, job],
    );
    await query(
      `update palimpsest.backfill_items set state = 'pending' where tenant_id = $1 and job = $2 and state = 'running'`,
      [tenant, job],
    );
  });
}

/** Reads a page of sessions in the order of their ids. Throws `Store.BackfillNotFound`. */
export async function listItems(
  pool: Pool,
  ids: BackfillIds,
  { state, after, limit = 100 }: Omit<BackfillItemRequest, 'job'>,
): Promise<BackfillItem[]> {
  await loadBackfillRow(pool, ids);
  const rows = await read<ItemRecord & Record<string, unknown>>(
    pool,
    ids,
    `select session_id as session, state, attempts, error_type as "errorType", error_message as "errorMessage",
       generation, tokens_before as "tokensBefore", tokens_after as "tokensAfter", cost,
       started_at as "startedAt", ended_at as "endedAt"
     from palimpsest.backfill_items
     where tenant_id = $1 and job = $2 and ($3::text is null or state = $3)
       and ($4::text is null or session_id > $4)
     order by session_id limit $5`,
    [ids.tenant, ids.job, state ?? null, after ?? null, limit],
  );
  return rows.map(({ errorType, errorMessage, startedAt, endedAt, ...item }) => ({
    ...item,
    error: errorType === null ? null : { type: errorType, message: errorMessage ?? '' },
    startedAt: startedAt?.toISOString() ?? null,
    endedAt: endedAt?.toISOString() ?? null,
  }));
}

interface ItemRecord extends Omit<BackfillItem, 'error' | 'startedAt' | 'endedAt'> {
  errorType: string | null;
  errorMessage: string | null;
  startedAt: Date | null;
  endedAt: Date | null;
}
