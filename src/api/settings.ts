import type { Logger } from 'pino';
import type { AppendedTurn, TurnOrText } from '../contract/turns.js';
import type { CreatedToken, TokenRequest } from '../contract/tokens.js';
import type { Asked, OfSession, PalimpsestClient } from '../contract/client.js';
import type { SyncOrText } from '../contract/sync.js';
import { invalid } from '../errors.js';
import type { TokenAccess, TokenMaker } from '../store/tokens/tokens.js';
import type { IdentitySettings } from './identity.js';
import type { Readiness } from '../process/readiness.js';

/** A token of the configuration. It has all scopes in its tenant, and no access to other tenants. */
export interface ConfiguredToken {
  tenant: string;
  /** Hash of the token's UTF-8 bytes, in hex. */
  sha256: string;
}

export interface ApiSettings {
  /** Address to listen on. @default '127.0.0.1' */
  host?: string;
  /** Port to listen on; 0 for a free one. @default 7280 */
  port?: number;
  /** Tokens in addition to those of the database. @default [] */
  tokens?: readonly ConfiguredToken[];
  /** An identity provider whose JWTs are accepted. @default none */
  identity?: IdentitySettings;
  /**
   * Whether every request needs a token. If not, callers on this machine without a token are the tenant `default` and may do
   * everything. @default false without tokens and identity provider on a loopback address, else true
   */
  requireToken?: boolean;
  /** Maximum bytes of the body of a turn, and of any other body if this is less than its own limit. @default 33,554,432 (32 MiB) */
  bodyLimitBytes?: number;
  /** Milliseconds within which a request must arrive completely. An answer may take longer. @default 30,000 */
  requestTimeoutMs?: number;
  /** Milliseconds within which the headers of a request must arrive. @default 10,000 */
  headersTimeoutMs?: number;
  /** Minimum rate of a body. A body that arrives more slowly within any five seconds is aborted. @default 1,000 */
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

/** A client that also takes the messages of a turn as text, and the maker of a token. */
export interface ApiClient extends Omit<PalimpsestClient, 'appendTurn'> {
  createTokenBy(maker: TokenMaker | undefined, request: TokenRequest): Promise<CreatedToken>;
  appendTurn(turn: TurnOrText): Promise<AppendedTurn>;
  /** The answers of `context` and `sync` as pieces of their JSON, made once. */
  contextJson(request: Asked<'context'>): Promise<{ etag: string; pieces: string[] }>;
  syncJson(request: OfSession & SyncOrText): Promise<string[]>;
}

/** The service behind the API: `Palimpsest`, connected once for all tenants. */
export interface ApiService {
  forTenant(tenant: string): ApiClient;
  /** The access that a token of the database gives now; null for none. Throws `Store.Unavailable`. */
  accessByToken(token: string): Promise<TokenAccess | null>;
  readiness(): Promise<Readiness>;
}

type Optional = 'identity' | 'log' | 'metrics' | 'observe' | 'observeRefusal';
export type CompleteSettings = Required<Omit<ApiSettings, Optional>> & Pick<ApiSettings, Optional>;

const mebibyte = 1024 * 1024;

/** Throws `Input.Invalid` naming the setting. */
export function checkedSettings(settings: ApiSettings): CompleteSettings {
  const complete = {
    host: '127.0.0.1',
    port: 7280,
    tokens: [],
    requireToken:
      (settings.tokens ?? []).length > 0 ||
      settings.identity !== undefined ||
      !isLoopback(settings.host ?? '127.0.0.1'),
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
  complete.tokens.forEach(({ tenant, sha256 }: ConfiguredToken, index) => {
    if (tenant === '') throw invalid('a token needs a tenant', `tokens[${index}].tenant`);
    if (!/^[0-9a-f]{64}$/i.test(sha256))
      throw invalid(
        'this is not a sha256 in hex',
        `tokens[${index}].sha256`,
        'Compute it with `printf %s TOKEN | sha256sum`.',
      );
  });
  if (!complete.requireToken && !isLoopback(complete.host)) {
    throw invalid(
      `without \`requireToken\` the API listens on the loopback interface only, not on ${complete.host}`,
      'requireToken',
      'Leave it out, or keep the host 127.0.0.1.',
    );
  }
  return complete;
}

export function isLoopback(host: string): boolean {
  return /^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}
