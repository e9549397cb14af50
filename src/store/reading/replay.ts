import type { Pool } from 'pg';
import type { ArchivePart, ExpandRequest, Expansion } from '../../contract/archive.js';
import type { SessionIds } from '../../contract/ids.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { isFailure } from '../../errors.js';
import { closeDocument } from '../../formats/documents.js';
import { originalItems } from '../../formats/native.js';
import { listArchiveParts, noSuchPart, verifiedPart, verifiedRange } from '../compactions/archive.js';
import { reading, type Query } from '../connection/transaction.js';
import { checkWhole } from '../connection/values.js';
import { toLogged } from '../log/messages.js';
import { checkIncarnation, type SessionRow } from '../sessions/session-row.js';
import { findSession, loadSession } from '../sessions/sessions.js';

/**
 * Yields the log in order as it was when the replay began: the archive parts along the head's chain of parents, then
 * the tail. Checks every body and every part against its hash. Memory does not grow with the log. Throws
 * `Store.SessionNotFound`, also if the session is erased meanwhile; `Store.Corrupt` naming the seq or part;
 * `Store.StaleGeneration` if the session is erased and recreated meanwhile.
 */
export async function* replay(pool: Pool, ids: SessionIds): AsyncGenerator<LoggedMessage> {
  yield* replayOf(pool, await loadSession(pool, ids));
}

/** Replays a session that was read earlier, through the last message that it had then. */
async function* replayOf(pool: Pool, session: SessionRow): AsyncGenerator<LoggedMessage> {
  const query = reading(pool, session);
  const { generation, throughSeq, nextSeq } = session;
  try {
    for (const part of await partsBehind(query, session, generation))
      yield* verifiedPart(query, session, part);
    for await (const message of verifiedRange(query, session, throughSeq + 1, nextSeq - 1))
      yield toLogged(message);
  } catch (error) {
    if (isFailure(error, 'Store.Corrupt')) checkIncarnation(session, await loadSession(pool, session));
    throw error;
  }
  const present = await findSession(pool, session);
  if (present) checkIncarnation(session, present);
}

/** The archive parts along a generation's chain of parents, oldest first. */
export function partsBehind(query: Query, ids: SessionIds, generation: number): Promise<ArchivePart[]> {
  return query<ArchivePart>(
    `with recursive chain as (
       select generation, parent_generation, archive_part from palimpsest.compactions
       where tenant_id = $1 and session_id = $2 and generation = $3
       union all
       select parent.generation, parent.parent_generation, parent.archive_part
       from chain join palimpsest.compactions parent
         on parent.tenant_id = $1 and parent.session_id = $2 and parent.generation = chain.parent_generation
     )
     select part, p.generation, from_seq as "fromSeq", through_seq as "throughSeq", messages, tokens, bytes,
       encode(sha256, 'hex') as sha256, created_at as "createdAt"
     from chain join palimpsest.archive_parts p
       on p.tenant_id = $1 and p.session_id = $2 and p.part = chain.archive_part
     order by from_seq`,
    [ids.tenant, ids.session, generation],
  );
}

/**
 * Yields the session's file in its original format, in pieces of text, through the last message that the log had when
 * the export began. Throws as `replay` does. Memory does not grow with the log, except for ChatGPT's trees, whose
 * text is in memory once.
 */
export async function* exportSession(pool: Pool, ids: SessionIds): AsyncGenerator<string> {
  const session = await loadSession(pool, ids);
  yield* closeDocument(originalItems(replayOf(pool, session)), session.format);
}

/**
 * Reads a page of originals. Throws `Input.Invalid` for a part or seq that does not exist; `Store.SessionNotFound`;
 * `Store.Corrupt`.
 */
export async function expand(pool: Pool, ids: SessionIds, request: ExpandRequest): Promise<Expansion> {
  const { part, limit = 50, maxCharacters = 100_000 } = request;
  const range = await rangeOf(pool, ids, part);
  const { fromSeq = range.fromSeq } = request;
  checkWhole(fromSeq, 'fromSeq', range.fromSeq, range.throughSeq);
  const query = reading(pool, ids);
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
