import { orchestrates, type WorkerRole } from '../config/schema.js';
import { configuredModels, embeddingsOf, type Config } from '../config/config.js';
import { createLogger } from '../process/logging.js';
import { Metrics } from '../process/metrics.js';
import { startStatusServer, type StatusServer } from '../process/readiness.js';
import type { Database } from '../process/servers.js';
import type { TemporalSettings } from '../temporal/connection.js';
import { preloadTokenizer } from '../tokens/counter.js';
import { installRuntime } from './runtime.js';
import { startWorker, type RunningWorker, type WorkerSettings } from './worker.js';
import { loadWorkflowBundle } from './workflow-bundle.js';

export interface WorkerProcess {
  /** Required by every role except `workflow`. */
  database: Database | undefined;
  temporal: TemporalSettings;
  /** @default the roles of the configuration */
  roles?: readonly WorkerRole[];
  /** After its abort, steps may finish within the grace time; then the process ends. */
  signal: AbortSignal;
}

/** Runs a worker as a process with logs, `/metrics`, `/readyz` and an orderly shutdown. Returns when the worker has stopped. */
export async function runWorkerProcess(config: Config, options: WorkerProcess): Promise<void> {
  const { database, temporal, roles = config.worker.roles, signal } = options;
  const log = createLogger({ level: config.logLevel, format: config.logFormat });
  const metrics = config.metrics.address === undefined ? undefined : new Metrics(configuredModels(config));
  const { sdkMetrics } = await installRuntime(log, metrics !== undefined);
  const running = await startWorker({
    ...workerSettings(config, database, temporal),
    ...(orchestrates(roles) ? { workflowBundle: await loadWorkflowBundle(temporal, config.cacheDir) } : {}),
    roles,
    metrics,
  });
  const stop = (): void => {
    log.info({ graceMs: config.worker.graceMs }, 'worker accepts no new work');
    // A failure of the shutdown also rejects `finished`.
    running.shutdown().catch(() => undefined);
  };
  let status: StatusServer | undefined;
  try {
    if (metrics && config.metrics.address !== undefined) {
      const texts = async () => `${await metrics.text()}\n${await sdkMetrics().catch(() => '')}`;
      status = await serveStatus(config.metrics.address, running, texts, signal);
    }
    const { address, namespace } = temporal;
    const { queuePrefix } = config;
    log.info({ address, namespace, roles, queuePrefix, status: status?.url }, 'worker is polling');
    preloadTokenizer();
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
    await running.finished;
    log.info('worker has stopped');
  } catch (error) {
    await running.shutdown().catch(() => undefined);
    throw error;
  } finally {
    await status?.close();
  }
}

export function workerSettings(
  config: Config,
  servers: Database | undefined,
  temporal: TemporalSettings,
): WorkerSettings {
  const { llm, summary, queuePrefix, inlineTurnTenants, inlineTurnKeys, policy, worker, database, limits } =
    config;
  return {
    ...servers,
    database,
    temporal,
    queuePrefix,
    inlineTurnTenants,
    inlineTurnKeys,
    policy,
    limits,
    model: { ...llm, summaryModel: summary.model, contextWindow: summary.contextWindow },
    embeddings: embeddingsOf(config),
    databaseSteps: worker.databaseSteps,
    backfillSteps: worker.backfillSteps,
    backfillShare: worker.backfillShare,
    modelCalls: worker.modelCalls,
    cachedWorkflows: worker.cachedWorkflows,
    sweepIntervalMs: worker.sweepIntervalMs,
    shutdownGraceMs: worker.graceMs,
  };
}

/** Serves `/metrics`, `/healthz` and `/readyz` of a worker. Throws `Input.Invalid` if the address is not available. */
export function serveStatus(
  address: string,
  running: RunningWorker,
  metrics: () => Promise<string>,
  stopping: AbortSignal,
): Promise<StatusServer> {
  return startStatusServer({
    ...{ address, metrics },
    readiness: async () => {
      const { polling, ...depends } = await running.readiness();
      const working = polling && !stopping.aborted;
      const ready = working && depends.postgres === null && depends.temporal === null;
      return { ready, polling: working, ...depends };
    },
  });
}
