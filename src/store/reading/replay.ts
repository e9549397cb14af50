import type { Pool } from 'pg';
import type { LoggedMessage } from '../../conversation/message.js';
import { verifiedPart, verifiedRange } from '../compactions/archive.js';
import { isFailure } from '../../errors.js';
import type { ArchivePart } from '../../contract/archive.js';
import { toLogged } from '../log/messages.js';
import { checkIncarnation, type SessionRow } from '../sessions/session-row.js';
import { findSession, loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import { read, type Query } from '../connection/transaction.js';

/**
 * The log in order: the archive parts along the head's chain of parents, then the tail, as it was when the replay
 * began. Every body is checked against its hash and every part against its own; memory does not follow the length.
 * Throws `Store.SessionNotFound`, also where the session is erased meanwhile; `Store.Corrupt` naming the seq or part;
 * `Store.StaleGeneration` where the session is erased and begun anew meanwhile.
 */
export async function* replay(pool: Pool, ids: SessionIds): AsyncGenerator<LoggedMessage> {
  yield* replayOf(pool, await loadSession(pool, ids));
}

/** The same of a session that was read before, through its last message then. */
export async function* replayOf(pool: Pool, session: SessionRow): AsyncGenerator<LoggedMessage> {
  const query: Query = (text, values) => read(pool, text, values);
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

/** The archive parts along the chain of parents of a generation, oldest first. */
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
