/**
 * A backfill of many small old sessions with a model that answers at once, so that it measures the cost of the service alone.
 * The worker in another process. `BACKFILL_SESSIONS=10000 npm run bench backfill` for more of them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { connectClient } from '../src/temporal/connection.js';
import { backfillWorkflowId } from '../src/temporal/names.js';
import { fillSessions } from '../test/support/backfills.js';
import { deploy, processesOf, type Deployment } from './deployment.js';
import { figure, shown, type BenchResult } from './figures.js';
import { canAccount, describeCpu, residentMemory, watchCpu } from './processes.js';
import type { Servers } from './servers.js';

const sessions = Number(process.env['BACKFILL_SESSIONS'] ?? 1_000);
const concurrency = Number(process.env['BACKFILL_CONCURRENCY'] ?? 32);
const job = 'bench';

export async function backfill(servers: Servers): Promise<BenchResult> {
  const deployment = await deploy(servers);
  try {
    const { palimpsest, pool, tenant, model, worker } = deployment;
    await fillSessions(pool, tenant, sessions);
    const cpuSince = watchCpu(processesOf(servers, deployment));
    await palimpsest.startBackfill({ job, concurrency });
    const memory: number[] = [];
    for (;;) {
      await sleep(500);
      if (canAccount) memory.push(residentMemory(worker.pid));
      const { endedAt, counts } = await palimpsest.backfill({ job });
      if (endedAt === null) continue;
      if (counts.compacted !== sessions) throw new Error(`not all were compacted: ${JSON.stringify(counts)}`);
      break;
    }
    const cpu = cpuSince();
    const { perSecond, createdAt, endedAt } = await palimpsest.backfill({ job });
    const requests = model.requests.length;
    const runs = await historiesOf(servers, deployment);
    const third = Math.ceil(memory.length / 3);
    const mean = (values: number[]) => values.reduce((sum, one) => sum + one, 0) / Math.max(1, values.length);
    return {
      figures: [
        figure('backfill', `sessions a second, ${concurrency} at once`, 'sessions/s', [perSecond]),
        figure('backfill', 'worker in the first third, resident', 'MB', [mean(memory.slice(0, third))]),
        figure('backfill', 'worker in the last third, resident', 'MB', [mean(memory.slice(-third))]),
        figure('backfill', 'events of the longest run', 'events', [Math.max(...runs)]),
      ],
      notes: [
        `${sessions} sessions of 37 messages, each one chunk and one commit, ${requests} model calls; ` +
          `${shown((Date.parse(endedAt ?? '') - Date.parse(createdAt)) / 1_000)} s, ${runs.length} runs of the workflow.`,
        `Cores in use: ${describeCpu(cpu)}; CPU of a session: ${cpu.map(({ name, cores }) => `${name} ${shown((cores / perSecond) * 1_000)} ms`).join(', ')}.`,
      ],
    };
  } finally {
    await deployment.close();
  }
}

/** Events of each run of the job's workflow. */
async function historiesOf(servers: Servers, { tenant }: Deployment): Promise<number[]> {
  const client = await connectClient({ address: servers.temporalAddress });
  try {
    const query = `WorkflowId = "${backfillWorkflowId({ tenant, job })}"`;
    const lengths: number[] = [];
    for (let tries = 0; lengths.length === 0 && tries < 20; tries++) {
      await sleep(500);
      for await (const { historyLength } of client.workflow.list({ query })) lengths.push(historyLength ?? 0);
    }
    return lengths;
  } finally {
    await client.connection.close();
  }
}
