import { type RunningApi, startApi } from './server.js';
import { embeddingsOf, identityOf, type Config } from '../config/config.js';
import { createLogger } from '../process/logging.js';
import { Metrics, type RequestFigures } from '../process/metrics.js';
import { Palimpsest } from '../library/palimpsest.js';
import type { Database } from '../process/servers.js';
import type { TemporalSettings } from '../temporal/connection.js';
import { preloadTokenizer } from '../tokens/counter.js';

/**
 * Runs a process that serves the API, with logs, `/metrics`, and a shutdown that lets requests finish. Returns when
 * it has stopped.
 */
export async function runApiProcess(
  config: Config,
  {
    databaseUrl,
    eraserUrl,
    directUrl,
    temporal,
    signal,
  }: Database & { temporal: TemporalSettings; signal: AbortSignal },
): Promise<void> {
  const log = createLogger({ level: config.logLevel, format: config.logFormat });
  const { queuePrefix, policy, database } = config;
  const palimpsest = await Palimpsest.connect({
    ...{ databaseUrl, eraserUrl, directUrl, database, temporal, queuePrefix, policy, log },
    limits: config.limits,
    turnLimits: config.turns,
    embeddings: embeddingsOf(config),
    poolSize: config.api.databaseConnections,
    tenantShare: config.api.tenantDatabaseShare,
  });
  const metrics = new Metrics();
  try {
    const observed = {
      metrics: () => metrics.text(),
      observe: (request: RequestFigures) => metrics.request(request),
      observeRefusal: (limit: string) => metrics.refused(limit),
    };
    const api = await startApi({ ...config.api, identity: identityOf(config), log, ...observed }, palimpsest);
    metrics.inFlight(() => loadOf(api, palimpsest));
    const tenants = new Set(config.api.tokens.map(({ tenant }) => tenant)).size;
    log.info({ address: api.address, tenants }, 'API is listening');
    preloadTokenizer();
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    log.info('API accepts no new requests');
    await api.close();
    log.info('API has stopped');
  } finally {
    await palimpsest.close();
  }
}

/** Present use of each limit, by name. */
export function loadOf(api: RunningApi, palimpsest: Palimpsest): Record<string, number> {
  const { held, waiting } = palimpsest.databaseLoad();
  return { ...api.load(), databaseConnections: held, databaseWaits: waiting };
}
