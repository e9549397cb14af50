import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import pg, { type Pool } from 'pg';
import type { Script } from '../test/support/model-replies.js';
import { startModelServer, type ModelServer } from '../test/support/model-server.js';
import { Palimpsest } from '../src/library/palimpsest.js';
import { migrate } from '../src/store/connection/migrate.js';
import { openPool } from '../src/store/connection/pool.js';
import { passwordsFor, urlsFor } from '../src/store/connection/roles.js';
import type { WorkerSettings } from '../src/worker/worker.js';
import type { Watched } from './processes.js';
import type { Servers } from './servers.js';

/**
 * The whole product for one bench: an empty database, a model endpoint, the library in this process and a worker in another.
 */
export interface Deployment {
  palimpsest: Palimpsest;
  tenant: string;
  databaseUrl: string;
  /** The database as its superuser. */
  ownerUrl: string;
  /** For direct queries of the database. */
  pool: Pool;
  model: ModelServer;
  worker: ChildProcess & { pid: number };
  close(): Promise<void>;
}

let deployments = 0;

/** @param options.script answers of the model endpoint; @param options.temporalAddress instead of the run's own server */
export async function deploy(
  servers: Servers,
  { script, temporalAddress }: { script?: Script; temporalAddress?: string } = {},
): Promise<Deployment> {
  const name = `bench_${++deployments}`;
  const { ownerUrl, databaseUrl, ...roles } = await createDatabase(servers.adminUrl, name);
  const model = await startModelServer({ ...(script ? { script } : {}) });
  const temporal = { address: temporalAddress ?? servers.temporalAddress };
  const worker = await startWorkerProcess({
    databaseUrl,
    ...roles,
    temporal,
    queuePrefix: name,
    model: { apiKey: 'bench', baseUrl: model.url, summaryModel: 'bench-summarizer', contextWindow: 128_000 },
    workflowBundle: { codePath: servers.workflowBundle },
    shutdownGraceMs: 500,
  });
  const palimpsest = await Palimpsest.connect({ databaseUrl, temporal, tenant: name, queuePrefix: name });
  const pool = openPool(ownerUrl, { max: 10, applicationName: 'bench' });
  return {
    ...{ palimpsest, tenant: name, databaseUrl, ownerUrl, pool, model, worker },
    async close() {
      if (worker.connected) worker.disconnect();
      if (worker.exitCode === null && worker.signalCode === null) await once(worker, 'exit');
      await Promise.all([palimpsest.close(), pool.end(), model.close()]);
    },
  };
}

/** The processes at work in a bench; Temporal's may be another than the run's own. */
export function processesOf(
  { postgresPid, temporalPid }: Servers,
  { worker }: Deployment,
  otherTemporalPid = temporalPid,
): Watched[] {
  return [
    { name: 'library and agents', pid: process.pid },
    { name: 'worker', pid: worker.pid },
    { name: 'Temporal', pid: otherTemporalPid },
    { name: 'PostgreSQL', pid: postgresPid, withChildren: true },
  ];
}

/** A migrated database whose processes use the roles of a deployment. */
export async function createDatabase(adminUrl: string, name: string) {
  const ownerUrl = await createEmptyDatabase(adminUrl, name);
  await migrate(ownerUrl, { roles: passwordsFor(ownerUrl) });
  return { ownerUrl, ...urlsFor(ownerUrl) };
}

/** Returns the URL of its superuser. */
export async function createEmptyDatabase(adminUrl: string, name: string): Promise<string> {
  const client = new pg.Client({ connectionString: adminUrl });
  await client.connect();
  try {
    await client.query(`create database ${name}`);
  } finally {
    await client.end();
  }
  return Object.assign(new URL(adminUrl), { pathname: `/${name}` }).toString();
}

async function startWorkerProcess(settings: WorkerSettings): Promise<Deployment['worker']> {
  const script = fileURLToPath(new URL('worker-process.ts', import.meta.url));
  const child = fork(script, {
    execArgv: ['--import', 'tsx'],
    env: { ...process.env, WORKER: JSON.stringify(settings) },
    // The core's log of a stopping worker is not needed here.
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let errors = '';
  child.stderr?.on('data', (text: Buffer) => (errors = (errors + text.toString()).slice(-4_000)));
  const ended = once(child, 'exit').then(() => {
    throw new Error(`the worker process ended:\n${errors}`);
  });
  await Promise.race([once(child, 'message'), ended]);
  ended.catch(() => undefined);
  if (child.pid === undefined) throw new Error('the worker process has no pid');
  return Object.assign(child, { pid: child.pid });
}
