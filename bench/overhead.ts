/** Measures the time of a compaction without its model calls: as it reports itself, and as its caller sees it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { PolicyInput } from '../src/policy/schema.js';
import { loadSession } from '../src/store/sessions/sessions.js';
import { agentTurns, messagesPerTurn } from './conversation.js';
import { deploy, processesOf, type Deployment } from './deployment.js';
import { figure, median, shown, type BenchResult, type Figure } from './figures.js';
import { summarizer } from './model-script.js';
import { describeCpu, watchCpu } from './processes.js';
import type { Servers } from './servers.js';

interface Case {
  what: string;
  /** Turns of six messages; the last one triggers. */
  turns: number;
  messageTokens: number;
  policy: PolicyInput;
  chunks: number;
  /** Model calls one after the other: waves of chunks at the default concurrency of 4, and the consolidation. */
  callsInSequence: number;
}

const latencyMs = 300;
const runs = 9;
const bar = 250;

const cases: Case[] = [
  {
    what: 'of 1 chunk',
    turns: 30,
    messageTokens: 150,
    policy: { contextWindow: 32_000, summary: { mode: 'incremental' } },
    chunks: 1,
    callsInSequence: 1,
  },
  {
    what: 'of 8 chunks',
    turns: 60,
    messageTokens: 300,
    policy: { contextWindow: 128_000, summary: { mode: 'incremental', chunkTokens: 15_200 } },
    chunks: 8,
    callsInSequence: 3,
  },
];

export async function overhead(servers: Servers): Promise<BenchResult> {
  const deployment = await deploy(servers, { script: summarizer(latencyMs) });
  try {
    const figures: Figure[] = [];
    const notes = [
      `A model call takes ${latencyMs} ms. From outside: from the return of the triggering append to the new generation.`,
    ];
    for (const each of cases) {
      const seen: Measured[] = [];
      const cpuSince = watchCpu(processesOf(servers, deployment));
      // The first one warms the code up and is not counted.
      for (let run = 0; run <= runs; run++) seen.push(await compactOnce(deployment, each, run));
      const counted = seen.slice(1);
      figures.push(
        figure(
          'overhead',
          `compaction ${each.what} beyond the model, from outside`,
          'ms',
          counted.map((one) => one.outsideMs),
          bar,
        ),
        figure(
          'overhead',
          `compaction ${each.what} beyond the model, by its own account`,
          'ms',
          counted.map((one) => one.ownMs),
          bar,
        ),
      );
      const [before, evicted] = [counted[0]?.tokensBefore ?? 0, counted[0]?.evicted ?? 0];
      notes.push(
        `${each.what}: ${before.toLocaleString('en-US')} context tokens, ${evicted} messages evicted, ` +
          `${shown(median(counted.map((one) => one.wallMs)))} ms in all, of which ${each.callsInSequence * latencyMs} in the model; cores in use: ${describeCpu(cpuSince())}.`,
      );
    }
    return { figures, notes };
  } finally {
    await deployment.close();
  }
}

interface Measured {
  wallMs: number;
  outsideMs: number;
  ownMs: number;
  tokensBefore: number;
  evicted: number;
}

async function compactOnce(
  { palimpsest, pool, tenant }: Deployment,
  one: Case,
  run: number,
): Promise<Measured> {
  const session = `${one.what} ${run}`;
  const turns = agentTurns(one.turns, one.messageTokens, run + 1);
  const last = turns.pop() ?? [];
  const policy = { ...one.policy, trigger: { messages: one.turns * messagesPerTurn } };
  for (let from = 0; from < turns.length; from += 10) {
    const messages = turns.slice(from, from + 10).flat();
    await palimpsest.appendTurn({ session, turnId: `t-${from}`, messages, policy });
  }
  await palimpsest.settled({ session });
  const { due } = await palimpsest.appendTurn({ session, turnId: 'last', messages: last });
  const start = performance.now();
  if (!due) throw new Error(`the last turn of ${session} triggered nothing`);
  while ((await loadSession(pool, { tenant, session })).generation === 0) await sleep(2);
  const wallMs = performance.now() - start;
  const [outcome] = await palimpsest.compactions({ session });
  const { generation } = await palimpsest.context({ session });
  if (generation !== 1 || outcome?.method !== 'model' || outcome.chunks !== one.chunks) {
    throw new Error(`not the compaction that was to be measured: ${JSON.stringify(outcome)}`);
  }
  const { overheadMs, tokensBefore, evicted } = outcome;
  return {
    wallMs,
    outsideMs: wallMs - one.callsInSequence * latencyMs,
    ownMs: overheadMs,
    tokensBefore,
    evicted,
  };
}
