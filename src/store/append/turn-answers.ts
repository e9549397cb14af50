import { isDeepStrictEqual } from 'node:util';
import { invalid, PalimpsestError } from '../../errors.js';
import { eagerFrom, isEager } from '../../limits/limits.js';
import { policyOf, resolvePolicy } from '../../policy/layers.js';
import type { Policy } from '../../policy/defaults.js';
import type { PolicyInput } from '../../policy/schema.js';
import type { SessionRow } from '../sessions/session-row.js';
import type { PreparedTurn } from '../../intake/prepare.js';
import type { TurnInput } from './turn-input.js';
import type { Transaction } from '../connection/transaction.js';

/** The answers to an append: a new turn, a turn that is stored already, or the reason why it cannot be stored. */
export interface AppendResult {
  turnId: string;
  fromSeq: number;
  throughSeq: number;
  /** The session has reached a size at which it asks to be measured. */
  due: boolean;
  /** The session's workflow must be signalled: the turn is due, the policy has every turn signalled, or it is the first contact. */
  tells: boolean;
  /** The same turn was stored before, and this call wrote nothing. */
  repeated: boolean;
  liveTokens: number;
  liveMessages: number;
  generation: number;
  /** Incarnation of the session that has the turn. */
  incarnation: string;
  policyVersion: number;
  idleAfterMs: number;
  debounceMs: number;
}

/** The reason why this turn cannot be stored as a new turn; null if it can. */
export function refusalOf(
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
        hint: 'Read the context again and decide again what to append.',
        details: { lastSeq, expectedSeq },
      },
    );
  }
  if (policy !== undefined && !isSamePolicy(policy, session.policy.session ?? {})) {
    return invalid(
      `session ${name} has another policy than the one given`,
      'policy',
      'Omit the policy, or change it with configure.',
    );
  }
  return null;
}

/** `origin` no longer goes on in the session. */
export function moved(origin: string, session: string): PalimpsestError {
  return new PalimpsestError(
    'Store.StaleAppend',
    `session ${origin} does not continue in ${session} any more`,
    {
      path: 'continues',
      hint: 'Another call has moved it: synchronize the session again.',
    },
  );
}

/** The session's row is no longer the one on which the caller relies. */
export function changed(session: string): PalimpsestError {
  return new PalimpsestError('Store.StaleAppend', `session ${session} has changed`, {
    path: 'session',
    hint: 'Synchronize the session again.',
  });
}

/** Two policies that resolve to the same settings are equal. An agent mostly repeats its policy, which then is not resolved. */
function isSamePolicy(one: PolicyInput, other: PolicyInput): boolean {
  return isDeepStrictEqual(one, other) || meaningOf(one) === meaningOf(other);
}

/** The settings, whatever the order of their fields. */
function meaningOf(policy: PolicyInput): string {
  return JSON.stringify(resolvePolicy(policy), (_, value: unknown) =>
    value !== null && typeof value === 'object' && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );
}

/** The answer to a turn that is stored already; null if it is not. Throws `Store.TurnConflict` if its messages differ. */
export async function repeatedTurn(
  { query }: Transaction,
  turn: TurnInput,
  prepared: PreparedTurn,
  session: SessionRow,
): Promise<AppendResult | null> {
  const [stored] = await query<{ from_seq: number; through_seq: number; sha256: string }>(
    `select from_seq, through_seq, encode(sha256, 'hex') as sha256 from palimpsest.turns
     where tenant_id = $1 and session_id = $2 and turn_id = $3`,
    [turn.tenant, turn.session, turn.turnId],
  );
  return stored ? answerToStored(turn, prepared, session, stored) : null;
}

/** The answer to a turn that is stored already. Throws `Store.TurnConflict` if its messages differ. */
export function answerToStored(
  turn: TurnInput,
  { sha256 }: PreparedTurn,
  session: SessionRow,
  stored: { from_seq: number; through_seq: number; sha256: string },
): AppendResult {
  if (stored.sha256 === sha256) {
    return answer(
      turn,
      session,
      policyOf(session.policy),
      { fromSeq: stored.from_seq, throughSeq: stored.through_seq },
      null,
    );
  }
  throw new PalimpsestError(
    'Store.TurnConflict',
    `turn ${turn.turnId} of session ${turn.session} is stored with other messages`,
    {
      path: 'turnId',
      hint: 'A turn id belongs to its messages permanently. Send the same messages again, or use a new id.',
      details: { fromSeq: stored.from_seq, throughSeq: stored.through_seq },
    },
  );
}

/** `before`: the session before this turn; null if the turn was stored before. */
export function answer(
  { turnId }: TurnInput,
  session: SessionRow,
  policy: Policy,
  range: { fromSeq: number; throughSeq: number },
  before: SessionRow | null,
): AppendResult {
  const { liveTokens, liveMessages, measureAtTokens, measureAtMessages } = session;
  const { generation, incarnation, policyVersion } = session;
  const { idleAfter, debounceMs, signal } = policy;
  const due =
    (measureAtTokens !== null && liveTokens >= measureAtTokens) ||
    (measureAtMessages !== null && liveMessages >= measureAtMessages) ||
    (before !== null &&
      measureAtTokens !== null &&
      comesClose(policy, measureAtTokens, before.liveTokens, liveTokens));
  return {
    turnId,
    ...range,
    due,
    tells: due || signal === 'always' || (before === null ? range.fromSeq === 1 : opens(before)),
    repeated: before === null,
    liveTokens,
    liveMessages,
    generation,
    incarnation,
    policyVersion,
    idleAfterMs: idleAfter,
    debounceMs,
  };
}

/** Whether this turn brought the context to the size at which the next compaction is written ahead. */
function comesClose(policy: Policy, mark: number, before: number, after: number): boolean {
  const from = eagerFrom(mark);
  return isEager(policy) && before < from && after >= from;
}

/** Whether the next turn is the first one of a new session or of a fork, or reopens a closed session. */
function opens({ nextSeq, forkOf, closedAt, createdAt, updatedAt }: SessionRow): boolean {
  const untouched = updatedAt.getTime() === createdAt.getTime();
  return nextSeq === 1 || closedAt !== null || (forkOf !== null && untouched);
}
