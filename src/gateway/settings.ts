import type { Logger } from 'pino';
import type { ApiSettings } from '../api/settings.js';
import type { PalimpsestClient } from '../contract/client.js';
import type { Palimpsest } from '../library/palimpsest.js';
import type { TokenAccess } from '../store/tokens/tokens.js';

export interface GatewaySettings extends Pick<ApiSettings, 'tokens' | 'identity' | 'requireToken'> {
  /** Address to listen on. @default '127.0.0.1' */
  host?: string;
  /** Port to listen on; 0 for a free one. @default 7281 */
  port?: number;
  /** Addresses of upstreams by name. */
  upstreams: Readonly<Record<string, string>>;
  /** Keys of providers, by the name of the upstream. A request to such an upstream needs access to Palimpsest. */
  keys?: Readonly<Record<string, string>>;
  /** Field of the body with the session, for requests without the header: `metadata.session`. */
  sessionField?: string;
  /** What happens to a request whose session cannot be used: `pass` sends it to the model as it came. @default 'pass' */
  onFailure?: 'pass' | 'refuse';
  /** Maximum bytes of a request with a session, and of an answer that is stored. @default 33,554,432 (32 MiB) */
  bodyLimitBytes?: number;
  /** Maximum bytes of the bodies of all requests in progress. @default 268,435,456 (256 MiB) */
  maxBodyBytes?: number;
  /** Maximum number of concurrent requests. @default 1,000 */
  maxInFlight?: number;
  /** Milliseconds of silence after which a request to an upstream ends. @default 600,000 */
  upstreamTimeoutMs?: number;
  /** Milliseconds that a request waits for its session, and the end of an answer that the client can name. @default 10,000 */
  storeTimeoutMs?: number;
  /** Milliseconds after which an answer that no request has repeated is stored. @default 60,000 */
  answerAfterMs?: number;
  /** Milliseconds until running requests are aborted when the server closes. @default 10,000 */
  shutdownGraceMs?: number;
  /** Logs one line for each request, never texts, keys or sessions. @default silent */
  log?: Logger;
  /** Called for every request that has ended. */
  observe?: (request: GatewayRequest) => void;
}

/** Figures of a request. */
export interface GatewayRequest {
  upstream: string | null;
  /** The interface with a session; null for a request that passed without one. */
  endpoint: string | null;
  status: number;
  /** Seconds until the request went to the upstream. */
  ownSeconds: number;
  /** The failure because of which the request passed without its session. */
  bypassed: string | null;
  /** Calls of recovery tools that were answered. */
  recovered: number;
}

/** The methods that the gateway calls. */
export type GatewayClient = Pick<
  PalimpsestClient,
  'appendTurn' | 'context' | 'policy' | 'search' | 'expand' | 'toolResponse'
> &
  Pick<Palimpsest, 'syncSizes'>;

/** Palimpsest, for all tenants. Each method throws `Store.Unavailable` as long as the database is away. */
export interface GatewayService {
  forTenant(tenant: string): GatewayClient;
  accessByToken(token: string): Promise<TokenAccess | null>;
}
