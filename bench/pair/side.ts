/** One of the two versions at work: its database, its Temporal server, and its processes, all on this machine. */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connectClient } from '../../src/temporal/connection.js';
import { freePort } from '../../src/runtime/ports.js';
import { passwordsFor, urlsFor } from '../../src/store/connection/roles.js';
import { leashed } from '../../test/support/leash.js';
import { openPool } from '../../src/store/connection/pool.js';
import { watchCpu, type Watched } from '../processes.js';
import { type Checkout, typescriptLoader } from './checkout.js';
import type { Calls } from './client-process.js';
import type { Endpoint } from './endpoint.js';
import type { PairServers } from './servers.js';

/** CPU milliseconds by process. */
export type CpuTimes = Record<string, number>;

export type Side = Awaited<ReturnType<typeof startSide>>;

/** Migrates an empty database and starts a worker and the agents' process. */
export async function startSide(
  name: string,
  checkout: Checkout,
  { postgres, temporals, dataDir }: PairServers,
  endpoint: Endpoint,
) {
  const temporal = temporals[name];
  if (temporal === undefined) throw new Error(`no Temporal server was started for ${name}`);
  const ownerUrl = await postgres.createDatabase(`pair_${name}`);
  const pool = openPool(ownerUrl, { max: 2, applicationName: 'bench' });
  const { databaseUrl, maintenanceUrl, eraserUrl } = urlsFor(ownerUrl);
  const roles = { PALIMPSEST_MAINTENANCE_URL: maintenanceUrl, PALIMPSEST_ERASER_URL: eraserUrl };
  const access = checkout.hasRoles ? { DATABASE_URL: databaseUrl, ...roles } : { DATABASE_URL: ownerUrl };
  const stallsFile = path.join(dataDir, `stalls-${name}`);
  const running = new Set<ChildProcess>();
  const environment = {
    ...inherited(),
    ...access,
    TEMPORAL_ADDRESS: temporal.address,
    OPENAI_API_KEY: 'bench',
    OPENAI_BASE_URL: endpoint.url,
    PALIMPSEST_SUMMARY_MODEL: 'bench-summarizer',
    PALIMPSEST_SUMMARY_WINDOW: '128000',
    PALIMPSEST_DATA: path.join(dataDir, 'none'),
    STALLS: stallsFile,
  };

  function start(args: string[], { env = {}, watchStalls = false } = {}): Started {
    const stalls = fileURLToPath(new URL('stalls.mjs', import.meta.url));
    const watching = watchStalls ? ['--import', stalls] : [];
    const child = leashed(
      spawn(process.execPath, [...checkout.nodeArguments, ...watching, checkout.cli, ...args], {
        env: { ...environment, ...env },
        // A configuration file of the checkout is not its default.
        cwd: dataDir,
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    );
    running.add(child);
    return new Started(child, `${name}: palimpsest ${args[0]}`);
  }

  async function finish(args: string[], env = {}): Promise<void> {
    const child = start(args, { env });
    if ((await child.ended) !== 0) throw child.failure();
  }

  const passwords = passwordsFor(ownerUrl);
  await finish(['migrate', ...(checkout.hasRoles ? ['--roles'] : [])], {
    DATABASE_URL: ownerUrl,
    PALIMPSEST_MIGRATOR_PASSWORD: passwords.migrator,
    PALIMPSEST_APP_PASSWORD: passwords.app,
    PALIMPSEST_MAINTENANCE_PASSWORD: passwords.maintenance,
    PALIMPSEST_ERASER_PASSWORD: passwords.eraser,
  });

  const startWorker = async (watchStalls = false): Promise<Started> => {
    const started = start(['worker'], { watchStalls });
    await started.says('worker is polling');
    return started;
  };
  let worker: Started | null = await startWorker();
  let api: (Started & { url: string }) | null = null;
  const agents = await startAgents(checkout, {
    env: inherited(),
    settings: {
      ...{ library: checkout.library, http: checkout.http },
      connect: { databaseUrl: access.DATABASE_URL, temporal: { address: temporal.address } },
    },
  });
  const client = await connectClient({ address: temporal.address });

  const side = {
    name,
    checkout,
    endpoint,
    call: agents.call,
    temporal: client,

    /** The processes at work now. */
    processes(): Watched[] {
      return [
        { name: 'client', pid: agents.pid },
        ...(api ? [{ name: 'API', pid: api.pid }] : []),
        ...(worker ? [{ name: 'worker', pid: worker.pid }] : []),
        { name: 'PostgreSQL', pid: postgres.pid, withChildren: true },
        { name: 'Temporal', pid: temporal.pid },
      ];
    },

    /** CPU time that each process takes for `work`. */
    async measureCpu<Result>(work: () => Promise<Result>): Promise<{ result: Result; cpu: CpuTimes }> {
      const from = performance.now();
      const cpuSince = watchCpu(side.processes());
      const result = await work();
      const seen = cpuSince();
      const took = performance.now() - from;
      const own = new Set(side.processes().map((each) => each.name));
      const cpu = seen.filter((each) => own.has(each.name)).map((each) => [each.name, each.cores * took]);
      return { result, cpu: Object.fromEntries(cpu) as CpuTimes };
    },

    get workerPid(): number {
      if (worker === null) throw new Error('the worker has been stopped');
      return worker.pid;
    },

    async stopWorker(): Promise<void> {
      await worker?.stop();
      worker = null;
    },

    /** @param watchStalls note how long the event loops of the worker are held */
    async restartWorker({ watchStalls = false } = {}): Promise<void> {
      await side.stopWorker();
      rmSync(stallsFile, { force: true });
      appendFileSync(stallsFile, '');
      worker = await startWorker(watchStalls);
    },

    /** Starts a worker without waiting; `polls` resolves when it says so. */
    launchWorker(): { polls: Promise<void> } {
      const started = start(['worker']);
      worker = started;
      return { polls: started.says('worker is polling') };
    },

    /** Starts an API, unless one is running; resolves at its first answer to a request of the database. */
    async startApi(): Promise<{ url: string; isNew: boolean }> {
      if (api) return { url: api.url, isNew: false };
      const port = await freePort();
      const started = start(['api', '--port', String(port)]);
      const url = `http://127.0.0.1:${port}`;
      api = Object.assign(started, { url });
      while (!(await answers(`${url}/v1/sessions`))) {
        if (!started.isRunning) throw started.failure();
        await sleep(5);
      }
      return { url, isNew: true };
    },

    async stopApi(): Promise<void> {
      await api?.stop();
      api = null;
    },

    async import(file: string, policy: object): Promise<void> {
      await finish(['import', file, '--policy', JSON.stringify(policy), '--concurrency', '8']);
    },

    /** Unix milliseconds at which the first compaction of a session was committed; waits for it. */
    async committedAt(session: string): Promise<number> {
      for (const until = Date.now() + 300_000; Date.now() < until; await sleep(10)) {
        const { rows } = await pool.query<{ at: number }>(
          `select (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000)::float8 as at
           from palimpsest.compactions where session_id = $1 and generation = 1`,
          [session],
        );
        if (rows[0]) return rows[0].at;
      }
      throw new Error(`${name}: session ${session} was not compacted within five minutes`);
    },

    /** Longest hold of each event loop of the worker since `from`. */
    stalls(from: number): Record<'main' | 'thread', number> {
      const longest = { main: 0, thread: 0 };
      const lines = existsSync(stallsFile) ? readFileSync(stallsFile, 'utf8').trim().split('\n') : [];
      for (const line of lines.filter((each) => each !== '')) {
        const { loop, at, ms } = JSON.parse(line) as { loop: 'main' | 'thread'; at: number; ms: number };
        if (at >= from) longest[loop] = Math.max(longest[loop], ms);
      }
      return longest;
    },

    async stop(): Promise<void> {
      await agents.stop();
      await Promise.all([...running].map((child) => new Started(child, name).stop()));
      await client.connection.close();
      await pool.end();
    },
  };
  return side;
}

/** The environment without settings of this product. */
function inherited(): NodeJS.ProcessEnv {
  const own = /^(PALIMPSEST_|OPENAI_|TEMPORAL_|DATABASE_URL$|LOG_|NODE_OPTIONS$)/;
  const kept = Object.entries(process.env).filter(([name]) => !own.test(name));
  const cache = process.env['PALIMPSEST_CACHE'];
  return { ...Object.fromEntries(kept), ...(cache === undefined ? {} : { PALIMPSEST_CACHE: cache }) };
}

async function answers(url: string): Promise<boolean> {
  try {
    const answer = await fetch(url);
    await answer.arrayBuffer();
    return answer.ok;
  } catch {
    return false;
  }
}

/** A command of a checkout. */
class Started {
  readonly ended: Promise<number | null>;
  private said = '';
  private errors = '';
  private readonly watchers = new Set<() => void>();

  constructor(
    private readonly child: ChildProcess,
    private readonly what: string,
  ) {
    const ended = child.exitCode !== null || child.signalCode !== null;
    this.ended = ended
      ? Promise.resolve(child.exitCode)
      : once(child, 'exit').then(([code]) => code as number | null);
    child.stdout?.on('data', (text: Buffer) => {
      this.said = (this.said + text.toString()).slice(-4_000);
      for (const look of this.watchers) look();
    });
    child.stderr?.on('data', (text: Buffer) => (this.errors = (this.errors + text.toString()).slice(-4_000)));
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  get isRunning(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Resolves when the log has this text. */
  async says(text: string): Promise<void> {
    const said = new Promise<void>((resolve) => {
      const look = () => {
        if (!this.said.includes(text)) return;
        this.watchers.delete(look);
        resolve();
      };
      this.watchers.add(look);
      look();
    });
    await Promise.race([
      said,
      this.ended.then(() => {
        throw this.failure();
      }),
    ]);
  }

  failure(): Error {
    return new Error(`${this.what} ended:\n${this.errors || this.said}`);
  }

  async stop(): Promise<void> {
    if (this.isRunning) this.child.kill('SIGTERM');
    await this.ended;
  }
}

async function startAgents(
  { nodeArguments }: Checkout,
  { env, settings }: { env: NodeJS.ProcessEnv; settings: object },
) {
  const script = fileURLToPath(new URL('client-process.ts', import.meta.url));
  const loader = nodeArguments.includes(typescriptLoader) ? [] : ['--import', typescriptLoader];
  const child = leashed(
    fork(script, {
      execArgv: [...nodeArguments, ...loader],
      env: { ...env, PAIR: JSON.stringify(settings) },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    }),
  );
  const ended = once(child, 'exit').then(() => {
    throw new Error("the agents' process ended");
  });
  await Promise.race([once(child, 'message'), ended]);
  ended.catch(() => undefined);
  let asked = 0;
  return {
    pid: child.pid ?? 0,
    call: async <Name extends keyof Calls>(
      name: Name,
      input: Parameters<Calls[Name]>[0],
    ): Promise<Awaited<ReturnType<Calls[Name]>>> => {
      const id = ++asked;
      const answer = new Promise<Awaited<ReturnType<Calls[Name]>>>((resolve, reject) => {
        const look = (said: { id: number; value: never; error?: string }): void => {
          if (said.id !== id) return;
          child.off('message', look);
          if (said.error === undefined) resolve(said.value);
          else reject(new Error(said.error));
        };
        child.on('message', look);
        child.send({ id, name, input }, (error) => {
          if (error) reject(error);
        });
      });
      return Promise.race([answer, ended]);
    },
    async stop(): Promise<void> {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exit = once(child, 'exit');
      child.disconnect();
      await exit;
    },
  };
}
