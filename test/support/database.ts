import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';
import { urlsFor } from '../../src/store/connection/roles.js';

export interface TestDatabase {
  /** Connection string of the application's role. */
  url: string;
  maintenanceUrl: string;
  eraserUrl: string;
  /** Connection string of the superuser. */
  ownerUrl: string;
  /** Removes the database, even with open connections. */
  drop(): Promise<void>;
}

/** Creates an empty database with all migrations applied, as a copy of the template that the test run made once. */
export async function createDatabase(): Promise<TestDatabase> {
  const { adminUrl, template } = inject('postgres');
  const name = `test_${randomBytes(6).toString('hex')}`;
  await onServer(adminUrl, `create database ${name} template ${template}`);
  const ownerUrl = Object.assign(new URL(adminUrl), { pathname: `/${name}` }).toString();
  const { databaseUrl: url, ...roles } = urlsFor(ownerUrl);
  return {
    ...{ url, ...roles, ownerUrl },
    drop: () => onServer(adminUrl, `drop database if exists ${name} with (force)`),
  };
}

async function onServer(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
