/** Bodies exactly: what JSON.parse would change in silence is refused with line, column and path. */
import { isUtf8 } from 'node:buffer';
import { parseExact } from '../conversation/json.js';
import { type Json, MessagesText } from '../conversation/message.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { inThread } from '../intake/threads/pool.js';
import { Refused } from './problem.js';

/** Undefined for an empty body. Throws `Input.Invalid`. */
export function readBody(bytes: Buffer, mediaType: string): Json | undefined {
  if (bytes.length === 0) return undefined;
  if (!isJsonInUtf8(mediaType)) throw otherMedia(mediaType);
  if (!isUtf8(bytes)) throw invalid('The body is not UTF-8.', 'body', 'Send JSON in UTF-8.');
  try {
    return parseExact(bytes.toString('utf8'));
  } catch (error) {
    throw ofBody(error);
  }
}

/** Bytes up to which a body is read on the event loop: some 10 ms at most. */
const shortBody = 64 * 1024;
/** Bytes of a body that holds no turn, at most. */
export const smallBodyBytes = 1024 * 1024;

/**
 * The body of a turn, which may hold megabytes: read in a thread, its messages stay text. Throws `Input.Invalid`,
 * `Input.TooLarge`.
 */
export async function readTurnBody(bytes: Buffer, mediaType: string): Promise<unknown> {
  if (bytes.length <= shortBody) return readBody(bytes, mediaType);
  if (!isJsonInUtf8(mediaType)) throw otherMedia(mediaType);
  const { buffer, byteLength } = bytes;
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  try {
    const { rest, messages } = await inThread('readBody', [bytes], byteLength, isWhole ? [buffer] : []);
    if (messages === null || typeof rest !== 'object' || rest === null) return rest;
    return { ...rest, messages: new MessagesText(messages.bytes, messages.count) };
  } catch (error) {
    throw ofBody(error);
  }
}

function ofBody(error: unknown): unknown {
  if (!isFailure(error)) return error;
  const { type, message, path = 'body', hint = 'Send strict JSON (RFC 8259).', details } = error;
  return new PalimpsestError(type, message, { path, hint, ...(details ? { details } : {}) });
}

/** Compressed bodies are not read: what they grow to is known only when it is too late. Throws `Input.Invalid`. */
export function refuseEncoded(encoding: string | undefined): void {
  if (encoding === undefined || /^\s*(?:identity\s*)?$/i.test(encoding)) return;
  throw new Refused(415, 'Input.Invalid', 'Encoded bodies are not read.', {
    path: 'headers.content-encoding',
    hint: 'Send the body as it is, without Content-Encoding.',
  });
}

/** The usual ones first: this is the hot path. */
function isJsonInUtf8(mediaType: string): boolean {
  if (mediaType === 'application/json' || mediaType === 'application/json; charset=utf-8') return true;
  return /^application\/json\s*(?:;\s*charset="?utf-?8"?\s*)?;?\s*$/i.test(mediaType);
}

export function otherMedia(mediaType: string): Refused {
  return new Refused(415, 'Input.Invalid', `Bodies of the type ${mediaType || '(none)'} are not read.`, {
    path: 'headers.content-type',
    hint: 'Send JSON in UTF-8 as application/json.',
  });
}
