/** Sends JSON: a small answer whole, a large one as a stream, compressed if the caller accepts that. */
import { pipeline, Readable, type Transform } from 'node:stream';
import { constants, createBrotliCompress, createGzip } from 'node:zlib';
import type { FastifyReply } from 'fastify';
import { jsonMediaType } from './operations/operation.js';

/** Characters from which an answer is large. A smaller one is sent sooner than it is compressed. */
const large = 64 * 1024;

/** In threads of zlib, at levels that cost little: most callers are in the same network. */
const compress: Readonly<Record<Encoding, (bytes: number) => Transform>> = {
  gzip: () => createGzip({ level: constants.Z_BEST_SPEED }),
  br: (bytes) =>
    createBrotliCompress({
      params: { [constants.BROTLI_PARAM_QUALITY]: 4, [constants.BROTLI_PARAM_SIZE_HINT]: bytes },
    }),
};

/** A text in pieces, none of which ends within a character. */
export function sendJson(
  pieces: readonly string[],
  accepted: string | undefined,
  reply: FastifyReply,
): FastifyReply {
  reply.header('content-type', jsonMediaType);
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (length < large) return reply.send(pieces.join(''));
  const bytes = pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0);
  const texts = Readable.from(pieces);
  const encoding = encodingFor(accepted);
  if (encoding === null) return reply.header('content-length', bytes).send(texts);
  const encoder = compress[encoding](bytes);
  // The answer's stream reports the failure, and the other one ends with it.
  pipeline(texts, encoder, () => undefined);
  return reply.header('content-encoding', encoding).send(encoder);
}

type Encoding = 'gzip' | 'br';

/** The encoding that `Accept-Encoding` prefers; null for none. Of two with the same weight gzip, which is faster. */
function encodingFor(accepted: string | undefined): Encoding | null {
  const weights = new Map(
    (accepted ?? '').split(',').map((item) => {
      const [name = '', ...parameters] = item.toLowerCase().split(';');
      const q = parameters.map((each) => /^\s*q\s*=\s*([\d.]+)\s*$/.exec(each)?.[1]).find(Boolean);
      return [name.trim(), q === undefined ? 1 : Number(q)];
    }),
  );
  const weightOf = (name: string) => weights.get(name) ?? weights.get('*') ?? 0;
  const best = weightOf('br') > weightOf('gzip') ? 'br' : 'gzip';
  const least = Math.max(Number.MIN_VALUE, weights.get('identity') ?? 0);
  return weightOf(best) >= least ? best : null;
}
