/** Erasing single messages: in a session, and on request in the sessions that share them. */
import type { Pool } from 'pg';
import type { FoundMessages, MessagesErased } from '../contract/erasing.js';
import type { SessionIds } from '../contract/ids.js';
import { holdsText } from '../conversation/tombstone.js';
import { isFailure } from '../errors.js';
import { messagePages } from '../store/log/messages.js';
import { reading } from '../store/connection/transaction.js';
import {
  eraseMessagesOf,
  holdersOf,
  type ErasedMessages,
  type Tombstone,
} from '../store/compactions/erase-messages.js';
import { loadSession } from '../store/sessions/sessions.js';

export interface Wanted {
  seqs: readonly number[];
  forks?: boolean;
  reason?: string;
  dryRun?: boolean;
}

/**
 * Erases the messages in the session first, so that no fork with them can begin any more, then in the sessions that share them.
 * Each session has its own transaction; a repeated call continues where an aborted one ended. `erased` is called after each.
 */
export async function eraseMessages(
  pool: Pool,
  ids: SessionIds,
  { seqs, forks = false, reason, dryRun = false }: Wanted,
  erased: (ids: SessionIds) => Promise<void>,
): Promise<MessagesErased> {
  const erasing = { at: new Date(), reason: reason ?? null };
  const one = await eraseMessagesOf(pool, ids, { ...erasing, seqs: [...new Set(seqs)] }, dryRun);
  if (!dryRun) await erased(ids);
  const others: ({ session: string } & Done)[] = [];
  let holders = await holdersOf(pool, ids, one.messages);
  if (forks && dryRun) {
    for (const { session, seqs: held } of holders) {
      const done = await eraseMessagesOf(
        pool,
        { tenant: ids.tenant, session },
        { ...erasing, seqs: held },
        true,
      );
      others.push({ session, ...doneOf(done) });
    }
  }
  // A fork of a fork may have begun meanwhile.
  for (; forks && !dryRun && holders.length > 0; holders = await holdersOf(pool, ids, one.messages)) {
    for (const { session, seqs: held } of holders) {
      const fork = { tenant: ids.tenant, session };
      try {
        const done = await eraseMessagesOf(pool, fork, { ...erasing, seqs: held });
        others.push({ session, ...doneOf(done) });
      } catch (error) {
        // The whole fork was erased meanwhile.
        if (!isFailure(error, 'Store.SessionNotFound')) throw error;
        continue;
      }
      await erased(fork);
    }
  }
  return {
    ...doneOf(one),
    dryRun,
    already: one.already,
    forks: others,
    remaining: holders.map(({ session, seqs: held }) => ({ session, seqs: held })),
  };
}

type Done = Omit<MessagesErased['forks'][number], 'session'>;

function doneOf({ already: _already, messages, ...done }: ErasedMessages): Done {
  return { ...done, messages: messages.map(shown) };
}

function shown({ seq, sha256, erasedAt, reason }: Tombstone): MessagesErased['messages'][number] {
  return { seq, sha256, erasedAt: erasedAt.toISOString(), ...(reason === null ? {} : { reason }) };
}

/** The messages of the session whose stored form contains the text, and the other places that do. Reads the whole log. */
export async function findMessages(pool: Pool, ids: SessionIds, text: string): Promise<FoundMessages> {
  const session = await loadSession(pool, ids);
  const query = reading(pool, session);
  const hits: FoundMessages['hits'] = [];
  for await (const page of messagePages(query, session, 1, session.nextSeq - 1))
    for (const { seq, body, erasedAt } of page) {
      const stored = JSON.parse(body) as { role: string };
      if (holdsText(stored, text)) hits.push({ seq, role: stored.role, erased: erasedAt !== null });
    }
  const rows = await query<{ turnId: string }>(
    'select turn_id as "turnId" from palimpsest.turns where tenant_id = $1 and session_id = $2',
    [ids.tenant, ids.session],
  );
  const elsewhere: FoundMessages['elsewhere'] = [];
  if (holdsText(ids.session, text)) elsewhere.push('session id');
  if (rows.some(({ turnId }) => holdsText(turnId, text))) elsewhere.push('turn id');
  if (holdsText(session.policy, text)) elsewhere.push('policy');
  return { hits, elsewhere };
}
