/**
 * A job under SIGKILL: if one of its servers dies in the middle, it continues when that is back, every session is compacted
 * exactly once, and the report counts each once.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { defaultCacheDir } from '../../../src/runtime/cache-dir.js';
import { startPostgres, stopPostgres } from '../../../src/runtime/postgres.js';
import { findProcess, hasEnded } from '../../../src/runtime/process.js';
import { startTemporal, stopTemporal } from '../../../src/runtime/temporal.js';
import { migrate } from '../../../src/store/connection/migrate.js';
import { passwordsFor, urlsFor } from '../../../src/store/connection/roles.js';
import { searchAttributeTypes } from '../../../src/temporal/names.js';
import {
  commitsOf,
  ended,
  fillSessions,
  openBackfills,
  until,
  type BackfillBench,
} from '../../support/backfills.js';
import { program } from '../../support/compiled.js';
import { leashed, leashServers } from '../../support/leash.js';
import { delayed } from '../../support/model-replies.js';
import { startModelServer, type ModelServer } from '../../support/model-server.js';
import { sized } from '../../support/size.js';
import type { DoomedWorker } from '../../support/worker-process.js';

const dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-backfill-')));
const log = () => {};
const queuePrefix = 'faults';
const sessions = sized(30, 75);
const workers = new Set<ChildProcess>();
let servers: { postgres: { url: string; pid: number }; temporal: { address: string; pid: number } };
let model: ModelServer;
let bench: BackfillBench;

async function startServers(): Promise<void> {
  const [postgres, temporal] = await Promise.all([
    startPostgres({ dataDir, log }),
    startTemporal({
      ...{ dataDir, log, cacheDir: defaultCacheDir(), ui: false },
      searchAttributes: searchAttributeTypes,
    }),
  ]);
  servers = { postgres, temporal };
}

beforeAll(async () => {
  await startServers();
  await migrate(servers.postgres.url, { roles: passwordsFor(servers.postgres.url) });
  model = await startModelServer({ script: delayed(50) });
  bench = await openBackfills(
    {
      databaseUrl: servers.postgres.url,
      temporal: { address: servers.temporal.address },
      queuePrefix,
    },
    { pageSize: Math.floor(sessions / 3) },
  );
});

afterAll(async () => {
  for (const worker of workers) worker.kill('SIGKILL');
  await bench.close();
  await model.close();
  await Promise.all([stopPostgres(dataDir), stopTemporal(dataDir)]);
  rmSync(dataDir, { recursive: true, force: true });
});

async function startWorker(die?: DoomedWorker['die']): Promise<ChildProcess> {
  const { databaseUrl, ...roles } = urlsFor(servers.postgres.url);
  const settings: DoomedWorker = {
    databaseUrl,
    roles,
    address: servers.temporal.address,
    queuePrefix,
    workflowBundlePath: inject('workflowBundlePath'),
    modelUrl: model.url,
    ...(die ? { die } : {}),
  };
  const worker = spawn(process.execPath, [program('test/support/worker-process.ts')], {
    env: { ...process.env, TEMPORAL_DEBUG: '', WORKER: JSON.stringify(settings) },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  workers.add(leashed(worker));
  await once(worker.stdout, 'data');
  return worker;
}

async function kill(worker: ChildProcess): Promise<void> {
  const exited = once(worker, 'exit');
  worker.kill('SIGKILL');
  await exited;
  workers.delete(worker);
}

async function killServer(pid: number): Promise<void> {
  const id = findProcess(pid);
  process.kill(pid, 'SIGKILL');
  expect(id && (await hasEnded(id, 60_000))).toBe(true);
}

const job = 'j';

/** Started with a worker; resolves with the job well under way. */
async function underWay(tenant: string): Promise<ChildProcess> {
  await fillSessions(bench.pool, tenant, sessions);
  await fillSessions(bench.pool, tenant, 5, { prefix: 'quiet-', turns: 1 });
  const worker = await startWorker();
  await bench.of(tenant).start({ job, concurrency: 12 });
  await until(bench.of(tenant), job, ({ counts }) => counts.compacted >= sessions / 5);
  return worker;
}

async function expectDoneOnce(tenant: string): Promise<void> {
  const report = await until(bench.of(tenant), job, ended);
  expect(report).toMatchObject({
    state: 'completed',
    failures: {},
    counts: { selected: sessions + 5, compacted: sessions, unchanged: 5, pending: 0, running: 0, skipped: 0 },
  });
  const commits = await commitsOf(bench.pool, tenant);
  expect([...commits.values()].filter((count) => count === 1)).toHaveLength(sessions);
  expect([...commits.values()].filter((count) => count > 1)).toEqual([]);
  const { items } = await bench.of(tenant).items({ job, state: 'compacted', limit: 1_000 });
  for (const item of items) expect(item).toMatchObject({ attempts: 1, generation: 1 });
  // The report adds up the figures of the compactions.
  const { rows } = await bench.pool.query<Record<string, number>>(
    `select sum(tokens_before)::int as before, sum(tokens_after)::int as after, sum(model_calls)::int as calls
     from palimpsest.compactions where tenant_id = $1 and generation > 0`,
    [tenant],
  );
  const { tokensBefore, tokensAfter, modelCalls } = report;
  expect({ before: tokensBefore, after: tokensAfter, calls: modelCalls }).toEqual(rows[0]);
}

describe.sequential('after a kill in the middle every session is compacted exactly once', () => {
  test('the worker, twice', async () => {
    const first = await underWay('worker');
    await kill(first);
    const second = await startWorker();
    await until(bench.of('worker'), job, ({ counts }) => counts.compacted >= sessions / 2);
    await kill(second);
    const third = await startWorker();
    await expectDoneOnce('worker');
    await kill(third);
  });

  test.for([
    { when: 'after', activity: 'selectSessions', nth: 2 },
    { when: 'after', activity: 'recordOutcomes', nth: 3 },
    { when: 'after', activity: 'finishBackfill', nth: 1 },
  ] as const)('the worker right $when $activity', async (die) => {
    const tenant = `at ${die.activity}`;
    await fillSessions(bench.pool, tenant, sessions);
    await fillSessions(bench.pool, tenant, 5, { prefix: 'quiet-', turns: 1 });
    const doomed = await startWorker(die);
    const exited = once(doomed, 'exit');
    await bench.of(tenant).start({ job, concurrency: 12 });
    expect(((await exited) as unknown[])[1]).toBe('SIGKILL');
    const next = await startWorker();
    await expectDoneOnce(tenant);
    await kill(next);
  });

  test('the Temporal server', async () => {
    const worker = await underWay('temporal');
    await killServer(servers.temporal.pid);
    await startServers();
    await expectDoneOnce('temporal');
    await kill(worker);
  });

  test('PostgreSQL', async () => {
    const worker = await underWay('postgres');
    await killServer(servers.postgres.pid);
    await startServers();
    await expectDoneOnce('postgres');
    await kill(worker);
  });
});
