import type { Pool } from 'pg';
import {
  type Client,
  type Connection,
  type ScheduleDescription,
  ScheduleNotFoundError,
} from '@temporalio/client';
import type { Config } from '../../config/config.js';
import { orchestrates, type WorkerRole } from '../../config/schema.js';
import { isFailure } from '../../errors.js';
import type { Database } from '../../process/servers.js';
import { assertMigrated } from '../../store/connection/migrate.js';
import { limitsInForce, type TenantLimits } from '../../policy/tenant-limits.js';
import { overridesIn } from '../../store/tenants/limits.js';
import { type Spent, spendOfTenants } from '../../store/tenants/spend.js';
import { eraserOf, maintenanceOf, openPool } from '../../store/connection/pool.js';
import { read } from '../../store/connection/transaction.js';
import { countOverdue } from '../../store/sessions/overdue.js';
import { tenantsWithoutRedaction } from '../../store/sessions/unredacted.js';
import { connectClient, type TemporalSettings } from '../../temporal/connection.js';
import { searchAttributeTypes, sweepId, taskQueues } from '../../temporal/names.js';
import { ago, count, plural, span } from '../terminal/numbers.js';
import { fail, failed, type Finding, ok, warn } from './doctor-finding.js';

/** `set compression lz4` in the migrations requires 14. The tests run with 18. */
const leastVersion = 14;

export async function* checkPostgres(
  { databaseUrl, ...roles }: Database,
  from: string,
  limits: TenantLimits,
): AsyncGenerator<Finding> {
  let pool: Pool;
  try {
    pool = openPool(databaseUrl, { ...roles, max: 1, applicationName: 'palimpsest doctor' });
  } catch (error) {
    yield failed('PostgreSQL', error);
    return;
  }
  try {
    yield await checkServer(pool, databaseUrl, from);
    const migrated = await checkMigrations(pool);
    yield migrated;
    if (migrated.level === 'ok') {
      yield await checkRoles(pool);
      yield await checkOverdue(pool);
      yield await checkRedaction(pool);
      yield await checkSpend(pool, limits);
    }
    yield await checkCompression(pool);
    yield await checkConnections(pool);
  } catch (error) {
    yield failed('PostgreSQL', error);
  } finally {
    await pool.end();
  }
}

async function checkServer(pool: Pool, databaseUrl: string, from: string): Promise<Finding> {
  // The first query also connects; the second measures a round trip.
  const [server] = await read<{ version: string; number: number }>(
    pool,
    'shared',
    `select current_setting('server_version') as version, current_setting('server_version_num')::int as number`,
  );
  const started = performance.now();
  await read(pool, 'shared', 'select 1 as one');
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
      'shared',
      'select count(*)::int as applied from palimpsest.migrations',
    );
    return ok('schema', `${plural(row?.applied ?? 0, 'migration')} applied, none pending`);
  } catch (error) {
    if (!isFailure(error)) throw error;
    return fail('schema', error.message, error.hint);
  }
}

/** Row-level security separates tenants inside the database, unless a role of the processes bypasses it or it is off. */
async function checkRoles(pool: Pool): Promise<Finding> {
  const check = 'row security';
  const open = await read<{ name: string }>(
    pool,
    'shared',
    `select c.relname as name from pg_class c
     join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
     where c.relnamespace = 'palimpsest'::regnamespace and c.relkind in ('r', 'p')
       and not (c.relrowsecurity and c.relforcerowsecurity)
     order by 1`,
  );
  if (open.length > 0)
    return fail(
      check,
      `not enforced for ${open.map(({ name }) => name).join(', ')}: their tenants are separated by WHERE clauses alone`,
      'Run `alter table … enable row level security, force row level security` for each of them as the owner.',
    );
  const roles = await Promise.all([pool, maintenanceOf(pool), eraserOf(pool)].map(roleOf));
  const above = roles.find(({ bypasses }) => bypasses);
  if (above)
    return warn(
      check,
      `forced, but the role ${above.name} bypasses it`,
      'Run `palimpsest migrate --roles` and connect with the roles that it makes (docs/operating.md).',
    );
  const names = [...new Set(roles.map(({ name }) => name))];
  const owner = roles.find(({ owns }) => owns);
  if (owner || names.length < roles.length)
    return ok(
      check,
      `forced; ${names.join(', ')} ${owner ? `serves as owner of the tables` : 'serves for more than one role'} (least privilege: docs/operating.md)`,
    );
  return ok(check, `forced; roles ${names.join(', ')}`);
}

async function roleOf(pool: Pool): Promise<{ name: string; bypasses: boolean; owns: boolean }> {
  const [role] = await read<{ name: string; bypasses: boolean; owns: boolean }>(
    pool,
    'shared',
    `select current_user::text as name, r.rolsuper or r.rolbypassrls as bypasses,
       pg_has_role(n.nspowner, 'MEMBER') as owns
     from pg_roles r, pg_namespace n where r.rolname = current_user and n.nspname = 'palimpsest'`,
  );
  return role ?? { name: 'unknown', bypasses: false, owns: false };
}

/** Tenants with the highest spend whose limits are compared. */
const mostTenants = 1_000;

/** Tenants whose summaries are written without a model, because their spend of this day or month is used up. */
async function checkSpend(pool: Pool, defaults: TenantLimits): Promise<Finding> {
  const check = 'limits';
  const tenants = await spendOfTenants(pool, mostTenants);
  const reached = tenants.flatMap(({ tenant, limits: own, spent }) => {
    const limits = limitsInForce(defaults, overridesIn(own)) ?? {};
    const full = spendLimits.filter((name) => (limits[name] ?? Infinity) <= usedOf(name, spent));
    return full.length === 0 ? [] : [`${tenant} (${full.join(', ')})`];
  });
  if (reached.length === 0)
    return ok(
      check,
      `of ${plural(tenants.length, 'tenant')} with model calls this month, none has used up its spend`,
    );
  const shown = reached.slice(0, 5).join(', ') + (reached.length > 5 ? ', …' : '');
  return warn(
    check,
    `${plural(reached.length, 'tenant')} without model calls until the day or month ends: ${shown}`,
    'Raise the limit with `palimpsest limits set TENANT`, or leave it: the rules write their summaries.',
  );
}

const spendLimits = ['spendPerDay', 'spendPerMonth', 'modelTokensPerDay', 'modelTokensPerMonth'] as const;

function usedOf(limit: (typeof spendLimits)[number], { day, month }: Spent): number {
  const amount = limit.endsWith('Day') ? day : month;
  return limit.startsWith('spend') ? amount.cost : amount.tokens;
}

async function checkCompression(pool: Pool): Promise<Finding> {
  const [row] = await read<{ has: boolean }>(
    pool,
    'shared',
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
    'shared',
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

/** Milliseconds. A poller reports at least once a minute, and a stopped worker stays listed for five minutes. */
const silentMs = 120_000;

/** `TaskQueueType` of the server's API (temporal/api/enums/v1/task_queue.proto). */
const queueTypes = { workflow: 1, activity: 2 } as const;

export async function* checkTemporal(
  settings: TemporalSettings,
  { queuePrefix }: Pick<Config, 'queuePrefix'>,
  embedded: boolean,
): AsyncGenerator<Finding> {
  let client: Client;
  const started = performance.now();
  try {
    client = await connectClient(settings);
  } catch (error) {
    yield failed('Temporal', error);
    return;
  }
  const connection = client.connection as Connection;
  const namespace = client.options.namespace;
  try {
    const ms = performance.now() - started;
    const info = await connection.workflowService.getClusterInfo({});
    const where = `${settings.address} (${embedded ? 'embedded' : 'TEMPORAL_ADDRESS'})`;
    yield ok('Temporal', `${info.serverVersion || 'unknown version'} at ${where}, ${ms.toFixed(0)} ms`);
    yield checkVersion(info.serverVersion ?? '', embedded);
    yield await checkNamespace(connection, namespace);
    yield await checkAttributes(connection, namespace);
    const queues = taskQueues(queuePrefix);
    yield await checkQueue(connection, namespace, queues.workflow, 'workflow');
    yield await checkQueue(connection, namespace, queues.db, 'database');
    yield await checkQueue(connection, namespace, queues.llm, 'model');
    yield await checkQueue(connection, namespace, queues.backfill.workflow, 'backfill');
    yield await checkSweep(client, queuePrefix);
  } catch (error) {
    yield failed('Temporal', error);
  } finally {
    await connection.close();
  }
}

/** The server offers no way to read its dynamic configuration. */
function checkVersion(version: string, embedded: boolean): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const known = major > 0;
  if (embedded)
    return ok('priorities', 'priority and fairness are on, steps reach their queues without delay');
  if (known && major === 1 && minor < 29)
    return warn(
      'priorities',
      `${version} has no fairness: backfills may delay live sessions`,
      'Upgrade to 1.29 or later.',
    );
  return ok(
    'priorities',
    `take effect if matching.useNewMatcher (on by default from 1.31) and matching.enableFairness are switched on in the cluster; history.transferProcessorMaxPollRPS=300 saves up to 50 ms per step`,
  );
}

async function checkNamespace({ workflowService }: Connection, namespace: string): Promise<Finding> {
  const described = await workflowService.describeNamespace({ namespace });
  const seconds = Number(described.config?.workflowExecutionRetentionTtl?.seconds ?? 0);
  return ok('namespace', `${namespace}, closed runs are kept ${span(seconds * 1_000)}`);
}

async function checkAttributes({ operatorService }: Connection, namespace: string): Promise<Finding> {
  const { customAttributes = {} } = await operatorService.listSearchAttributes({ namespace });
  const names = Object.keys(searchAttributeTypes);
  const missing = Object.entries(searchAttributeTypes).filter(
    ([name]) => !(name in (customAttributes ?? {})),
  );
  if (missing.length === 0) return ok('attributes', `${names.length} search attributes are registered`);
  const flags = missing.map(([name, type]) => `--name ${name} --type ${type}`).join(' ');
  return fail(
    'attributes',
    `not registered: ${missing.map(([name]) => name).join(', ')}; without them no session starts`,
    `Start a worker, which registers them, or run: temporal operator search-attribute create --namespace ${namespace} ${flags}`,
  );
}

async function checkQueue(
  { workflowService }: Connection,
  namespace: string,
  queue: string,
  role: WorkerRole,
): Promise<Finding> {
  const { pollers, stats } = await workflowService.describeTaskQueue({
    namespace,
    taskQueue: { name: queue },
    taskQueueType: orchestrates([role]) ? queueTypes.workflow : queueTypes.activity,
    reportStats: true,
  });
  const check = `queue ${role}`;
  const backlog = Number(stats?.approximateBacklogCount ?? 0);
  const waiting = backlog > 0 ? `, ${plural(backlog, 'task')} waiting` : '';
  const start = `Start one: palimpsest worker --role ${role}`;
  if (!pollers || pollers.length === 0) {
    const finding = role === 'backfill' ? warn : fail;
    return finding(check, `no worker polls ${queue}${waiting}`, start);
  }
  const now = Date.now();
  const silent = Math.min(
    ...pollers.map(({ lastAccessTime }) => now - Number(lastAccessTime?.seconds ?? 0) * 1_000),
  );
  const detail = `${plural(pollers.length, 'poller')} on ${queue}, the last ${span(silent)} ago${waiting}`;
  if (silent > silentMs) return warn(check, detail, `Check that the worker is still running. ${start}`);
  const alive = pollers.filter(
    ({ lastAccessTime }) => now - Number(lastAccessTime?.seconds ?? 0) * 1_000 <= silentMs,
  );
  return ok(check, `${count(alive.length)} polling ${queue}, the last ${span(silent)} ago${waiting}`);
}

const check = 'sweep';

/** Sweeps that may be missing before the schedule counts as stalled: one may be running and another skipped. */
const missedSweeps = 3;

/** Milliseconds. A session that waits longer was missed by several sweeps of the default interval. */
const longestWaitMs = 15 * 60_000;

/** Checks that the schedule exists and that its runs complete. */
async function checkSweep(client: Client, queuePrefix: string): Promise<Finding> {
  const scheduleId = sweepId(queuePrefix);
  const start = 'Start a worker, which creates it: palimpsest worker --role workflow';
  try {
    const schedule = await client.schedule.getHandle(scheduleId).describe();
    return await findingOf(client, schedule);
  } catch (error) {
    if (!(error instanceof ScheduleNotFoundError)) throw error;
    return fail(
      check,
      `the schedule ${scheduleId} does not exist: a session whose signal is lost waits until its next turn is appended`,
      start,
    );
  }
}

async function findingOf(
  client: Client,
  { scheduleId, spec, state, info }: ScheduleDescription,
): Promise<Finding> {
  const [interval] = spec.intervals ?? [];
  const every = interval?.every ?? 0;
  const name = `${scheduleId}, every ${span(every)}`;
  if (state.paused)
    return warn(
      check,
      `${name}: paused`,
      'Resume the schedule in the Temporal UI, or with `temporal schedule toggle`.',
    );
  const latest = info.recentActions.at(-1);
  const changed = info.lastUpdatedAt ?? info.createdAt;
  const since = latest && latest.takenAt > changed ? latest.takenAt : changed;
  if (Date.now() - since.getTime() > missedSweeps * every + 60_000)
    return warn(
      check,
      `${name}: no sweep has started for ${ago(since.toISOString())}`,
      'Check the schedule in the Temporal UI.',
    );
  if (latest === undefined) return ok(check, `${name}: none was due yet`);
  const { workflowId } = latest.action.workflow;
  const { status } = await client.workflow.getHandle(workflowId).describe();
  if (status.name === 'COMPLETED' || status.name === 'RUNNING')
    return ok(check, `${name}, the last ${ago(since.toISOString())} ago`);
  return warn(
    check,
    `${name}: the last one ended as ${status.name}`,
    `Check ${workflowId} in the Temporal UI; it needs workers with the roles workflow and database.`,
  );
}

/** Finds sessions that are still unmeasured after several sweeps. */
async function checkOverdue(pool: Pool): Promise<Finding> {
  const { sessions, since } = await countOverdue(pool);
  if (since === null) return ok('overdue', 'no session waits without a workflow');
  const detail = `${plural(sessions, 'session')}, the longest for ${ago(since.toISOString())}`;
  if (Date.now() - since.getTime() < longestWaitMs)
    return ok('overdue', `${detail}: the next sweep signals them`);
  return warn(
    'overdue',
    detail,
    'Check that the sweep runs and that workers serve the queues workflow and database.',
  );
}

/** Tenants that a finding names. */
const mostNamed = 20;

/** Finds the tenants that still have the earlier default of `redact`. */
async function checkRedaction(pool: Pool): Promise<Finding> {
  const tenants = await tenantsWithoutRedaction(pool);
  if (tenants.length === 0) return ok('redaction', 'on by default for every tenant');
  const named = tenants
    .slice(0, mostNamed)
    .map(({ tenant, sessions }) => (sessions === 0 ? tenant : `${tenant} (${plural(sessions, 'session')})`));
  const more = tenants.length > mostNamed ? ` and ${count(tenants.length - mostNamed)} more` : '';
  return warn(
    'redaction',
    `off, as under an earlier version, for ${plural(tenants.length, 'tenant')}: ${named.join(', ')}${more}`,
    'Secrets of these tenants reach the summarizer. Add "redact": {} to the policy of each tenant: palimpsest policy set.',
  );
}
