import type { Pool } from 'pg';
import type { LoggedMessage } from '../../conversation/message.js';
import { verifiedPart } from '../compactions/archive.js';
import type { ArchivePart } from '../../contract/archive.js';
import { partsBehind } from './replay.js';
import { searchableText } from '../search/words.js';
import { loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import { reading } from '../connection/transaction.js';

/**
 * Renders the evicted messages as Markdown, piece by piece: a section for each archive part along the head's chain of
 * parents, headed `## Summarized at <ISO time>`, with one `[role]: text` paragraph for each message. The text is
 * append-only: the text after further compactions begins with the present text, unless an earlier generation was
 * restored. Throws `Store.SessionNotFound`; `Store.Corrupt` naming the seq or part.
 */
export async function* historyLog(pool: Pool, ids: SessionIds): AsyncGenerator<string> {
  const query = reading(pool, ids);
  const { generation } = await loadSession(pool, ids);
  for (const part of await partsBehind(query, ids, generation)) {
    yield headingOf(part);
    for await (const message of verifiedPart(query, ids, part)) yield entryOf(message);
  }
}

function headingOf({ part, createdAt, fromSeq, throughSeq }: ArchivePart): string {
  const messages = fromSeq === throughSeq ? `message ${fromSeq}` : `messages ${fromSeq}–${throughSeq}`;
  return `## Summarized at ${new Date(createdAt).toISOString()}\n\nArchive part ${part}, ${messages}.\n\n`;
}

const lineEnd = /\r\n|[\n\r\v\f\u0085\u2028\u2029]/;

/**
 * The first line of a message begins with its label, and every other line is indented by four spaces. So no content
 * can begin a section, a code fence or the label of another message.
 */
function entryOf({ seq, message, at }: LoggedMessage): string {
  const [first = '', ...others] = searchableText(message).split(lineEnd);
  const lines = [`[${message.role}]: ${first}`, ...others.map((line) => (line === '' ? '' : `    ${line}`))];
  return `${lines.join('\n')} <!-- message ${seq}${at === undefined ? '' : `, ${at}`} -->\n\n`;
}
