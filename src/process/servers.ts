/** The PostgreSQL and Temporal servers of a caller that names none: from the configuration, else from a running `dev`. */
import { embeddingsOf, readConfig, type Config } from '../config/config.js';
import { invalid } from '../errors.js';
import { programName } from '../runtime/program.js';
import type { RoleUrls } from '../store/connection/pool.js';
import { passwordsFor, type RolePasswords, urlsFor } from '../store/connection/roles.js';
import type { TemporalSettings } from '../temporal/connection.js';

/** A database, with the connection strings of its roles. */
export interface Database extends RoleUrls {
  databaseUrl: string;
  /** Without a pooler in between. @default `databaseUrl` */
  directUrl?: string;
}

export interface FoundServers extends Database {
  temporal: TemporalSettings;
  /** Web UI of the embedded Temporal server; null for any other server. */
  uiUrl: string | null;
}

/**
 * Returns the configuration, in which the servers that a caller names, and the other variables that it sets, replace the
 * configured ones.
 */
export function configOf(
  { databaseUrl, temporalAddress }: { databaseUrl?: string; temporalAddress?: string },
  variables: Readonly<Record<string, string>> = {},
): Config {
  const config = readConfig({
    ...process.env,
    ...variables,
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
    ...(temporalAddress === undefined ? {} : { TEMPORAL_ADDRESS: temporalAddress }),
  });
  // The other URLs of the configuration belong to its own database.
  return databaseUrl === undefined
    ? config
    : { ...config, maintenanceUrl: undefined, eraserUrl: undefined, directUrl: undefined };
}

/**
 * Finds PostgreSQL alone. Throws `Input.Invalid`, which gives the next step, if no server is named and no embedded server runs.
 */
export async function findDatabase(config: Config): Promise<Database> {
  const { databaseUrl, maintenanceUrl, eraserUrl, directUrl } = config;
  if (databaseUrl !== undefined) return { databaseUrl, maintenanceUrl, eraserUrl, directUrl };
  return urlsFor(await embeddedPostgres(config));
}

/**
 * Finds the database for migrations. With the embedded server, the migrations also make the roles; with another server, its
 * operator decides about roles.
 */
export async function findOwner(config: Config): Promise<{ url: string; roles?: RolePasswords }> {
  if (config.databaseUrl !== undefined) return { url: config.databaseUrl };
  const url = await embeddedPostgres(config);
  return { url, roles: passwordsFor(url) };
}

async function embeddedPostgres(config: Config): Promise<string> {
  const { runningPostgres } = await import('../runtime/postgres.js');
  return runningPostgres(config.dataDir) ?? missing('DATABASE_URL', 'PostgreSQL', config);
}

export async function findTemporal(config: Config): Promise<Omit<FoundServers, keyof Database>> {
  const { address } = config.temporal;
  if (address !== undefined) return { temporal: { ...config.temporal, address }, uiUrl: null };
  const { runningTemporal } = await import('../runtime/temporal.js');
  const embedded = runningTemporal(config.dataDir) ?? missing('TEMPORAL_ADDRESS', 'Temporal server', config);
  return { temporal: { ...config.temporal, address: embedded.address }, uiUrl: embedded.uiUrl };
}

export async function findServers(config: Config): Promise<FoundServers> {
  return { ...(await findDatabase(config)), ...(await findTemporal(config)) };
}

/** The options with which the library connects. */
export async function clientSettings(config: Config) {
  const { databaseUrl, eraserUrl, directUrl, temporal } = await findServers(config);
  return {
    databaseUrl,
    eraserUrl,
    directUrl,
    temporal,
    queuePrefix: config.queuePrefix,
    database: config.database,
    policy: config.policy,
    limits: config.limits,
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
