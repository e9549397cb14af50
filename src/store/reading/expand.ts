import type { Pool } from 'pg';
import type { LoggedMessage } from '../../conversation/message.js';
import { listArchiveParts, noSuchPart, verifiedRange } from '../compactions/archive.js';
import { checkWhole } from '../connection/bounds.js';
import { toLogged } from '../log/messages.js';
import { loadSession, type SessionIds } from '../sessions/sessions.js';
import { read, type Query } from '../connection/transaction.js';

export interface ExpandRequest {
  /** Archive part; where left out, any range of the log. */
  part?: number;
  /** First message. @default the first of the part, or of the log */
  fromSeq?: number;
  /** Messages at most, up to 1,000. @default 50 */
  limit?: number;
  /** UTF-16 code units of the messages' JSON at most; a first message that is longer comes alone. @default 100,000 */
  maxCharacters?: number;
}

export interface Expansion {
  part: number | null;
  /** Originals in order, each checked against its hash. */
  messages: LoggedMessage[];
  /** Where the next page begins; null at the end of the part, or of the log. */
  nextSeq: number | null;
}

const most = { messages: 1_000, characters: 50_000_000 };

/** A page of originals. Throws `Input.Invalid` for a part or seq that is not there; `Store.SessionNotFound`; `Store.Corrupt`. */
export async function expand(pool: Pool, ids: SessionIds, request: ExpandRequest): Promise<Expansion> {
  const { part, limit = 50, maxCharacters = 100_000 } = request;
  const range = await rangeOf(pool, ids, part);
  const { fromSeq = range.fromSeq } = request;
  checkWhole(limit, 'limit', 1, most.messages);
  checkWhole(maxCharacters, 'maxCharacters', 1, most.characters);
  checkWhole(fromSeq, 'fromSeq', range.fromSeq, range.throughSeq);
  const query: Query = (text, values) => read(pool, text, values);
  const messages: LoggedMessage[] = [];
  let characters = 0;
  for await (const stored of verifiedRange(
    query,
    ids,
    fromSeq,
    Math.min(range.throughSeq, fromSeq + limit - 1),
  )) {
    characters += stored.body.length;
    if (messages.length > 0 && characters > maxCharacters) break;
    messages.push(toLogged(stored));
  }
  const nextSeq = fromSeq + messages.length;
  return { part: part ?? null, messages, nextSeq: nextSeq <= range.throughSeq ? nextSeq : null };
}

async function rangeOf(
  pool: Pool,
  ids: SessionIds,
  part: number | undefined,
): Promise<{ fromSeq: number; throughSeq: number }> {
  const { nextSeq } = await loadSession(pool, ids);
  if (part === undefined) return { fromSeq: 1, throughSeq: nextSeq - 1 };
  const parts = await listArchiveParts(pool, ids);
  const found = parts.find((candidate) => candidate.part === part);
  if (found) return found;
  throw noSuchPart(ids, part, parts);
}
