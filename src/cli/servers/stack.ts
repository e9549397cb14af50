import path from 'node:path';
import pino from 'pino';
import type { RunningApi } from '../../api/server.js';
import { configuredModels, embeddingsOf, identityOf, type Config } from '../../config/config.js';
import { isFailure } from '../../errors.js';
import { createLogger } from '../../process/logging.js';
import { installRuntime, type InstalledRuntime } from '../../worker/runtime.js';
import { Metrics, type RequestFigures } from '../../process/metrics.js';
import type { StatusServer } from '../../process/readiness.js';
import { Palimpsest } from '../../library/palimpsest.js';
import type { PolicyInput } from '../../policy/schema.js';
import { migrate } from '../../store/connection/migrate.js';
import { startWorker, type RunningWorker } from '../../worker/worker.js';
import { serveStatus, workerSettings } from '../../worker/worker-process.js';
import { loadWorkflowBundle } from '../../worker/workflow-bundle.js';
import { plural, seconds } from '../terminal/numbers.js';
import type { Servers } from './servers.js';

/** The parts that `dev` runs: servers, worker, and the library connected to them. */
export interface Stack {
  palimpsest: Palimpsest;
  /** Address of the HTTP API; null if none was requested. */
  apiUrl: string | null;
  uiUrl: string | null;
  /** Whether the worker asks a model for summaries. */
  asksModel: boolean;
  close(): Promise<void>;
}

/** Milliseconds for steps to finish after Ctrl-C; unfinished steps are repeated at the next start. */
const graceMs = 2_000;

/**
 * Starts everything on `servers` and reports the times. A worker that fails, or an embedded server that ends, aborts
 * `controller` with its error. If `controller` is aborted during the start, the start ends.
 */
export async function openStack(
  opening: Promise<Servers>,
  config: Config,
  policy: PolicyInput,
  controller: AbortController,
  { say, api: withApi }: { say: (line: string) => void; api: boolean },
): Promise<Stack> {
  const { log, sdkMetrics } = await installFileLog(config);
  const metrics = new Metrics(configuredModels(config));
  // Bundled while the servers start.
  const bundle = loadWorkflowBundle(config.temporal, config.cacheDir);
  bundle.catch(() => {});
  const servers = await opening;
  let worker: RunningWorker | undefined;
  let palimpsest: Palimpsest | undefined;
  let api: RunningApi | undefined;
  let status: StatusServer | undefined;
  const fail = (error: unknown): void =>
    controller.abort(error instanceof Error ? error : new Error(String(error)));
  const close = async (): Promise<void> => {
    await status?.close();
    await api?.close();
    await palimpsest?.close();
    await worker?.shutdown().catch(() => {});
    await servers.stop();
  };
  try {
    controller.signal.throwIfAborted();
    servers.watch(fail);
    const { database, owner, temporal, uiUrl } = servers;
    // Bundling holds the event loop, for longer than a connection may take on a slow machine.
    const workflowBundle = await bundle;
    const applied = await migrate(owner.url, { roles: owner.roles });
    if (applied > 0) say(`Schema      ${plural(applied, 'migration')} applied`);
    const started = Date.now();
    worker = await startWorker({
      ...workerSettings(config, database, temporal),
      workflowBundle,
      shutdownGraceMs: graceMs,
      metrics,
    });
    worker.finished.catch(fail);
    const texts = async () => `${await metrics.text()}\n${await sdkMetrics().catch(() => '')}`;
    if (config.metrics.address !== undefined) {
      status = await serveStatus(config.metrics.address, worker, texts, controller.signal);
      say(`Metrics     ${status.url}/metrics`);
    }
    palimpsest = await Palimpsest.connect({
      databaseUrl: database.databaseUrl,
      eraserUrl: database.eraserUrl,
      directUrl: database.directUrl,
      temporal,
      queuePrefix: config.queuePrefix,
      poolSize: config.api.databaseConnections,
      tenantShare: config.api.tenantDatabaseShare,
      database: config.database,
      policy: config.policy,
      limits: config.limits,
      log,
      turnLimits: config.turns,
      embeddings: embeddingsOf(config),
      summarizer: { ...config.summary, available: config.llm.apiKey !== undefined },
    });
    say(`Worker      polling (${seconds(Date.now() - started)}), its log: ${workerLog(config)}`);
    say(`Summarizer  ${summarizerOf(config, policy)}`);
    if (withApi) api = await openApi(config, palimpsest, { log, metrics, texts }, say);
    const asksModel = config.llm.apiKey !== undefined && policy.summary?.method !== 'extractive';
    return { palimpsest, apiUrl: api?.address ?? null, uiUrl, asksModel, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Listens on loopback, and on another port if the configured one is taken. */
async function openApi(
  config: Config,
  palimpsest: Palimpsest,
  { log, metrics, texts }: { log: pino.Logger; metrics: Metrics; texts: () => Promise<string> },
  say: (line: string) => void,
): Promise<RunningApi> {
  const { startApi } = await import('../../api/server.js');
  const settings = {
    ...config.api,
    identity: identityOf(config),
    ...{ host: '127.0.0.1', shutdownGraceMs: graceMs, log, metrics: texts },
    observe: (request: RequestFigures) => metrics.request(request),
    observeRefusal: (limit: string) => metrics.refused(limit),
  };
  const taken = (error: unknown) => isFailure(error, 'Input.Invalid') && error.path === 'port';
  const api = await startApi(settings, palimpsest).catch((error: unknown) => {
    if (!taken(error)) throw error;
    return startApi({ ...settings, port: 0 }, palimpsest);
  });
  const { loadOf } = await import('../../api/api-process.js');
  metrics.inFlight(() => loadOf(api, palimpsest));
  const elsewhere = api.address.endsWith(`:${config.api.port}`) ? '' : `; port ${config.api.port} is taken`;
  const who = api.requiresToken ? 'with its tokens' : 'tenant default, no token asked for';
  say(`HTTP API    ${api.address} (${who}${elsewhere})`);
  return api;
}

function summarizerOf({ llm, summary }: Config, policy: PolicyInput): string {
  if (policy.summary?.method === 'extractive') return 'deterministic extractive summarizer (policy)';
  if (llm.apiKey === undefined) return 'deterministic extractive summarizer (no OPENAI_API_KEY)';
  const model = policy.summary?.model ?? summary.model ?? policy.model;
  const where = llm.baseUrl ?? 'https://api.openai.com/v1';
  return `${model ?? 'default model (PALIMPSEST_SUMMARY_MODEL names another)'} at ${where}`;
}

const workerLog = ({ dataDir }: Config): string =>
  path.relative('.', path.join(dataDir, 'worker.log')) || 'worker.log';

/** The logs of the SDK and of the API go to a file, so that they do not disturb the live output. */
async function installFileLog({
  dataDir,
  logLevel,
  logFormat,
}: Config): Promise<{ log: pino.Logger } & InstalledRuntime> {
  const destination = pino.destination({ dest: path.join(dataDir, 'worker.log'), sync: true });
  const log = createLogger({ level: logLevel, format: logFormat, destination });
  return { log, ...(await installRuntime(log, true)) };
}
