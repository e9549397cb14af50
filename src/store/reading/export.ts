import type { Pool } from 'pg';
import { closeDocument } from '../../formats/documents.js';
import { originalItems } from '../../formats/native.js';
import { loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import { replayOf } from './replay.js';

/**
 * The session's file as it came, in pieces of text, through the last message that the log had when the export began. Fails
 * as `replay` does. Memory does not follow the length, but for ChatGPT's trees, which are held once as text.
 */
export async function* exportSession(pool: Pool, ids: SessionIds): AsyncGenerator<string> {
  const session = await loadSession(pool, ids);
  yield* closeDocument(originalItems(replayOf(pool, session)), session.format);
}
