import { parseBody } from '../../formats/native.js';
import type { Pool } from 'pg';
import type { ChatMessage } from '../../conversation/message.js';
import { verifiedRange } from '../compactions/archive.js';
import { checkWhole } from '../connection/values.js';
import { occurrencesOf, toolOfResult } from './call-ids.js';
import { partsBehind } from './replay.js';
import { splitsPair } from '../search/words.js';
import { loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import { invalid } from '../../errors.js';
import { read, type Query } from '../connection/transaction.js';
import type { Page, ResponseReference, ToolResponse } from '../../contract/archive.js';

const defaultLimit = 20_000;

/**
 * The original content of a tool's result, or of any message, checked against its hash. For an id that the present
 * context shows, the result that stands there; else the newest with that id. Throws `Input.Invalid` for what is not in
 * the log, naming what is near; `Store.SessionNotFound`; `Store.Corrupt`.
 */
export async function toolResponse(
  pool: Pool,
  ids: SessionIds,
  reference: ResponseReference,
  { offset = 0, limit = defaultLimit }: Page = {},
): Promise<ToolResponse> {
  checkWhole(offset, 'offset', 0);
  checkWhole(limit, 'limit', 1);
  const query: Query = (text, values) => read(pool, text, values);
  const session = await loadSession(pool, ids);
  if (reference.seq !== undefined) checkSeq(reference.seq, session.nextSeq - 1);
  const parts = await partsBehind(query, ids, session.generation);
  const partOf = (seq: number) =>
    parts.find((part) => part.fromSeq <= seq && seq <= part.throughSeq)?.part ?? null;
  const found =
    reference.seq === undefined
      ? await occurrencesOf(pool, ids, reference.callId)
      : { seq: reference.seq, all: [reference.seq] };
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
    occurrences: found.all.map((seq) => ({ seq, part: partOf(seq) })),
  };
}

function checkSeq(seq: number, last: number): void {
  checkWhole(seq, 'seq', 1);
  if (seq > last) throw invalid(`there is no message ${seq}`, 'seq', `The log ends at message ${last}.`);
}

async function original(query: Query, ids: SessionIds, seq: number): Promise<ChatMessage> {
  for await (const { body } of verifiedRange(query, ids, seq, seq)) return parseBody(body).message;
  throw new Error(`message ${seq} was neither read nor missed`);
}

function contentOf(message: ChatMessage): Pick<ToolResponse, 'format' | 'content'> {
  const { content } = message;
  const calls = (message.tool_calls?.length ?? 0) > 0 || Boolean(message.function_call);
  if (!calls && typeof content === 'string') return { format: 'text', content };
  if (!calls && Array.isArray(content)) return { format: 'parts', content: JSON.stringify(content) };
  return { format: 'message', content: JSON.stringify(message) };
}

/**
 * Never cuts through a surrogate pair: begins one earlier and ends one earlier, or later where nothing would be left.
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
