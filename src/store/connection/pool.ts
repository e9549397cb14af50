import pg, { type Pool } from 'pg';
import { invalid, PalimpsestError } from '../../errors.js';
import { Places } from './places.js';

/** What one statement or transaction may take of everybody else's time. */
export interface DatabaseTimeouts {
  /** Milliseconds after which the server ends a statement. Every statement here takes far less. @default 60,000 */
  statementTimeoutMs?: number;
  /**
   * Milliseconds that a statement waits for a lock, then it fails with `Store.Busy`. Longer than a transaction takes
   * that works; shorter than a caller's patience. @default 5,000
   */
  lockTimeoutMs?: number;
  /**
   * Milliseconds after which the server ends a transaction whose process says nothing, with its locks: that of a process
   * that was stopped or cut off. As long as a step of a worker may be silent. @default 10,000
   */
  idleTransactionTimeoutMs?: number;
  /**
   * Milliseconds without an answer after which this side gives a connection up and opens another: the server is stopped, or
   * packets are dropped. @default 5,000 more than a statement may take
   */
  silenceTimeoutMs?: number;
}

export interface PoolOptions extends DatabaseTimeouts {
  /** Connections at most. @default 10 */
  max?: number;
  /** Share of them that one tenant may hold, where callers have one. @default 0.5 */
  tenantShare?: number;
  /** Shown in pg_stat_activity. @default 'palimpsest' */
  applicationName?: string;
  /** Told when an idle connection is lost; the pool replaces it by itself. */
  onIdleError?: (error: Error) => void;
}

/** Milliseconds that a call waits for a connection, be it for a free one or for a new one. */
const connectionTimeoutMs = 5_000;
/** A connection without traffic is probed from then on, and given up within ten seconds more. */
const keepAliveAfterMs = 10_000;

const places = new WeakMap<Pool, Places>();

/** In which order the connections of a pool are given out. */
export function placesOf(pool: Pool): Places {
  const known = places.get(pool);
  if (known) return known;
  const made = new Places({ most: pool.options.max, waitMs: connectionTimeoutMs });
  places.set(pool, made);
  return made;
}

/**
 * A pool for this store. Connects at the first query; `await pool.end()` when done. Throws `Store.Unavailable` where
 * the connection string cannot be read.
 */
export function openPool(databaseUrl: string, options: PoolOptions = {}): Pool {
  const { max = 10, tenantShare = 0.5, applicationName = 'palimpsest', onIdleError } = options;
  const { statementTimeoutMs = 60_000, lockTimeoutMs = 5_000, idleTransactionTimeoutMs = 10_000 } = options;
  const { silenceTimeoutMs = statementTimeoutMs + 5_000 } = options;
  checkDatabaseUrl(databaseUrl);
  const pool = new pg.Pool({
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
    // An answer that a stopped process does not take keeps its transaction open, and no other timeout of the server ends
    // that. A server that cannot do it goes without.
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

/** Throws `Store.Unavailable` for what is no connection string, `Input.Invalid` for what is no string. */
export function checkDatabaseUrl(databaseUrl: unknown): void {
  const hint =
    'Write it as postgresql://user:password@host:5432/database, with % and a code for special characters in its parts.';
  if (typeof databaseUrl !== 'string') {
    const given = databaseUrl === null ? 'null' : typeof databaseUrl;
    throw invalid(`databaseUrl must be a string, not ${given}`, 'databaseUrl', hint);
  }
  if (/^postgres(ql)?:\/\//.test(databaseUrl) && canDecode(databaseUrl)) return;
  const path = 'DATABASE_URL';
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
