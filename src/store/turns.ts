import type { Pool } from 'pg';
import type { ChatMessage } from '../conversation/message.js';
import { invalid, PalimpsestError } from '../errors.js';
import { parsePolicy, resolvePolicy, type PolicyInput } from '../policy/schema.js';
import { countAll } from './count.js';
import { serialize, type PreparedTurn } from './prepare.js';
import {
  findSession,
  insertSession,
  lockSession,
  settingsOf,
  type SessionIds,
  type SessionRow,
  type SessionSettings,
} from './sessions.js';
import { checkId } from './text.js';
import { withTransaction, type Transaction } from './transaction.js';

export interface TurnInput extends SessionIds {
  /** Idempotency key within the session, at most 512 bytes. */
  turnId: string;
  /** Checked messages, at least one. */
  messages: ChatMessage[];
  /** The last seq the caller knows; 0 for a new session. */
  expectedSeq?: number;
  /** Policy of a new session. For one that exists it must say the same, or be left out. */
  policy?: PolicyInput;
  /** Tokens as the provider reported them for this turn. */
  usage?: { inputTokens: number; outputTokens: number };
}

export interface AppendResult {
  turnId: string;
  fromSeq: number;
  throughSeq: number;
  /** The session has reached a size at which it wants to be measured. */
  due: boolean;
  /** The same turn was stored before; nothing was written now. */
  repeated: boolean;
  liveTokens: number;
  liveMessages: number;
  generation: number;
  policyVersion: number;
  idleAfterMs: number;
  debounceMs: number;
}

/**
 * Stores one turn and the session's new counters in one short transaction. The same turn twice is stored once and
 * answered the same. The first turn makes the session. Tokens are counted before the transaction is opened.
 * Throws `Input.Invalid`, `Store.TurnConflict`, `Store.StaleAppend`, `Store.Unavailable`; then nothing was stored.
 */
export async function appendTurn(pool: Pool, turn: TurnInput): Promise<AppendResult> {
  checkId(turn.turnId, 'turnId');
  if (turn.messages.length === 0) throw invalid('a turn has at least one message', 'messages');
  const serialized = serialize(turn.messages);
  let known = await findSession(pool, turn);
  for (;;) {
    const fresh = known ? null : settingsOf(turn.policy ?? {});
    const { tokenizer } = known ?? fresh!;
    const tokens = await countAll(turn.messages, serialized.bodies, tokenizer);
    const prepared = { ...serialized, tokens, tokenizer };
    const outcome = await withTransaction(pool, (tx) => append(tx, turn, prepared, fresh));
    if ('turnId' in outcome) return outcome;
    // Another tokenizer was configured, or the session was made by somebody else, after the counting.
    known = outcome;
  }
}

/** Answers the session row instead where the counts were made with another tokenizer than the session has now. */
async function append(
  tx: Transaction,
  turn: TurnInput,
  prepared: PreparedTurn,
  settings: SessionSettings | null,
): Promise<AppendResult | SessionRow> {
  if (settings) await insertSession(tx, turn, settings);
  const session = await lockSession(tx, turn);
  const refusal = refusalOf(turn, session);
  if (refusal || session.tokenizer !== prepared.tokenizer) {
    const repeated = await repeatedTurn(tx, turn, prepared, session);
    if (repeated) return repeated;
    if (refusal) throw refusal;
    return session;
  }
  const range = { fromSeq: session.nextSeq, throughSeq: session.nextSeq + turn.messages.length - 1 };
  const [live] = await insertTurn(tx, turn, prepared, session, range);
  if (live)
    return answer(turn, { ...session, liveTokens: live.tokens, liveMessages: live.messages }, range, false);
  const repeated = await repeatedTurn(tx, turn, prepared, session);
  if (repeated) return repeated;
  throw new Error(`turn ${turn.turnId} was neither stored nor found`);
}

/** Why this turn cannot be stored as a new one. */
function refusalOf(
  { expectedSeq, policy, session: name }: TurnInput,
  session: SessionRow,
): PalimpsestError | null {
  const lastSeq = session.nextSeq - 1;
  if (expectedSeq !== undefined && expectedSeq !== lastSeq) {
    return new PalimpsestError(
      'Store.StaleAppend',
      `session ${name} ends at seq ${lastSeq}, not at ${expectedSeq}`,
      {
        path: 'expectedSeq',
        hint: 'Read the context again and decide anew what to append.',
        details: { lastSeq, expectedSeq },
      },
    );
  }
  if (policy !== undefined && meaningOf(policy) !== meaningOf(session.policy)) {
    return invalid(
      `session ${name} has another policy than the one given`,
      'policy',
      'Leave it out, or change the policy with configure.',
    );
  }
  return null;
}

/** Two policies that resolve to the same are the same, whatever the order of their fields. */
function meaningOf(policy: PolicyInput): string {
  return JSON.stringify(resolvePolicy(parsePolicy(policy)), (_, value: unknown) =>
    value !== null && typeof value === 'object' && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );
}

/** One statement; no row where a turn of this id exists already. */
function insertTurn(
  { query }: Transaction,
  turn: TurnInput,
  prepared: PreparedTurn,
  session: SessionRow,
  { fromSeq, throughSeq }: { fromSeq: number; throughSeq: number },
): Promise<{ tokens: number; messages: number }[]> {
  return query<{ tokens: number; messages: number }>(insertTurnStatement, [
    turn.tenant,
    turn.session,
    turn.turnId,
    fromSeq,
    throughSeq,
    prepared.sha256,
    turn.usage ? JSON.stringify(turn.usage) : null,
    prepared.roles,
    prepared.calls,
    prepared.answers,
    prepared.empties,
    prepared.tokens,
    prepared.hashes,
    prepared.bodies.join('\n'),
    systemThrough(session, prepared.roles),
    prepared.tokens.reduce((sum, tokens) => sum + tokens, 0),
  ]);
}

/**
 * Bodies travel as one text: JSON never holds a raw line feed, and parsing an array literal takes ten times as long
 * (12 MB: 0.9 s).
 */
const insertTurnStatement = `
with turn as (
  insert into palimpsest.turns (tenant_id, session_id, turn_id, from_seq, through_seq, sha256, usage)
  values ($1, $2, $3, $4, $5, decode($6, 'hex'), $7::jsonb)
  on conflict (tenant_id, session_id, turn_id) do nothing
  returning turn_id
), stored as (
  insert into palimpsest.messages
    (tenant_id, session_id, seq, turn_id, role, calls, answers, empty, tokens, sha256, body)
  select $1, $2, $4::int + ordinality - 1, turn_id, role, calls, answers, empty, tokens, decode(sha256, 'hex'), body
  from turn, unnest($8::text[], $9::text[], $10::text[], $11::boolean[], $12::int[], $13::text[], string_to_array($14::text, chr(10)))
    with ordinality as new (role, calls, answers, empty, tokens, sha256, body, ordinality)
)
update palimpsest.sessions set
  next_seq = $5::int + 1,
  system_through_seq = $15,
  live_tokens = live_tokens + $16,
  live_messages = live_messages + $5::int - $4::int + 1,
  closed_at = null,
  updated_at = now()
from turn
where tenant_id = $1 and session_id = $2
returning live_tokens as tokens, live_messages as messages`;

/** System and developer messages lead as long as nothing else has been said. */
function systemThrough({ systemThroughSeq, nextSeq }: SessionRow, roles: readonly string[]): number {
  if (systemThroughSeq !== nextSeq - 1) return systemThroughSeq;
  const leading = roles.findIndex((role) => role !== 'system' && role !== 'developer');
  return systemThroughSeq + (leading === -1 ? roles.length : leading);
}

/** The answer to a turn that is stored already, null where there is none. Throws `Store.TurnConflict` for other content. */
async function repeatedTurn(
  { query }: Transaction,
  turn: TurnInput,
  { sha256 }: PreparedTurn,
  session: SessionRow,
): Promise<AppendResult | null> {
  const [stored] = await query<{ from_seq: number; through_seq: number; sha256: string }>(
    `select from_seq, through_seq, encode(sha256, 'hex') as sha256 from palimpsest.turns
     where tenant_id = $1 and session_id = $2 and turn_id = $3`,
    [turn.tenant, turn.session, turn.turnId],
  );
  if (!stored) return null;
  if (stored.sha256 === sha256) {
    return answer(turn, session, { fromSeq: stored.from_seq, throughSeq: stored.through_seq }, true);
  }
  throw new PalimpsestError(
    'Store.TurnConflict',
    `turn ${turn.turnId} of session ${turn.session} is stored with other messages`,
    {
      path: 'turnId',
      hint: 'A turn id names one content for good: send the same messages again, or use a new id.',
      details: { fromSeq: stored.from_seq, throughSeq: stored.through_seq },
    },
  );
}

function answer(
  { turnId }: TurnInput,
  session: SessionRow,
  range: { fromSeq: number; throughSeq: number },
  repeated: boolean,
): AppendResult {
  const { liveTokens, liveMessages, measureAtTokens, measureAtMessages, generation, policyVersion } = session;
  const { idleAfter, debounceMs } = resolvePolicy(session.policy);
  const due =
    (measureAtTokens !== null && liveTokens >= measureAtTokens) ||
    (measureAtMessages !== null && liveMessages >= measureAtMessages);
  return {
    turnId,
    ...range,
    due,
    repeated,
    liveTokens,
    liveMessages,
    generation,
    policyVersion,
    idleAfterMs: idleAfter,
    debounceMs,
  };
}
