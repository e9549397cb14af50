/**
 * Row-level security, seen with the rights of the processes: a transaction reaches the rows of the tenant that it names and of
 * no other. Tables and functions come from the catalogue, so that a new one without protection fails here.
 */
import pg, { type Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import { migrate } from '../../../src/store/connection/migrate.js';
import { openPool as openStorePool } from '../../../src/store/connection/pool.js';
import { roleNames } from '../../../src/store/connection/roles.js';
import { read, readWith, withTransaction } from '../../../src/store/connection/transaction.js';
import { sessions } from '../../../src/store/schema/log.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { pendingErasures } from '../../../src/store/sessions/erasures.js';
import { countOverdue } from '../../../src/store/sessions/overdue.js';
import { findSession, loadSession } from '../../../src/store/sessions/sessions.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { openPool } from '../../support/pool.js';
import { sessionWith, talk } from '../../support/store.js';

/** The tenant of the caller, and a neighbour that must stay out of reach. */
const [own, other] = ['acme', 'neighbour'];

let database: TestDatabase;
let owner: pg.Client;
/** One connection of each role. */
const as = {} as Record<'app' | 'maintenance' | 'eraser', pg.Client>;
let tables: string[];

beforeAll(async () => {
  database = await createDatabase();
  owner = await connected(database.ownerUrl);
  as.app = await connected(database.url);
  as.maintenance = await connected(database.maintenanceUrl);
  as.eraser = await connected(database.eraserUrl);
  tables = await namesOf(`select c.relname as name from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    where c.relnamespace = 'palimpsest'::regnamespace and c.relkind in ('r', 'p') order by 1`);
  // Foreign keys and guards do not matter here.
  await owner.query('set session_replication_role = replica');
  for (const table of tables)
    for (const tenant of [own, other]) await owner.query(await insertInto(table, tenant));
  await owner.query(`update palimpsest.tenants set policy = '{}'`);
});

afterAll(async () => {
  for (const client of [owner, ...Object.values(as)]) await client.end();
  await database.drop();
});

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return client;
}

async function namesOf(query: string): Promise<string[]> {
  const { rows } = await owner.query<{ name: string }>(query);
  return rows.map(({ name }) => name);
}

/** Values that satisfy every check, by type. */
const valueOf: Record<string, string> = {
  text: "'x'",
  'text[]': "'{}'",
  integer: '1',
  bigint: '1',
  'double precision': '1',
  boolean: 'false',
  jsonb: `'{}'`,
  uuid: 'gen_random_uuid()',
  bytea: `sha256('x')`,
  tsvector: `''`,
  date: 'current_date',
  'timestamp with time zone': 'now()',
};

/** The first compaction of a session evicts nothing. */
const genesis: Record<string, string> = { generation: '0', through_seq: '0' };

/** An `insert` of one row with a value for each column that needs one. */
async function insertInto(table: string, tenant: string): Promise<string> {
  const { rows } = await owner.query<{ name: string; type: string }>(
    `select a.attname as name, format_type(a.atttypid, null) as type from pg_attribute a
     where a.attrelid = ('palimpsest.' || quote_ident($1))::regclass and a.attnum > 0 and not a.attisdropped
       and a.attnotnull and not a.atthasdef and a.attname <> 'tenant_id'`,
    [table],
  );
  const special: Record<string, string> = {
    ...(table === 'compactions' && genesis),
    // No two tokens are the same.
    ...(table === 'api_tokens' && { sha256: `sha256(${pg.escapeLiteral(tenant)})` }),
  };
  const values = rows.map(({ name, type }) => special[name] ?? valueOf[type] ?? `unknown type ${type}`);
  return `insert into palimpsest.${table} (${['tenant_id', ...rows.map(({ name }) => name)].join(', ')})
    values (${[pg.escapeLiteral(tenant), ...values].join(', ')})`;
}

/** Runs a statement in a transaction that names this tenant, and rolls it back. Returns its rows or its error code. */
async function within(client: pg.Client, tenant: string | null, statement: string) {
  await client.query('begin');
  try {
    if (tenant !== null) await client.query("select set_config('palimpsest.tenant', $1, true)", [tenant]);
    const { rows, rowCount } = await client.query<Record<string, unknown>>(statement);
    return { rows, rowCount };
  } catch (error) {
    return { code: (error as pg.DatabaseError).code };
  } finally {
    await client.query('rollback');
  }
}

/** The columns that a role may update. */
async function changeable(role: 'app' | 'eraser', table: string): Promise<string[]> {
  return namesOf(
    `select a.attname as name from pg_attribute a
     where a.attrelid = 'palimpsest.${table}'::regclass and a.attnum > 0 and not a.attisdropped
       and has_column_privilege('${roleNames[role]}', a.attrelid, a.attnum, 'update') order by a.attnum`,
  );
}

const refused = { code: '42501' };
const nothing = { rows: [], rowCount: 0 };

test('every table has a tenant and forced row-level security, or is known to have no tenant', async () => {
  const all = await namesOf(`select relname as name from pg_class
    where relnamespace = 'palimpsest'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f') order by 1`);
  expect(all.filter((table) => !tables.includes(table))).toEqual(['migrations', 'rate_buckets']);
  const forced = await namesOf(`select relname as name from pg_class
    where relnamespace = 'palimpsest'::regnamespace and relrowsecurity and relforcerowsecurity order by 1`);
  expect(forced).toEqual(tables);
  const { rows } = await owner.query<{ table: string; policies: string[] }>(
    `select tablename as table, array_agg(policyname || ' of ' || array_to_string(roles, ',') order by policyname) as policies
     from pg_policies where schemaname = 'palimpsest' group by 1 order by 1`,
  );
  expect(rows).toEqual(
    tables.map((table) => ({
      table,
      policies: [`one_tenant of public`, `owner_across_tenants of ${roleNames.migrator}`],
    })),
  );
});

describe.each(['app', 'eraser'] as const)('as %s', (role) => {
  it('a transaction that names a tenant sees its rows, in every table', async () => {
    for (const table of tables)
      expect(await within(as[role], own, `select tenant_id from palimpsest.${table}`), table).toEqual({
        rows: [{ tenant_id: own }],
        rowCount: 1,
      });
  });

  describe.each([
    ['no tenant', null],
    ['an empty tenant', ''],
    ['another tenant', own],
  ])('%s is named', (_, tenant) => {
    it('no table shows a row', async () => {
      for (const table of tables)
        expect(
          await within(as[role], tenant, `select 1 from palimpsest.${table} where tenant_id = '${other}'`),
          table,
        ).toEqual(nothing);
    });

    it('no table takes a row', async () => {
      for (const table of tables) {
        const statement = await insertInto(table, `${other}`);
        expect(await within(as[role], tenant, statement), table).toEqual(refused);
      }
    });

    it('no row can be changed', async () => {
      for (const table of tables) {
        const [column = 'tenant_id'] = await changeable(role, table);
        const outcome = await within(
          as[role],
          tenant,
          `update palimpsest.${table} set ${column} = ${column} where tenant_id = '${other}'`,
        );
        const may = (await changeable(role, table)).length > 0;
        expect(outcome, table).toEqual(may ? nothing : refused);
      }
    });

    it('no row can be deleted', async () => {
      for (const table of tables) {
        const outcome = await within(
          as[role],
          tenant,
          `delete from palimpsest.${table} where tenant_id = '${other}'`,
        );
        const may =
          table !== 'tenant_limits' &&
          (role === 'eraser' || ['digests', 'digest_holds', 'digest_flights'].includes(table));
        expect(outcome, table).toEqual(may ? nothing : refused);
      }
    });
  });

  it('no row can be moved to another tenant', async () => {
    for (const table of tables) {
      const outcome = await within(as[role], own, `update palimpsest.${table} set tenant_id = '${other}'`);
      // Row-level security, or the guard of a row that is written once.
      expect(['42501', '23001'], table).toContain(outcome.code);
    }
  });

  it('the setting of the owner opens nothing', async () => {
    await as[role].query("set palimpsest.tenants = 'all'");
    for (const table of tables)
      expect(await within(as[role], null, `select 1 from palimpsest.${table}`), table).toEqual(nothing);
    await as[role].query('reset palimpsest.tenants');
  });
});

describe('what is written once', () => {
  it('has no column that the application may change, except those that its trigger names', async () => {
    const found = await Promise.all(
      ['messages', 'turns', 'compactions', 'archive_parts', 'digests', 'api_tokens', 'erasures'].map(
        async (table) => [table, (await changeable('app', table)).sort()],
      ),
    );
    expect(Object.fromEntries(found)).toEqual({
      messages: ['tokens'],
      turns: [],
      compactions: ['head_tokens', 'layout', 'redaction', 'snapshot_tokens', 'state_tokens', 'workflow_id'],
      archive_parts: ['tokens'],
      digests: ['payer_generation', 'payer_session'],
      api_tokens: [],
      erasures: [],
    });
  });

  it('stays so for the eraser, whatever stands first in its search path', async () => {
    const client = await connected(database.eraserUrl);
    try {
      await client.query(`create type pg_temp.text as enum ('tokens')`);
      await client.query(`create function pg_temp.everything(pg_temp.text[]) returns pg_catalog.text[] language sql immutable as
        $$ select array_agg(attname::pg_catalog.text) from pg_attribute where attrelid = 'palimpsest.messages'::regclass $$`);
      await client.query(
        `create cast (pg_temp.text[] as pg_catalog.text[]) with function pg_temp.everything(pg_temp.text[]) as implicit`,
      );
      expect(
        await within(client, own, `update palimpsest.messages set body = '{}', sha256 = sha256('{}')`),
      ).toEqual({
        code: '23001',
      });
    } finally {
      await client.end();
    }
  });

  it('cannot be locked by the application against everybody', async () => {
    for (const table of ['sessions', 'messages', 'compactions', 'tenants'])
      expect(
        await within(as.app, own, `lock table palimpsest.${table} in access exclusive mode`),
        table,
      ).toEqual(refused);
  });
});

test('a role that is set up again loses the settings that it gave itself', async () => {
  const [name] = await namesOf('select current_database() as name');
  const settings = `select setconfig::text as name from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
    where s.setrole = '${roleNames.app}'::regrole and d.datname = current_database()`;
  // Roles belong to the whole server: a migration of another test may reset this setting as soon as it is committed.
  await as.app.query('begin');
  await as.app.query(`alter role ${roleNames.app} in database ${name} set synchronous_commit = off`);
  expect((await as.app.query(settings)).rows).toEqual([{ name: '{synchronous_commit=off}' }]);
  await as.app.query('commit');
  await migrate(database.ownerUrl, { roles: {} });
  expect(await namesOf(settings)).toEqual([]);
});

test('as maintenance no table can be read or written', async () => {
  for (const table of [...tables, 'rate_buckets'])
    for (const statement of ['select 1 from', 'delete from', 'truncate'])
      expect(await within(as.maintenance, own, `${statement} palimpsest.${table}`), table).toEqual(refused);
});

test('the roles of the processes own nothing, bypass nothing and cannot become another', async () => {
  const { rows } = await owner.query<{ name: string; above: boolean; owned: number; memberships: number }>(
    `select r.rolname as name, r.rolsuper or r.rolbypassrls or r.rolcreaterole or r.rolcreatedb as above,
       (select count(*)::int from pg_class c where c.relowner = r.oid) +
       (select count(*)::int from pg_proc p where p.proowner = r.oid) as owned,
       (select count(*)::int from pg_auth_members m where m.member = r.oid) as memberships
     from pg_roles r where r.rolname = any($1) order by 1`,
    [Object.values(roleNames).filter((name) => name !== roleNames.migrator)],
  );
  expect(rows).toEqual(
    [roleNames.app, roleNames.eraser, roleNames.maintenance].map((name) => ({
      ...{ name, above: false, owned: 0, memberships: 0 },
    })),
  );
  const owners = await namesOf(`select distinct pg_get_userbyid(relowner) as name from pg_class
    where relnamespace = 'palimpsest'::regnamespace and relkind = 'r'`);
  expect(owners).toEqual([roleNames.migrator]);
  const { rows: migrator } = await owner.query(
    'select rolsuper or rolbypassrls as above from pg_roles where rolname = $1',
    [roleNames.migrator],
  );
  expect(migrator).toEqual([{ above: false }]);
});

test.each(['app', 'eraser'] as const)('as %s the limits of the own tenant can only be read', async (role) => {
  for (const statement of [
    `insert into palimpsest.tenant_limits (tenant_id, limits) values ('${own}', '{}')
       on conflict (tenant_id) do update set limits = '{"spendPerDay": 1000}'`,
    `update palimpsest.tenant_limits set limits = '{}'`,
    'delete from palimpsest.tenant_limits',
    'truncate palimpsest.tenant_limits',
  ])
    expect(await within(as[role], own, statement), statement).toEqual(refused);
  expect(await within(as[role], own, 'select limits from palimpsest.tenant_limits')).toEqual({
    ...{ rows: [{ limits: {} }], rowCount: 1 },
  });
});

describe('functions', () => {
  /** Each function of the schema with the roles that may call it. */
  const callers: Record<string, readonly ('app' | 'maintenance' | 'eraser')[]> = {
    change_tenant_limits: ['maintenance'],
    clear_tenant_limits: ['maintenance'],
    count_overdue: ['maintenance'],
    erase_only: ['eraser'],
    rewrite_only: ['eraser'],
    // Called by triggers, in which no right to execute is asked for; a direct call fails.
    note_overdue: ['app', 'eraser', 'maintenance'],
    // A part of the generated column of message_vectors; reads nothing.
    numbers_of: ['app', 'eraser', 'maintenance'],
    open_backfills: ['maintenance'],
    overdue_sessions: ['maintenance'],
    pending_erasures: ['maintenance'],
    postpone_overdue: ['maintenance'],
    spend_of_tenants: ['maintenance'],
    tenants_without_redaction: ['maintenance'],
    // Asks for the hash of a token, which only its holder knows.
    token_of: ['app'],
    use_pgvector: [],
    written_once: ['app', 'eraser', 'maintenance'],
  };

  it('serve exactly these roles', async () => {
    const found = await owner.query<{ name: string; app: boolean; maintenance: boolean; eraser: boolean }>(
      `select p.proname as name, has_function_privilege($1, p.oid, 'execute') as app,
         has_function_privilege($2, p.oid, 'execute') as maintenance,
         has_function_privilege($3, p.oid, 'execute') as eraser
       from pg_proc p where p.pronamespace = 'palimpsest'::regnamespace order by 1`,
      [roleNames.app, roleNames.maintenance, roleNames.eraser],
    );
    const serves = found.rows.map(({ name, ...may }) => [
      name,
      (['app', 'eraser', 'maintenance'] as const).filter((role) => may[role]),
    ]);
    expect(Object.fromEntries(serves)).toEqual(
      Object.fromEntries(Object.entries(callers).map(([name, roles]) => [name, [...roles].sort()])),
    );
  });

  it('have a fixed search path, all of them', async () => {
    expect(
      await namesOf(`select proname as name from pg_proc where pronamespace = 'palimpsest'::regnamespace
        and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)`),
    ).toEqual(['use_pgvector']);
  });

  it('that run with the rights of the owner have a fixed search path, and return no message', async () => {
    const { rows } = await owner.query<{ name: string; config: string[]; result: string }>(
      `select proname as name, proconfig as config, pg_get_function_result(oid) as result
       from pg_proc where pronamespace = 'palimpsest'::regnamespace and prosecdef order by 1`,
    );
    const config = ['search_path=pg_catalog, pg_temp'];
    expect(rows).toEqual([
      { name: 'change_tenant_limits', config, result: 'void' },
      { name: 'clear_tenant_limits', config, result: 'void' },
      {
        ...{ name: 'count_overdue', config },
        result: 'TABLE(sessions bigint, since timestamp with time zone)',
      },
      { name: 'open_backfills', config, result: 'TABLE(tenant text, job text)' },
      { name: 'overdue_sessions', config, result: 'TABLE(tenant text, session text, in_backfill boolean)' },
      {
        ...{ name: 'pending_erasures', config },
        result:
          'TABLE(tenant text, session text, erased_at timestamp with time zone, generation integer, told_at timestamp with time zone)',
      },
      { name: 'postpone_overdue', config, result: 'void' },
      {
        ...{ name: 'spend_of_tenants', config },
        result:
          'TABLE(tenant text, limits jsonb, day_cost double precision, day_tokens numeric, month_cost double precision, month_tokens numeric)',
      },
      { name: 'tenants_without_redaction', config, result: 'TABLE(tenant text, sessions integer)' },
      { name: 'token_of', config, result: 'TABLE(tenant text, scopes text[])' },
    ]);
  });

  it('are refused to the application, whatever tenant it names', async () => {
    for (const call of [
      'palimpsest.overdue_sessions(10)',
      "palimpsest.postpone_overdue('{a}', '{b}', true)",
      'palimpsest.count_overdue()',
      'palimpsest.open_backfills(10)',
      'palimpsest.pending_erasures(10)',
      'palimpsest.tenants_without_redaction()',
      `palimpsest.erase_only('${own}', 'x')`,
      `palimpsest.rewrite_only('${own}', 'x')`,
      'palimpsest.use_pgvector()',
      `palimpsest.change_tenant_limits('${own}', '{"spendPerDay": 1000}', '{}')`,
      `palimpsest.clear_tenant_limits('${own}')`,
      'palimpsest.spend_of_tenants(10)',
    ])
      for (const tenant of [null, own])
        expect(await within(as.app, tenant, `select * from ${call}`), call).toEqual(refused);
    for (const trigger of ['palimpsest.written_once()', 'palimpsest.note_overdue()'])
      expect(await within(as.app, own, `select ${trigger}`)).toEqual({ code: '0A000' });
    expect(await within(as.app, own, "select palimpsest.numbers_of('\\xff01') as n")).toMatchObject({
      rows: [{ n: [-1, 1] }],
    });
  });

  it('token_of gives the application the tenant of a token that it shows, and of no other', async () => {
    const call = (shown: string) => `select * from palimpsest.token_of(sha256('${shown}'))`;
    expect(await within(as.app, null, call(other))).toMatchObject({ rows: [{ tenant: other, scopes: [] }] });
    expect(await within(as.app, own, call('unknown'))).toEqual(nothing);
    expect(await within(as.maintenance, null, call(other))).toEqual(refused);
    const after = `with called as materialized (${call(other)}) select 1 from called, palimpsest.sessions`;
    expect(await within(as.app, null, after)).toEqual(nothing);
  });

  describe('see every tenant as maintenance', () => {
    beforeAll(async () => {
      await owner.query(
        `update palimpsest.sessions set live_tokens = 2, measure_at_tokens = 1, overdue_at = now() - interval '5 minutes',
           sweep_at = now() - interval '5 minutes'`,
      );
    });

    it('overdue_sessions', async () => {
      const call = 'select * from palimpsest.overdue_sessions(10) order by tenant';
      expect(await within(as.maintenance, null, call)).toMatchObject({
        rows: [own, other].map((tenant) => ({ tenant, session: 'x' })),
      });
    });

    it('count_overdue', async () => {
      expect(await within(as.maintenance, null, 'select * from palimpsest.count_overdue()')).toMatchObject({
        rows: [{ sessions: '2' }],
      });
    });

    it('postpone_overdue changes when the sweep looks again, and only for the named sessions', async () => {
      await as.maintenance.query("select palimpsest.postpone_overdue($1, '{x}', true)", [[own]]);
      const { rows } = await owner.query(
        `select tenant_id as tenant, sweep_at > now() as later, overdue_at < now() as overdue
         from palimpsest.sessions order by 1`,
      );
      expect(rows).toEqual([
        { tenant: own, later: true, overdue: true },
        { tenant: other, later: false, overdue: true },
      ]);
    });

    it('open_backfills', async () => {
      expect(
        await within(as.maintenance, null, 'select * from palimpsest.open_backfills(10) order by tenant'),
      ).toMatchObject({ rows: [own, other].map((tenant) => ({ tenant, job: 'x' })) });
    });

    it('pending_erasures', async () => {
      expect(
        await within(as.maintenance, null, 'select * from palimpsest.pending_erasures(10) order by tenant'),
      ).toMatchObject({ rows: [own, other].map((tenant) => ({ tenant, session: 'x', generation: 1 })) });
    });
  });
});

describe('the tenant of a transaction', () => {
  const setting = "select current_setting('palimpsest.tenant', true) as tenant";
  let pool: Pool;

  beforeAll(() => {
    pool = openPool(database.url, { max: 1 });
  });

  afterAll(() => pool.end());

  const hostile = [
    "o'hara",
    `a'; reset role; select set_config('palimpsest.tenant', 'neighbour', false); --`,
    `back\\slash \\' quoted`,
    '"double" $1 $$dollar$$',
    '名前 👩‍🚀 %s',
  ];

  it.each(hostile)('arrives to the letter: %s', async (tenant) => {
    expect(await read(pool, { tenant }, setting)).toEqual([{ tenant }]);
    expect(await withTransaction(pool, { tenant }, ({ query }) => query(setting))).toEqual([{ tenant }]);
    const ids = await sessionWith(pool, talk(2), tenant);
    expect(await loadSession(pool, ids)).toMatchObject({ nextSeq: 3 });
    expect(await findSession(pool, { ...ids, tenant: other })).toBeNull();
    expect(
      await readWith(pool, { tenant }, (db) => db.select({ session: sessions.sessionId }).from(sessions)),
    ).toEqual([{ session: ids.session }]);
    expect(await readWith(pool, { tenant: `${tenant}x` }, (db) => db.select().from(sessions))).toEqual([]);
  });

  it('a read with several rows, none, and values of every kind answers as without a tenant', async () => {
    const text =
      'select n, $1::bytea as bytes, $2::bigint as big, $3::text[] as list from generate_series(1, $4) n';
    const values = [Buffer.from([1, 0, 255]), 2 ** 40, ['a', 'b'], 3];
    expect(await read(pool, { tenant: own }, text, values)).toEqual(await read(pool, 'shared', text, values));
    expect(await read(pool, { tenant: own }, text, [...values.slice(0, 3), 0])).toEqual([]);
    expect(await read(pool, { tenant: own }, 'select')).toEqual([{}]);
  });

  const nobody = async () =>
    expect(['', null]).toContain((await read<{ tenant: string }>(pool, 'shared', setting))[0]?.tenant);

  it('is gone after it, whether it commits, fails or was refused', async () => {
    const tenant = own;
    const pid = 'select pg_backend_pid() as pid';
    const [first] = await read(pool, 'shared', pid);
    await withTransaction(pool, { tenant }, ({ query }) => query('select 1'));
    await nobody();
    await read(pool, { tenant }, 'select 1');
    await nobody();
    await expect(
      withTransaction(pool, { tenant }, () => Promise.reject(new Error('changed my mind'))),
    ).rejects.toThrow('changed my mind');
    await nobody();
    await expect(withTransaction(pool, { tenant }, ({ query }) => query('select 1/0'))).rejects.toThrow(
      /zero/,
    );
    await nobody();
    await expect(read(pool, { tenant }, 'select 1/0')).rejects.toThrow(/zero/);
    await nobody();
    await expect(read(pool, { tenant }, 'no statement')).rejects.toThrow(/syntax/);
    await nobody();
    const failing = {
      toPostgres: () => {
        throw new Error('not a value');
      },
    };
    await expect(read(pool, { tenant }, 'select $1', [failing])).rejects.toThrow('not a value');
    await nobody();
    // It was the same connection all along.
    expect(await read(pool, 'shared', pid)).toEqual([first]);
  });

  it('concurrent calls of several tenants on few connections see their own rows', async () => {
    const few = openPool(database.url, { max: 3, tenantShare: 1 });
    const tenants = Array.from({ length: 12 }, (_, number) => `many-${number}`);
    const all = await Promise.all(tenants.map((tenant) => sessionWith(few, talk(2), tenant)));
    const seen = await Promise.all(
      [...all, ...all].map((ids) =>
        read(few, ids, 'select tenant_id as tenant, session_id as session from palimpsest.sessions'),
      ),
    );
    expect(seen).toEqual([...all, ...all].map((ids) => [ids]));
    await few.end();
  });
});

test('a result is found by its call id with the index, although row-level security comes first', async () => {
  await as.app.query('begin');
  await as.app.query(
    "select set_config('palimpsest.tenant', $1, true), set_config('enable_seqscan', 'off', true)",
    [own],
  );
  const { rows } = await as.app.query<{ 'QUERY PLAN': string }>(
    `explain select seq from palimpsest.messages
     where tenant_id = 'acme' and session_id = 'x' and answers = '"call"' and role = 'tool' and length(answers) <= 256`,
  );
  await as.app.query('rollback');
  const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
  expect(plan).toMatch(/messages_answers[\s\S]*Index Cond: .*answers = /);
});

describe('a database of one owner without roles', () => {
  const name = `owner_${process.pid}`;
  let own: TestDatabase;
  let url: string;

  beforeAll(async () => {
    own = await createDatabase();
    const admin = await connected(own.ownerUrl);
    await admin.query(`create role ${name} login password 'of a test'`);
    await admin.query(`drop schema palimpsest cascade`);
    await admin.query(`alter database ${new URL(own.url).pathname.slice(1)} owner to ${name}`);
    await admin.end();
    url = Object.assign(new URL(own.url), { username: name, password: 'of%20a%20test' }).toString();
  });

  afterAll(async () => {
    await own.drop();
    await owner.query(`drop role ${name}`);
  });

  it('works with one connection string, and row-level security binds its owner too', async () => {
    expect(await migrate(url)).toBeGreaterThan(20);
    expect(await migrate(url)).toBe(0);
    const pool = openStorePool(url, { max: 2 });
    try {
      const kept = await sessionWith(pool, talk(4), 'one');
      const gone = await sessionWith(pool, talk(4), 'two');
      expect(await countOverdue(pool)).toMatchObject({ sessions: 0 });
      await eraseSession(pool, gone);
      expect(await pendingErasures(pool, 10)).toMatchObject([gone]);
      expect(await read(pool, 'shared', 'select 1 from palimpsest.messages')).toEqual([]);
      expect(await read(pool, { tenant: 'two' }, 'select 1 from palimpsest.messages')).toEqual([]);
      expect(await read(pool, kept, 'select 1 from palimpsest.messages')).toHaveLength(4);
    } finally {
      await pool.end();
    }
  });

  it('moves to the roles with its data, and a later migration keeps them', async () => {
    await migrate(own.ownerUrl, { roles: {} });
    const pool = openStorePool(own.url, { maintenanceUrl: own.maintenanceUrl, eraserUrl: own.eraserUrl });
    try {
      expect(await read(pool, { tenant: 'one' }, 'select 1 from palimpsest.messages')).toHaveLength(4);
      const gone = await sessionWith(pool, talk(2), 'one');
      await eraseSession(pool, gone);
      expect(await pendingErasures(pool, 10)).toHaveLength(2);
      // The former owner lost its rights with the tables.
      const former = await connected(url);
      await expect(former.query('select 1 from palimpsest.messages')).rejects.toMatchObject({
        code: '42501',
      });
      await former.end();
      // The application may look whether something is to be applied.
      expect(await migrate(own.url)).toBe(0);
      expect(await migrate(own.ownerUrl)).toBe(0);
    } finally {
      await pool.end();
    }
  });

  it('the application cannot apply migrations', async () => {
    const admin = await connected(own.ownerUrl);
    await admin.query(
      'delete from palimpsest.migrations where id = (select max(id) from palimpsest.migrations)',
    );
    await admin.end();
    await expect(migrate(own.url)).rejects.toMatchObject({
      type: 'Store.Unavailable',
      hint: expect.stringContaining('as the owner') as string,
    });
  });
});
