import { createWriteStream, existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { realpath, rename, stat } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { parseSizes } from '../../config/policy-sources.js';
import { parseExact } from '../../conversation/json.js';
import type { Json } from '../../conversation/message.js';
import { invalid } from '../../errors.js';
import { limitsOf } from '../../limits/limits.js';
import { resolvePolicy } from '../../policy/layers.js';
import { parsePolicy, type PolicyInput } from '../../policy/schema.js';

/** The policy flags of the command line, as typed. */
export interface PolicyFlags {
  window?: string;
  trigger?: string[];
  keep?: string;
  policy?: string;
}

/**
 * Returns the policy that the flags describe, with all numbers checked. Throws `Input.Invalid` with the field's path, also if
 * the window leaves nothing after overhead and reserved output. `defaults` apply to settings without a flag.
 */
export function policyFromFlags(flags: PolicyFlags, defaults: PolicyInput = {}): PolicyInput {
  const policy: Record<string, unknown> = {
    ...defaults,
    ...(flags.policy === undefined ? {} : readPolicy(flags.policy)),
  };
  if (flags.window !== undefined) policy.contextWindow = wholeNumber(flags.window, '--window');
  if (flags.trigger?.length) {
    const clauses = flags.trigger.map((spec) => parseSizes(spec, '--trigger')).flat();
    policy.trigger = clauses;
  }
  if (flags.keep !== undefined) policy.keep = parseSizes(flags.keep, '--keep');
  const parsed = parsePolicy(policy);
  limitsOf(resolvePolicy(parsed));
  return parsed;
}

/** `--policy`: JSON, or a file that contains it. */
function readPolicy(text: string): Record<string, Json> {
  const source = text.trim().startsWith('{') ? text : readPolicyFile(text);
  const value = parseExact(source, { path: '--policy' });
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw invalid('--policy must be a JSON object.', '--policy');
  }
  return value;
}

function readPolicyFile(file: string): string {
  if (!existsSync(file) || !statSync(file).isFile()) {
    throw invalid(
      `The policy file does not exist: ${file}`,
      '--policy',
      'Give JSON, or the name of a file that contains it.',
    );
  }
  return readFileSync(file, 'utf8');
}

function wholeNumber(text: string, flag: string): number {
  const digits = text.trim().replaceAll(/[,_](?=\d{3}(\D|$))/g, '');
  if (!/^\d+$/.test(digits))
    throw invalid(
      `${flag} must be a number of tokens, not ${JSON.stringify(text)}.`,
      flag,
      'e.g. --window 32000',
    );
  return Number(digits);
}

/** Refuses a file that could not be written, before any work is done. */
export function checkOutFile(file: string, option: string): void {
  const folder = path.dirname(path.resolve(file));
  if (!existsSync(folder) || !statSync(folder).isDirectory()) {
    throw invalid(`${option}: the folder ${folder} does not exist`, option);
  }
  if (existsSync(file) && statSync(file).isDirectory())
    throw invalid(`${option}: ${file} is a folder`, option);
}

/**
 * Writes a file completely or not at all: to a temporary file next to it, which is renamed at the end. Devices and pipes
 * receive the text directly. Returns the number of bytes. Throws `Input.Invalid` if the file cannot be written, and any error
 * of the texts.
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
    'Choose a file in a writable folder with enough free space.',
  );
}
