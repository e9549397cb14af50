import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { PalimpsestError } from '../errors.js';
import { commandFor, type PostgresPrograms } from './postgres-binaries.js';
import { commandOf, findProcess, type ProcessId } from './process.js';

/**
 * Connection data of the cluster, stored in `postgres.json`. This file is readable only by its owner and is written before the
 * cluster gets its final name.
 */
export interface Credentials {
  password: string;
  /** The port of the last start, used again if it is free. */
  port?: number;
}

/** The superuser of the cluster and owner of its database. */
export const user = 'palimpsest';

export const clusterOf = (home: string) => path.join(home, 'postgres');
const attemptPrefix = 'postgres.new-';
const credentialsOf = (home: string) => path.join(home, 'postgres.json');

/** Creates the cluster unless it exists. */
export async function openCluster(
  home: string,
  programs: PostgresPrograms,
  log: (line: string) => void,
): Promise<Credentials> {
  const cluster = clusterOf(home);
  removeAttempts(home);
  if (!existsSync(cluster)) {
    log('PostgreSQL: creating a database cluster');
    await createCluster(home, programs);
  }
  try {
    return JSON.parse(readFileSync(credentialsOf(home), 'utf8')) as Credentials;
  } catch (cause) {
    throw new PalimpsestError(
      'Store.Unavailable',
      `${credentialsOf(home)}, which holds the password of ${cluster}, cannot be read.`,
      {
        hint: 'Restore it, or move the data folder away to start with an empty one.',
        cause,
      },
    );
  }
}

/** Returns null if there is no cluster, or if its file cannot be read. */
export function readCredentials(home: string): Credentials | null {
  try {
    return JSON.parse(readFileSync(credentialsOf(home), 'utf8')) as Credentials;
  } catch {
    return null;
  }
}

// Creates the cluster under a temporary name and renames it at the end. A killed attempt leaves no partial cluster, and its
// `initdb`, which may still be running, does not disturb a later one.
async function createCluster(home: string, { initdb, account }: PostgresPrograms): Promise<void> {
  const attempt = path.join(home, `${attemptPrefix}${process.pid}-${Date.now()}`);
  const fresh = path.join(attempt, 'cluster');
  const passwordFile = path.join(attempt, 'password');
  const credentials: Credentials = { password: randomBytes(18).toString('base64url') };
  mkdirSync(fresh, { recursive: true });
  writeFileSync(passwordFile, credentials.password, { mode: 0o600 });
  if (account) for (const target of [fresh, passwordFile]) chownSync(target, account.uid, account.gid);
  const { command, args, ...as } = commandFor(
    initdb,
    [
      ...[`--pgdata=${fresh}`, `--username=${user}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256'],
      ...['--encoding=UTF8', '--locale=C', '--set=timezone=UTC'],
    ],
    account,
    [fresh],
  );
  try {
    await promisify(execFile)(command, args, { ...as, env: { PATH: process.env.PATH, LC_ALL: 'C' } });
  } catch (cause) {
    throw unavailable('could not create its cluster', cause instanceof Error ? cause.message : '', cause);
  } finally {
    rmSync(passwordFile);
  }
  saveCredentials(home, credentials);
  renameSync(fresh, clusterOf(home));
  removeAttempts(home);
}

function removeAttempts(home: string): void {
  for (const name of readdirSync(home).filter((entry) => entry.startsWith(attemptPrefix))) {
    try {
      rmSync(path.join(home, name), { recursive: true, force: true });
    } catch {
      // An orphaned initdb is still writing there; the next start removes the folder.
    }
  }
}

export function saveCredentials(home: string, credentials: Credentials): void {
  const unfinished = `${credentialsOf(home)}.new`;
  writeFileSync(unfinished, JSON.stringify(credentials), { mode: 0o600 });
  renameSync(unfinished, credentialsOf(home));
}

export function unavailable(what: string, reason: string, cause?: unknown): PalimpsestError {
  return new PalimpsestError('Store.Unavailable', `The embedded PostgreSQL ${what}:\n${reason}`, {
    hint: 'Set DATABASE_URL to use your own PostgreSQL server instead.',
    cause,
  });
}

/** Returns the live server of this cluster, as its `postmaster.pid` names it: line 1 is the pid, line 4 the port. */
export function findPostmaster(cluster: string): { id: ProcessId; port: number } | null {
  const [pid, , , port] = readPidFile(cluster);
  const id = findProcess(Number(pid));
  if (!id || !port || !isPostgresOn(cluster, id.pid)) return null;
  return { id, port: Number(port) };
}

/**
 * A killed server leaves `postmaster.pid` behind. PostgreSQL then refuses to start while any process of its account has the pid
 * in this file. This function replaces such a pid by one that cannot exist. The rest of the file stays, because PostgreSQL uses
 * it to detect whether backends of the killed server are still running.
 */
export function forgetDeadPostmaster(cluster: string): void {
  const [pid, ...rest] = readPidFile(cluster);
  if (!pid || isPostgresOn(cluster, Number(pid))) return;
  writeFileSync(path.join(cluster, 'postmaster.pid'), ['2147483646', ...rest].join('\n'));
}

function isPostgresOn(cluster: string, pid: number): boolean {
  return findProcess(pid) !== null && commandOf(pid).includes(`-D ${cluster} `);
}

function readPidFile(cluster: string): string[] {
  try {
    return readFileSync(path.join(cluster, 'postmaster.pid'), 'utf8').split('\n');
  } catch {
    return [];
  }
}
