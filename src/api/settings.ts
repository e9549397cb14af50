import type { Logger } from 'pino';
import type { AppendedTurn, TurnOrText } from '../contract/turns.js';
import type { PalimpsestClient } from '../contract/client.js';
import { invalid } from '../errors.js';
import type { Readiness } from '../process/readiness.js';

/** A token gives full access to its tenant and none to other tenants. */
export interface ApiToken {
  tenant: string;
  /** Hash of the token's UTF-8 bytes, in hex. */
  sha256: string;
}

export interface ApiSettings {
  /** Address to listen on. Without tokens only the loopback interface is allowed. @default '127.0.0.1' */
  host?: string;
  /** Port to listen on; 0 for a free one. @default 7280 */
  port?: number;
  /** The tokens. If there are none, no token is required, and every caller is the tenant `default`. @default [] */
  tokens?: readonly ApiToken[];
  /** Maximum bytes of the body of a turn. Any other body has at most 1 MiB, or this size if it is smaller. @default 33,554,432 (32 MiB) */
  bodyLimitBytes?: number;
  /** Milliseconds within which a request must arrive completely. An answer may take longer. @default 30,000 */
  requestTimeoutMs?: number;
  /** Milliseconds within which the headers of a request must arrive. @default 10,000 */
  headersTimeoutMs?: number;
  /** A body that arrives more slowly in any five seconds is aborted. @default 1,000 */
  minBodyBytesPerSecond?: number;
  /**
   * Maximum number of concurrent requests, including requests that wait for a compaction. Further requests are refused. @default
   * 1,000
   */
  maxInFlight?: number;
  /** Concurrent requests of one tenant. @default 250 */
  tenantRequests?: number;
  /** Bytes of all bodies in progress. @default 268,435,456 (256 MiB) */
  maxBodyBytes?: number;
  /** Bytes of one tenant's bodies in progress. @default 100,663,296 (96 MiB) */
  tenantBodyBytes?: number;
  /** Concurrent requests of one tenant that wait for compactions. @default 100 */
  tenantWaits?: number;
  /** Connections of one tenant, including idle ones. @default 500 */
  tenantConnections?: number;
  /**
   * Connections that have shown no token yet. Beyond this number, or a quarter of it for one address, the oldest is
   * closed. @default 1,000
   */
  unknownConnections?: number;
  /** Milliseconds until running requests are aborted when the server closes. @default 10,000 */
  shutdownGraceMs?: number;
  /**
   * Logs one line for each request: method, route, status, milliseconds, tenant; never texts, tokens or queries.
   * @default silent
   */
  log?: Logger;
  /** Called for every request that has ended. `route` is its pattern, or null for an unknown path. */
  observe?: (request: { method: string; route: string | null; status: number; seconds: number }) => void;
  /** Called for every refusal because of a limit, with the limit's name. */
  observeRefusal?: (limit: string) => void;
  /** Text of `/metrics` in Prometheus's format. @default no `/metrics` */
  metrics?: () => Promise<string>;
}

/** A client that also takes the messages of a turn as text. */
export interface ApiClient extends Omit<PalimpsestClient, 'appendTurn'> {
  appendTurn(turn: TurnOrText): Promise<AppendedTurn>;
}

/** The service behind the API: `Palimpsest`, connected once for all tenants. */
export interface ApiService {
  forTenant(tenant: string): ApiClient;
  readiness(): Promise<Readiness>;
}

type Told = 'log' | 'metrics' | 'observe' | 'observeRefusal';
export type CompleteSettings = Required<Omit<ApiSettings, Told>> & Pick<ApiSettings, Told>;

const mebibyte = 1024 * 1024;

/** Throws `Input.Invalid` naming the setting. */
export function checkedSettings(settings: ApiSettings): CompleteSettings {
  const complete = {
    host: '127.0.0.1',
    port: 7280,
    tokens: [],
    bodyLimitBytes: 32 * mebibyte,
    requestTimeoutMs: 30_000,
    headersTimeoutMs: 10_000,
    minBodyBytesPerSecond: 1_000,
    maxInFlight: 1_000,
    tenantRequests: 250,
    maxBodyBytes: 256 * mebibyte,
    tenantBodyBytes: 96 * mebibyte,
    tenantWaits: 100,
    tenantConnections: 500,
    unknownConnections: 1_000,
    shutdownGraceMs: 10_000,
    ...Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)),
  };
  complete.tokens.forEach(({ tenant, sha256 }: ApiToken, index) => {
    if (tenant === '') throw invalid('a token needs a tenant', `tokens[${index}].tenant`);
    if (!/^[0-9a-f]{64}$/i.test(sha256))
      throw invalid(
        'this is not a sha256 in hex',
        `tokens[${index}].sha256`,
        'Compute it with `printf %s TOKEN | sha256sum`.',
      );
  });
  if (complete.tokens.length === 0 && !isLoopback(complete.host)) {
    throw invalid(
      `without tokens the API listens on the loopback interface only, not on ${complete.host}`,
      'tokens',
      'Set PALIMPSEST_API_TOKENS=tenant:token, or keep the host 127.0.0.1.',
    );
  }
  return complete;
}

export function isLoopback(host: string): boolean {
  return /^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}
