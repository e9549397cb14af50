import type { Client, Connection } from '@temporalio/client';
import { orchestrates, type WorkerRole } from '../../config/schema.js';
import type { Config } from '../../config/config.js';
import { connectClient, type TemporalSettings } from '../../temporal/connection.js';
import { searchAttributeTypes, taskQueues } from '../../temporal/names.js';
import { count, plural, span } from '../terminal/numbers.js';
import { fail, failed, ok, warn, type Finding } from './doctor-finding.js';
import { checkSweep } from './doctor-sweep.js';

/** A poller shows up at least once a minute; a worker that is gone stays listed for five. Milliseconds. */
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

/** The dynamic configuration itself cannot be asked for. */
function checkVersion(version: string, embedded: boolean): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const known = major > 0;
  if (embedded)
    return ok('priorities', 'priority and fairness are on, task queues are polled without a tick');
  if (known && major === 1 && minor < 29)
    return warn(
      'priorities',
      `${version} has no fairness: backfill may hold live sessions up`,
      'Upgrade to 1.29 or later.',
    );
  return ok(
    'priorities',
    `served where the cluster has matching.useNewMatcher (default from 1.31) and matching.enableFairness on; history.transferProcessorMaxPollRPS=300 saves up to 50 ms a step`,
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
  if (silent > silentMs) return warn(check, detail, `Is the worker still there? ${start}`);
  const alive = pollers.filter(
    ({ lastAccessTime }) => now - Number(lastAccessTime?.seconds ?? 0) * 1_000 <= silentMs,
  );
  return ok(check, `${count(alive.length)} polling ${queue}, the last ${span(silent)} ago${waiting}`);
}
