/** Where a command works: over HTTP, on the servers that are named, or on the embedded ones of a running `npm start`. */
import type { PalimpsestClient } from '../../contract/client.js';
import { embeddingsOf, readConfig, type Config } from '../../config/config.js';
import { invalid } from '../../errors.js';
import type { TemporalSettings } from '../../temporal/connection.js';

/** Options that every command takes, as typed. */
export interface Globals {
  json?: boolean;
  color: boolean;
  tenant?: string;
  databaseUrl?: string;
  temporalAddress?: string;
  url?: string;
  token?: string;
}

export interface FoundServers {
  databaseUrl: string;
  temporal: TemporalSettings;
  /** Web UI of the embedded Temporal server; null where the server is somebody else's. */
  uiUrl: string | null;
}

/** The configuration with what the command line says about servers on top. */
export function configOf({
  databaseUrl,
  temporalAddress,
}: Pick<Globals, 'databaseUrl' | 'temporalAddress'>): Config {
  return readConfig({
    ...process.env,
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
    ...(temporalAddress === undefined ? {} : { TEMPORAL_ADDRESS: temporalAddress }),
  });
}

/** The API that is asked, or null where a command works on the servers themselves. */
export function apiOf({ url, token, ...globals }: Globals): { url: string; token?: string } | null {
  const address = url ?? (process.env.PALIMPSEST_URL || undefined);
  if (address === undefined) return null;
  if (url === undefined && globals.databaseUrl !== undefined) return null;
  if (!URL.canParse(address) || !/^https?:$/.test(new URL(address).protocol))
    throw invalid(`--url is not an http(s) URL: ${address}`, '--url', 'e.g. --url http://127.0.0.1:7280');
  if (globals.tenant !== undefined)
    throw invalid('Over HTTP the token says which tenant it is.', '--tenant', 'Leave --tenant out.');
  const bearer = token ?? (process.env.PALIMPSEST_TOKEN || undefined);
  return { url: address, ...(bearer === undefined ? {} : { token: bearer }) };
}

/** For what works on servers only. */
export function refuseUrl({ url }: Pick<Globals, 'url'>, command: string): void {
  if (url === undefined) return;
  throw invalid(
    `\`${command}\` works on PostgreSQL and Temporal themselves, not over HTTP.`,
    '--url',
    'Leave --url out; name the servers with --database-url and --temporal-address where none are set.',
  );
}

/** PostgreSQL alone, for what needs no more. Throws `Input.Invalid` with the next step where none is named and none runs. */
export async function findDatabase(config: Config): Promise<string> {
  if (config.databaseUrl !== undefined) return config.databaseUrl;
  const { runningPostgres } = await import('../../runtime/postgres.js');
  return runningPostgres(config.dataDir) ?? missing('DATABASE_URL', 'PostgreSQL', config);
}

export async function findServers(config: Config): Promise<FoundServers> {
  return { databaseUrl: await findDatabase(config), ...(await findTemporal(config)) };
}

export async function findTemporal(config: Config): Promise<Omit<FoundServers, 'databaseUrl'>> {
  const { address } = config.temporal;
  if (address !== undefined) return { temporal: { ...config.temporal, address }, uiUrl: null };
  const { runningTemporal } = await import('../../runtime/temporal.js');
  const embedded = runningTemporal(config.dataDir) ?? missing('TEMPORAL_ADDRESS', 'Temporal server', config);
  return { temporal: { ...config.temporal, address: embedded.address }, uiUrl: embedded.uiUrl };
}

function missing(variable: string, server: string, { dataDir }: Config): never {
  throw invalid(
    `${variable} is not set, and no embedded ${server} runs in ${dataDir}.`,
    variable,
    'Start one with `npm start` (`palimpsest dev`) in another terminal, set DATABASE_URL and TEMPORAL_ADDRESS, or name an API with --url.',
  );
}

/** The client that commands are written against, whichever way it works. */
export async function connectClient(globals: Globals): Promise<PalimpsestClient> {
  const api = apiOf(globals);
  if (api !== null) {
    const { HttpPalimpsest } = await import('../../http-client/index.js');
    return HttpPalimpsest.connect(api);
  }
  const config = configOf(globals);
  const { databaseUrl, temporal } = await findServers(config);
  const { Palimpsest } = await import('../../library/palimpsest.js');
  return Palimpsest.connect({
    databaseUrl,
    temporal,
    tenant: globals.tenant,
    queuePrefix: config.queuePrefix,
    poolSize: 4,
    database: config.database,
    policy: config.policy,
    turnLimits: config.turns,
    embeddings: embeddingsOf(config),
  });
}
