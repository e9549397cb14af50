/** One session into the log, from the first message on that is not there. */
import type { Pool } from 'pg';
import type { FormatName } from '../conversation/formats/format.js';
import type { ChatMessage } from '../conversation/message.js';
import { cutTurns } from '../conversation/turns.js';
import { serializeMessage } from '../conversation/validate.js';
import { isFailure } from '../errors.js';
import { closeImported, importedTurnId } from '../store/imported.js';
import { readHashes } from '../store/messages.js';
import { appendTurn } from '../store/turns.js';
import type { SessionIds } from '../temporal/names.js';
import type { ImportOptions } from './importer.js';
import { missingFrom } from './missing.js';

export interface Stored {
  status: 'stored' | 'extended' | 'present';
  added: number;
}

interface ReadMessages {
  messages: readonly ChatMessage[];
  format: FormatName;
}

/** Throws `Input.Invalid` where the session holds other messages already. */
export async function storeSession(
  pool: Pool,
  ids: SessionIds,
  read: ReadMessages,
  options: ImportOptions,
): Promise<Stored> {
  let before: number | undefined;
  let added = 0;
  for (;;) {
    const stored = await readHashes(pool, ids);
    before ??= stored.length;
    const messages = await missingFrom(pool, ids, stored, read.messages);
    const missing = Math.max(0, messages.length - stored.length);
    if (options.dryRun) return { added: missing, status: statusOf(missing, before) };
    try {
      const rest = { messages, format: read.format };
      for await (const count of appendRest(pool, ids, rest, stored.length, options)) added += count;
      if (!options.keepOpen) await closeImported(pool, ids);
      return { added, status: statusOf(added, before) };
    } catch (error) {
      // Somebody else appended to it meanwhile: compare again.
      if (!isFailure(error, 'Store.StaleAppend')) throw error;
    }
  }
}

function statusOf(added: number, before: number): Stored['status'] {
  if (added === 0) return 'present';
  return before === 0 ? 'stored' : 'extended';
}

/** In the turns in which its platform would have appended it. Answers with each turn how many messages were new. */
async function* appendRest(
  pool: Pool,
  ids: SessionIds,
  { messages, format }: ReadMessages,
  stored: number,
  { policy, deployment, signal }: ImportOptions,
): AsyncGenerator<number> {
  for (const { from, to } of cutTurns(messages)) {
    if (to <= stored) continue;
    signal?.throwIfAborted();
    const start = Math.max(from, stored);
    const logged = messages.slice(start, to);
    const hashes = logged.map((message) => serializeMessage(message).sha256);
    const { repeated } = await appendTurn(pool, {
      ...ids,
      turnId: importedTurnId(start + 1, hashes),
      logged,
      format,
      expectedSeq: start,
      // A session that exists keeps the policy it has.
      ...(policy === undefined || start > 0 ? {} : { policy }),
      ...(deployment === undefined ? {} : { deployment }),
    });
    if (!repeated) yield to - start;
  }
}
