import { accessSync, constants, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { invalid } from '../errors.js';
import { liveTickets, ownerOf, putTicket, removeTicket, withLock } from './lock.js';

/**
 * The data folder of a project and the processes that use it:
 *
 *     .palimpsest/
 *       .gitignore   leaves the folder out of the project's repository
 *       postgres/  postgres.json (password, port)  postgres.log
 *       temporal.db  temporal.json (address)  temporal.log
 *       run/ one file for each live process of this product
 *       lock/ files of processes that start or stop a server
 */
export interface Home {
  /** Absolute path. */
  dir: string;
  /** Pids of the other live processes that have opened this folder. */
  others(): number[];
  /**
   * Removes this process from the folder. The last process runs `stopServers`; meanwhile a process that opens the folder waits,
   * so that it never finds servers that are about to end. Resolves to whether this process was the last. Later calls do
   * nothing.
   */
  leave(stopServers: () => Promise<void>): Promise<boolean>;
}

/** Opens the data folder, which is made if it is missing, and registers this process in it. A killed process does not count. */
export async function openHome(dataDir: string): Promise<Home> {
  const dir = path.resolve(dataDir);
  makeDataFolder(dir);
  const run = path.join(dir, 'run');
  const lock = path.join(dir, 'lock', 'run');
  mkdirSync(run, { recursive: true });
  let ticket: string | null = await withLock(lock, () => Promise.resolve(putTicket(run)));
  const others = () =>
    liveTickets(run)
      .filter((name) => name !== ticket)
      .flatMap((name) => ownerOf(name)?.pid ?? []);
  return {
    dir,
    others,
    leave: (stopServers) =>
      withLock(lock, async () => {
        if (ticket === null) return false;
        removeTicket(run, ticket);
        ticket = null;
        if (others().length > 0) return false;
        await stopServers();
        return true;
      }),
  };
}

/** Makes the data folder, with a .gitignore. Throws `Input.Invalid` if it cannot be made or written. */
export function makeDataFolder(dir: string): void {
  try {
    const isNew = mkdirSync(dir, { recursive: true }) !== undefined;
    if (isNew) writeFileSync(path.join(dir, '.gitignore'), '*\n');
    accessSync(dir, constants.W_OK);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw invalid(
      `The data folder ${dir} cannot be used: ${why}`,
      'PALIMPSEST_DATA',
      'Set PALIMPSEST_DATA to a writable folder.',
    );
  }
}

/** `$PALIMPSEST_DATA`, else `.palimpsest` in the current folder. */
export function defaultDataDir(env: NodeJS.ProcessEnv = process.env): string {
  return path.resolve(env.PALIMPSEST_DATA || '.palimpsest');
}

/** The folder of this package, with `package.json`, `migrations/` and `examples/`; the same for the sources and the build. */
export function packageRoot(): string {
  const here = path.dirname(fileURLToPath(import.meta.url));
  for (let folder = here; ; folder = path.dirname(folder)) {
    if (existsSync(path.join(folder, 'package.json'))) return folder;
    if (folder === path.dirname(folder)) throw new Error(`no package.json above ${here}`);
  }
}

/** The path of a file of the build, if the build runs; null if the sources run. */
export function builtFile(name: string): string | null {
  return import.meta.url.endsWith('.js') ? path.join(packageRoot(), 'dist', name) : null;
}

/** The version of this package, e.g. `0.1.0`. */
export function packageVersion(): string {
  const text = readFileSync(path.join(packageRoot(), 'package.json'), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
