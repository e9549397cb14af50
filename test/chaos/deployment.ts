/**
 * The product as in operation: two worker processes and an API on separate servers, restarted whenever they end, each with
 * relays to PostgreSQL and Temporal.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, createWriteStream, mkdtempSync, rmSync, type WriteStream } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { defaultCacheDir } from '../../src/runtime/cache-dir.js';
import { freePort } from '../../src/runtime/ports.js';
import { startPostgres, stopPostgres, type RunningPostgres } from '../../src/runtime/postgres.js';
import { startTemporal, stopTemporal, type RunningTemporal } from '../../src/runtime/temporal.js';
import { migrate } from '../../src/store/connection/migrate.js';
import { passwordsFor, urlsFor } from '../../src/store/connection/roles.js';
import { searchAttributeTypes } from '../../src/temporal/names.js';
import type { DoomedAppend } from '../support/doomed-append.js';
import { leashed, leashServers } from '../support/leash.js';
import { rememberAnswers } from './checker.js';
import { FaultyProxy } from './proxy.js';

export interface Tenant {
  tenant: string;
  token: string;
}

const doomedAppend = fileURLToPath(new URL('../support/doomed-append.ts', import.meta.url));
const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
/** Of a process that ended, before it is started again. Milliseconds. */
const restartMs = 300;

/** A process of the product that is started again whenever it ends. */
export class Supervised {
  private child: ChildProcess | null = null;
  private stopping = false;
  restarts = -1;

  constructor(
    readonly name: string,
    private readonly args: readonly string[],
    private readonly env: Record<string, string | undefined>,
    readonly database: FaultyProxy,
    readonly temporal: FaultyProxy,
    private readonly log: WriteStream,
  ) {
    this.run();
  }

  signal(name: NodeJS.Signals): void {
    if (this.child?.pid !== undefined && this.child.exitCode === null) this.child.kill(name);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    const { child } = this;
    if (child !== null && child.exitCode === null && child.signalCode === null) {
      const ended = once(child, 'exit');
      child.kill('SIGCONT');
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), 8_000);
      await ended;
      clearTimeout(late);
    }
    this.database.close();
    this.temporal.close();
  }

  private run(): void {
    this.restarts++;
    const child = spawn(process.execPath, ['--import', 'tsx', main, ...this.args], {
      env: this.env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child = leashed(child);
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (piece: Buffer) => this.log.write(piece));
    child.once('exit', () => {
      if (!this.stopping) void sleep(restartMs).then(() => this.stopping || this.run());
    });
  }
}

export class Deployment {
  private constructor(
    readonly dataDir: string,
    readonly databaseUrl: string,
    readonly apiUrl: string,
    readonly processes: { workers: Supervised[]; api: Supervised },
    private postgres: RunningPostgres,
    private temporal: RunningTemporal,
  ) {}

  get temporalAddress(): string {
    return this.temporal.address;
  }

  all(): Supervised[] {
    return [...this.processes.workers, this.processes.api];
  }

  static async start(options: {
    tenants: readonly Tenant[];
    modelUrl: string;
    sweepEvery: number;
    logDir: string;
    say: (line: string) => void;
  }): Promise<Deployment> {
    const dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-chaos-')));
    // If this process is root, PostgreSQL runs under another account, which needs access.
    chmodSync(dataDir, 0o755);
    const [postgres, temporal, apiPort] = await Promise.all([
      startPostgres({ dataDir, log: options.say, settings: postgresSettings }),
      startTemporal(temporalOptions(dataDir, options.say)),
      freePort(),
    ]);
    await migrate(postgres.url, { roles: passwordsFor(postgres.url) });
    await rememberAnswers(postgres.url);
    const running = { postgres, temporal };
    const address = (url: string): string => new URL(url).host;
    const supervise = async (name: string, args: readonly string[], env: Record<string, string>) => {
      const database = await FaultyProxy.open(() => address(running.postgres.url));
      const relay = await FaultyProxy.open(() => running.temporal.address);
      const proxied = Object.assign(new URL(postgres.url), { host: `127.0.0.1:${database.port}` });
      const urls = urlsFor(proxied.toString());
      const log = createWriteStream(path.join(options.logDir, `${name}.log`));
      const common = {
        ...{ PATH: process.env['PATH'], HOME: process.env['HOME'] },
        DATABASE_URL: urls.databaseUrl,
        PALIMPSEST_MAINTENANCE_URL: urls.maintenanceUrl,
        PALIMPSEST_ERASER_URL: urls.eraserUrl,
        TEMPORAL_ADDRESS: `127.0.0.1:${relay.port}`,
        OPENAI_API_KEY: 'test',
        OPENAI_BASE_URL: options.modelUrl,
        PALIMPSEST_SUMMARY_MODEL: 'chaos-summarizer',
        PALIMPSEST_MODEL_TIMEOUT_MS: '4000',
        PALIMPSEST_WORKER_SWEEP_INTERVAL_MS: String(options.sweepEvery),
        PALIMPSEST_WORKER_GRACE_MS: '1000',
      };
      return new Supervised(name, args, { ...common, ...env }, database, relay, log);
    };
    const tokens = options.tenants.map(({ tenant, token }) => `${tenant}:${token}`).join(',');
    const api = await supervise('api', ['api'], {
      PALIMPSEST_API_PORT: String(apiPort),
      PALIMPSEST_API_TOKENS: tokens,
    });
    const workers = [
      await supervise('worker-1', ['worker'], {}),
      await supervise('worker-2', ['worker'], {}),
    ];
    const deployment = new Deployment(
      dataDir,
      postgres.url,
      `http://127.0.0.1:${apiPort}`,
      { workers, api },
      postgres,
      temporal,
    );
    deployment.moved = (parts) => Object.assign(running, parts);
    return deployment;
  }

  private moved: (parts: Partial<{ postgres: RunningPostgres; temporal: RunningTemporal }>) => void =
    () => {};

  /** SIGKILL, then a start that recovers. */
  async killPostgres(): Promise<void> {
    process.kill(this.postgres.pid, 'SIGKILL');
    this.postgres = await startPostgres({ dataDir: this.dataDir, log: () => {}, settings: postgresSettings });
    this.moved({ postgres: this.postgres });
  }

  async killTemporal(awayMs: number): Promise<void> {
    process.kill(this.temporal.pid, 'SIGKILL');
    await sleep(awayMs);
    this.temporal = await startTemporal(temporalOptions(this.dataDir, () => {}));
    this.moved({ temporal: this.temporal });
  }

  /** Appends from a process that dies between the last turn and its signal. */
  async appendUntilKilled(settings: Omit<DoomedAppend, 'databaseUrl' | 'address'>): Promise<void> {
    const { databaseUrl } = urlsFor(this.databaseUrl);
    for (let signal: unknown; signal !== 'SIGKILL';) {
      const doomed: DoomedAppend = { ...settings, databaseUrl, address: this.temporalAddress };
      const child = spawn(process.execPath, ['--import', 'tsx', doomedAppend], {
        env: { ...process.env, APPEND: JSON.stringify(doomed) },
        stdio: 'ignore',
      });
      [, signal] = (await once(leashed(child), 'exit')) as unknown[];
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.all().map((one) => one.stop()));
    await Promise.all([stopPostgres(this.dataDir), stopTemporal(this.dataDir)]);
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}

/** Processes are killed, not the machine: what PostgreSQL wrote survives in the system's cache. */
const postgresSettings = { fsync: 'off', full_page_writes: 'off', max_connections: '120' };

function temporalOptions(dataDir: string, log: (line: string) => void) {
  return {
    ...{ dataDir, log, cacheDir: defaultCacheDir(), ui: false },
    searchAttributes: searchAttributeTypes,
  };
}
