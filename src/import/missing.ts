/** What of a session is in the log already. */
import type { Pool } from 'pg';
import { withoutEnvelope } from '../formats/envelope.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { splitNative } from '../formats/native.js';
import { nativeField, serializeMessage } from '../conversation/validate.js';
import { isFailure, PalimpsestError } from '../errors.js';
import { readMessages } from '../store/log/messages.js';
import type { SessionIds } from '../contract/ids.js';

/**
 * The messages as they continue what is stored. A log of an agent that has grown since is the same as before but for what
 * its file says of itself (the envelope, which stays as it was) and for entries that mean no message: those at its end
 * went with the last message then, and go before the next one now. Throws `Input.Invalid` where something else differs.
 */
export async function missingFrom(
  pool: Pool,
  ids: SessionIds,
  stored: readonly string[],
  messages: readonly ChatMessage[],
): Promise<readonly ChatMessage[]> {
  const common = Math.min(stored.length, messages.length);
  const isSame = (index: number): boolean => serializeMessage(messages[index]!).sha256 === stored[index];
  if (Array.from({ length: common }, (_, index) => index).every(isSame)) return messages;
  const log = await readMessages(pool, ids, 1, stored.length);
  for (let index = 0; index < common; index++)
    if (textOf(log[index]!.message) !== textOf(splitNative(messages[index]!).message))
      throw differs(ids, index);
  const known = log.flatMap(({ native }) => withoutEnvelope(native?.items ?? []));
  const read = itemsOf(messages.slice(0, common));
  const different = known
    .slice(0, read.length)
    .findIndex((item, index) => textOf(item) !== textOf(read[index]));
  if (different >= 0) throw differs(ids, common - 1);
  return continued(messages, stored.length, read.slice(known.length));
}

const textOf = (value: unknown): string => JSON.stringify(value);

const itemsOf = (messages: readonly ChatMessage[]): Json[] =>
  messages.flatMap((message) => withoutEnvelope(splitNative(message).native?.items ?? []));

/** With entries before the first new message that the log does not have yet. */
function continued(messages: readonly ChatMessage[], from: number, entries: readonly Json[]): ChatMessage[] {
  return messages.map((message, index) => {
    const { message: plain, native } = splitNative(message);
    if (index !== from || !native || entries.length === 0) return message;
    return { ...plain, [nativeField]: { ...native, items: [...entries, ...native.items] } };
  });
}

/** Whether a session was refused because its id holds other messages. */
export function isTaken(error: unknown): boolean {
  return isFailure(error, 'Input.Invalid') && error.details?.differsAt !== undefined;
}

function differs({ session }: SessionIds, index: number): PalimpsestError {
  return new PalimpsestError(
    'Input.Invalid',
    `Session ${session} is stored with another message ${index + 1}.`,
    {
      path: `messages[${index}]`,
      hint: 'Import it under another id: --prefix puts something before all ids.',
      details: { differsAt: index + 1 },
    },
  );
}
