import { connect as openSocket } from 'node:net';
import { DrizzleQueryError } from 'drizzle-orm';
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import pg, { type Pool, type PoolClient } from 'pg';
import { networkReason, PalimpsestError } from '../../errors.js';
import { currentCaller, type Wanted } from './places.js';
import { knownTenants, placesOf, type KnownTenants } from './pool.js';
import type { Prepared } from './prepared.js';
import { ofTenant, tellTenant } from './tenant.js';

export interface Transaction {
  /** drizzle on the connection of this transaction. */
  db: NodePgDatabase;
  /** Statements that drizzle cannot express. 64-bit integers arrive as numbers. */
  query: Query;
  known: KnownTenants;
}

/**
 * Whose rows a transaction sees: those of one tenant; with `shared`, only tables without tenants. Row-level security enforces it
 * (migrations/0023_row_level_security.sql).
 */
export type Scope = { tenant: string } | 'shared';

export type Query = <Row extends pg.QueryResultRow>(
  statement: string | Prepared,
  values?: readonly unknown[],
) => Promise<Row[]>;

/**
 * Runs `work` in one READ COMMITTED transaction on one connection. Commits when it returns, rolls back when it throws; a broken
 * connection does not return to the pool. (drizzle's own `transaction` on a pool leaks the connection when BEGIN fails, and
 * returns broken ones: drizzle-orm#6023, #6114.) Throws `Store.Unavailable` for failures of the database, and `Store.Busy` if
 * another transaction holds a lock for too long.
 */
export function withTransaction<T>(
  pool: Pool,
  scope: Scope,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transact(pool, scope, {}, work);
}

/**
 * `withTransaction` for a transaction that locks the row of a session. In one process, the transactions of each session run one
 * after another. A session whose row is locked elsewhere therefore occupies one connection, however many callers write to it.
 */
export function withSession<T>(
  pool: Pool,
  { tenant, session }: { tenant: string; session: string },
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transact(pool, { tenant }, { session: { tenant, session } }, work);
}

/**
 * Statements about one session, each a transaction of its own in one round trip. They run in the order of `withSession`.
 */
export function withStatements<T>(
  pool: Pool,
  { tenant, session }: { tenant: string; session: string },
  work: (query: Query) => Promise<T>,
): Promise<T> {
  return preparing(pool, (isPreparing) =>
    withConnection(pool, { session: { tenant, session } }, (client) =>
      work(queryOn(ofTenant(tenant, client), isPreparing)),
    ),
  );
}

function transact<T>(
  pool: Pool,
  scope: Scope,
  wanted: Wanted,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  const run = (isPreparing: boolean) => async (client: PoolClient) => {
    try {
      await client.query(scope === 'shared' ? 'begin' : `begin; ${tellTenant(scope.tenant)}`);
      const query = queryOn(client, isPreparing);
      const result = await work({ db: drizzle(client), query, known: knownTenants(pool) });
      // If a statement failed and its error was swallowed, the server answers COMMIT with ROLLBACK.
      const { command } = await client.query('commit');
      if (command !== 'COMMIT') throw new Error(`the transaction ended with ${command}`);
      return result;
    } catch (error) {
      if (isSilent(error)) throw error;
      await client.query('rollback').catch((cause: unknown) => {
        throw new Broken(error, cause);
      });
      throw error;
    }
  };
  return preparing(pool, (isPreparing) => withConnection(pool, wanted, run(isPreparing)));
}

/**
 * Runs `work` with prepared statements, and once more without them if the server has lost one: nothing of the first run is
 * stored then.
 */
async function preparing<T>(pool: Pool, work: (isPreparing: boolean) => Promise<T>): Promise<T> {
  if (unprepared.has(pool)) return work(false);
  try {
    return await work(true);
  } catch (error) {
    if (!hasLostStatement(error)) throw error;
    unprepared.add(pool);
    return work(false);
  }
}

/** Pools behind a pooler that keeps no prepared statements, such as PgBouncer before 1.24 in its default settings. */
const unprepared = new WeakSet<Pool>();

/** The statement does not exist, exists already, or was prepared before a table changed. */
function hasLostStatement(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  const { code = '', routine } = error;
  return code === '26000' || code === '42P05' || routine === 'RevalidateCachedQuery';
}

/** A failure after which the connection is unusable. */
class Broken extends Error {
  constructor(
    readonly failure: unknown,
    cause: unknown,
  ) {
    super('the connection is lost', { cause });
  }
}

async function withConnection<T>(
  pool: Pool,
  wanted: Wanted,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  const leave = await placesOf(pool).take({ ...currentCaller(), ...wanted });
  try {
    const client = await connect(pool);
    // Without a listener, the loss of a connection that is checked out ends the process (drizzle-orm#3908).
    let broken: Error | undefined;
    const onError = (error: Error) => void (broken = error);
    client.on('error', onError);
    try {
      return await work(client);
    } catch (error) {
      const failure = error instanceof Broken ? error.failure : error;
      if (error instanceof Broken || endsConnection(error)) broken ??= error;
      throw asFailure(failure);
    } finally {
      client.off('error', onError);
      client.release(broken);
    }
  } finally {
    leave();
  }
}

async function connect(pool: Pool): Promise<PoolClient> {
  try {
    return await pool.connect();
  } catch (error) {
    throw asConnectFailure(error);
  }
}

/** Failures to which pg gives no code. */
const connectReasons: readonly [said: RegExp, reason: string, hint: string][] = [
  [
    /^SASL:|password must be a string/,
    'it asks for a password, and the connection string has no valid one',
    'Write user and password into DATABASE_URL: postgresql://user:password@host:5432/database.',
  ],
  [
    /does not support SSL/,
    'it does not accept TLS connections',
    'Turn TLS on in the server, or leave sslmode out of DATABASE_URL.',
  ],
];

/** Every failure to connect is `Store.Unavailable`. */
export function asConnectFailure(cause: unknown): unknown {
  const failure = asFailure(cause);
  if (failure instanceof PalimpsestError) return failure;
  const message = cause instanceof Error ? cause.message : String(cause);
  const [, reason = message, hint = 'Check DATABASE_URL.'] =
    connectReasons.find(([said]) => said.test(message)) ?? [];
  return new PalimpsestError('Store.Unavailable', `cannot connect to PostgreSQL: ${reason}`, {
    hint,
    cause,
  });
}

/**
 * True for pg's own timeout. The connection still waits for an answer, so it takes no further statement, not even a rollback.
 */
function isSilent(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout';
}

function endsConnection(error: unknown): error is Error {
  return (
    isSilent(error) || (error instanceof pg.DatabaseError && /^(?:FATAL|PANIC)$/.test(error.severity ?? ''))
  );
}

/**
 * One statement, a transaction of its own: a read of one database snapshot. One round trip. It ends with `CallerGone` when its
 * caller goes away.
 */
export function read<Row extends pg.QueryResultRow>(
  pool: Pool,
  scope: Scope,
  statement: string | Prepared,
  values: readonly unknown[] = [],
): Promise<Row[]> {
  return preparing(pool, (isPreparing) =>
    cancellable(pool, (client) => queryOn(within(scope, client), isPreparing)<Row>(statement, values)),
  );
}

/** `read` for functions that take a `Query`. */
export function reading(pool: Pool, scope: Scope): Query {
  return (statement, values) => read(pool, scope, statement, values);
}

/** `read` through drizzle. */
export function readWith<T>(
  pool: Pool,
  scope: Scope,
  select: (db: NodePgDatabase) => Promise<T>,
): Promise<T> {
  return cancellable(pool, (client) => select(drizzle(within(scope, client))));
}

function within(scope: Scope, client: PoolClient): PoolClient {
  return scope === 'shared' ? client : ofTenant(scope.tenant, client);
}

function cancellable<T>(pool: Pool, work: (client: PoolClient) => Promise<T>): Promise<T> {
  const signal = currentCaller()?.signal;
  if (!signal) return withConnection(pool, {}, work);
  return withConnection(pool, {}, async (client) => {
    const cancelled = cancelOnAbort(client, signal);
    try {
      return await work(client);
    } catch (error) {
      if (!isSilent(error)) signal.throwIfAborted();
      throw error;
    } finally {
      await cancelled();
    }
  });
}

function queryOn(connection: PoolClient, isPreparing: boolean): Query {
  return async <Row extends pg.QueryResultRow>(
    statement: string | Prepared,
    values: readonly unknown[] = [],
  ) => {
    const sent =
      typeof statement === 'string'
        ? { text: statement }
        : isPreparing
          ? statement
          : { text: statement.text };
    return (await connection.query<Row>({ ...sent, values: [...values], types: numbers })).rows;
  };
}

const numbers: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    oid === pg.types.builtins.INT8 && format !== 'binary'
      ? Number
      : (pg.types.getTypeParser(oid, format) as unknown),
};

/** SQLSTATE classes and codes whose cause is not the statement: the same statement may succeed a moment later. */
const passing = /^(?:08|53|57014$|57P0|58|25P0[34]$)/;
/** Conflicts with another transaction, which held a lock for too long or was part of a deadlock. */
const inTheWay = /^(?:40001|40P01|55P03)$/;
const networkCodes = /^(?:ECONN|EPIPE|ETIMEDOUT|EHOST|ENET|ENOTFOUND|EAI_AGAIN)/;
const refusedLogin = /^(?:28|3D000)/;
const lostConnection =
  /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|Query read timeout/;
const diskFull = '53100';

/**
 * Turns a failure of the database into `Store.Unavailable` or `Store.Busy`. Returns any other error (a typed failure, a
 * violated constraint) without drizzle's wrapper: its message repeats every parameter, and failures must not contain texts of
 * messages.
 */
export function asFailure(error: unknown): unknown {
  if (error instanceof PalimpsestError) return error;
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : '';
    if (inTheWay.test(code)) return busy(cause, code);
    const login = refusedLogin.test(code);
    const lost = lostConnection.test(cause.message);
    if (!login && !lost && !passing.test(code) && !networkCodes.test(code)) continue;
    return new PalimpsestError(
      'Store.Unavailable',
      `PostgreSQL: ${networkReason(cause) ?? (cause.message || code)}`,
      {
        hint: login
          ? 'Check user, password and database of DATABASE_URL; `createdb` makes a database.'
          : code === diskFull
            ? 'Free space on the disk of the database, then try again: stored data is kept.'
            : 'Check that the server of DATABASE_URL runs and accepts connections, then try again; repeating a step is safe.',
        details: code ? { code } : undefined,
        cause,
      },
    );
  }
  return error instanceof DrizzleQueryError && error.cause ? error.cause : error;
}

function busy(cause: Error, code: string): PalimpsestError {
  return new PalimpsestError('Store.Busy', `Conflict with another transaction: ${cause.message}.`, {
    hint: 'Repeat the call: nothing was stored. A process that stopped in its transaction loses it within seconds.',
    details: { code },
    cause,
  });
}

/** The cancel request code of the protocol: 1234 and 5678 in place of a version. */
const cancelCode = 80_877_102;
const withinMs = 2_000;

/**
 * Cancels the statement that a connection runs when `signal` is aborted. Returns a function that stops watching the signal.
 * Reuse the connection only after its promise has resolved; otherwise a later statement may be cancelled.
 */
function cancelOnAbort(client: PoolClient, signal: AbortSignal): () => Promise<void> {
  let cancelling: Promise<void> | undefined;
  const cancel = () => void (cancelling = requestCancel(client));
  signal.addEventListener('abort', cancel, { once: true });
  return async () => {
    signal.removeEventListener('abort', cancel);
    await cancelling;
  };
}

/**
 * Sends PostgreSQL's cancel request on a connection that the server then closes. Like libpq's, it is not encrypted: it has only
 * the key of this one backend. If it does not arrive, the statement ends with its timeout.
 */
function requestCancel(client: PoolClient): Promise<void> {
  const backend = backendOf(client);
  if (!backend) return Promise.resolve();
  const request = Buffer.alloc(16);
  [16, cancelCode, backend.processId, backend.secretKey].forEach((word, at) =>
    request.writeInt32BE(word, at * 4),
  );
  return new Promise((resolve) => {
    const { host, port } = backend;
    const socket = openSocket(host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port });
    socket.setTimeout(withinMs, () => socket.destroy());
    // `close` follows.
    socket.on('error', () => undefined);
    socket.once('close', () => resolve());
    socket.resume().end(request);
  });
}

interface Backend {
  host: string;
  port: number;
  processId: number;
  secretKey: number;
}

/** Fields that pg keeps for a connection; its types leave out the key. */
function backendOf(client: PoolClient): Backend | null {
  if (!('host' in client && 'port' in client && 'processID' in client && 'secretKey' in client)) return null;
  const { host, port, processID: processId, secretKey } = client;
  return typeof host === 'string' &&
    typeof port === 'number' &&
    typeof processId === 'number' &&
    typeof secretKey === 'number'
    ? { host, port, processId, secretKey }
    : null;
}
