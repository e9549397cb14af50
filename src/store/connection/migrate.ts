import path from 'node:path';
import { drizzle } from 'drizzle-orm/node-postgres';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { migrate as applyMigrations } from 'drizzle-orm/node-postgres/migrator';
import pg, { type Pool } from 'pg';
import { packageRoot } from '../../runtime/home.js';
import { PalimpsestError } from '../../errors.js';
import { programName } from '../../runtime/program.js';
import { checkDatabaseUrl } from './pool.js';
import { actAsOwner, grantIfRolesServe, type RolePasswords, setUpRoles } from './roles.js';
import { asConnectFailure, asFailure, read } from './transaction.js';

/** An arbitrary number, the same for every process that migrates a database of this product. */
const lockKey = 7_261_554_913_204;
/** For the lock of migrations. */
const longestWait = '10 min';
const schema = 'palimpsest';
const table = 'migrations';

interface Migration {
  hash: string;
  /** Unix milliseconds at which it was written. drizzle applies only migrations newer than the newest applied one. */
  when: number;
}

export interface MigrateOptions {
  /**
   * Makes the database roles of docs/operating.md and gives the schema to palimpsest_migrator. Values are the passwords of the
   * roles; a new role without one cannot log in. @default a database that uses the roles gets their grants, others do not change
   */
  roles?: RolePasswords;
}

/**
 * Applies the missing migrations under an advisory lock on a separate connection, so that processes that start together wait
 * for each other (drizzle's migrator does not lock: drizzle-orm#874). Resolves to the number of applied migrations. Throws
 * `Store.Unavailable` if the database is newer than this code, differs from it, or lacks migrations that this role may not apply.
 */
export async function migrate(databaseUrl: string, { roles }: MigrateOptions = {}): Promise<number> {
  checkDatabaseUrl(databaseUrl);
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: 'palimpsest migrate',
    connectionTimeoutMillis: 5_000,
  });
  client.on('error', () => {});
  try {
    await client.connect().catch((error: unknown) => {
      throw asConnectFailure(error);
    });
    await client.query(`set lock_timeout = '${longestWait}'`);
    await client.query('select pg_advisory_lock($1)', [lockKey]).catch((cause: unknown) => {
      throw new PalimpsestError(
        'Store.Busy',
        `another process has held the lock of migrations for ${longestWait}`,
        {
          hint: `Find it: select pid from pg_locks where locktype = 'advisory' and granted. Then end it, or wait for it.`,
          cause,
        },
      );
    });
    await client.query('reset lock_timeout');
    const known = migrationsOfThisCode();
    const before = await appliedMigrations(async (text) => (await client.query<AppliedRow>(text)).rows);
    refuseUnknown(known, before);
    if (!(await actAsOwner(client))) {
      refuseMissing(known, before, 'Run `palimpsest migrate` as the owner of the schema.');
      return 0;
    }
    // Data migrations concern all tenants.
    await client.query("set palimpsest.tenants = 'all'");
    // drizzle's transaction is this one. A table cannot be altered while checks of its changed rows are put off to the end.
    await client.query('begin');
    await client.query('set constraints all immediate');
    await applyMigrations(drizzle(client), {
      migrationsFolder: migrationsFolder(),
      migrationsSchema: schema,
      migrationsTable: table,
    });
    await client.query('select palimpsest.use_pgvector()');
    await client.query('reset role');
    if (roles) await setUpRoles(client, roles);
    else await grantIfRolesServe(client);
    const after = await appliedMigrations(async (text) => (await client.query<AppliedRow>(text)).rows);
    refuseMissing(
      known,
      after,
      'Give the skipped files a later `when` in migrations/meta/_journal.json: drizzle applies only migrations newer than the newest applied one.',
    );
    return after.length - before.length;
  } catch (error) {
    throw asFailure(error);
  } finally {
    // This also releases the lock.
    await client.end().catch(() => {});
  }
}

/** Throws `Store.Unavailable`, which gives the next step, unless the database has exactly the schema of this version. */
export async function assertMigrated(pool: Pool): Promise<void> {
  const known = migrationsOfThisCode();
  const applied = await appliedMigrations((text) => read<AppliedRow>(pool, 'shared', text));
  refuseUnknown(known, applied);
  refuseMissing(known, applied, `Run \`${programName()} migrate\` first.`);
}

type AppliedRow = { hash: string; when: string };

async function appliedMigrations(query: (text: string) => Promise<AppliedRow[]>): Promise<Migration[]> {
  const present = await query(
    `select 'table' as hash, '0' as when from pg_catalog.pg_tables where schemaname = '${schema}' and tablename = '${table}'`,
  );
  if (present.length === 0) return [];
  const rows = await query(
    `select hash, created_at::text as when from ${schema}.${table} order by created_at`,
  );
  return rows.map(({ hash, when }) => ({ hash, when: Number(when) }));
}

function refuseUnknown(known: readonly Migration[], applied: readonly Migration[]): void {
  const hashes = new Set(known.map(({ hash }) => hash));
  const unknown = applied.filter(({ hash }) => !hashes.has(hash));
  if (unknown.length === 0) return;
  const newest = Math.max(...known.map(({ when }) => when));
  const newer = unknown.some(({ when }) => when > newest);
  throw new PalimpsestError(
    'Store.Unavailable',
    newer
      ? 'the database was migrated by a newer version of palimpsest than this one'
      : 'the database has a migration that differs from the one of this version',
    {
      hint: newer
        ? 'Update this installation, or point DATABASE_URL at another database.'
        : 'Use the version that migrated it, or point DATABASE_URL at another database.',
      details: { applied: applied.length, known: known.length },
    },
  );
}

/** drizzle silently skips a migration that is older than the newest applied one (drizzle-orm#5316, #5769). */
function refuseMissing(known: readonly Migration[], applied: readonly Migration[], hint: string): void {
  const hashes = new Set(applied.map(({ hash }) => hash));
  const missing = known.filter(({ hash }) => !hashes.has(hash)).length;
  if (missing === 0) return;
  const none = applied.length === 0;
  throw new PalimpsestError(
    'Store.Unavailable',
    none
      ? 'the database has not been prepared yet'
      : `the database lacks ${missing} of ${known.length} migrations`,
    { hint, details: { applied: applied.length, known: known.length } },
  );
}

function migrationsOfThisCode(): Migration[] {
  return readMigrationFiles({ migrationsFolder: migrationsFolder() }).map(({ hash, folderMillis }) => ({
    hash,
    when: folderMillis,
  }));
}

/** The folder of the migrations, for the sources and for the build. @internal A test compares it with the database. */
export function migrationsFolder(): string {
  return path.join(packageRoot(), 'migrations');
}
