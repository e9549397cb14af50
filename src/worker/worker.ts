import { Client } from '@temporalio/client';
import {
  Worker,
  type NativeConnection,
  type WorkerOptions,
  type WorkflowBundleOption,
} from '@temporalio/worker';
import type { Pool } from 'pg';
import { createDatabaseActivities, createModelActivities } from '../../activities/index.js';
import type { Dependencies } from '../../activities/run.js';
import { attemptMetrics, BackfillThrottle } from '../../activities/interceptors.js';
import { orchestrates, workerRoles, type WorkerRole } from '../config/schema.js';
import { invalid } from '../errors.js';
import { createModelClient, type ModelClient } from '../llm/client.js';
import { createEmbedder, type EmbeddingSettings } from '../llm/embedder.js';
import type { Metrics } from '../process/metrics.js';
import { checkedDeployment } from '../config/policy-sources.js';
import type { DeploymentPolicy } from '../policy/layers.js';
import { failureOfServer, type Readiness } from '../process/readiness.js';
import { assertMigrated } from '../store/connection/migrate.js';
import { countOverdue } from '../store/sessions/overdue.js';
import { openPool, type DatabaseTimeouts } from '../store/connection/pool.js';
import { bucketLevel } from '../store/rate-limit/tokens-per-minute.js';
import {
  connectClient,
  connectWorker,
  ensureSearchAttributes,
  reachNamespace,
  type TemporalSettings,
} from '../temporal/connection.js';
import { defaultQueuePrefix, taskQueues } from '../temporal/names.js';
import { BackfillWorkflows } from '../temporal/backfill-workflows.js';
import { SessionWorkflows } from '../temporal/session-workflows.js';
import { ensureSweep } from '../temporal/sweep-schedule.js';
import { registerCounters, type Counters } from '../tokens/counter.js';
import { loadWorkflowBundle } from './workflow-bundle.js';

export interface WorkerSettings {
  /** Needed by every role but `workflow`. */
  databaseUrl?: string;
  /** How long its statements, locks and silent transactions may take. */
  database?: DatabaseTimeouts;
  temporal: TemporalSettings;
  /** What this process serves. It opens only what that needs. @default all */
  roles?: readonly WorkerRole[];
  /** OpenAI-compatible endpoint; without a key the deterministic extractive summarizer serves. */
  model: {
    apiKey?: string;
    baseUrl?: string;
    summaryModel?: string;
    contextWindow?: number;
    timeoutMs?: number;
    /**
     * Model steps begun per second, over all workers. The server holds it, and the worker that polled last says how much it
     * is: give all of them the same. @default unlimited
     */
    requestsPerSecond?: number;
    /** Prompt and answer tokens per minute, over all workers; the same for all of them. @default unlimited */
    tokensPerMinute?: number;
  };
  /** Where texts become vectors, for search by meaning. @default no vectors are made */
  embeddings?: EmbeddingSettings;
  /** @default 'compaction' */
  queuePrefix?: string;
  /** Prebuilt workflow code. @default the bundle of the build, or one made from the sources now (about 2 s) */
  workflowBundle?: WorkflowBundleOption;
  /** Database steps at once; the pool has as many connections and four more. @default 8 */
  databaseSteps?: number;
  /**
   * Database steps of backfills at once, with as many connections more: what they may take of this process from live
   * sessions, since what has begun is not preempted. More are of use in a process with the role `backfill` alone. @default 1
   */
  backfillSteps?: number;
  /**
   * Of the time of those steps, what backfills take while this process serves live sessions that are at work: above 0,
   * at most 1. Their steps rest for the rest of it. @default 0.25
   */
  backfillShare?: number;
  /** Model calls in flight at once in this process. @default 32 */
  modelCalls?: number;
  /** Sessions kept in memory: one costs memory (README, numbers), one that is not there a replay. @default 1,000 */
  cachedWorkflows?: number;
  /**
   * Milliseconds between two sweeps for sessions that wait and that no workflow knows of; the same for all workers. The last
   * one that starts with the role `workflow` decides. @default 180,000
   */
  sweepIntervalMs?: number;
  /** Milliseconds in which steps may finish after a shutdown was asked for. @default 60,000 */
  shutdownGraceMs?: number;
  inlineTurnTenants?: readonly string[];
  /** Layers of the policy for sessions that this worker creates (turns sent inside a signal). See `readDeploymentPolicy`. */
  policy?: DeploymentPolicy;
  /** Counters of policies with `tokenizer: 'custom:<name>'`, by name. */
  counters?: Counters;
  /** Counts what this worker does. @default nothing is counted */
  metrics?: Metrics;
}

export interface RunningWorker {
  /** Settles when the worker has stopped; rejects when it failed. */
  finished: Promise<void>;
  /** Whether it polls, and what it depends on answers. */
  readiness(): Promise<Readiness & { polling: boolean }>;
  /** Takes no new work, lets steps finish within the grace time, closes its connections. */
  shutdown(): Promise<void>;
}

/** How long after the grace time a step that does not heed its abort is waited for. Milliseconds. */
const forcedAfterMs = 5_000;

/** A process without database steps still looks for digests and stores them. */
const modelConnections = 8;

/** One process serving the queues of its roles: orchestration, database steps, model calls. */
export async function startWorker(settings: WorkerSettings): Promise<RunningWorker> {
  const roles = rolesOf(settings);
  registerCounters(settings.counters);
  const pool = poolFor(roles, settings);
  try {
    if (pool) await assertMigrated(pool);
    const client = await connectClient(settings.temporal);
    try {
      await ensureSearchAttributes(client);
      if (roles.has('workflow')) await ensureSweep(client, settings);
    } finally {
      await client.connection.close();
    }
    const connection = await connectWorker(settings.temporal);
    const workers = await createWorkers(roles, settings, connection, pool).catch(async (error: unknown) => {
      await connection.close();
      throw error;
    });
    const stop = () => {
      for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    };
    const finished = Promise.all(workers.map((worker) => worker.run().finally(stop)))
      .then(() => undefined)
      .finally(async () => {
        await connection.close();
        await pool?.end();
      });
    return {
      finished,
      readiness: async () => {
        const [postgres, temporal] = await Promise.all([
          pool ? failureOfServer(() => assertMigrated(pool)) : null,
          failureOfServer(() => reachNamespace(connection, settings.temporal)),
        ]);
        return { polling: workers.every((worker) => worker.getState() === 'RUNNING'), postgres, temporal };
      },
      shutdown: async () => {
        stop();
        await finished;
      },
    };
  } catch (error) {
    if (pool && !pool.ended) await pool.end();
    throw error;
  }
}

function rolesOf({ roles = workerRoles }: WorkerSettings): ReadonlySet<WorkerRole> {
  const unknown = roles.find((role) => !workerRoles.includes(role));
  if (unknown === undefined && roles.length > 0) return new Set(roles);
  const what =
    unknown === undefined ? 'A worker needs a role' : `There is no role ${JSON.stringify(unknown)}`;
  throw invalid(
    `${what}.`,
    'worker.roles',
    `Roles are ${workerRoles.join(', ')}; without any it serves all.`,
  );
}

/** What a process takes at once. */
function limitsOf({
  databaseSteps = 8,
  backfillSteps = 1,
  backfillShare = 0.25,
  modelCalls = 32,
  cachedWorkflows = 1_000,
}: WorkerSettings) {
  return { databaseSteps, backfillSteps, backfillShare, modelCalls, cachedWorkflows };
}

/** None for a process that only orchestrates. */
function poolFor(roles: ReadonlySet<WorkerRole>, settings: WorkerSettings): Pool | null {
  if ([...roles].every((role) => role === 'workflow')) return null;
  const { databaseUrl } = settings;
  if (databaseUrl === undefined)
    throw invalid(
      'A worker with another role than workflow needs PostgreSQL.',
      'DATABASE_URL',
      'Set it, or start with the role workflow alone.',
    );
  const { databaseSteps, backfillSteps } = limitsOf(settings);
  const steps = (roles.has('database') ? databaseSteps : 0) + (roles.has('backfill') ? backfillSteps : 0);
  return openPool(databaseUrl, { ...settings.database, max: steps > 0 ? steps + 4 : modelConnections });
}

/** One for each queue of the roles. */
async function createWorkers(
  roles: ReadonlySet<WorkerRole>,
  settings: WorkerSettings,
  connection: NativeConnection,
  pool: Pool | null,
): Promise<Worker[]> {
  const { temporal, shutdownGraceMs = 60_000 } = settings;
  const common = {
    connection,
    namespace: temporal.namespace ?? 'default',
    shutdownGraceTime: shutdownGraceMs,
    shutdownForceTime: shutdownGraceMs + forcedAfterMs,
  };
  const served = [
    ...(orchestrates([...roles]) ? await orchestrators(roles, settings) : []),
    ...(pool ? steps(roles, settings, pool, connection) : []),
  ];
  return Promise.all(served.map((one) => Worker.create({ ...common, ...one })));
}

async function orchestrators(
  roles: ReadonlySet<WorkerRole>,
  settings: WorkerSettings,
): Promise<WorkerOptions[]> {
  const { workflow, backfill } = taskQueues(settings.queuePrefix);
  const { cachedWorkflows, backfillSteps } = limitsOf(settings);
  const common = {
    workflowBundle: settings.workflowBundle ?? (await loadWorkflowBundle()),
    maxCachedWorkflows: cachedWorkflows,
    // How long a killed worker's cached sessions wait before another one replays them (the SDK's default is 10 s).
    stickyQueueScheduleToStartTimeout: '5 seconds',
  } as const;
  const few = {
    // The least that the SDK takes.
    maxConcurrentWorkflowTaskExecutions: Math.max(2, backfillSteps),
    maxConcurrentWorkflowTaskPolls: 2,
  };
  return [
    ...(roles.has('workflow') ? [{ ...common, taskQueue: workflow }] : []),
    ...(roles.has('backfill') ? [{ ...common, ...few, taskQueue: backfill.workflow }] : []),
  ];
}

function steps(
  roles: ReadonlySet<WorkerRole>,
  settings: WorkerSettings,
  pool: Pool,
  connection: NativeConnection,
): WorkerOptions[] {
  const { model, metrics } = settings;
  const { db, llm, backfill } = taskQueues(settings.queuePrefix);
  const { databaseSteps, backfillSteps, backfillShare, modelCalls } = limitsOf(settings);
  const dependencies = dependenciesOf(roles, settings, pool, connection);
  const counted = metrics ? [attemptMetrics(metrics)] : [];
  const throttle = new BackfillThrottle(backfillShare);
  const served: WorkerOptions[] = [];
  if (roles.has('database'))
    served.push({
      taskQueue: db,
      activities: createDatabaseActivities(dependencies),
      interceptors: { activity: [throttle.live, ...counted] },
      maxConcurrentActivityTaskExecutions: databaseSteps,
    });
  if (roles.has('backfill'))
    served.push({
      taskQueue: backfill.db,
      activities: createDatabaseActivities(dependencies),
      interceptors: { activity: [throttle.backfill, ...counted] },
      maxConcurrentActivityTaskExecutions: backfillSteps,
    });
  if (roles.has('model'))
    served.push({
      taskQueue: llm,
      activities: createModelActivities(dependencies),
      interceptors: { activity: counted },
      maxConcurrentActivityTaskExecutions: modelCalls,
      maxTaskQueueActivitiesPerSecond: model.requestsPerSecond,
    });
  if (metrics && roles.has('database')) {
    const help = 'Sessions that wait and that no workflow is known to be at work on';
    metrics.gauge('sessions_overdue', help, async () => (await countOverdue(pool)).sessions);
  }
  const { tokensPerMinute } = model;
  if (metrics && tokensPerMinute !== undefined) {
    const help = 'Tokens that model calls may draw now; below zero: given away in advance';
    metrics.gauge('token_bucket_level', help, () => bucketLevel(pool, tokensPerMinute));
  }
  return served;
}

function dependenciesOf(
  roles: ReadonlySet<WorkerRole>,
  {
    model,
    embeddings,
    inlineTurnTenants = [],
    policy,
    metrics,
    temporal,
    queuePrefix = defaultQueuePrefix,
  }: WorkerSettings,
  pool: Pool,
  connection: NativeConnection,
): Dependencies {
  const client = new Client({ connection, namespace: temporal.namespace ?? 'default' });
  return {
    pool,
    model: roles.has('model')
      ? createModelClient({
          apiKey: model.apiKey,
          baseUrl: model.baseUrl,
          timeoutMs: model.timeoutMs ?? 150_000,
        })
      : noModelClient,
    embedder: embeddings === undefined ? null : createEmbedder(embeddings),
    summarizer: { model: model.summaryModel, contextWindow: model.contextWindow },
    tokensPerMinute: model.tokensPerMinute,
    metrics,
    now: Date.now,
    inlineTurnTenants,
    workflows: new SessionWorkflows(client, queuePrefix),
    backfills: new BackfillWorkflows(client, queuePrefix),
    deployment: checkedDeployment(policy),
  };
}

/** Without the role `model` a worker plans as if an endpoint were configured: other workers call it. */
const noModelClient: ModelClient = {
  available: true,
  summarize: () => Promise.reject(new Error('this process makes no model calls')),
};
