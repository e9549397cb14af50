import { DrizzleQueryError } from 'drizzle-orm';
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import pg, { type Pool, type PoolClient } from 'pg';
import { PalimpsestError } from '../errors.js';

export interface Transaction {
  /** drizzle over the connection of this transaction. */
  db: NodePgDatabase;
  /** Statements that drizzle cannot say; 64-bit numbers arrive as numbers. */
  query: Query;
}

export type Query = <Row extends pg.QueryResultRow>(
  text: string,
  values?: readonly unknown[],
) => Promise<Row[]>;

/**
 * Runs `work` in one READ COMMITTED transaction on one connection. Commits when it returns, rolls back when it throws;
 * a connection that broke is not given back to the pool. (drizzle's own `transaction` on a pool leaks the connection
 * when BEGIN fails and returns broken ones: drizzle-orm#6023, #6114.) Failures of the database are `Store.Unavailable`.
 */
export function withTransaction<T>(pool: Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return withConnection(pool, async (client) => {
    await client.query('begin');
    const result = await work({ db: drizzle(client), query: queryOn(client) });
    // A transaction in which a swallowed error aborted everything answers COMMIT with ROLLBACK.
    const { command } = await client.query('commit');
    if (command !== 'COMMIT') throw new Error(`the transaction ended with ${command}`);
    return result;
  });
}

async function withConnection<T>(pool: Pool, work: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await connect(pool);
  // Without a listener a connection lost while it is checked out ends the process (drizzle-orm#3908).
  let lost: Error | undefined;
  const onError = (error: Error) => void (lost = error);
  client.on('error', onError);
  let broken: Error | undefined;
  try {
    return await work(client);
  } catch (error) {
    broken = lost ?? (await rollback(client));
    throw asFailure(error);
  } finally {
    client.off('error', onError);
    client.release(broken ?? lost);
  }
}

async function connect(pool: Pool): Promise<PoolClient> {
  try {
    return await pool.connect();
  } catch (error) {
    throw asFailure(error);
  }
}

async function rollback(client: PoolClient): Promise<Error | undefined> {
  try {
    await client.query('rollback');
    return undefined;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** One statement outside a transaction: a read that sees one snapshot. */
export async function read<Row extends pg.QueryResultRow>(
  pool: Pool,
  text: string,
  values: readonly unknown[] = [],
): Promise<Row[]> {
  try {
    return await queryOn(pool)<Row>(text, values);
  } catch (error) {
    throw asFailure(error);
  }
}

/** The same through drizzle. */
export async function readWith<T>(pool: Pool, select: (db: NodePgDatabase) => Promise<T>): Promise<T> {
  try {
    return await select(drizzle(pool));
  } catch (error) {
    throw asFailure(error);
  }
}

function queryOn(connection: Pool | PoolClient): Query {
  return async <Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) =>
    (await connection.query<Row>({ text, values: [...values], types: numbers })).rows;
}

const numbers: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    oid === pg.types.builtins.INT8 && format !== 'binary' ? Number : pg.types.getTypeParser(oid, format),
};

/** SQLSTATE classes and codes that say nothing about the statement: the same one may succeed a moment later. */
const passing = /^(?:08|53|40001$|40P01$|55P03$|57014$|57P0|58)/;
const networkCodes = /^(?:ECONN|EPIPE|ETIMEDOUT|EHOST|ENET|ENOTFOUND|EAI_AGAIN)/;
const refusedLogin = /^(?:28|3D000)/;
const diskFull = '53100';

/**
 * A failure of the database as `Store.Unavailable`; anything else (a typed failure, a violated constraint) as it is,
 * without drizzle's wrapping, whose message repeats every parameter: texts of messages have no place in failures.
 */
export function asFailure(error: unknown): unknown {
  if (error instanceof PalimpsestError) return error;
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : '';
    const lost =
      /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error/;
    const login = refusedLogin.test(code);
    if (!login && !passing.test(code) && !networkCodes.test(code) && !lost.test(cause.message)) continue;
    return new PalimpsestError('Store.Unavailable', `PostgreSQL: ${cause.message || code}`, {
      hint: login
        ? 'Check user, password and database of DATABASE_URL.'
        : code === diskFull
          ? 'Free space on the disk of the database, then try again: what was stored is kept.'
          : 'Check that the server of DATABASE_URL runs and takes connections, then try again; repeating a step is safe.',
      details: code ? { code } : undefined,
      cause,
    });
  }
  return error instanceof DrizzleQueryError && error.cause ? error.cause : error;
}
