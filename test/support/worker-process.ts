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
const workers = await Promise.all([
  Worker.create({ connection, taskQueue: queues.workflow, workflowBundle: { codePath: workflowBundlePath } }),
  Worker.create({
    connection,
    taskQueue: queues.db,
    activities: doomed(createDatabaseActivities(dependencies)),
  }),
  Worker.create({
    connection,
    taskQueue: queues.llm,
    activities: doomed(createModelActivities(dependencies)),
  }),
]);
process.stdout.write('ready\n');
await Promise.all(workers.map((worker) => worker.run()));
