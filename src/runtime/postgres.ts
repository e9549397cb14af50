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
import pg from 'pg';
import { PalimpsestError } from '../errors.js';
import { startDaemon, type Daemon } from './daemon.js';
import { withLock } from './lock.js';
import { freePort } from './ports.js';
import { commandFor, postgresPrograms, type PostgresPrograms } from './postgres-binaries.js';
import { commandOf, endProcess, findProcess, isRunning, type ProcessId } from './process.js';

export interface PostgresOptions {
  /** Folder of the runtime (`.palimpsest`); the cluster lies in `postgres/` below it. */
  dataDir: string;
  /** Receives one line per thing that happens. */
  log: (line: string) => void;
  /** Server settings, e.g. `{ fsync: 'off' }` for tests; they count when this call starts the server. */
  settings?: Record<string, string>;
}

export interface RunningPostgres {
  /** Connection string of the database `palimpsest`, as its owner and superuser. */
  url: string;
  pid: number;
  /** False when the server was already running and is shared. */
  started: boolean;
  /** Ends the server for everybody; pools must have been ended before. Does nothing when it is gone already. */
  stop(): Promise<void>;
}

/** How to reach the cluster; written once, before its folder gets its final name. */
interface Credentials {
  password: string;
  /** The port of the last start: taken again when it is free. */
  port?: number;
}

const database = 'palimpsest';
const user = 'palimpsest';
const startTimeoutMs = 60_000;

/**
 * A real PostgreSQL on loopback, its data below `dataDir`. The server outlives this process, also its `kill -9`: the next call finds it by
 * the data folder and shares it. After a `kill -9` of the server the next call recovers it. Calls of several processes
 * wait for each other.
 */
export async function startPostgres({
  dataDir,
  log,
  settings = {},
}: PostgresOptions): Promise<RunningPostgres> {
  const home = path.resolve(dataDir);
  mkdirSync(home, { recursive: true });
  const running = await lockCluster(home, log, async () => {
    const programs = postgresPrograms();
    const credentials = await openCluster(home, programs, log);
    const { server, started } = await openServer(home, programs, credentials, settings);
    await createDatabase(server);
    return { ...server, started };
  });
  return {
    url: running.url,
    pid: running.id.pid,
    started: running.started,
    stop: () => stopPostgres(home),
  };
}

/** Ends the server that runs on this data folder, if any: a fast shutdown, then harder. */
export async function stopPostgres(dataDir: string): Promise<void> {
  const home = path.resolve(dataDir);
  if (!existsSync(clusterOf(home))) return;
  await lockCluster(
    home,
    () => {},
    async () => {
      const server = findPostmaster(clusterOf(home));
      if (!server) return;
      await endProcess(server.id, [
        { signal: 'SIGINT', ms: 8_000 },
        { signal: 'SIGQUIT', ms: 3_000 },
        { signal: 'SIGKILL', ms: 3_000 },
      ]);
    },
  );
}

const clusterOf = (home: string) => path.join(home, 'postgres');
const credentialsOf = (home: string) => path.join(home, 'postgres.json');
const logOf = (home: string) => path.join(home, 'postgres.log');

function lockCluster<T>(home: string, log: (line: string) => void, work: () => Promise<T>): Promise<T> {
  return withLock(path.join(home, 'lock', 'postgres'), work, (holder) =>
    log(`PostgreSQL: waiting for process ${holder}, which is starting or stopping it`),
  );
}

/** Creates the cluster unless it is there. It is made under another name, so that an interrupted attempt leaves no half cluster. */
async function openCluster(
  home: string,
  programs: PostgresPrograms,
  log: (line: string) => void,
): Promise<Credentials> {
  const cluster = clusterOf(home);
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

async function createCluster(home: string, { initdb, account }: PostgresPrograms): Promise<void> {
  for (const name of readdirSync(home)) {
    if (name.startsWith('postgres.new')) rmSync(path.join(home, name), { recursive: true, force: true });
  }
  const fresh = path.join(home, 'postgres.new');
  const passwordFile = path.join(home, 'postgres.new-password');
  const credentials: Credentials = { password: randomBytes(18).toString('base64url') };
  mkdirSync(fresh, { mode: 0o700 });
  writeFileSync(passwordFile, credentials.password, { mode: 0o600 });
  if (account) for (const target of [fresh, passwordFile]) chownSync(target, account.uid, account.gid);
  const { command, args, ...as } = commandFor(
    initdb,
    [
      '-D',
      fresh,
      '-U',
      user,
      '--auth=scram-sha-256',
      `--pwfile=${passwordFile}`,
      '--encoding=UTF8',
      '--locale=C',
      '-c',
      'timezone=UTC',
    ],
    account,
    [fresh],
  );
  try {
    await promisify(execFile)(command, args, { ...as, env: { PATH: process.env.PATH, LC_ALL: 'C' } });
  } catch (cause) {
    throw unavailable('could not create its cluster', cause instanceof Error ? cause.message : '', cause);
  }
  rmSync(passwordFile);
  writeFileSync(credentialsOf(home), JSON.stringify(credentials), { mode: 0o600 });
  renameSync(fresh, clusterOf(home));
}

interface Server {
  id: ProcessId;
  url: string;
}

async function openServer(
  home: string,
  programs: PostgresPrograms,
  credentials: Credentials,
  settings: Record<string, string>,
): Promise<{ server: Server; started: boolean }> {
  const existing = findPostmaster(clusterOf(home));
  if (existing) {
    const server = { id: existing.id, url: urlOf(credentials, existing.port) };
    if (await answers(server)) return { server, started: false };
  }
  const deadline = Date.now() + startTimeoutMs;
  for (;;) {
    const port = await freePort(credentials.port);
    const daemon = await launch(home, programs, port, settings);
    const server = { id: daemon.id, url: urlOf(credentials, port) };
    if (await answers(server)) {
      if (port !== credentials.port)
        writeFileSync(credentialsOf(home), JSON.stringify({ ...credentials, port }), { mode: 0o600 });
      return { server, started: true };
    }
    // Another program may have taken the port; after a kill -9 the old backends may need a moment to go.
    const reason = daemon.output();
    const passing = /Address already in use|still in use/.test(reason);
    if (!passing || Date.now() > deadline) throw unavailable('does not start', reason);
    credentials.port = undefined;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

function launch(
  home: string,
  { postgres, account }: PostgresPrograms,
  port: number,
  settings: Record<string, string>,
): Promise<Daemon> {
  const cluster = clusterOf(home);
  forgetDeadPostmaster(cluster);
  const effective = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: '200',
    ...settings,
  };
  const flags = Object.entries(effective).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const { command, args, uid, gid } = commandFor(
    postgres,
    ['-D', cluster, '-p', String(port), ...flags],
    account,
    [path.join(cluster, 'base')],
  );
  return startDaemon({ command, args, uid, gid, env: { LC_ALL: 'C' }, logFile: logOf(home) });
}

/** True when the server takes connections; false when its process ends before it does. */
async function answers({ id, url }: Server): Promise<boolean> {
  const deadline = Date.now() + startTimeoutMs;
  while (isRunning(id)) {
    const client = new pg.Client({
      connectionString: toDatabase(url, 'postgres'),
      connectionTimeoutMillis: 2_000,
    });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.end();
      return true;
    } catch (cause) {
      const code = (cause as { code?: string }).code;
      if (code === '28P01' || Date.now() > deadline)
        throw unavailable('does not take connections', String(cause), cause);
    }
    await new Promise((resolve) => setTimeout(resolve, 15));
  }
  return false;
}

async function createDatabase({ url }: Server): Promise<void> {
  const client = new pg.Client({ connectionString: toDatabase(url, 'postgres') });
  client.on('error', () => {});
  await client.connect();
  try {
    const { rowCount } = await client.query('select 1 from pg_database where datname = $1', [database]);
    if (rowCount === 0) await client.query(`create database ${database}`);
  } finally {
    await client.end();
  }
}

/** The live server of this data folder, as its `postmaster.pid` names it: line 1 pid, line 2 folder, line 4 port. */
function findPostmaster(cluster: string): { id: ProcessId; port: number } | null {
  const [pid, , , port] = readPidFile(cluster);
  const id = findProcess(Number(pid));
  if (!id || !port || !isPostgresOn(cluster, id.pid)) return null;
  return { id, port: Number(port) };
}

function isPostgresOn(cluster: string, pid: number): boolean {
  const command = commandOf(pid);
  return command.some((word) => path.basename(word) === 'postgres') && command.includes(cluster);
}

/**
 * Postgres refuses to start when any process has the pid in the file left by a killed server. Such a pid is replaced by one that cannot
 * exist; the rest of the file stays, because Postgres tells from it whether backends of the killed server are still at work.
 */
function forgetDeadPostmaster(cluster: string): void {
  const [pid, ...rest] = readPidFile(cluster);
  if (!pid || isPostgresOn(cluster, Number(pid))) return;
  writeFileSync(path.join(cluster, 'postmaster.pid'), ['2147483646', ...rest].join('\n'));
}

function readPidFile(cluster: string): string[] {
  try {
    return readFileSync(path.join(cluster, 'postmaster.pid'), 'utf8').split('\n');
  } catch {
    return [];
  }
}

function urlOf({ password }: Credentials, port: number): string {
  return `postgresql://${user}:${password}@127.0.0.1:${port}/${database}`;
}

function toDatabase(url: string, name: string): string {
  return Object.assign(new URL(url), { pathname: `/${name}` }).toString();
}

function unavailable(what: string, reason: string, cause?: unknown): PalimpsestError {
  return new PalimpsestError('Store.Unavailable', `The embedded PostgreSQL ${what}:\n${reason}`, {
    hint: 'Set DATABASE_URL to use a PostgreSQL server of yours instead.',
    cause,
  });
}
