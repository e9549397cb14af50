import type { Pool } from 'pg';
import { PalimpsestError } from '../../errors.js';
import { type Asker, forgetLeases } from './digest-leases.js';
import {
  addHold,
  aheadRun,
  holdAll,
  holdParameters,
  releaseRuns,
  renewHolds,
  unheld,
  type Holder,
} from './digest-holds.js';
import type { Layer } from '../../summary/ask/layers.js';
import { digests } from '../schema/digests.js';
import type { SessionIds } from '../../contract/ids.js';
import { keepSession } from '../sessions/session-table.js';
import { storable } from '../connection/values.js';
import { prepared } from '../connection/prepared.js';
import { read, withTransaction, type Transaction } from '../connection/transaction.js';

type Columns = typeof digests.$inferSelect;

/** A stored answer of a model. `calls` and tokens are its cost to the session that paid for it. */
type DigestRow = Omit<Columns, 'tenantId'> & { tenant: string };

/** The stored texts among these keys, by key. */
export async function digestTexts(
  pool: Pool,
  tenant: string,
  keys: readonly string[],
): Promise<Map<string, string>> {
  if (keys.length === 0) return new Map();
  const rows = await read<{ key: string; text: string }>(
    pool,
    { tenant },
    'select key, text from palimpsest.digests where tenant_id = $1 and key = any($2)',
    [tenant, keys],
  );
  return new Map(rows.map(({ key, text }) => [key, text]));
}

/**
 * Stores an answer under its content key; it is durable on return. The first stored answer stays: if another
 * writer stored an answer under the same key, returns that answer. `holder` holds the result in both cases. The lease of
 * `asker` ends in the same transaction. Throws `Store.SessionNotFound` if the payer was erased, `Store.StaleGeneration` if it
 * was recreated since `incarnation` was read.
 */
export async function storeDigest(
  pool: Pool,
  digest: Omit<DigestRow, 'createdAt'>,
  { holder, incarnation, asker }: { holder?: Holder; incarnation?: string; asker?: Asker } = {},
): Promise<{ text: string; tokens: number }> {
  const { tenant, key, tokens, calls, inputTokens, outputTokens, payerSession, payerGeneration } = digest;
  const text = storable(digest.text);
  const held = holder ? holdParameters(holder) : [tenant, null, null, null];
  const stored = await read(pool, { tenant }, storeStatement, [
    ...held,
    ...[key, text, tokens, calls, inputTokens, outputTokens, payerSession, payerGeneration],
    ...[incarnation, asker?.step, asker?.attempt],
  ]);
  return stored.length > 0 ? { text, tokens } : findStored(pool, digest, { holder, incarnation });
}

/** A model may answer after its session was erased. In this case the answer is not stored. */
const storeStatement = prepared(
  'store_digest',
  `with alive as (
     select 1 from palimpsest.sessions
     where tenant_id = $1 and session_id = $11 and ($13::uuid is null or incarnation = $13) for key share
   ), stored as (
     insert into palimpsest.digests
       (tenant_id, key, text, tokens, calls, input_tokens, output_tokens, payer_session, payer_generation)
     select $1, $5, $6, $7, $8, $9, $10, $11, $12 from alive
     on conflict do nothing
     returning key
   ), held as (${holdAll('stored where $3::text is not null')}
   ), lease as (
     delete from palimpsest.digest_flights where tenant_id = $1 and key = $5 and step = $14 and attempt = $15
   )
   select 1 from stored`,
);

/** Holds and returns the answer that another writer stored first. Throws as `storeDigest` does. */
async function findStored(
  pool: Pool,
  { tenant, key, payerSession: session }: Omit<DigestRow, 'createdAt'>,
  { holder, incarnation }: { holder?: Holder; incarnation?: string },
): Promise<{ text: string; tokens: number }> {
  return withTransaction(pool, { tenant }, async ({ query }) => {
    await keepSession({ query }, { tenant, session, incarnation });
    const [winner] = await query<{ text: string; tokens: number }>(
      'select text, tokens from palimpsest.digests where tenant_id = $1 and key = $2 for key share',
      [tenant, key],
    );
    if (!winner)
      throw new PalimpsestError('Store.Unavailable', `digest ${key} expired while it was being stored`, {
        hint: 'Try again.',
      });
    if (holder) await addHold(query, holder, key);
    return winner;
  });
}

export interface Paid extends Record<string, unknown> {
  modelCalls: number;
  modelInputTokens: number;
  modelOutputTokens: number;
}

/**
 * Before the commit of a run: extends its holds, and returns the cost of the digests among `keys`, and of those written ahead
 * since the last commit, that its session paid for while it prepared this generation. The others existed before.
 */
export async function holdPaid(
  pool: Pool,
  holder: Holder,
  generation: number,
  keys: readonly string[],
): Promise<Paid> {
  const [paid] = await read<Paid>(pool, holder, paidStatement, [
    ...holdParameters(holder),
    ...[generation, keys],
  ]);
  return paid ?? { modelCalls: 0, modelInputTokens: 0, modelOutputTokens: 0 };
}

const paidStatement = prepared(
  'hold_paid',
  `with renewed as (${renewHolds})
   select coalesce(sum(calls), 0)::bigint as "modelCalls", coalesce(sum(input_tokens), 0)::bigint as "modelInputTokens",
     coalesce(sum(output_tokens), 0)::bigint as "modelOutputTokens"
   from palimpsest.digests
   where tenant_id = $1 and payer_session = $2 and payer_generation = $5 and key in (
     select unnest($6::text[])
     union
     select key from palimpsest.digest_holds
     where tenant_id = $1 and session_id = $2 and run_id = '${aheadRun}')`,
);

export interface PaidTowards {
  session: string;
  generation: number;
  inputTokens: number;
  outputTokens: number;
}

/** The tokens that these sessions have recently paid for each generation, committed or not. One query covers all of them. */
export async function paidTowards(
  pool: Pool,
  tenant: string,
  sessions: readonly string[],
): Promise<PaidTowards[]> {
  return read<PaidTowards & Record<string, unknown>>(
    pool,
    { tenant },
    `select payer_session as session, payer_generation as generation,
       sum(input_tokens)::float8 as "inputTokens", sum(output_tokens)::float8 as "outputTokens"
     from palimpsest.digests
     where tenant_id = $1 and created_at > now() - interval '2 days' and payer_session = any($2) group by 1, 2`,
    [tenant, sessions],
  );
}

/** Stores the text of an entry written by rule under its key, at no cost. */
export async function storeRuleLayer(
  { db }: Transaction,
  { tenant, session }: SessionIds,
  generation: number,
  { layer, text }: { layer: Layer; text: string },
): Promise<void> {
  await db
    .insert(digests)
    .values({
      tenantId: tenant,
      key: layer.key,
      text: storable(text),
      tokens: layer.tokens,
      calls: 0,
      inputTokens: 0,
      outputTokens: 0,
      payerSession: session,
      payerGeneration: generation,
    })
    .onConflictDoNothing();
}

/** Maximum number of digests that one call deletes. The next call deletes more. */
export const mostExpired = 500;

/**
 * Deletes the digests of a tenant that are old enough and that no compaction refers to or holds, and returns their
 * number. Also deletes holds and leases that expired long ago.
 */
export async function expireDigests(pool: Pool, tenant: string, olderThanMs: number): Promise<number> {
  const old = await read<{ key: string }>(pool, { tenant }, expiredStatement, [tenant, olderThanMs / 1_000]);
  if (old.length === 0) return 0;
  return withTransaction(pool, { tenant }, async ({ query }) => {
    const locked = await query<{ key: string }>(
      `select key from palimpsest.digests where tenant_id = $1 and key = any($2) order by key for update skip locked`,
      [tenant, old.map(({ key }) => key)],
    );
    // The second check runs under the locks: a compaction may have begun to use a digest since the first one.
    const gone = await query(
      `delete from palimpsest.digests d where d.tenant_id = $1 and d.key = any($2) and ${unused('d')} returning 1`,
      [tenant, locked.map(({ key }) => key)],
    );
    return gone.length;
  });
}

/** The condition that no compaction refers to the digest and that no running one holds it. */
const unused = (digest: string): string =>
  `not exists (select from palimpsest.compaction_digests used
     where used.tenant_id = ${digest}.tenant_id and used.key = ${digest}.key) and ${unheld(digest)}`;

const expiredStatement = prepared(
  'expired_digests',
  `with holds as (delete from palimpsest.digest_holds where tenant_id = $1 and held_until < now()),
     leases as (${forgetLeases})
   select key from palimpsest.digests d
   where d.tenant_id = $1 and d.created_at < now() - make_interval(secs => $2) and ${unused('d')}
   order by d.created_at limit ${mostExpired}`,
);

/** Protects these digests from deletion, and ends the holds of these runs. Throws `Store.DigestGone` if a digest is missing. */
export async function linkDigests(
  { query }: Transaction,
  { tenant, session }: SessionIds,
  generation: number,
  keys: readonly string[],
  ended: readonly string[] = [],
): Promise<void> {
  const linked = await query(linkStatement, [tenant, session, generation, keys, ended]);
  const missing = keys.length - linked.length;
  if (missing > 0) throw digestGone(`${missing} of the ${keys.length} digests of this compaction are`);
}

/** All transactions that lock several digests use the same order, which prevents deadlocks. */
const linkStatement = prepared(
  'link_digests',
  `with kept as (
     select key from palimpsest.digests where tenant_id = $1 and key = any($4) order by key for key share
   ), released as (${releaseRuns('$5')})
   insert into palimpsest.compaction_digests (tenant_id, session_id, generation, position, key)
   select $1, $2, $3, position, key
   from unnest($4::text[]) with ordinality as given (key, position) join kept using (key)
   returning 1`,
);

/** The error for a model's answer that the compaction has read and that was deleted since. */
export function digestGone(which: string): PalimpsestError {
  return new PalimpsestError('Store.DigestGone', `${which} no longer stored`, {
    hint: 'The compaction asks the model again. If this recurs, raise retention.digests above summary.deadline.',
  });
}
