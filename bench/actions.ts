/**
 * Counts the billable actions and the history events of a turn, a due turn, a compaction of one and of eight chunks, and an item of
 * a backfill. It reads them from the histories of real runs. `npm run bench -- actions`; with `BENCH_CHECKOUT=../other` another
 * installed checkout is counted.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Client } from '@temporalio/client';
import type * as Product from '../src/index.js';
import type { PolicyInput } from '../src/policy/schema.js';
import { connectClient } from '../src/temporal/connection.js';
import { startModelServer } from '../test/support/model-server.js';
import { countOf, type Counted } from './actions/count.js';
import { agentTurns, messagesPerTurn } from './conversation.js';
import { createEmptyDatabase } from './deployment.js';
import { figure, shown, type BenchResult } from './figures.js';
import { summarizer } from './model-script.js';
import type { Servers } from './servers.js';

const own = fileURLToPath(new URL('..', import.meta.url));
const backfillSessions = 20;

/** Names and counts of the five cases. */
type Actions = Record<string, Counted>;

/** `checkout`: folder of an installed checkout of any version; only its public exports are used. */
export async function actions(
  servers: Servers,
  checkout = path.resolve(process.env['BENCH_CHECKOUT'] ?? own),
): Promise<BenchResult> {
  const counted = await countActions(servers, checkout);
  return {
    figures: Object.entries(counted).flatMap(([what, one]) => [
      figure('actions', what, 'actions', [one.actions]),
      figure('actions', what, 'events', [one.events]),
    ]),
    notes: Object.entries(counted).map(
      ([what, { of }]) =>
        `${what}: ${Object.entries(of)
          .map(([kind, count]) => `${kind} ${shown(count)}`)
          .join(', ')}.`,
    ),
  };
}

let runs = 0;

async function countActions(servers: Servers, checkout: string): Promise<Actions> {
  const name = `actions_${++runs}`;
  const product = (await import(pathToFileURL(path.join(checkout, 'src/index.ts')).href)) as typeof Product;
  const databaseUrl = await createEmptyDatabase(servers.adminUrl, name);
  await product.migrate(databaseUrl);
  const model = await startModelServer({ script: summarizer(0) });
  const temporal = { address: servers.temporalAddress };
  const worker = await startWorkerOf(checkout, {
    ...{ databaseUrl, temporal, queuePrefix: name },
    model: { apiKey: 'bench', baseUrl: model.url, summaryModel: 'bench-summarizer', contextWindow: 128_000 },
    shutdownGraceMs: 500,
    sweepIntervalMs: 86_400_000,
  });
  const palimpsest = await product.Palimpsest.connect({
    ...{ databaseUrl, temporal, tenant: name, queuePrefix: name },
  });
  const client = await connectClient(temporal);
  try {
    return await cases(palimpsest, client);
  } finally {
    await client.connection.close();
    await palimpsest.close();
    worker.disconnect();
    if (worker.exitCode === null && worker.signalCode === null) await once(worker, 'exit');
    await model.close();
  }
}

async function cases(palimpsest: Product.Palimpsest, client: Client): Promise<Actions> {
  const { tenant } = palimpsest;
  /** The last turn of the list is the one that is counted, with everything that follows from it. */
  const turn = async (session: string, turns: Turns, policy: PolicyInput, generation = 0) => {
    const root = `session/${tenant}/${session}`;
    const append = (turnId: string, messages: Turns[number]) =>
      palimpsest.appendTurn({ session, turnId, messages, policy });
    const last = turns.at(-1)!;
    for (let from = 0; from < turns.length - 1; from += 10)
      await append(`t-${from}`, turns.slice(from, Math.min(from + 10, turns.length - 1)).flat());
    const before = await countAtRest(client, root);
    await append('last', last);
    while ((await palimpsest.status({ session })).generation < generation) await sleep(20);
    return difference(await countAtRest(client, root), before);
  };
  const small = agentTurns(3, 60);
  const due: PolicyInput = { contextWindow: 32_000, trigger: { messages: 1_000, tokens: 1_000 } };
  // Of every version, one request for each chunk and one more for several chunks.
  const mode = 'incremental';
  return {
    'a turn': await turn('turn', small, { contextWindow: 32_000 }),
    'a due turn without a compaction': await turn('due', small, due),
    'a due turn with its compaction of 1 chunk': await turn(
      'one',
      agentTurns(30, 150),
      { contextWindow: 32_000, trigger: { messages: 30 * messagesPerTurn }, summary: { mode } },
      1,
    ),
    'a due turn with its compaction of 8 chunks': await turn(
      'eight',
      agentTurns(60, 300),
      {
        contextWindow: 128_000,
        trigger: { messages: 60 * messagesPerTurn },
        summary: { mode, chunkTokens: 15_200 },
      },
      1,
    ),
    [`an item of a backfill of ${backfillSessions}`]: await backfillItem(palimpsest, client),
  };
}

type Turns = ReturnType<typeof agentTurns>;

async function backfillItem(palimpsest: Product.Palimpsest, client: Client): Promise<Counted> {
  for (let n = 0; n < backfillSessions; n++)
    await palimpsest.appendTurn({
      session: `old-${n}`,
      turnId: 't',
      messages: agentTurns(30, 150, n + 2).flat(),
      policy: { contextWindow: 32_000, trigger: { messages: 1_000 }, summary: { mode: 'incremental' } },
    });
  await palimpsest.startBackfill({ job: 'count', mode: 'all', select: { prefix: 'old-' } });
  for (let ended = false; !ended; await sleep(50))
    ended = (await palimpsest.backfill({ job: 'count' })).endedAt !== null;
  const all = await countAtRest(client, `backfill/${palimpsest.tenant}/count`);
  const share = (count: number) => count / backfillSessions;
  return {
    actions: share(all.actions),
    events: share(all.events),
    of: Object.fromEntries(Object.entries(all.of).map(([kind, count]) => [kind, share(count)])),
  };
}

/** Counts the runs of a workflow and of all its children once nothing is pending in them. */
async function countAtRest(client: Client, workflowId: string): Promise<Counted> {
  const handle = client.workflow.getHandle(workflowId);
  for (;;) {
    const { raw, status } = await handle.describe();
    const { pendingActivities, pendingChildren, pendingWorkflowTask } = raw;
    const pending = (pendingActivities?.length ?? 0) + (pendingChildren?.length ?? 0);
    if (status.name !== 'RUNNING' || (pending === 0 && !pendingWorkflowTask)) break;
    await sleep(20);
  }
  return countOf(client, workflowId);
}

function difference(after: Counted, before: Counted): Counted {
  const of = Object.entries(after.of).map(([kind, count]) => [kind, count - (before.of[kind] ?? 0)] as const);
  return {
    actions: after.actions - before.actions,
    events: after.events - before.events,
    of: Object.fromEntries(of.filter(([, count]) => count !== 0)),
  };
}

async function startWorkerOf(checkout: string, settings: Product.WorkerSettings): Promise<ChildProcess> {
  const script = fileURLToPath(new URL('worker-process.ts', import.meta.url));
  const child = fork(script, {
    execArgv: ['--import', 'tsx'],
    env: { ...process.env, WORKER: JSON.stringify(settings), WORKER_CHECKOUT: checkout },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  await Promise.race([once(child, 'message'), once(child, 'exit')]);
  if (!child.connected) throw new Error(`the worker of ${checkout} did not start`);
  return child;
}
