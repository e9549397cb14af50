import type { Pool } from 'pg';
import { isFailure } from '../../errors.js';
import { assertMigrated } from '../../store/connection/migrate.js';
import { openPool } from '../../store/connection/pool.js';
import { read } from '../../store/connection/transaction.js';
import { plural } from '../terminal/numbers.js';
import { fail, failed, ok, warn, type Finding } from './doctor-finding.js';
import { checkOverdue } from './doctor-sweep.js';

/** Built and tested with 18; `set compression lz4` and multirange-free SQL ask for 14. */
const leastVersion = 14;

export async function* checkPostgres(databaseUrl: string, from: string): AsyncGenerator<Finding> {
  let pool: Pool;
  try {
    pool = openPool(databaseUrl, { max: 1, applicationName: 'palimpsest doctor' });
  } catch (error) {
    yield failed('PostgreSQL', error);
    return;
  }
  try {
    yield await checkServer(pool, databaseUrl, from);
    const migrated = await checkMigrations(pool);
    yield migrated;
    if (migrated.level === 'ok') yield await checkOverdue(pool);
    yield await checkCompression(pool);
    yield await checkConnections(pool);
  } catch (error) {
    yield failed('PostgreSQL', error);
  } finally {
    await pool.end();
  }
}

async function checkServer(pool: Pool, databaseUrl: string, from: string): Promise<Finding> {
  // The first query connects; the second tells the way there and back.
  const [server] = await read<{ version: string; number: number }>(
    pool,
    `select current_setting('server_version') as version, current_setting('server_version_num')::int as number`,
  );
  const started = performance.now();
  await read(pool, 'select 1 as one');
  const { hostname, port, pathname } = new URL(databaseUrl);
  const where = `${hostname}:${port || '5432'}${pathname} (${from})`;
  const detail = `${server?.version} at ${where}, ${(performance.now() - started).toFixed(1)} ms`;
  if ((server?.number ?? 0) < leastVersion * 10_000)
    return fail('PostgreSQL', `${detail}: too old`, `Upgrade to ${leastVersion} or later; 18 is tested.`);
  return ok('PostgreSQL', detail);
}

async function checkMigrations(pool: Pool): Promise<Finding> {
  try {
    await assertMigrated(pool);
    const [row] = await read<{ applied: number }>(
      pool,
      'select count(*)::int as applied from palimpsest.migrations',
    );
    return ok('schema', `${plural(row?.applied ?? 0, 'migration')} applied, none pending`);
  } catch (error) {
    if (!isFailure(error)) throw error;
    return fail('schema', error.message, error.hint);
  }
}

async function checkCompression(pool: Pool): Promise<Finding> {
  const [row] = await read<{ has: boolean }>(
    pool,
    `select coalesce('lz4' = any (enumvals), false) as has from pg_settings where name = 'default_toast_compression'`,
  );
  if (row?.has) return ok('lz4', 'bodies are compressed with it');
  return ok(
    'lz4',
    'not in this server: bodies are compressed with pglz, which reads about three times as slowly',
  );
}

async function checkConnections(pool: Pool): Promise<Finding> {
  const [row] = await read<{ used: number; most: number }>(
    pool,
    `select (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as used,
       current_setting('max_connections')::int as most`,
  );
  const { used = 0, most = 0 } = row ?? {};
  const detail = `${used} of ${most} in use`;
  if (used < most * 0.8) return ok('connections', detail);
  return warn(
    'connections',
    detail,
    'Raise max_connections, or lower worker.databaseSteps; each worker takes 4 more.',
  );
}
