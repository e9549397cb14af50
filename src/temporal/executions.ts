import { isGrpcServiceError, type Client } from '@temporalio/client';
import { aheadWorkflowId, compactionWorkflowId, sessionWorkflowId } from './names.js';
import type { SessionIds } from '../contract/ids.js';
import { typed, unlessGone } from './calls.js';

/** One run of a workflow of a session: of its session workflow or of one of its compactions. */
export interface Execution {
  workflowId: string;
  runId: string;
  running: boolean;
  startedAt: Date;
}

/** Maximum runs found at once; the rest are found after these are deleted. */
const mostFound = 2_000;
const pageSize = 500;

/** Concurrent calls. */
const together = 8;
const callTimeoutMs = 10_000;
/** Every call gets at least this long. */
const shortestCallMs = 500;
const notFoundCode = 5;

/**
 * Finds every run that the server knows, by search attributes and by workflow id; the newest ones by id alone, because the
 * search index lags slightly. `generation` is the last one that a compaction may have prepared. Throws `Temporal.Unavailable`,
 * also if the server has not answered by `until` (Unix milliseconds).
 */
export async function findExecutions(
  client: Client,
  ids: SessionIds,
  generation: number,
  until = Infinity,
): Promise<Execution[]> {
  const found = new Map<string, Execution>();
  const add = (execution: Execution) => found.set(`${execution.workflowId} ${execution.runId}`, execution);
  for (const execution of await typed(() => listed(client, ids, until))) add(execution);
  const newest = [generation - 1, generation].filter((one) => one >= 0);
  const compactions = newest.flatMap((one) => [compactionWorkflowId(ids, one), aheadWorkflowId(ids, one)]);
  for (const workflowId of [sessionWorkflowId(ids), ...compactions]) {
    const latest = await typed(() => described(client, workflowId, until));
    if (latest) add(latest);
  }
  return [...found.values()];
}

async function listed(client: Client, ids: SessionIds, until: number): Promise<Execution[]> {
  const session = sessionWorkflowId(ids);
  const compactions = compactionsOf(ids);
  const query =
    `(TenantId = ${quoted(ids.tenant)} and SessionId = ${quoted(ids.session)})` +
    ` or WorkflowId = ${quoted(session)} or WorkflowId starts_with ${quoted(compactions)}`;
  return client.withDeadline(deadline(until), async () => {
    const found: Execution[] = [];
    for await (const { workflowId, runId, status, startTime } of client.workflow.list({ query, pageSize })) {
      // The server may compare strings differently, and a deletion cannot be undone.
      if (workflowId !== session && !workflowId.startsWith(compactions)) continue;
      found.push({ workflowId, runId, running: status.name === 'RUNNING', startedAt: startTime });
      if (found.length >= mostFound) break;
    }
    return found;
  });
}

function compactionsOf(ids: SessionIds): string {
  return compactionWorkflowId(ids, 0).slice(0, -1);
}

function quoted(value: string): string {
  return `'${value.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}

async function described(client: Client, workflowId: string, until: number): Promise<Execution | null> {
  return unlessGoneFromServer(async () => {
    const { runId, status, startTime } = await client.withDeadline(deadline(until), () =>
      client.workflow.getHandle(workflowId).describe(),
    );
    return { workflowId, runId, running: status.name === 'RUNNING', startedAt: startTime };
  });
}

/**
 * Terminates running executions and requests the deletion of their histories, which the server carries out shortly afterwards.
 * Executions that are already gone are skipped. Throws `Temporal.Unavailable`.
 */
export async function deleteExecutions(
  client: Client,
  executions: readonly Execution[],
  reason: string,
  until = Infinity,
): Promise<void> {
  // Sessions go first, because they would start another compaction.
  const queue = executions.toSorted((a, b) => rank(a) - rank(b));
  const work = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) await deleteOne(client, next, reason, until);
  };
  await Promise.all(Array.from({ length: Math.min(together, queue.length) }, work));
}

function rank({ workflowId, running }: Execution): number {
  return running && workflowId.startsWith('session/') ? 0 : 1;
}

async function deleteOne(
  client: Client,
  { workflowId, runId, running }: Execution,
  reason: string,
  until: number,
) {
  const { workflowService } = client.connection;
  const { namespace } = client.options;
  const soon = <T>(call: () => Promise<T>) => client.withDeadline(deadline(until), call);
  await typed(async () => {
    // Terminated explicitly, so that waiting callers learn why there is no answer.
    if (running)
      await unlessGoneFromServer(() =>
        soon(() => client.workflow.getHandle(workflowId, runId).terminate(reason)),
      );
    await unlessGoneFromServer(() =>
      soon(() =>
        workflowService.deleteWorkflowExecution({ namespace, workflowExecution: { workflowId, runId } }),
      ),
    );
  });
}

/** Deadline of one call among several that must all end by `until`, in Unix milliseconds. */
function deadline(until: number): number {
  const now = Date.now();
  return Math.max(now + shortestCallMs, Math.min(now + callTimeoutMs, until));
}

/** Calls of the raw service report a gRPC code. */
async function unlessGoneFromServer<T>(call: () => Promise<T>): Promise<T | null> {
  try {
    return await unlessGone(call);
  } catch (error) {
    if (isGrpcServiceError(error) && Number(error.code) === notFoundCode) return null;
    throw error;
  }
}
