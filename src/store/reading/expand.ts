import type { Pool } from 'pg';
import type { LoggedMessage } from '../../conversation/message.js';
import { listArchiveParts, noSuchPart, verifiedRange } from '../compactions/archive.js';
import { checkWhole } from '../connection/values.js';
import { toLogged } from '../log/messages.js';
import { loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import { read, type Query } from '../connection/transaction.js';
import type { ExpandRequest, Expansion } from '../../contract/archive.js';

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
