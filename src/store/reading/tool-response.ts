import type { Pool } from 'pg';
import { assignCallIds } from '../../context/view/projection.js';
import type { Page, ToolResponse } from '../../contract/archive.js';
import type { SessionIds } from '../../contract/ids.js';
import { groupMessages } from '../../conversation/groups.js';
import type { ChatMessage, MessageMeta } from '../../conversation/message.js';
import { invalid, type PalimpsestError } from '../../errors.js';
import { parseBody } from '../../formats/native.js';
import { nearest } from '../../nearest.js';
import { verifiedRange } from '../compactions/archive.js';
import { readMetas } from '../compactions/chain.js';
import { reading, type Query } from '../connection/transaction.js';
import { storable } from '../connection/values.js';
import { toolNames } from '../log/tool-names.js';
import { splitsPair } from '../search/words.js';
import { loadSession } from '../sessions/sessions.js';
import { readTailMetas } from './context.js';
import { partsBehind } from './replay.js';

const defaultLimit = 20_000;

/**
 * Reads the original content of a tool result, or of any message, and checks it against its hash. An id that the
 * present context shows refers to the result in the context; any other id refers to the newest result with that id.
 * Throws `Input.Invalid`, naming the nearest ids, for a message that is not in the log; `Store.SessionNotFound`;
 * `Store.Corrupt`.
 */
export async function toolResponse(
  pool: Pool,
  ids: SessionIds,
  { callId = '', seq, offset = 0, limit = defaultLimit }: Page & { callId?: string; seq?: number },
): Promise<ToolResponse> {
  const query = reading(pool, ids);
  const session = await loadSession(pool, ids);
  if (seq !== undefined) checkSeq(seq, session.nextSeq - 1);
  const parts = await partsBehind(query, ids, session.generation);
  const partOf = (place: number) =>
    parts.find((part) => part.fromSeq <= place && place <= part.throughSeq)?.part ?? null;
  const found = seq === undefined ? await occurrencesOf(pool, ids, callId) : { seq, all: [seq] };
  const message = await original(query, ids, found.seq);
  const { format, content } = contentOf(message);
  return {
    seq: found.seq,
    callId: message.tool_call_id ?? null,
    tool: await toolOfResult(query, ids, found.seq, message),
    role: message.role,
    part: partOf(found.seq),
    format,
    ...pageOf(content, offset, limit),
    occurrences: found.all.map((each) => ({ seq: each, part: partOf(each) })),
  };
}

function checkSeq(seq: number, last: number): void {
  if (seq > last) throw invalid(`there is no message ${seq}`, 'seq', `The log ends at message ${last}.`);
}

async function original(query: Query, ids: SessionIds, seq: number): Promise<ChatMessage> {
  for await (const { body } of verifiedRange(query, ids, seq, seq)) return parseBody(body).message;
  throw new Error(`message ${seq} was not read, and no error was raised`);
}

function contentOf(message: ChatMessage): Pick<ToolResponse, 'format' | 'content'> {
  const { content } = message;
  const calls = (message.tool_calls?.length ?? 0) > 0 || Boolean(message.function_call);
  if (!calls && typeof content === 'string') return { format: 'text', content };
  if (!calls && Array.isArray(content)) return { format: 'parts', content: JSON.stringify(content) };
  return { format: 'message', content: JSON.stringify(message) };
}

/**
 * Never cuts through a surrogate pair: the page begins and ends one code unit earlier, or ends one code unit later if it
 * would otherwise be empty.
 * @internal Tests try every page size without a database.
 */
export function pageOf(
  text: string,
  offset: number,
  limit: number,
): Pick<ToolResponse, 'content' | 'offset' | 'totalCharacters' | 'nextOffset'> {
  const from = Math.min(splitsPair(text, offset) ? offset - 1 : offset, text.length);
  let to = Math.min(from + limit, text.length);
  if (splitsPair(text, to)) to += to - 1 > from ? -1 : 1;
  return {
    content: text.slice(from, to),
    offset: from,
    totalCharacters: text.length,
    nextOffset: to < text.length ? to : null,
  };
}

/** The search for a call's result reads this many messages after the call. */
const farthestResult = 2_000;

/**
 * Resolves a call id to a result of the log, and lists all results that have the id, newest first. Ids are reused,
 * and a context shows a repeated id in a changed form. Throws `Input.Invalid` if no result has the id.
 */
async function occurrencesOf(
  pool: Pool,
  ids: SessionIds,
  callId: string,
): Promise<{ seq: number; all: number[] }> {
  const query = reading(pool, ids);
  const all = await resultsWith(query, ids, callId);
  const shown = all.length === 1 ? null : await shownInContext(pool, ids, callId);
  const seq = shown ?? all[0] ?? (await shownBefore(pool, ids, callId));
  if (seq === null) throw await unknown(query, ids, callId);
  return { seq, all: all.includes(seq) ? all : [seq, ...all] };
}

/** Seqs of the results of role `tool` that name this id, newest first. */
async function resultsWith(query: Query, ids: SessionIds, callId: string): Promise<number[]> {
  const answers = JSON.stringify(callId);
  const rows = await query<{ seq: number }>(
    `select seq from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and answers = $3 and role = 'tool'
       ${answers.length <= 256 ? 'and length(answers) <= 256' : ''}
     order by seq desc`,
    [ids.tenant, ids.session, answers],
  );
  return rows.map(({ seq }) => seq);
}

/** The result that the present context shows under this id; null if it shows none. */
async function shownInContext(pool: Pool, ids: SessionIds, callId: string): Promise<number | null> {
  const { tail } = await readTailMetas(pool, ids);
  const shownIds = assignCallIds(tail);
  const caller = shownIds.findIndex((ofMessage) => ofMessage.includes(callId));
  return caller === -1 ? null : resultOf(tail, caller, shownIds[caller]?.indexOf(callId) ?? 0);
}

/** Seq of the result of a call; null without a result. The call is given by the index of its message and its number there. */
function resultOf(metas: readonly MessageMeta[], caller: number, call: number): number | null {
  const result = groupMessages(metas).answeredBy[caller]?.[call] ?? null;
  return result === null ? null : (metas[result]?.seq ?? null);
}

/**
 * Finds the result by an id that a context showed before its group was evicted: `<id>-<seq of the caller>`, or
 * `call_<seq>_<number>` for a call without an id. Long ids are truncated before the number.
 */
async function shownBefore(pool: Pool, ids: SessionIds, callId: string): Promise<number | null> {
  const unnamed = /^call_(\d{1,9})_(\d{1,6})$/.exec(callId);
  if (unnamed) {
    const metas = await linksFrom(pool, ids, Number(unnamed[1]));
    const call = Number(unnamed[2]) - 1;
    return metas[0]?.calls[call]?.id === null ? resultOf(metas, 0, call) : null;
  }
  for (const form of [/^(.+)-(\d{1,9})$/s, /^(.+)-(\d{1,9})-\d{1,3}$/s]) {
    const [, start, seq] = form.exec(callId) ?? [];
    if (start === undefined) continue;
    const metas = await linksFrom(pool, ids, Number(seq));
    const call = metas[0]?.calls.findIndex(({ id }) => id?.startsWith(start)) ?? -1;
    if (call !== -1) return resultOf(metas, 0, call);
  }
  return null;
}

/** Links of a calling message and of the messages after it; empty if the message makes no call. */
async function linksFrom(pool: Pool, ids: SessionIds, caller: number): Promise<MessageMeta[]> {
  const metas = await readMetas(pool, ids, caller, caller + farthestResult);
  return metas[0]?.seq === caller ? metas : [];
}

/** The tool that produced a result: the name in its call, or else the result's own name. */
async function toolOfResult(
  query: Query,
  ids: SessionIds,
  seq: number,
  { role, name, tool_call_id: id }: ChatMessage,
): Promise<string | null> {
  if (role === 'function') return name ?? null;
  if (role !== 'tool') return null;
  return (await toolNames(query, ids, [{ seq, answers: id ?? null }])).get(seq) ?? name ?? null;
}

/** Number of ids that an error names, and number of newest ids that are compared. */
const named = { ids: 3, among: 500 };

async function unknown(query: Query, ids: SessionIds, callId: string): Promise<PalimpsestError> {
  const quotedId = JSON.stringify(storable(callId).slice(0, 100));
  const [open] = await query<{ seq: number }>(
    `select seq from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and calls is not null and strpos(calls, $3) > 0 order by seq desc limit 1`,
    [ids.tenant, ids.session, `"id":${JSON.stringify(callId)}`],
  );
  if (open) {
    return invalid(
      `call ${quotedId} has no result in the log`,
      'callId',
      `Message ${open.seq} made the call; its result has not been appended.`,
    );
  }
  const rows = await query<{ answers: string }>(
    `select answers from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and answers is not null and role = 'tool' order by seq desc limit ${named.among}`,
    [ids.tenant, ids.session],
  );
  const known = [...new Set(rows.map(({ answers }) => JSON.parse(answers) as string))];
  const near = nearest(callId, known).slice(0, named.ids);
  return invalid(
    `no call ${quotedId} in session ${ids.session}`,
    'callId',
    near.length === 0
      ? 'The session holds no tool result with an id. Name a message by its seq, or search.'
      : `Nearest: ${near.map((id) => JSON.stringify(id)).join(', ')}. Or name a message by its seq, or search.`,
  );
}
