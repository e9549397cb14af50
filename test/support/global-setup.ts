import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { defaultCacheDir } from '../../src/runtime/cache-dir.js';
import { liveTickets, ownerOf, putTicket, removeTicket } from '../../src/runtime/lock.js';
import { startPostgres, stopPostgres } from '../../src/runtime/postgres.js';
import { isRunning } from '../../src/runtime/process.js';
import { startTemporal, stopTemporal } from '../../src/runtime/temporal.js';
import { migrate } from '../../src/store/connection/migrate.js';
import { passwordsFor } from '../../src/store/connection/roles.js';
import { searchAttributeTypes } from '../../src/temporal/names.js';
import { loadWorkflowBundle } from '../../src/worker/workflow-bundle.js';
import { compileSources } from './compiled.js';
import { leashServers } from './leash.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** `adminUrl`: a database of the server for administrative commands; `template`: the migrated database to copy. */
    postgres: { adminUrl: string; template: string };
    /** host:port of the gRPC frontend. */
    temporalAddress: string;
    /** File with the workflow code as one script, bundled once. */
    workflowBundlePath: string;
    /** Folder of the compiled sources: see `program`. */
    compiledSources: string;
  }
}

const template = 'template_palimpsest';
const runs = path.join(os.tmpdir(), `palimpsest-tests-${os.userInfo().username}`);
const tickets = path.join(runs, 'run');

/**
 * Starts one PostgreSQL server and one Temporal server, and builds one workflow bundle, for a whole test run in a temporary
 * folder. Tests have their own servers: DATABASE_URL and TEMPORAL_ADDRESS of the environment are not used.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  await removeDeadRuns();
  const ticket = putTicket(tickets);
  const dataDir = path.join(runs, ticket);
  mkdirSync(dataDir);
  leashServers(dataDir);
  const teardown = () => removeRun(ticket);
  const parts = [setUpPostgres(project, dataDir), setUpTemporal(project, dataDir), setUpSources(project)];
  const failed = (await Promise.allSettled(parts)).find((part) => part.status === 'rejected');
  if (!failed) return teardown;
  await teardown();
  throw failed.reason;
}

async function setUpPostgres(project: TestProject, dataDir: string): Promise<void> {
  const settings = { fsync: 'off', full_page_writes: 'off', synchronous_commit: 'off', jit: 'off' };
  const { url: adminUrl } = await startPostgres({ dataDir, log: () => {}, settings });
  const client = new pg.Client({ connectionString: adminUrl });
  await client.connect();
  try {
    await client.query(`create database ${template}`);
    const templateUrl = Object.assign(new URL(adminUrl), { pathname: `/${template}` }).toString();
    await migrate(templateUrl, { roles: passwordsFor(adminUrl) });
    await beginIncremental(templateUrl);
    // Nobody may connect to the template, so that several tests can copy it at any time, even concurrently.
    await client.query(`alter database ${template} with allow_connections false is_template true`);
  } finally {
    await client.end();
  }
  project.provide('postgres', { adminUrl, template });
}

/** The scripted models of these tests write snapshots with sections, so the mode `incremental` is the default in the tests. */
async function beginIncremental(databaseUrl: string): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    await client.query("alter table palimpsest.sessions alter column begun_mode set default 'incremental'");
  } finally {
    await client.end();
  }
}

// Tasks are ordered within a partition of a task queue; with one partition, tests can assert the order.
async function setUpTemporal(project: TestProject, dataDir: string): Promise<void> {
  // The first start may build the server, which takes minutes, so its progress is printed.
  const log = (line: string) => process.stderr.write(`${line}\n`);
  const { address } = await startTemporal({
    ...{ dataDir, log, cacheDir: defaultCacheDir(), ui: false, searchAttributes: searchAttributeTypes },
    // Fewer garbage collections: the server runs for only a few minutes and may use more memory. This saves one second in
    // thirteen.
    env: { GOGC: '800' },
    dynamicConfig: {
      ...{ 'matching.numTaskqueueReadPartitions': 1, 'matching.numTaskqueueWritePartitions': 1 },
      // The server deletes executions after it has acknowledged its queues, by default every half minute.
      ...{ 'history.transferProcessorUpdateAckInterval': '"1s"' },
      ...{ 'history.visibilityProcessorUpdateAckInterval': '"1s"' },
    },
  });
  project.provide('temporalAddress', address);
}

async function setUpSources(project: TestProject): Promise<void> {
  const bundle = await loadWorkflowBundle({}, path.join(runs, 'bundles'));
  if (!('codePath' in bundle)) throw new Error('the workflow bundle was not written to a file');
  project.provide('workflowBundlePath', bundle.codePath);
  // Each worktree has its own folder.
  const folder = path.join(
    runs,
    'compiled',
    createHash('sha256').update(process.cwd()).digest('hex').slice(0, 16),
  );
  await compileSources(folder, bundle.codePath);
  project.provide('compiledSources', folder);
}

/** Removes the leftovers of runs that were killed together with their leash. The name of a folder tells which process owns it. */
async function removeDeadRuns(): Promise<void> {
  if (!existsSync(runs)) return;
  if (existsSync(tickets)) liveTickets(tickets);
  for (const name of readdirSync(runs)) {
    const owner = ownerOf(name);
    if (owner && !isRunning(owner)) await removeRun(name);
  }
}

async function removeRun(ticket: string): Promise<void> {
  const dataDir = path.join(runs, ticket);
  await Promise.all([stopPostgres(dataDir), stopTemporal(dataDir)]);
  rmSync(dataDir, { recursive: true, force: true });
  removeTicket(tickets, ticket);
}
