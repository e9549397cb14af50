import type { Pool } from 'pg';
import { currentCaller } from '../connection/places.js';
import { knownTenants, type KnownTenants } from '../connection/pool.js';
import type { ContextSource, HeadLayout, Reduction } from '../../context/view/view.js';
import type { CallLink, LoggedMessage, MessageMeta, Role } from '../../conversation/message.js';
import { inSlices, type Steps } from '../../steps.js';
import { upToDate } from '../sessions/configure.js';
import { toHead, toLogged } from '../log/messages.js';
import { addReductions } from '../compactions/reductions.js';
import { isStale } from '../compactions/redacted.js';
import { redactMemory } from '../compactions/restore.js';
import { isFailure, PalimpsestError } from '../../errors.js';
import {
  checkIds,
  checkIncarnation,
  notFound,
  sessionWithTenant,
  toSession,
  type SessionRecord,
  type SessionRow,
} from '../sessions/session-row.js';
import type { SessionIds } from '../../contract/ids.js';
import { lockSession } from '../sessions/session-table.js';
import { prepared } from '../connection/prepared.js';
import { reading, withSession, type Query } from '../connection/transaction.js';

/** The facts of the head that planning needs. */
export interface HeadFacts {
  generation: number;
  carriedSeq: number | null;
  /** Tokens of the whole head, and of the snapshot in it. */
  tokens: number;
  snapshotTokens: number;
  /** Archive parts that the head replaces. */
  parts: number;
}

/** Bytes of messages that a read loads without counting them for its tenant. */
const uncountedBytes = 256 * 1024;

/**
 * Reads everything that a context consists of, in one statement that sees one snapshot: the session, its leading
 * system messages, head and tail, and the reductions committed with the generation or stored for `budget` (context
 * tokens; `own`: the budget of the session's policy). Reads no evicted message. `mostBytes`: maximum bytes of system
 * messages and tail together. If they have more than 256 KiB, the caller's tenant holds them, and the statement runs again.
 * Throws `Store.SessionNotFound`, `Input.TooLarge`, `Tenant.LimitReached` or `Api.Overloaded`.
 */
export async function readContextSource(
  pool: Pool,
  ids: SessionIds,
  budget: number | 'own',
  mostBytes = Infinity,
): Promise<{ session: SessionRow; source: ContextSource }> {
  const rows = await readPresent(pool, ids, (query) => readMessages(query, ids, budget, mostBytes));
  return inSlices(sourceOf(rows, ids, knownTenants(pool)), currentCaller()?.signal);
}

/**
 * Reads the same as `readContextSource`, with the session locked until the reductions that `reduce` returns are stored (see
 * `saveReductions`). For a reader that other writers overtake repeatedly.
 */
export async function readContextLocked<Reduced extends { reductions: Reduction[] }>(
  pool: Pool,
  ids: SessionIds,
  budget: number | 'own',
  mostBytes: number,
  reduce: (read: { session: SessionRow; source: ContextSource }) => Promise<Reduced>,
): Promise<Reduced> {
  return withSession(pool, ids, async (tx) => {
    await lockSession(tx, ids);
    const rows = await readMessages(tx.query, ids, budget, mostBytes);
    const found = await inSlices(sourceOf(rows, ids, tx.known), currentCaller()?.signal);
    const reduced = await reduce(found);
    await addReductions(
      tx,
      found.session,
      budget === 'own' ? found.session.budget : budget,
      reduced.reductions,
    );
    return reduced;
  });
}

function* sourceOf(
  rows: readonly SnapshotRow[],
  ids: SessionIds,
  known: KnownTenants,
): Steps<{ session: SessionRow; source: ContextSource }> {
  const of = (part: Part) => rows.filter((row) => row.part === part);
  const [head] = of('head');
  const numbers = head && headNumbers(head);
  return {
    session: sessionOf(rows, ids, known),
    source: {
      system: yield* messagesOf(inOrder(of('system'))),
      head: toHead(head?.body ?? null, {
        tokens: numbers?.headTokens ?? [],
        carriedSeq: numbers?.carriedSeq ?? null,
        layout: numbers?.layout ?? null,
      }),
      tail: yield* messagesOf(inOrder(of('tail'))),
      reductions: reductionsOf(of('reduction')),
    },
  };
}

/**
 * Reads the same as `readContextSource` without message texts, for measuring and planning. `head` is null while nothing has
 * been compacted. Throws `Store.SessionNotFound`.
 */
export async function readTailMetas(
  pool: Pool,
  ids: SessionIds,
): Promise<{
  session: SessionRow;
  head: HeadFacts | null;
  system: MessageMeta[];
  tail: MessageMeta[];
  reductions: Reduction[];
}> {
  const rows = await readPresent(pool, ids, (query) => readMetas(query, ids));
  const of = (part: Part) => rows.filter((row) => row.part === part);
  const session = sessionOf(rows, ids, knownTenants(pool));
  const [head] = of('head');
  return {
    session,
    head: head && session.generation > 0 ? headFacts(head) : null,
    system: inOrder(of('system')).map(toMeta),
    tail: inOrder(of('tail')).map(toMeta),
    reductions: reductionsOf(of('reduction')),
  };
}

function* messagesOf(rows: readonly SnapshotRow[]): Steps<LoggedMessage[]> {
  const messages: LoggedMessage[] = [];
  for (const row of rows) {
    messages.push(toMessage(row));
    yield;
  }
  return messages;
}

type Part = 'session' | 'head' | 'system' | 'tail' | 'reduction';

interface SnapshotRow {
  [column: string]: unknown;
  part: Part;
  /** seq of a message; first and last seq of a reduction; generation of a head. */
  first: number;
  last: number;
  tokens: number;
  body: string | null;
  /** Role of a message, kind of a reduction, figures of a head, bytes of a session's messages in its context. */
  kind: string | null;
  calls: string | null;
  answers: string | null;
  empty: boolean | null;
  /** Unix milliseconds: when the message was said (with bodies) or stored (without bodies). */
  at: number | null;
}

const ownSession = `${sessionWithTenant('(select $1::text as tenant_id, $2::text as session_id) ids')}
  where s.session_id is not null`;

const inSystem =
  'tenant_id = $1 and session_id = $2 and seq >= 1 and seq <= (select system_through_seq from s)';
const inTail = `tenant_id = $1 and session_id = $2
  and seq > (select greatest(through_seq, system_through_seq) from s) and seq < (select next_seq from s)`;

/** The length of a long text is read without the text. */
const bytesIn = (range: string) =>
  `(select coalesce(sum(octet_length(body)), 0) from palimpsest.messages where ${range})`;

/**
 * The bounds come from sub-selects, so that each range of messages is one scan of the primary key with any
 * statistics. The upper bound helps the planner, which assumes that a range with two ends is small.
 */
function snapshotStatement(
  messageColumns: string,
  size = { read: '', select: 'null::text', where: '' },
): string {
  return `
with s as materialized (${ownSession}) ${size.read}
select 'session' as part, 0 as first, 0 as last, 0 as tokens, row_to_json(s)::text as body, ${size.select} as kind,
  null::text as calls, null::text as answers, null::boolean as empty, null::float8 as at
from s
union all
select 'head', generation, through_seq, snapshot_tokens, head,
  json_build_object('headTokens', head_tokens, 'carriedSeq', carried_seq, 'parts', parts,
    'layout', layout, 'redaction', redaction)::text, null, null, null, null
from palimpsest.compactions
where tenant_id = $1 and session_id = $2
  and generation = (select generation from s) and through_seq = (select through_seq from s)
union all
select 'system', seq, seq, tokens, ${messageColumns}
from palimpsest.messages
where ${inSystem} ${size.where}
union all
select 'tail', seq, seq, tokens, ${messageColumns}
from palimpsest.messages
where ${inTail} ${size.where}
union all
(select 'reduction', from_seq, through_seq, tokens, body, kind, null, null, null, null
from palimpsest.reductions
where tenant_id = $1 and session_id = $2 and generation = (select generation from s)
  and budget in (0, coalesce($3, (select budget from s)))
order by budget, position)`;
}

/** The messages are not measured if all messages of the session, evicted ones as well, are small enough. */
const withinBytes = `, size as materialized (select case when stored_bytes <= $4::float8 then stored_bytes
  else ${bytesIn(inSystem)} + ${bytesIn(inTail)} end::float8 as bytes from s)`;

const withBodies = prepared(
  'context',
  snapshotStatement(
    'body, null::text, null::text, null::text, null::boolean, extract(epoch from at)::float8 * 1000',
    {
      read: withinBytes,
      select: '(select bytes from size)::text',
      where: 'and (select bytes from size) <= $4::float8',
    },
  ),
);

const withoutBodies = prepared(
  'sizes',
  snapshotStatement('null::text, role, calls, answers, empty, extract(epoch from created_at)::float8 * 1000'),
);

/**
 * Redacts memory of another redaction. An agent gets its context also if the policy has a pattern that cannot be matched;
 * compactions fail then.
 */
async function redactIfStale(
  pool: Pool,
  session: SessionRow,
  rows: readonly SnapshotRow[],
): Promise<boolean> {
  const head = rows.find(({ part }) => part === 'head');
  if (!head || head.body === null || !isStale(headNumbers(head), session)) return false;
  try {
    return await redactMemory(pool, session);
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return false;
    throw error;
  }
}

/** Reads again if the session first had to adopt its tenant's policy, or to redact its memory. */
async function readPresent(
  pool: Pool,
  ids: SessionIds,
  readRows: (query: Query) => Promise<SnapshotRow[]>,
): Promise<SnapshotRow[]> {
  const query = reading(pool, ids);
  const rows = await readRows(query);
  const session = sessionOf(rows, ids, knownTenants(pool));
  const present = await upToDate(pool, session);
  const isRedacted = await redactIfStale(pool, present, rows);
  return present === session && !isRedacted ? rows : readRows(query);
}

async function readMetas(query: Query, ids: SessionIds): Promise<SnapshotRow[]> {
  checkIds(ids);
  return query<SnapshotRow>(withoutBodies, [ids.tenant, ids.session, 0]);
}

/** Loads no message before its tenant holds the bytes of all. */
async function readMessages(
  query: Query,
  ids: SessionIds,
  budget: number | 'own',
  mostBytes: number,
): Promise<SnapshotRow[]> {
  checkIds(ids);
  const hold = currentCaller()?.hold;
  for (let within = hold ? Math.min(uncountedBytes, mostBytes) : mostBytes; ;) {
    const rows = await query<SnapshotRow>(withBodies, [
      ...[ids.tenant, ids.session, budget === 'own' ? null : budget],
      within,
    ]);
    const size = Number(rows.find(({ part }) => part === 'session')?.kind ?? 0);
    if (size <= within) return rows;
    if (size > mostBytes) throw tooLarge(ids, size, mostBytes);
    // Some more, because turns may be appended in between.
    within = Math.min(size + uncountedBytes, mostBytes);
    hold?.(within);
  }
}

function tooLarge({ session }: SessionIds, size: number, mostBytes: number): PalimpsestError {
  return new PalimpsestError(
    'Input.TooLarge',
    `The messages of session ${session} that are not compacted have ${size} bytes; a context is made of at most ${mostBytes}.`,
    {
      path: 'session',
      hint: 'Compact the session, then read the context again. If nothing can be compacted, erase its largest messages, or begin a new session.',
      details: { bytes: size, maxBytes: mostBytes },
    },
  );
}

function sessionOf(
  rows: readonly SnapshotRow[],
  ids: SessionIds,
  { limits }: Pick<KnownTenants, 'limits'>,
): SessionRow {
  const row = rows.find(({ part }) => part === 'session');
  if (!row) return notFound(ids);
  const record = JSON.parse(row.body ?? '') as SessionRecord;
  checkIncarnation(ids, record);
  return toSession(record, limits);
}

interface HeadNumbers {
  headTokens: number[];
  carriedSeq: number | null;
  parts: number;
  layout: HeadLayout | null;
  redaction: string;
}

const headNumbers = ({ kind }: SnapshotRow) => JSON.parse(kind ?? '') as HeadNumbers;

function headFacts(row: SnapshotRow): HeadFacts {
  const { headTokens, carriedSeq, parts } = headNumbers(row);
  const tokens = headTokens.reduce((sum, count) => sum + count, 0);
  return { generation: row.first, carriedSeq, tokens, snapshotTokens: row.tokens, parts };
}

function inOrder(rows: SnapshotRow[]): SnapshotRow[] {
  return rows.sort((a, b) => a.first - b.first);
}

function toMessage({ first, tokens, body, at }: SnapshotRow): LoggedMessage {
  return toLogged({
    seq: first,
    tokens,
    body: body ?? '',
    at: at === null ? null : new Date(Math.round(at)),
  });
}

function toMeta({ first, tokens, kind, calls, answers, empty, at }: SnapshotRow): MessageMeta {
  const links: CallLink[] = calls === null ? [] : (JSON.parse(calls) as CallLink[]);
  const answered: string | null = answers === null ? null : (JSON.parse(answers) as string | null);
  return {
    seq: first,
    role: kind as Role,
    tokens,
    calls: links,
    answers: answered,
    empty: empty === true,
    at: at ?? 0,
  };
}

/** Reductions in the order in which they were made. The last part of the statement keeps that order. */
function reductionsOf(rows: readonly SnapshotRow[]): Reduction[] {
  return rows.map(({ first, last, kind, body, tokens }) => ({
    fromSeq: first,
    throughSeq: last,
    kind: kind as Reduction['kind'],
    body: body ?? '',
    tokens,
  }));
}
