/** Reads bodies exactly: a value that JSON.parse would silently change is refused with line, column and path. */
import { isUtf8 } from 'node:buffer';
import { parseExact } from '../conversation/json.js';
import { type Json, MessagesText } from '../conversation/message.js';
import { invalid, isFailure, restated } from '../errors.js';
import { inThread } from '../intake/threads/pool.js';
import { Refused } from './problem.js';

/**
 * Reads a body on the event loop. `exactIn`: the fields whose values must be kept exactly. Returns undefined for an empty body.
 * Throws `Input.Invalid`.
 */
export function readBodyHere(
  bytes: Buffer,
  mediaType: string,
  exactIn?: readonly string[],
): Json | undefined {
  if (bytes.length === 0) return undefined;
  if (!isJsonInUtf8(mediaType)) throw otherMedia(mediaType);
  if (!isUtf8(bytes)) throw invalid('The body is not UTF-8.', 'body', 'Send JSON in UTF-8.');
  try {
    return parseExact(bytes.toString('utf8'), exactIn && { exactIn });
  } catch (error) {
    throw ofBody(error);
  }
}

/**
 * Bytes up to which a body is read on the event loop, which takes at most about 10 ms; also the largest body of most requests
 * without a turn.
 */
export const shortBodyBytes = 64 * 1024;
/** Largest body, in bytes, of a request with `longBody`. */
export const longBodyBytes = 1024 * 1024;

/**
 * Reads a body. A long one is read in a thread, and its messages stay text. Returns undefined for an empty body.
 * Throws `Input.Invalid`, `Input.TooLarge`.
 */
export async function readBody(bytes: Buffer, mediaType: string, tenant?: string): Promise<unknown> {
  if (bytes.length <= shortBodyBytes) return readBodyHere(bytes, mediaType);
  if (!isJsonInUtf8(mediaType)) throw otherMedia(mediaType);
  const { buffer, byteLength } = bytes;
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  try {
    const { rest, messages } = await inThread('readBody', [bytes], byteLength, {
      moved: isWhole ? [buffer] : [],
      tenant,
    });
    if (messages === null || typeof rest !== 'object' || rest === null) return rest;
    return { ...rest, messages: new MessagesText(messages.bytes, messages.count) };
  } catch (error) {
    throw ofBody(error);
  }
}

function ofBody(error: unknown): unknown {
  if (!isFailure(error)) return error;
  const { path = 'body', hint = 'Send strict JSON (RFC 8259).' } = error;
  return restated(error, { path, hint });
}

/** Refuses compressed bodies, because their real size is known only after decompression. Throws `Input.Invalid`. */
export function refuseEncoded(encoding: string | undefined): void {
  if (encoding === undefined || /^\s*(?:identity\s*)?$/i.test(encoding)) return;
  throw new Refused(415, 'Input.Invalid', 'This server does not read encoded bodies.', {
    path: 'headers.content-encoding',
    hint: 'Send the body without Content-Encoding.',
  });
}

/** Tests the usual types first, because this is the hot path. */
function isJsonInUtf8(mediaType: string): boolean {
  if (mediaType === 'application/json' || mediaType === 'application/json; charset=utf-8') return true;
  return /^application\/json\s*(?:;\s*charset="?utf-?8"?\s*)?;?\s*$/i.test(mediaType);
}

export function otherMedia(mediaType: string): Refused {
  return new Refused(
    415,
    'Input.Invalid',
    `The API does not read bodies of the type ${mediaType || '(none)'}.`,
    {
      path: 'headers.content-type',
      hint: 'Send JSON in UTF-8 as application/json.',
    },
  );
}
