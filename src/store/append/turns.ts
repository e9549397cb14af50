import type { Pool } from 'pg';
import type { FormatName } from '../../conversation/format-names.js';
import { splitNative } from '../../formats/native.js';
import { readInstant } from '../../conversation/instant.js';
import { defaultTurnLimits } from '../../conversation/turn-limits.js';
import type { MessageWarning } from '../../conversation/validate.js';
import { invalid, isFailure, type PalimpsestError } from '../../errors.js';
import { policyOf } from '../../policy/layers.js';
import { parsePolicy } from '../../policy/schema.js';
import { assertWithinLimits, type TenantLimits } from '../../policy/tenant-limits.js';
import { defined, upToDate } from '../sessions/configure.js';
import { countAll, turnToCount } from '../../intake/count.js';
import { serialize, type PreparedTurn } from '../../intake/prepare.js';
import { appendAtOnce } from './at-once.js';
import { insertTurn, type ReadTurn } from './insert-turn.js';
import { checkUsage, hasMoved, progressed } from './learnt.js';
import { erasedSince } from '../sessions/erasures.js';
import {
  forget,
  insertSession,
  type KnownSession,
  lockSession,
  readSession,
  recall,
  remember,
} from '../sessions/session-table.js';
import { noteSeen, type SeenSession } from './seen-sessions.js';
import { answer, changed, moved, refusalOf, repeatedTurn, type AppendResult } from './turn-answers.js';
import { replaced, type SessionRow, type TenantPolicy } from '../sessions/session-row.js';
import { settingsOf, type SessionSettings } from '../sessions/settings.js';
import { lockSessions, noteStored, refusalOfBytes, refusalOfSession } from '../tenants/storage.js';
import { checkId, type SessionIds } from '../../contract/ids.js';
import { withSession, type Transaction } from '../connection/transaction.js';
import type { TurnInput } from './turn-input.js';

/**
 * Stores one turn and the session's new counters: with one statement if this process has seen the session's present row, else in
 * one short transaction. A repeated turn is stored once and gets the same answer. The first turn creates the
 * session. Tokens are counted before the transaction begins.
 * Throws `Input.Invalid`, `Input.TooLarge`, `Tenant.BeyondLimit`, `Store.TurnConflict`, `Store.StaleAppend`,
 * `Store.Unavailable`; after such a failure nothing is stored.
 */
export async function appendTurn(
  pool: Pool,
  turn: TurnInput,
): Promise<AppendResult & { warnings: MessageWarning[] }> {
  checkId(turn.turnId, 'turnId', 'stored');
  const read = checked(turn);
  const known = recall(pool, turn);
  if (known) {
    try {
      return await store(pool, read, known);
    } catch (error) {
      // The session was erased meanwhile, and perhaps recreated in another format.
      if (!isFailure(error, 'Store.SessionNotFound') && !isFailure(error, 'Input.Invalid')) throw error;
      forget(pool, turn);
    }
  }
  const { row, ...tenant } = await readSession(pool, turn);
  return store(pool, read, row && (await upToDate(pool, row)), tenant);
}

function checked({ usage: report, at, policy, ...turn }: TurnInput): ReadTurn {
  const usage = checkUsage(report);
  return {
    ...turn,
    ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
    ...(usage === null ? {} : { usage }),
    ...(at === undefined ? {} : { at: readInstant(at) }),
  };
}

async function store(
  pool: Pool,
  turn: ReadTurn,
  session: KnownSession | null,
  tenant: TenantSettings = {},
): Promise<AppendResult & { warnings: MessageWarning[] }> {
  let known = session;
  const format = formatOfTurn(turn, known);
  const read = turnToCount(turn, format, turn.limits ?? defaultTurnLimits);
  for (;;) {
    formatOfTurn({ ...turn, format }, known);
    const fresh = known ? null : newSession(turn, tenant, format);
    const { tokenizer } = known ?? fresh!.settings;
    const { warnings, ...prepared } = await read.counted(tokenizer);
    const whole = { ...prepared, format };
    const atOnce = await appendAtOnce(pool, turn, whole);
    const outcome = atOnce
      ? { result: atOnce }
      : await withSession(pool, turn, (tx) => append(tx, turn, whole, fresh));
    if ('result' in outcome) {
      remember(pool, turn, { format, tokenizer });
      if (outcome.seen) noteSeen(pool, outcome.seen);
      return { ...outcome.result, warnings };
    }
    // After the counting, another tokenizer or policy was configured, or another writer created the session.
    known = await upToDate(pool, outcome);
  }
}

/** Throws `Input.Invalid` if the turn's format differs from the session's. */
export function formatOfTurn(
  { format, session }: Pick<TurnInput, 'format' | 'session'>,
  known: Pick<KnownSession, 'format'> | null,
): FormatName {
  if (known && format !== undefined && known.format !== format)
    throw invalid(
      `session ${session} has the format ${known.format}, and the turn has ${format}`,
      'format',
      `A session keeps the format of its first turn: send ${known.format}, or begin a new session.`,
    );
  return known?.format ?? format ?? 'openai-chat';
}

interface TenantSettings {
  tenantPolicy?: TenantPolicy;
  limits?: TenantLimits;
}

interface NewSession {
  format: FormatName;
  settings: SessionSettings;
  tenantPolicyVersion: number;
}

function newSession(
  { policy = {}, deployment = {} }: ReadTurn,
  { tenantPolicy, limits }: TenantSettings,
  format: FormatName,
): NewSession {
  assertWithinLimits(policy, limits);
  const layers = defined({ ...deployment, tenant: tenantPolicy?.policy, session: policy, limits });
  return { format, settings: settingsOf(layers), tenantPolicyVersion: tenantPolicy?.version ?? 0 };
}

/**
 * Stores the turn and returns the answer to it. If the session no longer has the format, tokenizer or policy for which the turn
 * was prepared, stores nothing and returns the session's row.
 */
async function append(
  tx: Transaction,
  turn: ReadTurn,
  prepared: PreparedTurn & { format: FormatName },
  fresh: NewSession | null,
): Promise<{ result: AppendResult; seen?: SeenSession } | SessionRow> {
  const session = await begin(tx, turn, fresh);
  if (turn.receivedAt && (await erasedSince(tx.query, turn, turn.receivedAt))) throw replaced(turn);
  const refusal =
    refusalOf(turn, session) ??
    (await refusalOfMoved(tx, turn, session)) ??
    (await refusalByLimits(tx, session, bytesOf(prepared)));
  if (
    refusal ||
    session.tokenizer !== prepared.tokenizer ||
    session.format !== prepared.format ||
    session.newerTenantPolicy ||
    session.outdatedSizes
  ) {
    const repeated = await repeatedTurn(tx, turn, prepared, session);
    if (repeated) return { result: repeated };
    if (refusal) throw refusal;
    return session;
  }
  const inserted = await insert(tx, turn, prepared, session);
  if (inserted) return inserted;
  const repeated = await repeatedTurn(tx, turn, prepared, session);
  if (repeated) return { result: repeated };
  throw new Error(`turn ${turn.turnId} was not inserted, and no stored turn was found`);
}

/** Inserts a new session, and locks the session. */
async function begin(tx: Transaction, ids: SessionIds, fresh: NewSession | null): Promise<SessionRow> {
  if (fresh) {
    await lockSessions(tx, ids.tenant, fresh.settings.policy.limits);
    await insertSession(tx, ids, fresh.settings, fresh.tenantPolicyVersion, fresh.format);
  }
  return lockSession(tx, ids);
}

/** A list is stored in the session in which the one that its caller names goes on. Forks that move it hold the same lock. */
async function refusalOfMoved(
  { query }: Transaction,
  { list, tenant, session: name }: TurnInput,
  session: SessionRow,
): Promise<PalimpsestError | null> {
  if (list === undefined) return null;
  if (list.after !== undefined) return changed(name);
  if (list.origin === name) return session.continuedIn === null ? null : moved(list.origin, name);
  const [origin] = await query<{ continued_in: string | null }>(
    'select continued_in from palimpsest.sessions where tenant_id = $1 and session_id = $2',
    [tenant, list.origin],
  );
  return origin?.continued_in === name ? null : moved(list.origin, name);
}

/** Why the operator's limits forbid a turn of this size; null if they allow it. */
async function refusalByLimits(
  tx: Transaction,
  session: SessionRow,
  bytes: number,
): Promise<PalimpsestError | null> {
  const { limits } = session.policy;
  if (limits === undefined) return null;
  if (session.closedAt !== null) await lockSessions(tx, session.tenant, limits);
  const opens = session.nextSeq === 1 || session.closedAt !== null;
  const refusal = opens ? await refusalOfSession(tx, session, limits) : null;
  return refusal ?? refusalOfBytes(tx, session.tenant, limits, bytes);
}

/** Bytes of the messages; `bodies` has one per line. */
function bytesOf({ bodies, roles }: Pick<PreparedTurn, 'bodies' | 'roles'>): number {
  return Buffer.byteLength(bodies) - roles.length + 1;
}

/** The answer, and the row after the turn; null if a turn with this id exists already. */
async function insert(
  tx: Transaction,
  turn: ReadTurn,
  prepared: PreparedTurn,
  session: SessionRow,
): Promise<{ result: AppendResult; row: SessionRow; seen: SeenSession } | null> {
  const range = { fromSeq: session.nextSeq, throughSeq: session.nextSeq + prepared.roles.length - 1 };
  const policy = policyOf(session.policy);
  const reported = { ...prepared, usage: turn.usage };
  const next = await progressed(session, policy, reported, () => hasMoved(tx, session));
  const stored = await insertTurn(tx, turn, prepared, session, next);
  if (!stored) return null;
  const { row } = stored;
  noteStored(tx, turn.tenant, bytesOf(prepared));
  return { result: answer(turn, row, policy, range, session), row, seen: stored };
}

/** Thrown to roll the transaction back. */
class NotInARow extends Error {}

/**
 * Stores consecutive turns of one session, each with `logged` and its `expectedSeq`, in one transaction: four times
 * as fast as one by one. Returns false and stores nothing if one of them is not a new turn at its place, or the
 * session has changed meanwhile; `appendTurn` then gives the reason.
 */
export async function appendTurns(pool: Pool, turns: readonly [TurnInput, ...TurnInput[]]): Promise<boolean> {
  const [first] = turns;
  for (const { turnId } of turns) checkId(turnId, 'turnId', 'stored');
  const { row, ...tenant } = await readSession(pool, first);
  const known = row && (await upToDate(pool, row));
  const format = formatOfTurn(first, known);
  const read = turns.map(checked);
  const fresh = known ? null : newSession(read[0]!, tenant, format);
  const { tokenizer } = known ?? fresh!.settings;
  const prepared: [ReadTurn, PreparedTurn][] = [];
  for (const turn of read) {
    const logged = turn.logged ?? { messages: [], times: [] };
    const serialized = serialize(logged);
    const messages = logged.messages.map((message) => splitNative(message).message);
    const tokens = await countAll(messages, serialized.bodies.split('\n'), tokenizer, turn.tenant);
    prepared.push([turn, { ...serialized, tokens, tokenizer }]);
  }
  try {
    await withSession(pool, first, async (tx) => {
      let session = await begin(tx, first, fresh);
      if (known && known.incarnation !== session.incarnation) throw new NotInARow();
      if (
        session.tokenizer !== tokenizer ||
        session.format !== format ||
        session.newerTenantPolicy ||
        session.outdatedSizes
      )
        throw new NotInARow();
      const bytes = prepared.reduce((sum, [, one]) => sum + bytesOf(one), 0);
      if (await refusalByLimits(tx, session, bytes)) throw new NotInARow();
      for (const [turn, one] of prepared) {
        const inserted = refusalOf(turn, session) ? null : await insert(tx, turn, one, session);
        if (!inserted) throw new NotInARow();
        session = inserted.row;
      }
    });
    return true;
  } catch (error) {
    if (error instanceof NotInARow) return false;
    throw error;
  }
}
