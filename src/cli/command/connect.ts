/** The client of a command: over HTTP, or on the servers directly (`process/servers.ts`). */
import type { Config } from '../../config/config.js';
import type { PalimpsestClient } from '../../contract/client.js';
import { invalid } from '../../errors.js';
import { clientSettings, configOf } from '../../process/servers.js';

/** Options of every command, as typed. */
export interface Globals {
  json?: boolean;
  color: boolean;
  tenant?: string;
  databaseUrl?: string;
  temporalAddress?: string;
  url?: string;
  token?: string;
}

/** The API to call, or null if a command works on the servers directly. */
export function apiOf({ url, token, ...globals }: Globals): { url: string; token?: string } | null {
  const address = url ?? (process.env.PALIMPSEST_URL || undefined);
  if (address === undefined) return null;
  if (url === undefined && globals.databaseUrl !== undefined) return null;
  if (!URL.canParse(address) || !/^https?:$/.test(new URL(address).protocol))
    throw url === undefined
      ? invalid(
          `PALIMPSEST_URL is not an http(s) URL such as http://127.0.0.1:7280: ${address}`,
          'PALIMPSEST_URL',
          'Begin it with http:// or https://, or unset it.',
        )
      : invalid(
          `--url is not an http(s) URL such as http://127.0.0.1:7280: ${address}`,
          '--url',
          'Begin it with http:// or https://, then host and port.',
        );
  if (globals.tenant !== undefined)
    throw invalid('Over HTTP the token names the tenant.', '--tenant', 'Leave --tenant out.');
  const bearer = token ?? (process.env.PALIMPSEST_TOKEN || undefined);
  return { url: address, ...(bearer === undefined ? {} : { token: bearer }) };
}

/** For commands that work on the servers only. */
export function refuseUrl({ url }: Pick<Globals, 'url'>, command: string): void {
  if (url === undefined) return;
  throw invalid(
    `\`${command}\` works on PostgreSQL and Temporal directly, not over HTTP.`,
    '--url',
    'Leave --url out; name the servers with --database-url and --temporal-address if none are set.',
  );
}

const warnedOf = new Set<string>();

/** The configuration of a command. Warns on stderr, once in a process, of each variable that is no setting. */
export function configFor(...given: Parameters<typeof configOf>): Config {
  const config = configOf(...given);
  for (const { variable, nearest } of config.unknownVariables) {
    if (warnedOf.has(variable)) continue;
    warnedOf.add(variable);
    process.stderr.write(`warning: ${variable} is not a setting and is ignored. Did you mean ${nearest}?\n`);
  }
  return config;
}

/** The client that commands use, over HTTP or on the servers. */
export async function connectClient(globals: Globals): Promise<PalimpsestClient> {
  const api = apiOf(globals);
  if (api !== null) {
    const { HttpPalimpsest } = await import('../../http-client/index.js');
    return HttpPalimpsest.connect(api);
  }
  const settings = await clientSettings(configFor(globals));
  const { Palimpsest } = await import('../../library/palimpsest.js');
  return Palimpsest.connect({ ...settings, tenant: globals.tenant, poolSize: 4 });
}
