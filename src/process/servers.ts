/** The PostgreSQL and Temporal servers of a caller that names none: from the configuration, else from a running `dev`. */
import { embeddingsOf, readConfig, type Config } from '../config/config.js';
import { invalid } from '../errors.js';
import { programName } from '../runtime/program.js';
import type { TemporalSettings } from '../temporal/connection.js';

export interface FoundServers {
  databaseUrl: string;
  temporal: TemporalSettings;
  /** Web UI of the embedded Temporal server; null for any other server. */
  uiUrl: string | null;
}

/** The configuration, with the servers that a caller names in place of its own. */
export function configOf({
  databaseUrl,
  temporalAddress,
}: {
  databaseUrl?: string;
  temporalAddress?: string;
}): Config {
  return readConfig({
    ...process.env,
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
    ...(temporalAddress === undefined ? {} : { TEMPORAL_ADDRESS: temporalAddress }),
  });
}

/** PostgreSQL alone. Throws `Input.Invalid`, which gives the next step, if none is named and none runs. */
export async function findDatabase(config: Config): Promise<string> {
  if (config.databaseUrl !== undefined) return config.databaseUrl;
  const { runningPostgres } = await import('../runtime/postgres.js');
  return runningPostgres(config.dataDir) ?? missing('DATABASE_URL', 'PostgreSQL', config);
}

export async function findTemporal(config: Config): Promise<Omit<FoundServers, 'databaseUrl'>> {
  const { address } = config.temporal;
  if (address !== undefined) return { temporal: { ...config.temporal, address }, uiUrl: null };
  const { runningTemporal } = await import('../runtime/temporal.js');
  const embedded = runningTemporal(config.dataDir) ?? missing('TEMPORAL_ADDRESS', 'Temporal server', config);
  return { temporal: { ...config.temporal, address: embedded.address }, uiUrl: embedded.uiUrl };
}

export async function findServers(config: Config): Promise<FoundServers> {
  return { databaseUrl: await findDatabase(config), ...(await findTemporal(config)) };
}

/** The options with which the library connects. */
export async function clientSettings(config: Config) {
  const { databaseUrl, temporal } = await findServers(config);
  return {
    databaseUrl,
    temporal,
    queuePrefix: config.queuePrefix,
    database: config.database,
    policy: config.policy,
    turnLimits: config.turns,
    embeddings: embeddingsOf(config),
  };
}

function missing(variable: string, server: string, { dataDir }: Config): never {
  throw invalid(
    `${variable} is not set, and no embedded ${server} runs in ${dataDir}.`,
    variable,
    `Start one with \`${programName()} dev\` in another terminal, or set DATABASE_URL and TEMPORAL_ADDRESS; PALIMPSEST_DATA names the data folder of a \`dev\` that was started elsewhere. With --url, commands use an API instead.`,
  );
}
