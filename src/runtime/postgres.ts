import { existsSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { type Daemon, endProcess, isRunning, type ProcessId, startDaemon } from './process.js';
import { makeDataFolder } from './home.js';
import { withLock } from './lock.js';
import { freePort } from './ports.js';
import { commandFor, postgresPrograms, type PostgresPrograms } from './postgres-binaries.js';
import {
  clusterOf,
  type Credentials,
  findPostmaster,
  forgetDeadPostmaster,
  openCluster,
  readCredentials,
  saveCredentials,
  unavailable,
  user,
} from './postgres-cluster.js';

export interface PostgresOptions {
  /** Data folder (`.palimpsest`); the cluster is in its folder `postgres/`. */
  dataDir: string;
  /** Receives one line for each step. */
  log: (line: string) => void;
  /** Server settings, e.g. `{ fsync: 'off' }` for tests. They take effect only if this call starts the server. */
  settings?: Record<string, string>;
}

export interface RunningPostgres {
  /** Connection string of the database `palimpsest`, as its owner and superuser. */
  url: string;
  pid: number;
  /** False if the server was already running and is shared. */
  started: boolean;
  /** Stops the server for all its users. End pools first. Does nothing if the server has stopped already. */
  stop(): Promise<void>;
}

const database = 'palimpsest';
const startTimeoutMs = 60_000;

/**
 * A real PostgreSQL on loopback with its data below `dataDir`. The server outlives this process, also after `kill -9`: the next
 * call finds it by the data folder and shares it. After a `kill -9` of the server, the next call recovers it. Calls of several
 * processes wait for each other.
 */
export async function startPostgres({
  dataDir,
  log,
  settings = {},
}: PostgresOptions): Promise<RunningPostgres> {
  const home = path.resolve(dataDir);
  makeDataFolder(home);
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

/** Connection string of the server that runs on this data folder, or null. Starts nothing. */
export function runningPostgres(dataDir: string): string | null {
  const home = path.resolve(dataDir);
  const server = findPostmaster(clusterOf(home));
  const credentials = server && readCredentials(home);
  return credentials ? urlOf(credentials, server.port) : null;
}

/**
 * Stops the server that runs on this data folder, if any: by a fast shutdown, then by force. @internal Tests and benches stop
 * the servers of their folders.
 */
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

const logOf = (home: string) => path.join(home, 'postgres.log');

function lockCluster<T>(home: string, log: (line: string) => void, work: () => Promise<T>): Promise<T> {
  return withLock(path.join(home, 'lock', 'postgres'), work, (holder) =>
    log(`PostgreSQL: waiting for process ${holder}, which is starting or stopping it`),
  );
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
  const deadline = Date.now() + startTimeoutMs;
  let wanted = credentials.port;
  for (;;) {
    const existing = findPostmaster(clusterOf(home));
    if (existing) {
      const server = { id: existing.id, url: urlOf(credentials, existing.port) };
      if (await answers(server)) return { server, started: false };
    }
    const port = await freePort(wanted);
    const daemon = await launch(home, programs, port, settings);
    const server = { id: daemon.id, url: urlOf(credentials, port) };
    if (await answers(server)) {
      if (port !== credentials.port) saveCredentials(home, { ...credentials, port });
      return { server, started: true };
    }
    // These failures are temporary: another program took the port after the check; backends of a killed server are still
    // running; or another process of this product launched a server a moment ago and was then killed, and that server came
    // first.
    const reason = daemon.output();
    if (reason.includes('Address already in use')) wanted = undefined;
    else if (!/still in use|already exists/.test(reason)) throw unavailable('does not start', reason);
    if (Date.now() > deadline) throw unavailable('does not start', reason);
    await new Promise((resolve) => setTimeout(resolve, 100));
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

/** True once the server accepts connections; false if its process ends before that. */
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
        throw unavailable('does not accept connections', String(cause), cause);
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

function urlOf({ password }: Credentials, port: number): string {
  return `postgresql://${user}:${password}@127.0.0.1:${port}/${database}`;
}

function toDatabase(url: string, name: string): string {
  return Object.assign(new URL(url), { pathname: `/${name}` }).toString();
}
