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

type Run = (statement: string) => Promise<{ rows: Record<string, unknown>[] }>;

/** Tables of which the role of the application may delete rows: none holds a message or what was made of it. */
const mayDelete = ['digests', 'digest_holds', 'digest_flights', 'rate_buckets'];

const acrossTenants = [
  'overdue_sessions(integer)',
  'postpone_overdue(text[], text[], boolean)',
  'count_overdue()',
  'open_backfills(integer)',
  'pending_erasures(integer)',
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
 * Acts as the owner of the schema for the rest of the connection, where there is one, so that whatever a migration creates
 * belongs to the owner too. Returns false if the connection may not: then it can only check the schema.
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

/** `create schema if not exists` asks for this right also where the schema exists. A copy of a database does not have it. */
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
  const { rows } = await run(`
    select c.oid::regclass::text as name from pg_class c
    where c.relnamespace = 'palimpsest'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'migrations'`);
  const tables = rows.map(({ name }) => String(name)).join(', ');
  const statements = [
    `revoke all on all tables in schema palimpsest from ${everyone}`,
    `grant usage on schema palimpsest to ${everyone}`,
    `grant select on palimpsest.migrations to ${everyone}`,
    `grant select, insert, update on ${tables} to ${app}, ${eraser}`,
    `grant delete on ${mayDelete.map((table) => `palimpsest.${table}`).join(', ')} to ${app}`,
    `grant delete on ${tables} to ${eraser}`,
    `grant execute on function palimpsest.erase_only(text, text), palimpsest.rewrite_only(text, text) to ${eraser}`,
    `grant execute on function palimpsest.token_of(bytea) to ${app}`,
    `grant execute on function ${acrossTenants.join(', ')} to ${maintenance}`,
  ];
  await run('begin');
  for (const statement of statements) await run(statement);
  await run('commit');
}
