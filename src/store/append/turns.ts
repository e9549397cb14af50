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
import type { ReportedUsage } from '../../tokens/reported-usage.js';
import { defined, upToDate } from '../sessions/configure.js';
import { countAll, turnToCount } from '../../intake/count.js';
import { serialize, type PreparedTurn } from '../../intake/prepare.js';
import { checkUsage, progressed } from './learnt.js';
import { erasedSince } from '../sessions/erasures.js';
import {
  forget,
  insertSession,
  type KnownSession,
  lockSession,
  noticedBy,
  readSession,
  recall,
  remember,
} from '../sessions/session-table.js';
import { noteLists } from './known-lists.js';
import { answer, moved, refusalOf, repeatedTurn, type AppendResult } from './turn-answers.js';
import { replaced, type SessionRow, type TenantPolicy } from '../sessions/session-row.js';
import { settingsOf, type SessionSettings } from '../sessions/settings.js';
import { lockSessions, noteStored, refusalOfBytes, refusalOfSession } from '../tenants/storage.js';
import { checkId, type SessionIds } from '../../contract/ids.js';
import { prepared, withSession, type Transaction } from '../connection/transaction.js';
import type { TurnInput } from './turn-input.js';

/** A turn after its policy, usage and time were read. */
type ReadTurn = Omit<TurnInput, 'usage'> & { usage?: ReportedUsage };

/**
 * Stores one turn and the session's new counters in one short transaction, and sends no other query if this
 * process knows the session. A repeated turn is stored once and gets the same answer. The first turn creates the
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
    const outcome = await withSession(pool, turn, (tx) => append(tx, turn, { ...prepared, format }, fresh));
    if ('turnId' in outcome) {
      remember(pool, turn, { format, tokenizer });
      return { ...outcome, warnings };
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
): Promise<AppendResult | SessionRow> {
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
    if (repeated) return repeated;
    if (refusal) throw refusal;
    return session;
  }
  const inserted = await insert(tx, turn, prepared, session);
  if (inserted) return inserted.result;
  const repeated = await repeatedTurn(tx, turn, prepared, session);
  if (repeated) return repeated;
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
): Promise<{ result: AppendResult; row: SessionRow } | null> {
  const range = { fromSeq: session.nextSeq, throughSeq: session.nextSeq + prepared.roles.length - 1 };
  const policy = policyOf(session.policy);
  const next = await progressed(tx, session, policy, { ...prepared, usage: turn.usage });
  const [live] = await insertTurn(tx, turn, prepared, session, next, range);
  if (!live) return null;
  if (turn.list) await noteLists(tx.query, turn, [{ ...turn.list, throughSeq: range.throughSeq }]);
  noteStored(tx, turn.tenant, bytesOf(prepared));
  const row = {
    ...next,
    ...{ liveTokens: live.tokens, liveMessages: live.messages, nextSeq: range.throughSeq + 1 },
    systemThroughSeq: systemThrough(session, prepared.roles),
  };
  const known = { before: session.liveTokens, opens: opens(session) };
  return { result: answer(turn, row, policy, range, known), row };
}

/** True if the session is new, a fork without a turn of its own, or closed. */
function opens({ nextSeq, forkOf, closedAt, createdAt, updatedAt }: SessionRow): boolean {
  const untouched = updatedAt.getTime() === createdAt.getTime();
  return nextSeq === 1 || closedAt !== null || (forkOf !== null && untouched);
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

/** Inserts a turn with one statement. Returns no row if a turn with this id exists already. */
function insertTurn(
  { query }: Transaction,
  turn: ReadTurn,
  prepared: PreparedTurn,
  session: SessionRow,
  next: SessionRow,
  { fromSeq, throughSeq }: { fromSeq: number; throughSeq: number },
): Promise<{ tokens: number; messages: number }[]> {
  return query<{ tokens: number; messages: number }>(insertTurnStatement, [
    turn.tenant,
    turn.session,
    turn.turnId,
    fromSeq,
    throughSeq,
    prepared.sha256,
    prepared.roles,
    prepared.calls,
    prepared.answers,
    prepared.empties,
    prepared.tokens,
    prepared.hashes,
    prepared.bodies,
    systemThrough(session, prepared.roles),
    prepared.tokens.reduce((sum, tokens) => sum + tokens, 0),
    next.turns,
    next.meanTurnTokens,
    JSON.stringify(next.calibration),
    next.appliedFactor,
    next.appliedOverhead,
    next.budget,
    next.measureAtTokens,
    next.measureAtMessages,
    next.policyVersion,
    !turn.imported,
    prepared.times.map((time) => time ?? turn.at ?? null),
  ]);
}

/**
 * All bodies travel in one text, one per line: JSON never holds a raw line feed, and parsing an array literal takes
 * ten times as long (12 MB: 0.9 s).
 */
const insertTurnStatement = prepared(
  'insert_turn',
  `
with turn as (
  insert into palimpsest.turns (tenant_id, session_id, turn_id, from_seq, through_seq, sha256)
  values ($1, $2, $3, $4, $5, decode($6, 'hex'))
  on conflict (tenant_id, session_id, turn_id) do nothing
  returning turn_id
), stored as (
  insert into palimpsest.messages
    (tenant_id, session_id, seq, turn_id, role, calls, answers, empty, tokens, sha256, body, at)
  select $1, $2, $4::int + ordinality - 1, turn_id, role, calls, answers, empty, tokens, decode(sha256, 'hex'), body, at
  from turn, unnest($7::text[], $8::text[], $9::text[], $10::boolean[], $11::int[], $12::text[], string_to_array($13::text, chr(10)), $26::timestamptz[])
    with ordinality as new (role, calls, answers, empty, tokens, sha256, body, at, ordinality)
)
update palimpsest.sessions set
  next_seq = $5::int + 1,
  system_through_seq = $14,
  live_tokens = live_tokens + $15,
  live_messages = live_messages + $5::int - $4::int + 1,
  turns = $16,
  stored_bytes = stored_bytes + octet_length($13::text) - ($5::int - $4::int),
  mean_turn_tokens = $17,
  calibration = $18,
  applied_factor = $19,
  applied_overhead = $20,
  budget = $21,
  measure_at_tokens = $22,
  measure_at_messages = $23,
  policy_version = $24,
  overdue_at = case
    when $25 and (live_tokens + $15 >= $22::bigint or live_messages + $5::int - $4::int + 1 >= $23::bigint)
    then coalesce(overdue_at, ${noticedBy}) else overdue_at end,
  closed_at = null,
  updated_at = now()
from turn
where tenant_id = $1 and session_id = $2
returning live_tokens as tokens, live_messages as messages`,
);

/** System and developer messages are leading messages until a message of another role follows. */
function systemThrough({ systemThroughSeq, nextSeq }: SessionRow, roles: readonly string[]): number {
  if (systemThroughSeq !== nextSeq - 1) return systemThroughSeq;
  const leading = roles.findIndex((role) => role !== 'system' && role !== 'developer');
  return systemThroughSeq + (leading === -1 ? roles.length : leading);
}
