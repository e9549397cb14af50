/**
 * A worker in a separate process that ends itself with SIGKILL right before or right after the n-th run of one activity, or
 * stops itself with SIGSTOP in the middle of a run: the worst moments. Settings come as JSON in `WORKER`. It prints the lines
 * `worker: ready`, `worker: stopped`, and `worker: done` or `worker: refused` as the outcome of the stopped activity.
 */
import { writeSync } from 'node:fs';
import { NativeConnection, Worker } from '@temporalio/worker';
import { createDatabaseActivities, createModelActivities } from '../../activities/index.js';
import { createModelClient } from '../../src/llm/client.js';
import { openPool, type DatabaseTimeouts, type RoleUrls } from '../../src/store/connection/pool.js';
import { taskQueues } from '../../src/temporal/names.js';

export interface DoomedWorker {
  databaseUrl: string;
  roles: RoleUrls;
  address: string;
  queuePrefix: string;
  workflowBundlePath: string;
  modelUrl: string;
  /** Time limits of its connections to PostgreSQL. */
  timeouts?: DatabaseTimeouts;
  /**
   * When the process ends itself; `within`: when the activity stores a compaction. Absent: it runs until it is killed from outside.
   */
  die?: { when: 'before' | 'within' | 'after'; activity: string; nth: number };
  /**
   * The process stops itself right before the activity's first `begin` or `commit`, once for each session whose id begins with
   * `sessions`.
   */
  stop?: { activity: string; before: 'begin' | 'commit'; sessions: string };
}

const { databaseUrl, roles, address, queuePrefix, workflowBundlePath, modelUrl, die, stop, timeouts } =
  JSON.parse(process.env['WORKER'] ?? '{}') as DoomedWorker;

const dependencies = {
  pool: openPool(databaseUrl, { ...roles, max: 8, applicationName: 'doomed', ...timeouts }),
  model: createModelClient({ apiKey: 'test', baseUrl: modelUrl, timeoutMs: 30_000 }),
  summarizer: { model: 'test-summarizer' },
  now: Date.now,
  inlineTurnTenants: [],
};

/** The activity to be stopped is running and has not been stopped yet. */
let armed = false;
const stoppedSessions = new Set<string>();

function stopBefore(statement: unknown): void {
  if (!armed || !stop || typeof statement !== 'string' || !statement.startsWith(stop.before)) return;
  armed = false;
  writeSync(1, 'worker: stopped\n');
  process.kill(process.pid, 'SIGSTOP');
}

/** The activity that ends the process is running. */
let dying = false;

function dieWithin(statement: unknown): void {
  const { text = statement } = (typeof statement === 'object' ? statement : {}) as { text?: unknown };
  if (dying && typeof text === 'string' && text.startsWith('insert into "palimpsest"."compactions"'))
    process.kill(process.pid, 'SIGKILL');
}

dependencies.pool.on('connect', (client) => {
  const { query } = client;
  Object.assign(client, {
    query: (...given: unknown[]) => {
      stopBefore(given[0]);
      dieWithin(given[0]);
      return Reflect.apply(query, client, given);
    },
  });
});

async function stopping<Result>(name: string, input: unknown, run: () => Promise<Result>): Promise<Result> {
  const { session = '' } = input as { session?: string };
  const chosen =
    name === stop?.activity && session.startsWith(stop.sessions) && !stoppedSessions.has(session);
  if (!chosen) return run();
  stoppedSessions.add(session);
  armed = true;
  try {
    const result = await run();
    writeSync(1, 'worker: done\n');
    return result;
  } catch (error) {
    writeSync(1, 'worker: refused\n');
    throw error;
  }
}

let runs = 0;
function doomed<T extends Record<string, (input: never) => Promise<unknown>>>(activities: T): T {
  const wrap = ([name, run]: [string, (input: never) => Promise<unknown>]) => [
    name,
    async (input: never) => {
      const last = name === die?.activity && ++runs === die.nth;
      if (last && die.when === 'before') process.kill(process.pid, 'SIGKILL');
      dying ||= last && die.when === 'within';
      const result = await stopping(name, input, () => run(input));
      if (last) process.kill(process.pid, 'SIGKILL');
      return result;
    },
  ];
  return Object.fromEntries(Object.entries(activities).map(wrap)) as T;
}

const connection = await NativeConnection.connect({ address });
const queues = taskQueues(queuePrefix);
const workflowBundle = { codePath: workflowBundlePath };
const steps = doomed(createDatabaseActivities(dependencies));
const calls = doomed(createModelActivities(dependencies));
const workers = await Promise.all(
  [
    { taskQueue: queues.workflow, workflowBundle },
    { taskQueue: queues.backfill.workflow, workflowBundle },
    { taskQueue: queues.db, activities: steps },
    { taskQueue: queues.backfill.db, activities: steps },
    { taskQueue: queues.llm, activities: calls },
  ].map((served) => Worker.create({ connection, ...served })),
);
process.stdout.write('worker: ready\n');
await Promise.all(workers.map((worker) => worker.run()));
