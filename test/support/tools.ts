/**
 * Tools that a test needs in addition to the packages of this repository. They are installed once for each user, outside of the
 * checkout.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { defaultCacheDir } from '../../src/runtime/cache-dir.js';
import { withLock } from '../../src/runtime/lock.js';

export type Command = readonly [program: string, ...args: string[]];

const commandLimitMs = 180_000;

/** Returns the program's output. If the program fails, throws an error with the first 8,000 characters of its output. */
export async function run(
  [program, ...args]: Command,
  { cwd, env = {} }: { cwd?: string; env?: Readonly<Record<string, string>> } = {},
): Promise<string> {
  const limits = { timeout: commandLimitMs, maxBuffer: 64 * 1024 * 1024 };
  try {
    const { stdout } = await promisify(execFile)(program, args, {
      ...{ cwd, ...limits },
      env: { ...process.env, ...env },
    });
    return stdout;
  } catch (error) {
    const { message, stdout = '', stderr = '' } = error as Error & { stdout?: string; stderr?: string };
    throw new Error([message, stdout, stderr].join('\n').slice(0, 8_000), { cause: error });
  }
}

/**
 * Installs a tool unless it is installed, and returns its folder, or `why` it cannot be installed. `name` includes the version.
 */
export async function installed(
  name: string,
  install: (folder: string) => Promise<unknown>,
): Promise<{ folder: string } | { why: string }> {
  const folder = path.join(defaultCacheDir(), 'test-tools', name);
  const whole = path.join(folder, 'installed');
  return withLock(`${folder}.lock`, async () => {
    if (existsSync(whole)) return { folder };
    // A virtual environment of Python cannot be moved to its final folder, so the file `installed` tells that it is complete.
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    try {
      await install(folder);
    } catch (error) {
      return { why: `${name} cannot be installed: ${(error as Error).message.split('\n')[0]}` };
    }
    writeFileSync(whole, '');
    return { folder };
  });
}
