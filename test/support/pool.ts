import pg, { type Pool } from 'pg';
import { inject } from 'vitest';
import {
  openPool as openStorePool,
  type DatabaseTimeouts,
  type PoolOptions,
  type RoleUrls,
} from '../../src/store/connection/pool.js';
import { roleNames, urlsFor } from '../../src/store/connection/roles.js';

/**
 * Returns the connection strings of the other roles for the database of this URL; of no role if the database does not belong to
 * this run.
 */
export function roleUrls(databaseUrl: string): RoleUrls {
  if (!URL.canParse(databaseUrl) || new URL(databaseUrl).username !== roleNames.app) return {};
  const { maintenanceUrl, eraserUrl } = urlsFor(inject('postgres').adminUrl);
  const at = (role: string) => {
    const { username, password } = new URL(role);
    return Object.assign(new URL(databaseUrl), { username, password }).toString();
  };
  return { maintenanceUrl: at(maintenanceUrl), eraserUrl: at(eraserUrl) };
}

/** Returns the connection string of the superuser, who sees all tenants, for the same database. */
function ownerUrl(databaseUrl: string): string {
  const { pathname } = new URL(databaseUrl);
  return Object.assign(new URL(inject('postgres').adminUrl), { pathname }).toString();
}

/** Limits that a busy machine does not reach. A test of a limit sets its own. */
export const patient: DatabaseTimeouts = {
  ...{ connectionTimeoutMs: 270_000, statementTimeoutMs: 270_000 },
  ...{ lockTimeoutMs: 270_000, idleTransactionTimeoutMs: 270_000 },
};

const observers = new WeakMap<Pool, Pool>();

/** Returns a pool of connections to the same database as the superuser. */
export function ownerOf(pool: Pool): Pool {
  const observer = observers.get(pool);
  if (!observer) throw new Error('the pool was not opened by a test');
  return observer;
}

/**
 * Opens a pool of the store with the roles of a deployment. The store never calls `query` of a pool itself; when a test calls
 * it, the query runs as the superuser.
 */
export function openPool(databaseUrl: string, options: PoolOptions = {}): Pool {
  const roles = roleUrls(databaseUrl);
  const pool = openStorePool(databaseUrl, { ...patient, ...roles, ...options });
  if (roles.eraserUrl === undefined) return pool;
  const observer = new pg.Pool({
    connectionString: ownerUrl(databaseUrl),
    max: 2,
    application_name: 'observer',
  });
  observer.on('error', () => undefined);
  observers.set(pool, observer);
  const end = pool.end.bind(pool);
  return Object.assign(pool, {
    query: observer.query.bind(observer),
    end: async () => {
      await observer.end();
      await end();
    },
  });
}
