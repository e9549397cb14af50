/** The statements that insert a turn and write the session's new counters. */
import type { ReportedUsage } from '../../tokens/reported-usage.js';
import type { PreparedTurn } from '../../intake/prepare.js';
import { prepared } from '../connection/prepared.js';
import type { Transaction } from '../connection/transaction.js';
import type { SessionRecord, SessionRow } from '../sessions/session-row.js';
import { noticedBy, oneSession } from '../sessions/session-table.js';
import { movedSince, previousTurnAt } from './learnt.js';
import type { SeenSession } from './seen-sessions.js';
import type { TurnInput } from './turn-input.js';

/** A turn after its policy, usage and time were read. */
export type ReadTurn = Omit<TurnInput, 'usage'> & { usage?: ReportedUsage };

/** The counters and the version of a row after the turn. */
interface After {
  tokens: number;
  messages: number;
  version: string;
  moved: boolean | null;
  /** Milliseconds since the epoch. */
  at: number;
}

/**
 * Inserts a turn and its list into a locked session; returns the session after it, or null if a turn with this id exists already.
 * `session` is the row before, `next` the same with what the turn teaches.
 */
export async function insertTurn(
  { query }: Transaction,
  turn: ReadTurn,
  prepared: PreparedTurn,
  session: SessionRow,
  next: SessionRow,
): Promise<SeenSession | null> {
  const [after] = await query<After & Record<string, unknown>>(
    insertTurnStatement(turn),
    valuesOf(turn, prepared, session, next),
  );
  return after ? seenAfter(after, turn, prepared, session, next) : null;
}

/** What the statement found in place of the row for which the turn was prepared, or beside it. */
export interface NotInserted {
  /** The session's row now. */
  record: SessionRecord;
  version: string;
  moved: boolean | null;
  /** The turn with this id, if there is one. */
  stored: { from_seq: number; through_seq: number; sha256: string } | null;
}

interface AtOnce extends Record<string, unknown> {
  after: After | null;
  instead: NotInserted | null;
}

/**
 * Does the work of `lockSession` and `insertTurn` with one statement, if the row is still the one that this process has seen and its
 * tenant has no newer policy and no limits. Else writes nothing, not even a lock. Null if there is no such session.
 */
export async function insertAtOnce(
  { query }: Pick<Transaction, 'query'>,
  turn: ReadTurn,
  prepared: PreparedTurn,
  { row, version }: SeenSession,
  next: SessionRow,
): Promise<SeenSession | NotInserted | null> {
  const values = [...valuesOf(turn, prepared, row, next), version];
  if (turn.list) values.push(turn.list.after?.longer ?? []);
  const [found] = await query<AtOnce>(appendTurnStatement(turn), values);
  if (!found) return null;
  return found.after ? seenAfter(found.after, turn, prepared, row, next) : found.instead;
}

function seenAfter(
  { tokens, messages, version, moved, at }: After,
  { list }: ReadTurn,
  { roles }: PreparedTurn,
  session: SessionRow,
  next: SessionRow,
): SeenSession {
  const row = {
    ...next,
    ...{ liveTokens: tokens, liveMessages: messages, nextSeq: session.nextSeq + roles.length },
    ...{ systemThroughSeq: systemThrough(session, roles), closedAt: null, updatedAt: new Date(at) },
  };
  const known = list && { digest: list.digest, items: list.items };
  return { row, version, moved: session.generation > 0 && (moved ?? true), list: known };
}

/** Parameters 1 to 26, and 27 and 28 for a list. */
function valuesOf(turn: ReadTurn, prepared: PreparedTurn, session: SessionRow, next: SessionRow): unknown[] {
  return [
    turn.tenant,
    turn.session,
    turn.turnId,
    session.nextSeq,
    session.nextSeq + prepared.roles.length - 1,
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
    ...(turn.list ? [turn.list.digest, turn.list.items] : []),
  ];
}

const storedTurn = 'palimpsest.turns where tenant_id = $1 and session_id = $2 and turn_id = $3';

const noteList = `, known as (
  insert into palimpsest.known_lists (tenant_id, session_id, digest, items, through_seq)
  select $1, $2, decode($27::text, 'hex'), $28::int, $5 from turn
  on conflict do nothing
)`;

/**
 * The update comes first: what it finds unlike `condition` or stored already is not inserted. All bodies travel in one text, one per
 * line: JSON never holds a raw line feed, and parsing an array literal takes ten times as long (12 MB: 0.9 s).
 */
const inserting = (hasList: boolean, condition = ''): string => `
after as (
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
  where tenant_id = $1 and session_id = $2 and not exists (select from ${storedTurn}) ${condition}
  returning live_tokens as tokens, live_messages as messages, sessions.xmin::text as version,
    floor(extract(epoch from updated_at) * 1000)::float8 as at,
    ${movedSince('$1', '$2', 'sessions.generation', 'now()')} as moved
), turn as (
  insert into palimpsest.turns (tenant_id, session_id, turn_id, from_seq, through_seq, sha256)
  select $1::text, $2::text, $3::text, $4::int, $5::int, decode($6::text, 'hex') from after
  returning turn_id
), stored as (
  insert into palimpsest.messages
    (tenant_id, session_id, seq, turn_id, role, calls, answers, empty, tokens, sha256, body, at)
  select $1, $2, $4::int + ordinality - 1, turn_id, role, calls, answers, empty, tokens, decode(sha256, 'hex'), body, at
  from turn, unnest($7::text[], $8::text[], $9::text[], $10::boolean[], $11::int[], $12::text[], string_to_array($13::text, chr(10)), $26::timestamptz[])
    with ordinality as new (role, calls, answers, empty, tokens, sha256, body, at, ordinality)
)${hasList ? noteList : ''}`;

/** A plan without the parts for a list starts faster. */
const withAndWithoutList = (name: string, text: (hasList: boolean) => string) => {
  const [one, other] = [prepared(`${name}_and_list`, text(true)), prepared(name, text(false))];
  return ({ list }: ReadTurn) => (list ? one : other);
};

const insertTurnStatement = withAndWithoutList(
  'insert_turn',
  (hasList) => `with ${inserting(hasList)} select * from after`,
);

const ifSeen = (hasList: boolean) => `and sessions.xmin::text = ${hasList ? '$29' : '$27'}
    and (select newer_tenant_version is null and tenant_limits is null from session)
    ${hasList ? unlessLonger : ''}`;

const unlessLonger = `and not exists (select from palimpsest.known_lists where tenant_id = $1 and session_id = $2
      and digest = any (array(select decode(each, 'hex') from unnest($30::text[]) each)))`;

const appendTurnStatement = withAndWithoutList(
  'append_turn',
  (hasList) => `with session as materialized (${oneSession(', s.xmin::text as version')}
), ${inserting(hasList, ifSeen(hasList))}
select
  (select row_to_json(after) from after) as after,
  case when not exists (select from after) then json_build_object(
    'record', row_to_json(session),
    'version', session.version,
    'moved', ${movedSince('$1', '$2', 'session.generation', previousTurnAt('$1', '$2', 'session.next_seq'))},
    'stored', (
      select json_build_object('from_seq', from_seq, 'through_seq', through_seq, 'sha256', encode(sha256, 'hex'))
      from ${storedTurn})
  ) end as instead
from session`,
);

/** System and developer messages are leading messages until a message of another role follows. */
function systemThrough({ systemThroughSeq, nextSeq }: SessionRow, roles: readonly string[]): number {
  if (systemThroughSeq !== nextSeq - 1) return systemThroughSeq;
  const leading = roles.findIndex((role) => role !== 'system' && role !== 'developer');
  return systemThroughSeq + (leading === -1 ? roles.length : leading);
}
