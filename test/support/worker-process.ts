/**
 * A worker in a process of its own that ends itself with SIGKILL right before or right after the n-th run of one
 * activity: the worst moments a machine can choose. Settings come as JSON in `WORKER`.
 */
import { NativeConnection, Worker } from '@temporalio/worker';
import { createDatabaseActivities, createModelActivities } from '../../activities/index.js';
import { createModelClient } from '../../src/llm/client.js';
import { openPool } from '../../src/store/pool.js';
import { taskQueues } from '../../src/temporal/names.js';

export interface DoomedWorker {
  databaseUrl: string;
  address: string;
  queuePrefix: string;
  workflowBundlePath: string;
  modelUrl: string;
  /** Absent: lives until it is killed from outside. */
  die?: { when: 'before' | 'after'; activity: string; nth: number };
}

const { databaseUrl, address, queuePrefix, workflowBundlePath, modelUrl, die } = JSON.parse(
  process.env['WORKER'] ?? '{}',
) as DoomedWorker;

const dependencies = {
  pool: openPool(databaseUrl, { max: 8 }),
  model: createModelClient({ apiKey: 'test', baseUrl: modelUrl, timeoutMs: 30_000 }),
  summarizer: { model: 'test-summarizer' },
  now: Date.now,
  inlineTurnTenants: [],
};

let runs = 0;
function doomed<T extends Record<string, (input: never) => Promise<unknown>>>(activities: T): T {
  const wrap = ([name, run]: [string, (input: never) => Promise<unknown>]) => [
    name,
    async (input: never) => {
      const last = name === die?.activity && ++runs === die.nth;
      if (last && die.when === 'before') process.kill(process.pid, 'SIGKILL');
      const result = await run(input);
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
process.stdout.write('ready\n');
await Promise.all(workers.map((worker) => worker.run()));
