import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { defaultCacheDir } from '../src/runtime/cache-dir.js';
import { startPostgres, stopPostgres } from '../src/runtime/postgres.js';
import { startTemporal, stopTemporal } from '../src/runtime/temporal.js';
import { searchAttributeTypes } from '../src/temporal/names.js';
import { loadWorkflowBundle } from '../src/worker/workflow-bundle.js';
import { leashServers } from '../test/support/leash.js';

/** PostgreSQL and Temporal as `npm start` runs them, with their data in a temporary folder, for one run of the bench. */
export interface Servers {
  dataDir: string;
  /** Database to issue commands from. */
  adminUrl: string;
  postgresPid: number;
  temporalAddress: string;
  temporalPid: number;
  /** File with the workflow code as one script. */
  workflowBundle: string;
  /** A further resource to end together with the servers. */
  alsoStop: (work: () => Promise<void>) => void;
  stop(): Promise<void>;
  /** A signal has come: they are being stopped, and the process ends then. */
  interrupted(): boolean;
}

export async function startServers(log: (line: string) => void): Promise<Servers> {
  const dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-bench-')));
  // The account that PostgreSQL runs under must be able to enter it.
  chmodSync(dataDir, 0o755);
  const others: (() => Promise<void>)[] = [];
  let interrupted = false;
  const stop = async () => {
    await Promise.all([stopPostgres(dataDir), stopTemporal(dataDir), ...others.map((work) => work())]);
    rmSync(dataDir, { recursive: true, force: true });
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      interrupted = true;
      void stop().finally(() => process.exit(130));
    });
  }
  const starts = await Promise.allSettled([
    startPostgres({ dataDir, log }),
    startTemporal({
      dataDir,
      log,
      cacheDir: defaultCacheDir(),
      ui: false,
      searchAttributes: searchAttributeTypes,
    }),
    loadWorkflowBundle({}, path.join(dataDir, 'bundle')),
  ]);
  const [postgres, temporal, bundle] = starts;
  if (postgres.status === 'fulfilled' && temporal.status === 'fulfilled' && bundle.status === 'fulfilled') {
    if (!('codePath' in bundle.value)) throw new Error('the workflow bundle was not written to a file');
    return {
      dataDir,
      adminUrl: postgres.value.url,
      postgresPid: postgres.value.pid,
      temporalAddress: temporal.value.address,
      temporalPid: temporal.value.pid,
      workflowBundle: bundle.value.codePath,
      alsoStop: (work) => void others.push(work),
      stop,
      interrupted: () => interrupted,
    };
  }
  await stop();
  throw starts.find((start) => start.status === 'rejected')?.reason;
}
