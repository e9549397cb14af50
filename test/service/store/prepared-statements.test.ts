/** A pooler may give each transaction another connection, on which a prepared statement does not exist or exists already. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Pool } from 'pg';
import { appendTurn } from '../../../src/store/append/turns.js';
import { openPool } from '../../../src/store/connection/pool.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';

const ids = { tenant: 'acme', session: 's' };

let database: TestDatabase;
let pool: Pool;

beforeEach(async () => {
  database = await createDatabase();
  pool = openPool(database.url, { max: 1, tenantShare: 1 });
  await append('first');
  await append('second');
  expect(await seqs()).toEqual([1, 2]);
});

afterEach(() => pool.end());

async function append(turnId: string): Promise<void> {
  await appendTurn(pool, { ...ids, turnId, messages: [{ role: 'user', content: turnId }] });
}

async function seqs(): Promise<number[]> {
  const { source } = await readContextSource(pool, ids, 'own');
  return source.tail.map(({ seq }) => seq);
}

async function onConnection(statement: string): Promise<{ name: string }[]> {
  const client = await pool.connect();
  try {
    return (await client.query<{ name: string }>(statement)).rows;
  } finally {
    client.release();
  }
}

const preparedNames = async () =>
  (await onConnection('select name from pg_prepared_statements order by name')).map(({ name }) =>
    name.replace(/_[0-9a-f]{16}$/, ''),
  );

test('the statements of an append and of a context are prepared once for each connection', async () => {
  expect(await preparedNames()).toEqual([
    'append_turn',
    'context',
    'insert_turn',
    'lock_session',
    'session',
    'tell_tenant',
  ]);
});

test.each(['append', 'context'] as const)(
  '%s goes on without them when the connection has lost them',
  async (first) => {
    await onConnection('deallocate all');
    if (first === 'context') expect(await seqs()).toEqual([1, 2]);
    await append('third');
    await append('fourth');
    expect(await seqs()).toEqual([1, 2, 3, 4]);
    expect(await preparedNames()).toEqual([]);
  },
);
