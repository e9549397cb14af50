/** Tools that a test needs beside the packages of this repository. They are installed once a user, outside of the checkout. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { defaultCacheDir } from '../../src/runtime/home.js';
import { withLock } from '../../src/runtime/lock.js';

export type Command = readonly [program: string, ...args: string[]];

const commandLimitMs = 180_000;

/** The program's output. If the program fails, throws with all of its output. */
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

/** The folder of a tool, whose name has its version; `why` it cannot be installed. */
export async function installed(
  name: string,
  install: (folder: string) => Promise<unknown>,
): Promise<{ folder: string } | { why: string }> {
  const folder = path.join(defaultCacheDir(), 'test-tools', name);
  const whole = path.join(folder, 'installed');
  return withLock(`${folder}.lock`, async () => {
    if (existsSync(whole)) return { folder };
    // A virtual environment of Python cannot be moved, so an unfinished one is known by a missing file.
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
