/** The database roles: which exist, what each may do, and how a database begins to use them. */
import { createHmac } from 'node:crypto';
import pg from 'pg';
import { PalimpsestError } from '../../errors.js';
import type { RoleUrls } from './pool.js';

/** Roles by what they serve. */
export const roleNames = {
  /** Owner of the schema: migrations. */
  migrator: 'palimpsest_migrator',
  /** All work for one tenant. */
  app: 'palimpsest_app',
  /** Functions that find work across tenants. */
  maintenance: 'palimpsest_maintenance',
  /** Erasures. */
  eraser: 'palimpsest_eraser',
} as const;

type RoleName = keyof typeof roleNames;

/** Passwords of the roles. A new role without one is a group (NOLOGIN), to be granted to a login role. */
export type RolePasswords = Partial<Record<RoleName, string>>;

/** Passwords for a server of our own, whose owner logs in with this URL. None reveals the password of the owner. */
export function passwordsFor(ownerUrl: string): Required<RolePasswords> {
  const { password } = new URL(ownerUrl);
  const of = (role: RoleName) => createHmac('sha256', password).update(role).digest('base64url');
  return { migrator: of('migrator'), app: of('app'), maintenance: of('maintenance'), eraser: of('eraser') };
}

/** Connection strings of the roles with these passwords. */
export function urlsFor(ownerUrl: string): Required<RoleUrls> & { databaseUrl: string } {
  const passwords = passwordsFor(ownerUrl);
  const of = (role: RoleName) =>
    Object.assign(new URL(ownerUrl), { username: roleNames[role], password: passwords[role] }).toString();
  return { databaseUrl: of('app'), maintenanceUrl: of('maintenance'), eraserUrl: of('eraser') };
}

/**
 * Tables that only the eraser may write: rows in them are tokens of the API with any scope, and orders to delete workflows of a
 * session.
 */
const ofEraser = ['api_tokens', 'erasures'];

type Run = (statement: string) => Promise<{ rows: Record<string, unknown>[] }>;

/**
 * Tables from which the application's role may delete rows. None has messages, compactions or archive parts. `digests` has notes made
 * from messages; the role deletes those that no compaction uses.
 */
const mayDelete = ['digests', 'digest_holds', 'digest_flights', 'rate_buckets'];

const acrossTenants = [
  'overdue_sessions(integer)',
  'postpone_overdue(text[], text[], boolean)',
  'count_overdue()',
  'open_backfills(integer)',
  'pending_erasures(integer)',
  'tenants_without_redaction()',
  'change_tenant_limits(text, jsonb, text[])',
  'clear_tenant_limits(text)',
  'spend_of_tenants(integer)',
].map((name) => `palimpsest.${name}`);

/**
 * Makes the roles that do not exist, gives the schema to the migrator, and grants to each role what it needs. May be repeated.
 * The caller is a superuser, or the schema's owner with CREATEROLE. An existing role keeps its password if none is given.
 */
export async function setUpRoles(client: pg.Client, passwords: RolePasswords): Promise<void> {
  const run: Run = (statement) => client.query(statement);
  for (const [key, role] of Object.entries(roleNames)) await makeRole(run, role, passwords[key as RoleName]);
  await giveToMigrator(run);
  await grantToRoles(run);
}

async function makeRole(run: Run, role: string, password: string | undefined): Promise<void> {
  const { rows } = await run(
    `select rolsuper or rolbypassrls as above from pg_roles where rolname = '${role}'`,
  );
  if (rows[0]?.above === true)
    throw new PalimpsestError('Store.Unavailable', `the role ${role} bypasses row-level security`, {
      hint: `Run \`alter role ${role} nosuperuser nobypassrls\` as a superuser, then repeat the command.`,
    });
  if (rows.length === 0) await run(`create role ${role} nologin`);
  // A role may change the defaults of its own sessions, such as synchronous_commit. They would outlive a new password.
  const settings = await run(
    `select coalesce(' in database ' || quote_ident(d.datname), '') as where from pg_db_role_setting s
     left join pg_database d on d.oid = s.setdatabase where s.setrole = '${role}'::regrole`,
  );
  for (const { where } of settings.rows) await run(`alter role ${role}${String(where)} reset all`);
  if (password !== undefined) await run(`alter role ${role} login password ${pg.escapeLiteral(password)}`);
}

/** Owner of the schema, and whether the connection may act as the owner. */
async function ownerOf(run: Run): Promise<{ name: string; mayAct: boolean } | null> {
  const { rows } = await run(
    `select r.rolname as name, pg_has_role(r.oid, 'MEMBER') as "mayAct"
     from pg_namespace n join pg_roles r on r.oid = n.nspowner where n.nspname = 'palimpsest'`,
  );
  const [row] = rows as { name: string; mayAct: boolean }[];
  return row ?? null;
}

/**
 * If the schema exists, acts as its owner for the rest of the connection, so that everything that a migration creates belongs to
 * the owner too. Returns false if the connection has no right to do so: then it can only check the schema.
 */
export async function actAsOwner(client: pg.Client): Promise<boolean> {
  const run: Run = (statement) => client.query(statement);
  const owner = await ownerOf(run);
  if (owner === null) return true;
  if (!owner.mayAct) return false;
  await grantCreate(run, owner.name);
  await run(`set role ${pg.escapeIdentifier(owner.name)}`);
  return true;
}

/** Grants on what this migration has added, in a database that uses the roles. */
export async function grantIfRolesServe(client: pg.Client): Promise<void> {
  const run: Run = (statement) => client.query(statement);
  const owner = await ownerOf(run);
  if (owner?.name === roleNames.migrator) await grantToRoles(run);
}

/** `create schema if not exists` requires this right even if the schema exists. In a copy of a database, the role does not have it. */
async function grantCreate(run: Run, role: string): Promise<void> {
  const { rows } = await run(
    `select has_database_privilege(${pg.escapeLiteral(role)}, current_database(), 'CREATE') as has,
       quote_ident(current_database()) as name`,
  );
  const [{ has, name } = { has: true, name: '' }] = rows;
  if (has === false) await run(`grant create on database ${String(name)} to ${pg.escapeIdentifier(role)}`);
}

async function giveToMigrator(run: Run): Promise<void> {
  const { migrator } = roleNames;
  // A caller that is no superuser must be a member of the role that it gives objects to.
  await run(`do $$ begin
    if current_user <> '${migrator}' and not (select rolsuper from pg_roles where rolname = current_user) then
      execute format('grant ${migrator} to %I', current_user);
    end if;
  end $$`);
  await grantCreate(run, migrator);
  const { rows } = await run(`
    select format('alter schema palimpsest owner to ${migrator}') as statement
    union all
    select format('alter table %s owner to ${migrator}', c.oid::regclass) from pg_class c
      where c.relnamespace = 'palimpsest'::regnamespace and c.relkind in ('r', 'p')
    union all
    select format('alter function %s owner to ${migrator}', p.oid::regprocedure) from pg_proc p
      where p.pronamespace = 'palimpsest'::regnamespace
    union all
    select format('alter policy %I on %s to ${migrator}', p.polname, p.polrelid::regclass)
      from pg_policy p join pg_class c on c.oid = p.polrelid
      where c.relnamespace = 'palimpsest'::regnamespace and p.polname = 'owner_across_tenants'`);
  for (const { statement } of rows) await run(String(statement));
}

async function grantToRoles(run: Run): Promise<void> {
  const { app, maintenance, eraser } = roleNames;
  const everyone = [app, maintenance, eraser].join(', ');
  // A table that is written once names its other columns in its trigger. Rights on columns do not suffice for LOCK TABLE.
  const { rows } = await run(`
    select c.relname as table, string_agg(quote_ident(a.attname), ', ')
      filter (where t.oid is null or a.attname = any (string_to_array(encode(t.tgargs, 'escape'), '\\000'))) as changeable
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
      left join pg_trigger t on t.tgrelid = c.oid and t.tgfoid = 'palimpsest.written_once'::regproc
        and t.tgtype & 1 = 1 and t.tgtype & 16 = 16
    where c.relnamespace = 'palimpsest'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'migrations'
    group by c.relname order by c.relname`);
  const grants = (rows as { table: string; changeable: string | null }[])
    .filter(({ table }) => !ofEraser.includes(table))
    .flatMap(({ table, changeable }) => [
      `grant insert on palimpsest.${table} to ${app}`,
      ...(changeable === null ? [] : [`grant update (${changeable}) on palimpsest.${table} to ${app}`]),
    ]);
  const tables = rows.map(({ table }) => `palimpsest.${String(table)}`).join(', ');
  const statements = [
    `revoke all on all tables in schema palimpsest from ${everyone}`,
    `grant usage on schema palimpsest to ${everyone}`,
    `grant select on palimpsest.migrations to ${everyone}`,
    `grant select on ${tables} to ${app}`,
    ...grants,
    `grant select, insert, update on ${tables} to ${eraser}`,
    `grant delete on ${mayDelete.map((table) => `palimpsest.${table}`).join(', ')} to ${app}`,
    `grant delete on ${tables} to ${eraser}`,
    // Limits are the operator's: they change through functions of palimpsest_maintenance.
    `revoke insert, update, delete on palimpsest.tenant_limits from ${app}, ${eraser}`,
    `grant execute on function palimpsest.erase_only(text, text), palimpsest.rewrite_only(text, text) to ${eraser}`,
    `grant execute on function palimpsest.token_of(bytea) to ${app}`,
    `grant execute on function ${acrossTenants.join(', ')} to ${maintenance}`,
  ];
  await run('begin');
  for (const statement of statements) await run(statement);
  await run('commit');
}
