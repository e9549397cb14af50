import { getTableColumns, sql } from 'drizzle-orm';
import { getTableConfig, type PgTable } from 'drizzle-orm/pg-core';
import type { Pool } from 'pg';
import { invalid, PalimpsestError } from '../../errors.js';
import { liveSizes, recount } from '../sessions/recount.js';
import { archiveParts, compactions, reductions } from '../schema/compactions.js';
import { compactionDigests } from '../schema/digests.js';
import { knownLists, messages, messageVectors, sessions, turns } from '../schema/log.js';
import { moved } from '../append/turn-answers.js';
import { factsOf, notFound, type SessionRow } from '../sessions/session-row.js';
import { findSession, loadSession } from '../sessions/sessions.js';
import { keepSession, lockSession, updateSession } from '../sessions/session-table.js';
import type { SessionIds } from '../../contract/ids.js';
import type { Forked, ForkRequest } from '../../contract/compactions.js';
import { settingsOf } from '../sessions/settings.js';
import { lockSessions, noteStored, refusalOfBytes, refusalOfSession } from '../tenants/storage.js';
import { type Transaction, withSession, withTransaction } from '../connection/transaction.js';

/**
 * Makes a new session with the policy, the log and the compactions of another up to `throughSeq`. After the fork the
 * sessions are independent. A turn that reaches beyond `throughSeq` is cut, a call without its result stays open, and
 * digests are shared. The database copies everything in one transaction. A repeated call makes no second fork; with `continues`,
 * it moves the session to a fork that was made without. Throws
 * `Input.Invalid` for a seq that is not in the log and for a target that exists already; `Store.SessionNotFound`;
 * `Tenant.BeyondLimit`; `Store.StaleAppend` for a stale `expectedSeq` and for a session that no longer uses the source;
 * `Store.StaleGeneration` if the source is erased and recreated meanwhile.
 */
export async function fork(
  pool: Pool,
  ids: SessionIds,
  { throughSeq, to, continues, expectedSeq }: ForkRequest,
): Promise<Forked> {
  const target: SessionIds = { tenant: ids.tenant, session: to };
  for (let attempt = 1; ; attempt++) {
    const source = await loadSession(pool, ids);
    if (throughSeq >= source.nextSeq)
      throw invalid(
        `there is no message ${throughSeq}`,
        'throughSeq',
        `The log of ${ids.session} ends at message ${source.nextSeq - 1}.`,
      );
    const made = await withTransaction(pool, ids, async (tx) => {
      // Appends continue meanwhile, unless they would be lost to a session that goes on in the fork. Only a concurrent change of
      // the policy, because it changes counts, would make the copy inconsistent.
      if (attempt > 1 || continues !== undefined || expectedSeq !== undefined) {
        await lockToMove(tx, source, expectedSeq);
      } else await keepSession(tx, source);
      const { limits } = source.policy;
      await lockSessions(tx, ids.tenant, limits);
      const moving = continues === undefined ? null : { ...ids, session: continues };
      if (!(await copySession(tx, source, target, throughSeq))) {
        const { forkOf } = await lockSession(tx, target);
        const isSame = forkOf?.session === ids.session && forkOf.throughSeq === throughSeq;
        return moving !== null && isSame && (await continueIn(tx, moving, ids.session, to));
      }
      const { storedBytes } = await lockSession(tx, target);
      const refusal =
        (await refusalOfSession(tx, target, limits)) ??
        (await refusalOfBytes(tx, ids.tenant, limits, storedBytes));
      if (refusal) throw refusal;
      noteStored(tx, ids.tenant, storedBytes);
      await copyLog(tx, source, target, throughSeq);
      const generation = await copyGenerations(tx, source, target, throughSeq);
      await settleSizes(tx, target, generation);
      const { policyVersion } = await presentPolicy(tx, ids);
      if (policyVersion !== source.policyVersion) throw new PolicyMoved();
      if (moving !== null) await continueIn(tx, moving, ids.session, to);
      return true;
    }).catch((error: unknown) => {
      if (error instanceof PolicyMoved) return null;
      throw error;
    });
    if (made !== null) return answer(pool, ids, target, throughSeq, !made);
  }
}

function stale(session: string, lastSeq: number, expectedSeq: number): PalimpsestError {
  return new PalimpsestError(
    'Store.StaleAppend',
    `session ${session} ends at seq ${lastSeq}, not at ${expectedSeq}`,
    {
      path: 'expectedSeq',
      hint: 'Read the session again and decide again where to fork it.',
      details: { lastSeq, expectedSeq },
    },
  );
}

/**
 * From now on, `sync` for `origin` uses `to`, which is `origin` itself or a fork of it, and no longer `from`, which ends at
 * `expectedSeq`. Throws `Store.StaleAppend` if another call has moved `origin` or stored to `from`.
 */
export async function goOnIn(
  pool: Pool,
  origin: SessionIds,
  { from, expectedSeq, to }: { from: SessionIds; expectedSeq: number; to: string },
): Promise<void> {
  await withSession(pool, from, async (tx) => {
    await lockToMove(tx, from, expectedSeq);
    await continueIn(tx, origin, from.session, to);
  });
}

/** Turns that would be lost to a session that goes on elsewhere wait until it has moved. */
async function lockToMove(tx: Transaction, from: SessionIds, expectedSeq: number | undefined): Promise<void> {
  const { nextSeq } = await lockSession(tx, from);
  if (expectedSeq !== undefined && expectedSeq !== nextSeq - 1)
    throw stale(from.session, nextSeq - 1, expectedSeq);
}

/** From now on, `sync` for `origin` uses the session `to`. Returns false if it does so already. */
async function continueIn(
  { query }: Transaction,
  origin: SessionIds,
  from: string,
  to: string,
): Promise<boolean> {
  const updated = await query<{ session_id: string }>(
    `update palimpsest.sessions set continued_in = nullif($4, session_id)
     where tenant_id = $1 and session_id = $2 and coalesce(continued_in, session_id) = $3 returning session_id`,
    [origin.tenant, origin.session, from, to],
  );
  if (updated.length > 0) return true;
  const [found] = await query<{ continued_in: string | null }>(
    'select continued_in from palimpsest.sessions where tenant_id = $1 and session_id = $2',
    [origin.tenant, origin.session],
  );
  if (found && (found.continued_in ?? origin.session) === to) return false;
  throw moved(origin.session, from);
}

/** The policy of the source changed during the copy. Nothing is written, and the fork begins again. */
class PolicyMoved extends Error {}

async function presentPolicy({ query }: Transaction, ids: SessionIds): Promise<{ policyVersion: number }> {
  const [row] = await query<{ version: number }>(
    'select policy_version as version from palimpsest.sessions where tenant_id = $1 and session_id = $2',
    [ids.tenant, ids.session],
  );
  return row ? { policyVersion: row.version } : notFound(ids);
}

async function answer(
  pool: Pool,
  source: SessionIds,
  target: SessionIds,
  throughSeq: number,
  repeated: boolean,
): Promise<Forked> {
  const found = await findSession(pool, target);
  if (!found || found.forkOf?.session !== source.session || found.forkOf.throughSeq !== throughSeq)
    throw invalid(
      `session ${target.session} exists already`,
      'to',
      'A fork creates a new session. Give it an unused id.',
    );
  const { nextSeq, generation } = found;
  return { session: target.session, messages: repeated ? throughSeq : nextSeq - 1, generation, repeated };
}

/** Returns false if the target exists already. Waits for another writer that is creating the target. */
async function copySession(
  { query }: Transaction,
  source: SessionRow,
  target: SessionIds,
  throughSeq: number,
): Promise<boolean> {
  const made = await query<{ session_id: string }>(
    copyOf(sessions, {
      session_id: '$3',
      incarnation: 'gen_random_uuid()',
      former_incarnations: "'{}'",
      next_seq: '$4::int + 1',
      system_through_seq: 'least(system_through_seq, $4)',
      turns: `(select count(*) from palimpsest.turns t
        where t.tenant_id = $1 and t.session_id = $2 and t.from_seq <= $4)`,
      stored_bytes: `(select coalesce(sum(octet_length(m.body)), 0) from palimpsest.messages m
        where m.tenant_id = $1 and m.session_id = $2 and m.seq <= $4)`,
      fork_of: "jsonb_build_object('session', $2::text, 'throughSeq', $4::int)",
      continued_in: 'null',
      // Set once head and messages are copied.
      generation: '0',
      through_seq: '0',
      ...{ live_tokens: '0', live_messages: '0', indexed_through_seq: '0' },
      ...{ measure_at_tokens: 'null', measure_at_messages: 'null', exhausted: 'null' },
      ...{ overdue_at: 'null', sweep_at: 'null' },
      ...{ failures: '0', retry_at: 'null', last_error: 'null', paused_at: 'null', closed_at: 'null' },
      ...{ created_at: 'now()', updated_at: 'now()' },
    }) + ' on conflict do nothing returning session_id',
    [source.tenant, source.session, target.session, throughSeq],
  );
  return made.length > 0;
}

/** Copies turns and messages. A turn that is cut gets the hash of its remaining messages. */
async function copyLog(
  { query }: Transaction,
  source: SessionIds,
  target: SessionIds,
  throughSeq: number,
): Promise<void> {
  const range = [source.tenant, source.session, target.session, throughSeq];
  await query(
    copyOf(turns, {
      session_id: '$3',
      through_seq: 'least(through_seq, $4)',
      sha256: `case when through_seq <= $4 then sha256 else (
        select sha256(convert_to('[' || string_agg(m.body, ',' order by m.seq) || ']', 'UTF8'))
        from palimpsest.messages m
        where m.tenant_id = $1 and m.session_id = $2 and m.seq between original.from_seq and $4) end`,
    }) + ' and from_seq <= $4',
    range,
  );
  await query(copyOf(messages, { session_id: '$3' }) + ' and seq <= $4', range);
  await query(copyOf(knownLists, { session_id: '$3' }) + ' and through_seq <= $4', range);
  await query(copyOf(messageVectors, { session_id: '$3' }) + ' and seq <= $4', range);
}

/**
 * Copies the part of the head's chain of parents within the range, with everything that belongs to it. Returns the
 * newest copied generation.
 */
async function copyGenerations(
  { query }: Transaction,
  source: SessionRow,
  target: SessionIds,
  throughSeq: number,
): Promise<number> {
  const chain = await query<{ generation: number }>(
    `with recursive chain as (
       select generation, parent_generation, through_seq from palimpsest.compactions
       where tenant_id = $1 and session_id = $2 and generation = $3
       union all
       select parent.generation, parent.parent_generation, parent.through_seq
       from chain join palimpsest.compactions parent
         on parent.tenant_id = $1 and parent.session_id = $2 and parent.generation = chain.parent_generation
     )
     select generation from chain where through_seq <= $4 order by generation`,
    [source.tenant, source.session, source.generation, throughSeq],
  );
  const generations = chain.map(({ generation }) => generation);
  const key = [source.tenant, source.session, target.session, generations];
  const within = ' and generation = any ($4::int[])';
  // The workflow ids are cleared, because they contain the name of the source.
  await query(copyOf(compactions, { session_id: '$3', workflow_id: "''" }) + within, key);
  await query(copyOf(archiveParts, { session_id: '$3' }) + within, key);
  await query(copyOf(compactionDigests, { session_id: '$3' }) + within, key);
  await query(`${copyOf(reductions, { session_id: '$3' })}${within} and through_seq <= $5`, [
    ...key,
    throughSeq,
  ]);
  return generations.at(-1) ?? 0;
}

/** Sets the head of the fork, and recomputes its counters and `measureAt…`. */
async function settleSizes(tx: Transaction, target: SessionIds, generation: number): Promise<void> {
  const copied = await lockSession(tx, target);
  const [head] = await tx.query<{ through: number }>(
    `select through_seq as through from palimpsest.compactions
     where tenant_id = $1 and session_id = $2 and generation = $3`,
    [target.tenant, target.session, generation],
  );
  const session = { ...copied, generation, throughSeq: head?.through ?? 0 };
  // Messages that the source evicted before its tokenizer changed still have their old counts, and may be in the
  // tail here.
  if (session.policyVersion > 1) await (await recount(tx.query, session, session.tokenizer)).store(tx.query);
  const live = await liveSizes(tx.query, session);
  const { measureAtTokens, measureAtMessages } = settingsOf(
    session.policy,
    factsOf(session),
    live.liveTokens,
  );
  await updateSession(tx, target, {
    generation,
    throughSeq: session.throughSeq,
    ...live,
    measureAtTokens,
    measureAtMessages,
    // No turn has signalled the fork.
    overdueAt: sql`now()`,
  });
}

/** `insert … select` of one session's rows, with its ids in $1 and $2 and some columns replaced. Conditions can be appended. */
function copyOf(table: PgTable, replaced: Record<string, string>): string {
  const names = Object.values(getTableColumns(table)).map(({ name }) => name);
  const unknown = Object.keys(replaced).filter((name) => !names.includes(name));
  if (unknown.length > 0) throw new Error(`no columns ${unknown.join(', ')}`);
  const { name, schema } = getTableConfig(table);
  const values = names.map((column) => replaced[column] ?? column);
  return `insert into ${schema}.${name} (${names.join(', ')})
    select ${values.join(', ')} from ${schema}.${name} original where tenant_id = $1 and session_id = $2`;
}
