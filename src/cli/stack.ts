import path from 'node:path';
import { makeTelemetryFilterString, Runtime, type LogLevel } from '@temporalio/worker';
import pino from 'pino';
import type { Config } from '../config.js';
import { Palimpsest } from '../palimpsest.js';
import type { PolicyInput } from '../policy/schema.js';
import { migrate } from '../store/migrate.js';
import { startWorker, type RunningWorker, type WorkerSettings } from '../worker.js';
import { loadWorkflowBundle } from '../workflow-bundle.js';
import { plural, seconds } from './report.js';
import type { Servers } from './servers.js';

/** Everything `dev` runs: servers, worker, and the library connected to them. */
export interface Stack {
  palimpsest: Palimpsest;
  uiUrl: string | null;
  close(): Promise<void>;
}

/** Steps get this long to finish at Ctrl-C; those that do not are repeated at the next start. Milliseconds. */
const graceMs = 2_000;

/**
 * Brings all of it up on `servers` and says what it took. A worker that fails, or an embedded server that ends, aborts
 * `controller` with its error; an abort before all is up ends the start.
 */
export async function openStack(
  opening: Promise<Servers>,
  config: Config,
  policy: PolicyInput,
  controller: AbortController,
  say: (line: string) => void,
): Promise<Stack> {
  installRuntime(config);
  // Bundled while the servers start.
  const bundle = loadWorkflowBundle(config.cacheDir);
  bundle.catch(() => {});
  const servers = await opening;
  let worker: RunningWorker | undefined;
  let palimpsest: Palimpsest | undefined;
  const fail = (error: unknown): void =>
    controller.abort(error instanceof Error ? error : new Error(String(error)));
  const close = async (): Promise<void> => {
    await palimpsest?.close();
    await worker?.shutdown().catch(() => {});
    await servers.stop();
  };
  try {
    controller.signal.throwIfAborted();
    servers.watch(fail);
    const { databaseUrl, temporal, uiUrl } = servers;
    const applied = await migrate(databaseUrl);
    if (applied > 0) say(`Schema      ${plural(applied, 'migration')} applied`);
    const started = Date.now();
    worker = await startWorker({
      ...workerSettings(config, databaseUrl, temporal),
      workflowBundle: await bundle,
      shutdownGraceMs: graceMs,
    });
    worker.finished.catch(fail);
    palimpsest = await Palimpsest.connect({
      databaseUrl,
      temporal,
      poolSize: 16,
      policy: config.policy,
    });
    say(`Worker      polling (${seconds(Date.now() - started)}), its log: ${workerLog(config)}`);
    say(`Summarizer  ${summarizerOf(config, policy)}`);
    return { palimpsest, uiUrl, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The worker's settings as the environment gives them. */
export function workerSettings(
  config: Config,
  databaseUrl: string,
  temporal: WorkerSettings['temporal'],
): WorkerSettings {
  const { llm, summary, inlineTurnTenants, policy } = config;
  return {
    databaseUrl,
    temporal,
    inlineTurnTenants,
    policy,
    model: {
      apiKey: llm.apiKey,
      baseUrl: llm.baseUrl,
      summaryModel: summary.model,
      contextWindow: summary.contextWindow,
    },
  };
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

/** The SDK's log goes to a file, so that it does not run through the live lines; signals are this program's business. */
function installRuntime(config: Config): void {
  const destination = pino.destination({ dest: path.join(config.dataDir, 'worker.log'), sync: true });
  installLoggedRuntime(pino({ level: config.logLevel, serializers }, destination));
}

/** The SDK hands errors over under either name. */
export const serializers = { error: pino.stdSerializers.err, err: pino.stdSerializers.err };

export function installLoggedRuntime(logger: pino.Logger): void {
  const at = { TRACE: 'trace', DEBUG: 'debug', INFO: 'info', WARN: 'warn', ERROR: 'error' } as const;
  const write = (level: LogLevel, message: string, meta: object = {}): void =>
    logger[at[level]](meta, message);
  Runtime.install({
    shutdownSignals: [],
    logger: {
      log: write,
      trace: (message, meta) => write('TRACE', message, meta),
      debug: (message, meta) => write('DEBUG', message, meta),
      info: (message, meta) => write('INFO', message, meta),
      warn: (message, meta) => write('WARN', message, meta),
      error: (message, meta) => write('ERROR', message, meta),
    },
    telemetryOptions: {
      logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN', other: 'ERROR' }) },
    },
  });
}
