import { embeddingsOf, identityOf, type Config } from '../config/config.js';
import { isFailure, PalimpsestError } from '../errors.js';
import { Palimpsest } from '../library/palimpsest.js';
import type { PalimpsestOptions } from '../library/connections.js';
import { createLogger } from '../process/logging.js';
import { Metrics } from '../process/metrics.js';
import { type Readiness, startStatusServer, type StatusServer } from '../process/readiness.js';
import type { Database } from '../process/servers.js';
import type { TokenAccess } from '../store/tokens/tokens.js';
import type { TemporalSettings } from '../temporal/connection.js';
import { preloadTokenizer } from '../tokens/counter.js';
import { startGateway } from './server.js';
import type { GatewayClient, GatewayService } from './settings.js';

const retryMs = 2_000;

/** Runs a process that serves the gateway, with logs, `/metrics`, and a shutdown that lets requests finish. */
export async function runGatewayProcess(
  config: Config,
  { signal, ...servers }: Database & { temporal: TemporalSettings; signal: AbortSignal },
): Promise<void> {
  const log = createLogger({ level: config.logLevel, format: config.logFormat });
  const { queuePrefix, policy, database, limits, api } = config;
  const { databaseUrl, eraserUrl, directUrl, temporal } = servers;
  const service = new ConnectingService({
    ...{ databaseUrl, eraserUrl, directUrl, database, temporal, queuePrefix, policy, limits, log },
    turnLimits: config.turns,
    embeddings: embeddingsOf(config),
    poolSize: api.databaseConnections,
    tenantShare: api.tenantDatabaseShare,
  });
  let status: StatusServer | undefined;
  try {
    await service.connect((error) => log.warn({ failure: error.type }, error.message));
    const metrics = new Metrics();
    const gateway = await startGateway(
      {
        ...config.gateway,
        ...{ tokens: api.tokens, identity: identityOf(config), requireToken: api.requireToken, log },
        observe: (request) => metrics.gatewayRequest(request),
      },
      service,
    );
    const { address } = config.metrics;
    if (address !== undefined) status = await serveStatus(address, service, metrics, signal);
    const upstreams = Object.keys(config.gateway.upstreams);
    log.info({ address: gateway.address, upstreams, status: status?.url }, 'gateway is listening');
    preloadTokenizer();
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    log.info('gateway accepts no new requests');
    await gateway.close();
    log.info('gateway has stopped');
  } finally {
    await status?.close();
    await service.close();
  }
}

function serveStatus(
  address: string,
  service: ConnectingService,
  metrics: Metrics,
  stopping: AbortSignal,
): Promise<StatusServer> {
  return startStatusServer({
    ...{ address, metrics: () => metrics.text() },
    readiness: async () => {
      const found = await service.readiness();
      return { ready: !stopping.aborted && found.postgres === null, ...found };
    },
  });
}

/** Palimpsest, which may be away when the gateway starts: requests then pass without their sessions. */
class ConnectingService implements GatewayService {
  #palimpsest: Palimpsest | null = null;
  #failure = new PalimpsestError('Store.Unavailable', 'Palimpsest is not connected yet.');
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly options: PalimpsestOptions) {}

  /** Resolves after the first attempt; the others follow on their own. Throws a failure that no repetition cures. */
  async connect(failed: (error: PalimpsestError) => void): Promise<void> {
    try {
      const palimpsest = await Palimpsest.connect(this.options);
      if (this.#closed) await palimpsest.close();
      else this.#palimpsest = palimpsest;
    } catch (error) {
      if (!isFailure(error, 'Store.Unavailable') && !isFailure(error, 'Temporal.Unavailable')) throw error;
      this.#failure = error;
      failed(error);
      if (!this.#closed) this.#timer = setTimeout(() => void this.connect(failed).catch(failed), retryMs);
    }
  }

  forTenant(tenant: string): GatewayClient {
    return this.#connected().forTenant(tenant);
  }

  async accessByToken(token: string): Promise<TokenAccess | null> {
    return this.#connected().accessByToken(token);
  }

  async readiness(): Promise<Readiness> {
    if (this.#palimpsest) return this.#palimpsest.readiness();
    const { type, message } = this.#failure;
    return { postgres: { type, message }, temporal: null };
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#palimpsest?.close();
  }

  #connected(): Palimpsest {
    if (this.#palimpsest) return this.#palimpsest;
    const { message } = this.#failure;
    throw new PalimpsestError('Store.Unavailable', message, { cause: this.#failure });
  }
}
