import { inject } from 'vitest';
import type { PalimpsestOptions } from '../../src/library/connections.js';
import { Palimpsest } from '../../src/library/palimpsest.js';
import { startWorker, type RunningWorker, type WorkerSettings } from '../../src/worker/worker.js';
import { createDatabase } from './database.js';
import { startModelServer, type ModelServer } from './model-server.js';
import { patient } from './pool.js';
import { temporalAddress, uniqueQueuePrefix } from './temporal.js';

/**
 * The whole product on real servers for end-to-end tests: a separate database, separate task queues on the shared Temporal
 * server, a scripted HTTP model endpoint, a worker in this process, and the library.
 */
export interface Stack {
  palimpsest: Palimpsest;
  model: ModelServer;
  databaseUrl: string;
  /** The database as its superuser. */
  ownerUrl: string;
  temporal: { address: string };
  queuePrefix: string;
  settings: WorkerSettings;
  /** Starts (another) worker in this process. */
  work(): Promise<RunningWorker>;
  /** Another client, with the memory of another process. */
  elsewhere(): Promise<Palimpsest>;
  stop(): Promise<void>;
}

export interface StackOptions {
  /** Start a worker in this process. @default true */
  worker?: boolean;
  settings?: Partial<WorkerSettings>;
  /** Timeouts of the library's connections. @default `patient` */
  database?: PalimpsestOptions['database'];
  /**
   * Milliseconds. A test of an endpoint that never answers sets a short limit; the default is never reached, even on a busy
   * machine. @default 60,000
   */
  modelTimeoutMs?: number;
}

/** Milliseconds. A wait ends with what it waits for, or the test ends. */
const settleMs = 270_000;

export async function startStack({
  worker = true,
  settings: own,
  database: timeouts = {},
  modelTimeoutMs = 60_000,
}: StackOptions = {}): Promise<Stack> {
  const database = await createDatabase();
  const { maintenanceUrl, eraserUrl, ownerUrl } = database;
  const roles = { maintenanceUrl, eraserUrl };
  const model = await startModelServer();
  const temporal = { address: temporalAddress() };
  const queuePrefix = uniqueQueuePrefix();
  const settings: WorkerSettings = {
    databaseUrl: database.url,
    ...roles,
    database: patient,
    temporal,
    queuePrefix,
    model: { apiKey: 'test', baseUrl: model.url, summaryModel: 'test-summarizer', timeoutMs: modelTimeoutMs },
    workflowBundle: { codePath: inject('workflowBundlePath') },
    shutdownGraceMs: 500,
    // The next sweep is at midnight, unless a test of the sweep sets another interval.
    sweepIntervalMs: 86_400_000,
    ...own,
  };
  const workers: RunningWorker[] = [];
  const work = async () => {
    const running = await startWorker(settings);
    running.finished.catch(() => undefined);
    workers.push(running);
    return running;
  };
  if (worker) await work();
  // All tests on one server share its workflow ids; the tenant distinguishes them.
  const clients: Palimpsest[] = [];
  const connect = async () => {
    const client = await Palimpsest.connect({
      databaseUrl: database.url,
      eraserUrl: roles.eraserUrl,
      temporal,
      tenant: queuePrefix,
      queuePrefix,
      database: { ...patient, ...timeouts },
    });
    clients.push(client);
    const { settled } = client;
    return Object.assign(client, {
      settled: (request: Parameters<typeof settled>[0]) =>
        settled.call(client, { timeoutMs: settleMs, ...request }),
    });
  };
  const palimpsest = await connect();
  return {
    ...{ palimpsest, model, databaseUrl: database.url, ownerUrl, temporal, queuePrefix, settings, work },
    elsewhere: connect,
    async stop() {
      await Promise.all(workers.map((running) => running.shutdown()));
      await Promise.all(clients.map((client) => client.close()));
      await model.close();
      await database.drop();
    },
  };
}
