import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import type { Connection } from '@temporalio/client';
import { PalimpsestError } from '../errors.js';
import {
  commandOf,
  type Daemon,
  endProcess,
  findProcess,
  isRunning,
  listPids,
  type ProcessId,
  startDaemon,
} from './process.js';
import { makeDataFolder } from './home.js';
import { withLock } from './lock.js';
import { freePort } from './ports.js';
import { type Archive, findTemporal, type TemporalSource } from './temporal-binary.js';

export interface TemporalOptions {
  /** Data folder (`.palimpsest`); the server's database is `temporal.db` in it. */
  dataDir: string;
  /** Folder of the downloaded or built Temporal CLI, for all projects of this user. */
  cacheDir: string;
  /** Receives one line for each step, and one every few seconds while a step takes long. */
  log: (line: string) => void;
  /** Serve the Web UI. Takes effect only if this call starts the server. @default true */
  ui?: boolean;
  /** Custom search attributes; the server registers them only when it creates its database. */
  searchAttributes?: Record<string, 'Keyword' | 'Int'>;
  /** Dynamic configuration that adds to the product's own, or replaces it. */
  dynamicConfig?: Record<string, string | number | boolean>;
  /** Environment of the server in addition to `PATH` and `HOME`. Takes effect only if this call starts the server. */
  env?: NodeJS.ProcessEnv;
  /** The archive of the CLI to download. @default that of the pinned release for this platform */
  archive?: Archive;
}

export interface RunningTemporal {
  /** host:port of the gRPC frontend. */
  address: string;
  /** null if the server runs without its Web UI. */
  uiUrl: string | null;
  pid: number;
  /** False if the server was already running and is shared. */
  started: boolean;
  source: TemporalSource;
  /** Stops the server for all its users. Open workflows continue at the next start. */
  stop(): Promise<void>;
}

/**
 * Priority and fairness are off by default in every version. By default the history service reads its queues of tasks and timers
 * 20 times a second per shard; the two rates remove this delay of up to 50 ms from every workflow step.
 */
const ownDynamicConfig = {
  'matching.useNewMatcher': true,
  'matching.enableFairness': true,
  'history.transferProcessorMaxPollRPS': 300,
  'history.timerProcessorMaxPollRPS': 300,
};

const startTimeoutMs = 60_000;

/**
 * A real Temporal server (the CLI's dev server on SQLite) on loopback. It outlives this process, also after `kill -9`: the next
 * call finds it by its database file and shares it. Calls of several processes wait for each other.
 */
export async function startTemporal(options: TemporalOptions): Promise<RunningTemporal> {
  const home = path.resolve(options.dataDir);
  makeDataFolder(home);
  const { id, ports, source } = await lockServer(home, options.log, async () => {
    const running = findServer(home);
    if (running && (await answers(running))) return { ...running, source: 'running' as const };
    if (running) await end(running.id);
    const program = await findTemporal(options);
    return { ...(await openServer(home, program.path, options)), source: program.source };
  });
  return {
    address: addressOf(ports),
    uiUrl: ports.ui === null ? null : `http://127.0.0.1:${ports.ui}`,
    pid: id.pid,
    started: source !== 'running',
    source,
    stop: () => stopTemporal(home),
  };
}

/** Addresses of the server that runs on this data folder, or null. Starts nothing. */
export function runningTemporal(dataDir: string): { address: string; uiUrl: string | null } | null {
  const server = findServer(path.resolve(dataDir));
  if (server === null) return null;
  const { ports } = server;
  return { address: addressOf(ports), uiUrl: ports.ui === null ? null : `http://127.0.0.1:${ports.ui}` };
}

/** Stops the server that runs on this data folder, if any. @internal Tests and benches stop the servers of their folders. */
export async function stopTemporal(dataDir: string): Promise<void> {
  const home = path.resolve(dataDir);
  if (!existsSync(databaseOf(home))) return;
  await lockServer(
    home,
    () => {},
    async () => {
      const running = findServer(home);
      if (running) await end(running.id);
    },
  );
}

interface Ports {
  grpc: number;
  ui: number | null;
}

interface Server {
  id: ProcessId;
  ports: Ports;
}

/** The content of `temporal.json`: the server last started. The next start takes the same ports. */
interface State {
  pid: number;
  address: string;
  uiUrl: string | null;
}

const databaseOf = (home: string) => path.join(home, 'temporal.db');
const stateOf = (home: string) => path.join(home, 'temporal.json');
const addressOf = (ports: Ports) => `127.0.0.1:${ports.grpc}`;

function lockServer<T>(home: string, log: (line: string) => void, work: () => Promise<T>): Promise<T> {
  return withLock(path.join(home, 'lock', 'temporal'), work, (holder) =>
    log(`Temporal: waiting for process ${holder}, which is starting or stopping it`),
  );
}

function end(id: ProcessId): Promise<void> {
  return endProcess(id, [
    { signal: 'SIGTERM', ms: 5_000 },
    { signal: 'SIGKILL', ms: 3_000 },
  ]);
}

async function openServer(home: string, program: string, options: TemporalOptions): Promise<Server> {
  const last = readState(home);
  let wanted: { grpc?: number; ui?: number } = { grpc: portOf(last?.address), ui: portOf(last?.uiUrl) };
  for (let attempt = 1; ; attempt++) {
    const grpc = await freePort(wanted.grpc);
    const ports: Ports = { grpc, ui: options.ui === false ? null : await freePort(wanted.ui) };
    const daemon = await launch(home, program, ports, options);
    const server = { id: daemon.id, ports };
    if (await answers(server)) {
      const uiUrl = ports.ui === null ? null : `http://127.0.0.1:${ports.ui}`;
      const state: State = { pid: server.id.pid, address: addressOf(ports), uiUrl };
      writeFileSync(stateOf(home), JSON.stringify(state));
      return server;
    }
    // Another program may have taken a port between `freePort` and the server's start. The server is then started again; three
    // attempts are made.
    const endedByItself = !isRunning(daemon.id);
    await end(daemon.id);
    const reason = daemon.output();
    if (attempt === 3 || !(endedByItself || /address already in use|can't set up|bind/i.test(reason))) {
      throw new PalimpsestError(
        'Temporal.Unavailable',
        `The Temporal dev server does not start:\n${reason}`,
        {
          hint: 'Set TEMPORAL_ADDRESS to use another Temporal server instead.',
        },
      );
    }
    wanted = {};
  }
}

function launch(home: string, program: string, ports: Ports, options: TemporalOptions): Promise<Daemon> {
  const { searchAttributes = {}, dynamicConfig = {} } = options;
  const pairs = (flag: string, values: object) =>
    Object.entries(values).flatMap(([name, value]) => [flag, `${name}=${String(value)}`]);
  const args = [
    ...[
      'server',
      'start-dev',
      '--ip',
      '127.0.0.1',
      '--db-filename',
      databaseOf(home),
      '--port',
      String(ports.grpc),
    ],
    ...(ports.ui === null ? ['--headless'] : ['--ui-port', String(ports.ui)]),
    ...pairs('--sqlite-pragma', { journal_mode: 'WAL', synchronous: 'NORMAL' }),
    ...pairs('--dynamic-config-value', { ...ownDynamicConfig, ...dynamicConfig }),
    ...pairs('--search-attribute', searchAttributes),
  ];
  return startDaemon({ command: program, args, env: options.env, logFile: path.join(home, 'temporal.log') });
}

/**
 * The live server of this folder, recognised by the database in its command line. The process in the state file is tried first,
 * then all others, because Node may have been killed before it wrote the file.
 */
function findServer(home: string): Server | null {
  for (const pid of [readState(home)?.pid ?? 0, ...listPids()]) {
    const command = pid > 0 ? commandOf(pid) : '';
    if (!command.includes(`--db-filename ${databaseOf(home)} `)) continue;
    const id = findProcess(pid);
    const grpc = Number(/--port (\d+)/.exec(command)?.[1]);
    const ui = Number(/--ui-port (\d+)/.exec(command)?.[1]) || null;
    if (id && grpc) return { id, ports: { grpc, ui } };
  }
  return null;
}

/** True once the server answers for its namespace over gRPC (an open port is not enough); false if it exits or stays silent. */
async function answers({ id, ports }: Server): Promise<boolean> {
  const deadline = Date.now() + startTimeoutMs;
  while (isRunning(id) && Date.now() < deadline) {
    if ((await isListening(ports.grpc)) && (await describesNamespace(ports))) return true;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return false;
}

async function describesNamespace(ports: Ports): Promise<boolean> {
  // Loaded while the server starts, to save time.
  const client = await import('@temporalio/client');
  let connection: Connection | undefined;
  try {
    connection = await client.Connection.connect({ address: addressOf(ports), connectTimeout: 2_000 });
    await connection.workflowService.describeNamespace({ namespace: 'default' });
    return true;
  } catch {
    return false;
  } finally {
    await connection?.close();
  }
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.once('connect', () => (socket.destroy(), resolve(true)));
    socket.once('error', () => resolve(false));
  });
}

function readState(home: string): State | null {
  try {
    return JSON.parse(readFileSync(stateOf(home), 'utf8')) as State;
  } catch {
    return null;
  }
}

function portOf(address: string | null | undefined): number | undefined {
  return Number(/:(\d+)$/.exec(address ?? '')?.[1]) || undefined;
}
