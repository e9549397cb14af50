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

/** What the command line says about the policy, as typed. */
export interface PolicyFlags {
  window?: string;
  trigger?: string[];
  keep?: string;
  policy?: string;
}

/**
 * The policy that the flags describe, checked down to its numbers: throws `Input.Invalid` with the field's path also
 * where the window leaves nothing after overhead and reserved output. `defaults` stand where the flags say nothing.
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

/** `--policy`: JSON, or a file that holds it. */
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
      `There is no such policy file: ${file}`,
      '--policy',
      'Give JSON, or the name of a file that holds it.',
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
    throw invalid(`${option}: there is no folder ${folder}`, option);
  }
  if (existsSync(file) && statSync(file).isDirectory())
    throw invalid(`${option}: ${file} is a folder`, option);
}

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
