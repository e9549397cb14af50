import type { Client } from '@temporalio/client';
import { Worker, type NativeConnection, type WorkerOptions } from '@temporalio/worker';
import type { Pool } from 'pg';
import type { z } from 'zod';
import { createDatabaseActivities, createModelActivities } from '../../activities/index.js';
import type { Dependencies } from '../../activities/run.js';
import { attemptMetrics, BackfillThrottle } from '../../activities/interceptors.js';
import { configSchema, orchestrates, workerRoles, type WorkerRole } from '../config/schema.js';
import { checked } from '../contract/schema.js';
import { invalid } from '../errors.js';
import { createModelClient, type ModelClient } from '../llm/client.js';
import { createEmbedder } from '../llm/embedder.js';
import { checkedDeployment } from '../config/policy-sources.js';
import { failureOfServer } from '../process/readiness.js';
import { assertMigrated } from '../store/connection/migrate.js';
import { countOverdue } from '../store/sessions/overdue.js';
import { openPool } from '../store/connection/pool.js';
import { bucketLevel } from '../store/rate-limit/tokens-per-minute.js';
import { ensureSearchAttributes } from '../temporal/connection.js';
import { defaultQueuePrefix, taskQueues } from '../temporal/names.js';
import { dataConverterOf } from '../temporal/payload-codec.js';
import { BackfillWorkflows } from '../temporal/backfill-workflows.js';
import { SessionWorkflows } from '../temporal/session-workflows.js';
import { ensureSweep } from '../temporal/sweep-schedule.js';
import { registerCounters } from '../tokens/counter.js';
import { clientOf, connectWorker, reachNamespace } from './connection.js';
import type { RunningWorker, WorkerSettings } from './settings.js';
import { loadWorkflowBundle } from './workflow-bundle.js';
import { workersOfOneThread } from './workflow-workers.js';

/** Milliseconds to wait after the grace time for a step that ignores its abort. */
const forcedAfterMs = 5_000;

/**
 * Connections of a process with the role `model` but without database steps. Such a process still looks up and stores digests.
 */
const modelConnections = 8;

const settingsHint =
  "Give an object: { databaseUrl: 'postgres://…', temporal: { address: 'localhost:7233' }, model: {} }.";

/** Concurrency limits of one process. */
const limitsSchema = configSchema.shape.worker
  .pick({
    databaseSteps: true,
    backfillSteps: true,
    backfillShare: true,
    modelCalls: true,
    cachedWorkflows: true,
  })
  .strip();

type Settings = WorkerSettings & z.infer<typeof limitsSchema>;

/** Does what `startWorker` does, whose settings it checks. */
export async function runWorker(given: WorkerSettings): Promise<RunningWorker> {
  if (typeof given !== 'object' || given === null)
    throw invalid('startWorker was called without settings.', 'settings', settingsHint);
  const settings: Settings = { ...given, ...checked(limitsSchema, given) };
  const roles = rolesOf(settings);
  if (roles.has('model') && typeof settings.model !== 'object')
    throw invalid('A worker with the role model needs settings for it.', 'model', settingsHint);
  registerCounters(settings.counters);
  const pool = poolFor(roles, settings);
  try {
    if (pool) await assertMigrated(pool);
    const connection = await connectWorker(settings.temporal);
    const prepare = async () => {
      const client = clientOf(connection, settings.temporal);
      await ensureSearchAttributes(client);
      if (roles.has('workflow')) await ensureSweep(client, settings);
      return createWorkers(roles, settings, client, connection, pool);
    };
    const workers = await prepare().catch(async (error: unknown) => {
      await connection.close();
      throw error;
    });
    const stop = () => {
      for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    };
    const runs = workers.map((worker) => worker.run().finally(stop));
    const finished = Promise.all(runs)
      .then(() => undefined)
      .finally(async () => {
        // The SDK refuses to close a connection that a worker still holds.
        await Promise.allSettled(runs);
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
    `Roles are ${workerRoles.join(', ')}; without this setting a worker serves all of them.`,
  );
}

/** Returns null for a process that only orchestrates. */
function poolFor(roles: ReadonlySet<WorkerRole>, settings: Settings): Pool | null {
  if ([...roles].every((role) => role === 'workflow')) return null;
  const { databaseUrl, maintenanceUrl, eraserUrl, limits, databaseSteps, backfillSteps } = settings;
  if (databaseUrl === undefined)
    throw invalid(
      'A worker with any role other than workflow needs PostgreSQL.',
      'DATABASE_URL',
      'Set it, or start the worker with only the role workflow.',
    );
  const steps = (roles.has('database') ? databaseSteps : 0) + (roles.has('backfill') ? backfillSteps : 0);
  const max = steps > 0 ? steps + 4 : modelConnections;
  return openPool(databaseUrl, { ...settings.database, maintenanceUrl, eraserUrl, limits, max });
}

async function createWorkers(
  roles: ReadonlySet<WorkerRole>,
  settings: Settings,
  client: Client,
  connection: NativeConnection,
  pool: Pool | null,
): Promise<Worker[]> {
  const { temporal, shutdownGraceMs = 60_000 } = settings;
  const common = {
    connection,
    namespace: temporal.namespace ?? 'default',
    dataConverter: dataConverterOf(temporal),
    shutdownGraceTime: shutdownGraceMs,
    shutdownForceTime: shutdownGraceMs + forcedAfterMs,
  };
  const createOrchestrator = workersOfOneThread();
  const orchestrating = orchestrates([...roles]) ? await orchestrators(roles, settings) : [];
  const stepping = pool ? steps(roles, settings, pool, client) : [];
  const created = [
    ...orchestrating.map((one) => createOrchestrator({ ...common, ...one })),
    ...stepping.map((one) => Worker.create({ ...common, ...one })),
  ];
  return Promise.all(created).catch(async (error: unknown) => {
    // Only a worker that has run lets go of the connection.
    await Promise.allSettled(created.map(async (one) => (await one).runUntil(Promise.resolve())));
    throw error;
  });
}

async function orchestrators(roles: ReadonlySet<WorkerRole>, settings: Settings): Promise<WorkerOptions[]> {
  const { workflow, backfill } = taskQueues(settings.queuePrefix);
  const { cachedWorkflows, backfillSteps } = settings;
  const common = {
    workflowBundle: settings.workflowBundle ?? (await loadWorkflowBundle(settings.temporal)),
    maxCachedWorkflows: cachedWorkflows,
    // Time for which the cached sessions of a killed worker wait until another worker replays them (the SDK's default is 10 s).
    stickyQueueScheduleToStartTimeout: '5 seconds',
  } as const;
  const backfillLimits = {
    // The SDK requires at least 2.
    maxConcurrentWorkflowTaskExecutions: Math.max(2, backfillSteps),
    maxConcurrentWorkflowTaskPolls: 2,
  };
  return [
    ...(roles.has('workflow') ? [{ ...common, taskQueue: workflow }] : []),
    ...(roles.has('backfill') ? [{ ...common, ...backfillLimits, taskQueue: backfill.workflow }] : []),
  ];
}

function steps(
  roles: ReadonlySet<WorkerRole>,
  settings: Settings,
  pool: Pool,
  client: Client,
): WorkerOptions[] {
  const { db, llm, backfill } = taskQueues(settings.queuePrefix);
  const { model, metrics, databaseSteps, backfillSteps, backfillShare, modelCalls } = settings;
  const throttle = new BackfillThrottle(backfillShare);
  const dependencies = {
    ...dependenciesOf(roles, settings, pool, client),
    ...(roles.has('database') && roles.has('backfill') ? { throttle } : {}),
  };
  const counted = metrics ? [attemptMetrics(metrics)] : [];
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
    const help = 'Waiting sessions that no workflow is known to handle';
    metrics.gauge('sessions_overdue', help, async () => (await countOverdue(pool)).sessions);
  }
  const { tokensPerMinute } = model;
  if (metrics && tokensPerMinute !== undefined) {
    const help = 'Tokens that model calls may use now; negative if tokens were reserved in advance';
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
    inlineTurnKeys,
    policy,
    metrics,
    queuePrefix = defaultQueuePrefix,
  }: WorkerSettings,
  pool: Pool,
  client: Client,
): Dependencies {
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
    inlineTurnKeys,
    workflows: new SessionWorkflows(client, queuePrefix),
    backfills: new BackfillWorkflows(client, queuePrefix),
    deployment: checkedDeployment(policy),
  };
}

/** Without the role `model` a worker plans as if an endpoint were configured, because other workers call it. */
const noModelClient: ModelClient = {
  available: true,
  summarize: () => Promise.reject(new Error('this process makes no model calls')),
};
