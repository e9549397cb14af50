/** Bytes as text, in bounded memory: gzip is recognised by content, anything that is not valid UTF-8 is refused. */
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { invalid } from '../errors.js';

/** Throws `Input.Invalid` for damaged gzip data and for text that could not be kept exactly. */
export async function* decodedText(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (chunk?: Buffer): string => {
    try {
      return decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      throw invalid('The text is not valid UTF-8.', undefined, 'Convert it, for instance with iconv.');
    }
  };
  for await (const chunk of await unzipped(bytes)) yield decode(chunk);
  yield decode();
}

async function unzipped(bytes: AsyncIterable<Buffer>): Promise<AsyncIterable<Buffer>> {
  const chunks = bytes[Symbol.asyncIterator]();
  let start = Buffer.alloc(0);
  let done = false;
  while (start.length < 2 && !done) {
    const next = await chunks.next();
    done = next.done === true;
    if (!next.done) start = Buffer.concat([start, next.value]);
  }
  const whole = resumed(start, chunks);
  return start[0] === 0x1f && start[1] === 0x8b ? gunzip(whole) : whole;
}

async function* resumed(start: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  try {
    if (start.length > 0) yield start;
    for (let next = await rest.next(); !next.done; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}

async function* gunzip(bytes: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const source = Readable.from(bytes);
  const unzip = createGunzip();
  source.once('error', (error) => unzip.destroy(error));
  try {
    yield* source.pipe(unzip);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (!code?.startsWith('Z_')) throw error;
    throw invalid(`The gzip data is damaged or cut off: ${(error as Error).message}.`);
  } finally {
    source.destroy();
  }
}
