import pg, { type Pool } from 'pg';
import { PalimpsestError } from '../errors.js';

export interface PoolOptions {
  /** Connections at most. @default 10 */
  max?: number;
  /** Shown in pg_stat_activity. @default 'palimpsest' */
  applicationName?: string;
  /** Milliseconds after which the server ends a statement. Every statement here takes far less. @default 60,000 */
  statementTimeoutMs?: number;
  /** Told when an idle connection is lost; the pool replaces it by itself. */
  onIdleError?: (error: Error) => void;
}

/**
 * A pool for this store. Connects at the first query; `await pool.end()` when done. Throws `Store.Unavailable` where
 * the connection string cannot be read.
 */
export function openPool(databaseUrl: string, options: PoolOptions = {}): Pool {
  const { max = 10, applicationName = 'palimpsest', statementTimeoutMs = 60_000, onIdleError } = options;
  checkDatabaseUrl(databaseUrl);
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    max,
    application_name: applicationName,
    statement_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: statementTimeoutMs,
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
  });
  // Without a listener the loss of an idle connection ends the process.
  pool.on('error', (error) => onIdleError?.(error));
  return pool;
}

/** Throws `Store.Unavailable` for what is no connection string. */
export function checkDatabaseUrl(databaseUrl: string): void {
  if (/^postgres(ql)?:\/\//.test(databaseUrl) && URL.canParse(databaseUrl)) return;
  throw new PalimpsestError('Store.Unavailable', 'DATABASE_URL is not a PostgreSQL connection string', {
    path: 'DATABASE_URL',
    hint: 'Write it as postgresql://user:password@host:5432/database.',
  });
}
