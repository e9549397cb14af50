import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream, rmSync } from 'node:fs';
import { realpath, rename, stat } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { invalid } from '../../errors.js';
import { checkOutFile } from './flags.js';

/**
 * Writes a file whole or not at all: beside its place, and there once everything has come. Devices and pipes take the text
 * as it comes. Answers the bytes. Throws `Input.Invalid` where it cannot be written, and whatever the texts throw.
 */
export async function writeOutFile(
  file: string,
  option: string,
  texts: AsyncIterable<string>,
  signal: AbortSignal,
): Promise<number> {
  checkOutFile(file, option);
  const place = await realpath(file).catch(() => file);
  const found = await stat(place).catch(() => null);
  const isDevice = found !== null && !found.isFile();
  const target = isDevice ? place : `${place}.${randomUUID().slice(0, 8)}.part`;
  const discard = (): void => {
    if (!isDevice) rmSync(target, { force: true });
  };
  // An interrupted process ends without waiting for this function.
  signal.addEventListener('abort', discard, { once: true });
  const stream = createWriteStream(target, {
    ...(isDevice ? { flags: 'w' } : { flags: 'wx', flush: true }),
    ...(found ? { mode: found.mode } : {}),
  });
  stream.on('error', () => undefined);
  try {
    await once(stream, 'open', { signal });
    for await (const text of texts) {
      signal.throwIfAborted();
      if (stream.errored) throw stream.errored;
      if (!stream.write(text)) await once(stream, 'drain', { signal });
    }
    stream.end();
    await finished(stream);
    if (!isDevice) await rename(target, place);
    return stream.bytesWritten;
  } catch (error) {
    stream.destroy();
    discard();
    throw refused(error, file, option);
  } finally {
    signal.removeEventListener('abort', discard);
  }
}

const ofFiles: ReadonlySet<string | undefined> = new Set(['open', 'write', 'fsync', 'close', 'rename']);

function refused(error: unknown, file: string, option: string): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (!ofFiles.has(syscall)) return error;
  return invalid(
    `${option}: ${file} cannot be written (${code})`,
    option,
    'Name a file in a folder that can be written and has room for it.',
  );
}
