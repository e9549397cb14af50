import type { Logger } from 'pino';
import type { AppendedTurn, PalimpsestClient } from '../contract/client.js';
import type { TurnOrText } from '../library/palimpsest.js';
import { invalid } from '../errors.js';
import type { Readiness } from '../process/readiness.js';

/** A token may do everything within its tenant and sees nothing beyond it. */
export interface ApiToken {
  tenant: string;
  /** Of the token's UTF-8 bytes, in hex. */
  sha256: string;
}

export interface ApiSettings {
  /** Address to listen on; without tokens only the loopback interface. @default '127.0.0.1' */
  host?: string;
  /** 0 takes a free one. @default 7280 */
  port?: number;
  /** None: no token is asked for, every caller is the tenant `default`. @default [] */
  tokens?: readonly ApiToken[];
  /** Bytes of a request's body at most. @default 33,554,432 (32 MiB) */
  bodyLimitBytes?: number;
  /** Milliseconds in which a request must have arrived whole; an answer may take longer. @default 30,000 */
  requestTimeoutMs?: number;
  /** Milliseconds in which the headers of a request must have arrived. @default 10,000 */
  headersTimeoutMs?: number;
  /** A body that arrives more slowly, in any five seconds, is given up. @default 1,000 */
  minBodyBytesPerSecond?: number;
  /** Requests that may be in work at once, those that wait for a compaction included; more are refused. @default 1,000 */
  maxInFlight?: number;
  /** The same of one tenant. @default 250 */
  tenantRequests?: number;
  /** Bytes of all bodies in work. @default 268,435,456 (256 MiB) */
  maxBodyBytes?: number;
  /** The same of one tenant. @default 100,663,296 (96 MiB) */
  tenantBodyBytes?: number;
  /** Requests of one tenant that may wait for compactions at once. @default 100 */
  tenantWaits?: number;
  /** Connections of one tenant, idle ones included. @default 500 */
  tenantConnections?: number;
  /** Connections that have shown no token yet; beyond it, and beyond a quarter of it for an address, the oldest is closed. @default 1,000 */
  unknownConnections?: number;
  /** Milliseconds that requests in work may take once the server closes; then they are cut off. @default 10,000 */
  shutdownGraceMs?: number;
  /** One line a request: method, route, status, milliseconds, tenant; never texts, tokens or queries. @default silent */
  log?: Logger;
  /** Told of every request that has ended. `route` is its pattern; null where there is no such path. */
  observe?: (request: { method: string; route: string | null; status: number; seconds: number }) => void;
  /** Told of every refusal for a limit, by its name. */
  observeRefusal?: (limit: string) => void;
  /** Text of `/metrics` in Prometheus's format. @default `/metrics` is not there */
  metrics?: () => Promise<string>;
}

/** A client that takes the messages of a turn as text, too. */
export interface ApiClient extends Omit<PalimpsestClient, 'appendTurn'> {
  appendTurn(turn: TurnOrText): Promise<AppendedTurn>;
}

/** What the API serves: `Palimpsest`, connected once for all tenants. */
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
    if (tenant === '') throw invalid('a token needs its tenant', `tokens[${index}].tenant`);
    if (!/^[0-9a-f]{64}$/i.test(sha256))
      throw invalid('not a sha256 in hex', `tokens[${index}].sha256`, 'Take `printf %s TOKEN | sha256sum`.');
  });
  if (complete.tokens.length === 0 && !isLoopback(complete.host)) {
    throw invalid(
      `without tokens the API listens on the loopback interface only, not on ${complete.host}`,
      'tokens',
      'Set PALIMPSEST_API_TOKENS=tenant:token, or leave the host at 127.0.0.1.',
    );
  }
  return complete;
}

export function isLoopback(host: string): boolean {
  return /^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}
