import { Worker, type WorkflowBundleOption } from '@temporalio/worker';
import { createDatabaseActivities, createModelActivities } from '../activities/index.js';
import type { Dependencies } from '../activities/dependencies.js';
import { createModelClient } from './llm/client.js';
import { checkedDeployment, type DeploymentPolicy } from './policy-sources.js';
import { assertMigrated } from './store/migrate.js';
import { openPool } from './store/pool.js';
import {
  connectClient,
  connectWorker,
  ensureSearchAttributes,
  type TemporalSettings,
} from './temporal/connection.js';
import { defaultQueuePrefix, taskQueues } from './temporal/names.js';
import { registerCounters, type Counters } from './tokens/counter.js';
import { loadWorkflowBundle } from './workflow-bundle.js';

export interface WorkerSettings {
  databaseUrl: string;
  temporal: TemporalSettings;
  /** OpenAI-compatible endpoint; without a key the deterministic extractive summarizer serves. */
  model: {
    apiKey?: string;
    baseUrl?: string;
    summaryModel?: string;
    contextWindow?: number;
    timeoutMs?: number;
  };
  /** @default 'compaction' */
  queuePrefix?: string;
  /** Prebuilt workflow code. @default the bundle of the build, or one made from the sources now (about 2 s) */
  workflowBundle?: WorkflowBundleOption;
  /** Database steps at once; the pool has as many connections. @default 8 */
  databaseSteps?: number;
  /** Model calls in flight at once, over all sessions. @default 32 */
  modelCalls?: number;
  /** Milliseconds in which steps may finish after a shutdown was asked for. @default 10,000 */
  shutdownGraceMs?: number;
  inlineTurnTenants?: readonly string[];
  /** Layers of the policy for sessions that this worker creates (turns sent inside a signal). See `readDeploymentPolicy`. */
  policy?: DeploymentPolicy;
  /** Counters of policies with `tokenizer: 'custom:<name>'`, by name. */
  counters?: Counters;
}

export interface RunningWorker {
  /** Settles when the worker has stopped; rejects when it failed. */
  finished: Promise<void>;
  /** Takes no new work, lets steps finish within the grace time, closes its connections. */
  shutdown(): Promise<void>;
}

/** One process serving the three queues: orchestration, database steps, model calls. */
export async function startWorker(settings: WorkerSettings): Promise<RunningWorker> {
  const { databaseUrl, temporal, model, queuePrefix = defaultQueuePrefix } = settings;
  const { databaseSteps = 8, modelCalls = 32, shutdownGraceMs = 10_000, inlineTurnTenants = [] } = settings;
  registerCounters(settings.counters);
  const deployment = checkedDeployment(settings.policy);
  const queues = taskQueues(queuePrefix);
  const pool = openPool(databaseUrl, { max: databaseSteps + 4 });
  try {
    await assertMigrated(pool);
    const client = await connectClient(temporal);
    await ensureSearchAttributes(client);
    await client.connection.close();
    const connection = await connectWorker(temporal);
    const dependencies: Dependencies = {
      pool,
      model: createModelClient({
        apiKey: model.apiKey,
        baseUrl: model.baseUrl,
        timeoutMs: model.timeoutMs ?? 150_000,
      }),
      summarizer: { model: model.summaryModel, contextWindow: model.contextWindow },
      now: Date.now,
      inlineTurnTenants,
      deployment,
    };
    const common = {
      connection,
      namespace: temporal.namespace ?? 'default',
      shutdownGraceTime: shutdownGraceMs,
      shutdownForceTime: shutdownGraceMs + 5_000,
    };
    const workers = await Promise.all([
      Worker.create({
        ...common,
        taskQueue: queues.workflow,
        workflowBundle: settings.workflowBundle ?? (await loadWorkflowBundle()),
        // A cached session costs memory, one that is not cached costs a replay (bench/README figures).
        maxCachedWorkflows: 1_000,
        // How long a killed worker's cached sessions wait before another one replays them (the SDK's default is 10 s).
        stickyQueueScheduleToStartTimeout: '5 seconds',
      }),
      Worker.create({
        ...common,
        taskQueue: queues.db,
        activities: createDatabaseActivities(dependencies),
        maxConcurrentActivityTaskExecutions: databaseSteps,
      }),
      Worker.create({
        ...common,
        taskQueue: queues.llm,
        activities: createModelActivities(dependencies),
        maxConcurrentActivityTaskExecutions: modelCalls,
      }),
    ]);
    const stop = () => {
      for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    };
    const finished = Promise.all(workers.map((worker) => worker.run().finally(stop)))
      .then(() => undefined)
      .finally(async () => {
        await connection.close();
        await pool.end();
      });
    return {
      finished,
      shutdown: async () => {
        stop();
        await finished;
      },
    };
  } catch (error) {
    if (!pool.ended) await pool.end();
    throw error;
  }
}
