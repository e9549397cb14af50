import { accessSync, constants, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
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
 *       run/   one ticket for each live process of ours
 *       lock/  tickets of who starts or stops something
 */
export interface Home {
  /** Absolute path. */
  dir: string;
  /** Pids of the other live processes that have opened this folder. */
  others(): number[];
  /**
   * Signs this process off. The last one out runs `stopServers`; while it does, a process that wants to open the folder waits, so that it
   * never finds servers that are about to end. Resolves to whether this was the last. Later calls do nothing.
   */
  leave(stopServers: () => Promise<void>): Promise<boolean>;
}

/** Opens (makes, if need be) the data folder and signs this process on. A process that was killed counts as gone. */
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

/** Makes the data folder, which git is to leave alone. Throws `Input.Invalid` where it cannot be made or written. */
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
      'Set PALIMPSEST_DATA to a folder that can be made and written.',
    );
  }
}

/** Where programs that all projects of a user share are kept: `$PALIMPSEST_CACHE`, else below `$XDG_CACHE_HOME` or `~/.cache`. */
export function defaultCacheDir(env: NodeJS.ProcessEnv = process.env): string {
  if (env.PALIMPSEST_CACHE) return path.resolve(env.PALIMPSEST_CACHE);
  return path.join(env.XDG_CACHE_HOME || path.join(homedir(), '.cache'), 'palimpsest');
}

/** `$PALIMPSEST_DATA`, else `.palimpsest` in the current folder. */
export function defaultDataDir(env: NodeJS.ProcessEnv = process.env): string {
  return path.resolve(env.PALIMPSEST_DATA || '.palimpsest');
}

/** The folder of this package, with `package.json`, `migrations/` and `examples/`: found from the sources and from the build alike. */
export function packageRoot(): string {
  const here = path.dirname(fileURLToPath(import.meta.url));
  for (let folder = here; ; folder = path.dirname(folder)) {
    if (existsSync(path.join(folder, 'package.json'))) return folder;
    if (folder === path.dirname(folder)) throw new Error(`no package.json above ${here}`);
  }
}
