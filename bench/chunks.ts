/**
 * Measures how well the calls of a large compaction overlap: 32 chunks at 1 s per call and concurrency 8 against the ideal of 5
 * s.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { loadSession } from '../src/store/sessions/sessions.js';
import { agentTurns, messagesPerTurn } from './conversation.js';
import { deploy, processesOf, type Deployment } from './deployment.js';
import { figure, median, shown, type BenchResult } from './figures.js';
import { summarizer } from './model-script.js';
import { describeCpu, watchCpu } from './processes.js';
import type { Servers } from './servers.js';

const latencyMs = 1_000;
const concurrency = 8;
const chunks = 32;
const runs = 3;
/** Waves of chunks, and one consolidation. */
const idealMs = (chunks / concurrency + 1) * latencyMs;
const turns = 65;
const policy = {
  contextWindow: 128_000,
  trigger: { messages: turns * messagesPerTurn },
  summary: { chunkTokens: 4_050, concurrency },
};

export async function chunks32(servers: Servers): Promise<BenchResult> {
  const deployment = await deploy(servers, { script: summarizer(latencyMs) });
  try {
    const times: number[] = [];
    const cpuSince = watchCpu(processesOf(servers, deployment));
    for (let run = 0; run < runs; run++) times.push(await compactOnce(deployment, run));
    const ratios = times.map((ms) => ms / idealMs);
    return {
      figures: [figure('chunks', '32 chunks at 1 s a call, 8 at once, against the ideal', '×', ratios, 1.25)],
      notes: [
        `${shown(median(times))} ms from the triggering append to the new generation; ideal ${idealMs} ms; ` +
          `${deployment.model.mostInFlight()} calls in flight at most; cores in use: ${describeCpu(cpuSince())}.`,
      ],
    };
  } finally {
    await deployment.close();
  }
}

async function compactOnce({ palimpsest, pool, tenant }: Deployment, run: number): Promise<number> {
  const session = `run ${run}`;
  const messages = agentTurns(turns, 270, run + 1).flat();
  for (let from = 0; from < messages.length; from += 60) {
    await palimpsest.appendTurn({
      session,
      turnId: `t-${from}`,
      messages: messages.slice(from, from + 60),
      policy,
    });
  }
  const start = performance.now();
  while ((await loadSession(pool, { tenant, session })).generation === 0) await sleep(5);
  const ms = performance.now() - start;
  const [outcome] = await palimpsest.compactions({ session });
  if (outcome?.method !== 'model' || outcome.chunks !== chunks) {
    throw new Error(`not the compaction that was to be measured: ${JSON.stringify(outcome)}`);
  }
  return ms;
}
