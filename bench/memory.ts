/** Measures the memory of a worker for an open session: of the process with none and with 1,000, all of them in its cache. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import { connectClient } from '../src/temporal/connection.js';
import { sessionWorkflowId } from '../src/temporal/names.js';
import { agentTurn } from './conversation.js';
import { deploy, type Deployment } from './deployment.js';
import { figure, median, type BenchResult } from './figures.js';
import { canAccount, residentMemory } from './processes.js';
import type { Servers } from './servers.js';

/** The worker's cache has room for 1,000 workflows. */
const sessions = 1_000;
const atOnce = 32;
const runs = 2;

export async function memory(servers: Servers): Promise<BenchResult> {
  if (!canAccount) return { figures: [], notes: ['Memory is measured on Linux only.'] };
  const empty: number[] = [];
  const full: number[] = [];
  const each: number[] = [];
  const client = await connectClient({ address: servers.temporalAddress });
  try {
    for (let run = 0; run < runs; run++) {
      const deployment = await deploy(servers);
      try {
        empty.push(await settledMemory(deployment));
        await openSessions(deployment, client, 0, 1);
        const one = await settledMemory(deployment);
        await openSessions(deployment, client, 1, sessions);
        const all = await settledMemory(deployment);
        full.push(all);
        each.push(((all - one) / (sessions - 1)) * 1024);
      } finally {
        await deployment.close();
      }
    }
  } finally {
    await client.connection.close();
  }
  return {
    figures: [
      figure('memory', 'worker without sessions, resident', 'MB', empty),
      figure('memory', 'worker with 1,000 open sessions, resident', 'MB', full),
      figure('memory', 'each open session in its cache', 'KB', each),
    ],
    notes: ['The process holds the TypeScript loader beside the worker. A session had one turn.'],
  };
}

/** One turn each; resolves when the worker has finished the first task of every one. */
async function openSessions(
  { palimpsest, tenant }: Deployment,
  client: Client,
  from: number,
  to: number,
): Promise<void> {
  const open = async (number: number): Promise<void> => {
    const session = `s-${number}`;
    await palimpsest.appendTurn({ session, turnId: 't-1', messages: agentTurn(60, number).slice(0, 1) });
    const handle = client.workflow.getHandle(sessionWorkflowId({ tenant, session }));
    // Started, signalled, task scheduled, started, completed, timer started.
    while ((await handle.describe()).historyLength < 6) await sleep(20);
  };
  let next = from;
  const opener = async (): Promise<void> => {
    for (let number = next++; number < to; number = next++) await open(number);
  };
  await Promise.all(Array.from({ length: atOnce }, opener));
}

/** Median over two seconds, in MB. */
async function settledMemory({ worker }: Deployment): Promise<number> {
  const seen: number[] = [];
  for (let look = 0; look < 10; look++) {
    await sleep(200);
    seen.push(residentMemory(worker.pid));
  }
  return median(seen);
}
