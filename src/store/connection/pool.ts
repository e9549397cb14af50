import type { Socket } from 'node:net';
import pg, { type Pool } from 'pg';
import { LRUCache } from 'lru-cache';
import { invalid, PalimpsestError } from '../../errors.js';
import type { TenantLimits } from '../../policy/tenant-limits.js';
import { Places } from './places.js';

/** Time limits of statements and transactions, so that none blocks the others. */
export interface DatabaseTimeouts {
  /** Milliseconds that a call waits for a connection, free or new. @default 5,000 */
  connectionTimeoutMs?: number;
  /**
   * Milliseconds after which the server cancels a statement. Every statement of this product takes far less. @default 60,000
   */
  statementTimeoutMs?: number;
  /**
   * Milliseconds that a statement waits for a lock before it fails with `Store.Busy`. Longer than a normal transaction takes,
   * shorter than a caller waits. @default 5,000
   */
  lockTimeoutMs?: number;
  /**
   * Milliseconds after which the server ends a silent transaction and frees its locks, because the client's process was stopped
   * or cut off. This is the longest time that a worker may be silent within a transaction. @default 10,000
   */
  idleTransactionTimeoutMs?: number;
  /**
   * Milliseconds without an answer after which the client abandons a connection and opens another, because the server is
   * stopped or packets are dropped. @default 5,000 more than a statement may take
   */
  silenceTimeoutMs?: number;
}

/** Connection strings of roles that may do more than serve one tenant (docs/operating.md). */
export interface RoleUrls {
  /** For work that finds the tenants and sessions that need something: role palimpsest_maintenance. @default the pool's own */
  maintenanceUrl?: string;
  /** For erasures: role palimpsest_eraser. @default the pool's own */
  eraserUrl?: string;
}

export interface PoolOptions extends DatabaseTimeouts, RoleUrls {
  /** Maximum number of connections. @default 10 */
  max?: number;
  /** Share of the connections that the calls of one tenant may use. @default 0.5 */
  tenantShare?: number;
  /** The operator's limits for tenants without limits of their own. @default none */
  limits?: TenantLimits;
  /** Shown in pg_stat_activity. @default 'palimpsest' */
  applicationName?: string;
  /** Called when an idle connection is lost. The pool replaces it. */
  onIdleError?: (error: Error) => void;
}

const defaultConnectionTimeoutMs = 5_000;
/** A connection without traffic is probed after this time, and abandoned within ten seconds more. */
const keepAliveAfterMs = 10_000;

/**
 * Closes the socket if the login fails. `pg` would leave it open, and the server would wait a minute for the rest of the login;
 * meanwhile every `create database` and `drop database` on that server waits as well.
 */
export class Client extends pg.Client {
  /** Of pg; its types leave them out. */
  declare readonly ref: () => void;
  declare readonly unref: () => void;

  constructor(config?: pg.ClientConfig) {
    super(config);
    endOnUnreadable(this.connection as unknown as Attaching);
  }

  override connect(): Promise<pg.Client>;
  override connect(callback: (error: Error | null, client: pg.Client) => void): void;
  override connect(callback?: (error: Error | null, client: pg.Client) => void): Promise<pg.Client> | void {
    if (callback === undefined) return super.connect();
    super.connect((error: Error | null, client?: pg.Client) => {
      if (error) this.connection.stream.destroy();
      callback(error, client ?? this);
    });
  }
}

/** The part of pg's connection that its types leave out. */
interface Attaching {
  attachListeners(stream: Socket): void;
}

/**
 * Closes a connection whose answer cannot be read, such as a text that exceeds the longest string. pg would throw in a listener,
 * where nothing catches the error, and the process would end.
 */
function endOnUnreadable(connection: Attaching): void {
  const attach = connection.attachListeners.bind(connection);
  connection.attachListeners = (stream) => {
    attach(stream);
    const listeners = stream.listeners('data') as ((bytes: Buffer) => void)[];
    const parse = listeners.at(-1);
    if (parse === undefined) return;
    stream.off('data', parse);
    stream.on('data', (bytes: Buffer) => {
      try {
        parse(bytes);
      } catch (cause) {
        const message = cause instanceof Error ? cause.message : String(cause);
        stream.destroy(
          new PalimpsestError('Store.Corrupt', `an answer of PostgreSQL cannot be read: ${message}`, {
            hint: 'Find the row that is larger than this product stores, and delete it as the eraser.',
            cause,
          }),
        );
      }
    });
  };
}

/** A pool that ends others with itself. */
class LeadingPool extends pg.Pool {
  constructor(
    private readonly others: readonly Pool[],
    config: pg.PoolConfig,
  ) {
    super(config);
  }

  override end(): Promise<void>;
  override end(callback: () => void): void;
  override end(callback?: () => void): Promise<void> | void {
    const ended = Promise.all([super.end(), ...this.others.map((pool) => pool.end())]).then(() => undefined);
    if (callback === undefined) return ended;
    void ended.then(callback);
  }
}

/** What the process knows about tenants, for each pool. */
export interface KnownTenants {
  limits: TenantLimits | undefined;
  /** Stored bytes by tenant, some seconds old (src/store/tenants/storage.ts). */
  stored: LRUCache<string, { bytes: number; until: number }>;
}

/** Maximum number of tenants whose stored bytes are cached. */
const mostTenants = 10_000;

const tenants = new WeakMap<Pool, KnownTenants>();

export function knownTenants(pool: Pool): KnownTenants {
  const known = tenants.get(pool) ?? { limits: undefined, stored: new LRUCache({ max: mostTenants }) };
  tenants.set(pool, known);
  return known;
}

const places = new WeakMap<Pool, Places>();
const ofRoles = new WeakMap<Pool, { maintenance?: Pool; eraser?: Pool }>();

/** Maximum number of connections of a role other than the pool's own. */
const mostOfRole = 2;

/** The connections for functions that find work across tenants. */
export function maintenanceOf(pool: Pool): Pool {
  return ofRoles.get(pool)?.maintenance ?? pool;
}

/** The connections for erasures. */
export function eraserOf(pool: Pool): Pool {
  return ofRoles.get(pool)?.eraser ?? pool;
}

/** The queue for the connections of a pool. */
export function placesOf(pool: Pool): Places {
  const known = places.get(pool);
  if (known) return known;
  const made = new Places({ most: pool.options.max, waitMs: defaultConnectionTimeoutMs });
  places.set(pool, made);
  return made;
}

/**
 * A pool for this store. It connects at the first query; end it with `await pool.end()`, which also ends the connections of the
 * other roles. Throws `Store.Unavailable` if a connection string is invalid.
 */
export function openPool(
  databaseUrl: string,
  { maintenanceUrl, eraserUrl, limits, ...options }: PoolOptions = {},
): Pool {
  const { applicationName = 'palimpsest' } = options;
  const poolOf = (role: string, url: string | undefined, path: string) =>
    url === undefined
      ? undefined
      : openOne(url, { ...options, max: mostOfRole, applicationName: `${applicationName} ${role}` }, path);
  const maintenance = poolOf('maintenance', maintenanceUrl, 'PALIMPSEST_MAINTENANCE_URL');
  const eraser = poolOf('eraser', eraserUrl, 'PALIMPSEST_ERASER_URL');
  const others = [maintenance, eraser].filter((pool) => pool !== undefined);
  const pool = openOne(databaseUrl, { ...options, applicationName }, 'DATABASE_URL', others);
  ofRoles.set(pool, { maintenance, eraser });
  knownTenants(pool).limits = limits;
  return pool;
}

function openOne(
  databaseUrl: string,
  options: PoolOptions,
  path: string,
  others: readonly Pool[] = [],
): Pool {
  const { max = 10, tenantShare = 0.5, applicationName = 'palimpsest', onIdleError } = options;
  const { connectionTimeoutMs = defaultConnectionTimeoutMs } = options;
  const { statementTimeoutMs = 60_000, lockTimeoutMs = 5_000, idleTransactionTimeoutMs = 10_000 } = options;
  const { silenceTimeoutMs = statementTimeoutMs + 5_000 } = options;
  checkDatabaseUrl(databaseUrl, path);
  const pool = new LeadingPool(others, {
    Client,
    connectionString: databaseUrl,
    max,
    application_name: applicationName,
    statement_timeout: statementTimeoutMs,
    lock_timeout: lockTimeoutMs,
    idle_in_transaction_session_timeout: idleTransactionTimeoutMs,
    query_timeout: silenceTimeoutMs,
    connectionTimeoutMillis: connectionTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveAfterMs,
    // A stopped process that does not read its answer keeps its transaction open, and no other timeout of the server ends it.
    // A server without this setting refuses the statement; the connection is used without it.
    verify: (client, done) => {
      const ready = () => done();
      client.query(`set tcp_user_timeout = ${idleTransactionTimeoutMs}`).then(ready, ready);
    },
  });
  // Without a listener the loss of an idle connection ends the process.
  pool.on('error', (error) => onIdleError?.(error));
  places.set(pool, new Places({ most: max, tenantShare, waitMs: connectionTimeoutMs }));
  return pool;
}

/** Throws `Store.Unavailable` for an invalid connection string, `Input.Invalid` for a value that is not a string. */
export function checkDatabaseUrl(databaseUrl: unknown, path = 'DATABASE_URL'): void {
  const hint =
    'Write it as postgresql://user:password@host:5432/database, with special characters percent-encoded.';
  if (typeof databaseUrl !== 'string') {
    const given = databaseUrl === null ? 'null' : typeof databaseUrl;
    throw invalid(`databaseUrl must be a string, not ${given}`, 'databaseUrl', hint);
  }
  if (/^postgres(ql)?:\/\//.test(databaseUrl) && canDecode(databaseUrl)) return;
  throw new PalimpsestError('Store.Unavailable', `${path} is not a PostgreSQL connection string`, {
    path,
    hint,
  });
}

function canDecode(url: string): boolean {
  try {
    const { username, password, pathname } = new URL(url);
    for (const part of [username, password, pathname]) decodeURIComponent(part);
    return true;
  } catch {
    return false;
  }
}
