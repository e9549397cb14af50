/**
 * Measures turns per second: many concurrent agents in this process append a turn, which signals the workflow, and read the
 * context; the worker runs in another process. No compaction is due, as for most turns.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { PolicyInput } from '../src/policy/schema.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { appendTurn } from '../src/store/append/turns.js';
import { agentTurn } from './conversation.js';
import { deploy, processesOf, type Deployment } from './deployment.js';
import { figure, median, quantile, shown, timed, type BenchResult, type Figure } from './figures.js';
import { watchActivity } from './postgres-activity.js';
import { describeCpu, otherProcesses, watchCpu, type CpuShare, type Watched } from './processes.js';
import type { Servers } from './servers.js';
import { startTemporalInMemory } from './temporal-in-memory.js';

const policy: PolicyInput = { contextWindow: 128_000 };
const messageTokens = 60;
/** Then the agent begins another one, so that contexts stay of the same size. */
const turnsPerSession = 20;
const windows = 3;
const windowMs = 2_500;
const warmUpMs = 2_000;

interface Load {
  name: string;
  agents: number;
  /** If false, turns are stored without a signal. */
  signals: boolean;
  /** Report how long each step takes, too. */
  latencies: boolean;
}

const one: Load = { name: '1 agent', agents: 1, signals: true, latencies: true };
const many: Load = { name: '64 agents', agents: 64, signals: true, latencies: true };
const storeOnly: Load = { ...many, name: '64 agents, without the signal', signals: false, latencies: false };
const offDisk: Load = { ...many, name: '64 agents, Temporal in memory', latencies: false };

export async function turns(servers: Servers): Promise<BenchResult> {
  const results = [await measure(servers, [one, many, storeOnly])];
  const inMemory = await startTemporalInMemory(servers);
  try {
    results.push(await measure(servers, [offDisk], inMemory));
  } finally {
    await inMemory.stop();
  }
  const setting =
    `A turn has 2 messages of ${messageTokens} tokens, a session ${turnsPerSession} turns; ` +
    'each append is followed by a read of the context.';
  return {
    figures: results.flatMap(({ figures }) => figures),
    notes: [setting, ...results.flatMap(({ notes }) => notes)],
  };
}

async function measure(
  servers: Servers,
  loads: readonly Load[],
  temporal = { pid: servers.temporalPid, address: servers.temporalAddress },
): Promise<BenchResult> {
  const deployment = await deploy(servers, { temporalAddress: temporal.address });
  const watched = processesOf(servers, deployment, temporal.pid);
  const figures: Figure[] = [];
  const notes: string[] = [];
  try {
    for (const load of loads) {
      const run = await runAgents(deployment, load, watched);
      figures.push(figure('turns', `turns a second, ${load.name}`, 'turns/s', run.perSecond));
      if (load.latencies) figures.push(...latencies(load, run));
      notes.push(
        `${load.name}: cores in use: ${describeCpu(run.cpu)}; CPU of a turn: ${cpuOfATurn(run)}.`,
        `${load.name}: PostgreSQL connections: ${run.activity}.`,
      );
    }
  } finally {
    await deployment.close();
  }
  return { figures, notes };
}

function latencies({ name }: Load, { appends, contexts }: Run): Figure[] {
  const at = (what: string, windowed: number[][], q: number) =>
    figure(
      'turns',
      `${what} p${q * 100}, ${name}`,
      'ms',
      windowed.map((times) => quantile(times, q)),
    );
  return [
    at('appendTurn', appends, 0.5),
    at('appendTurn', appends, 0.99),
    at('context', contexts, 0.5),
    at('context', contexts, 0.99),
  ];
}

function cpuOfATurn({ cpu, perSecond }: Run): string {
  const own = cpu.filter(({ name }) => name !== otherProcesses);
  return own.map(({ name, cores }) => `${name} ${shown((cores / median(perSecond)) * 1000)} ms`).join(', ');
}

/** Each list has one entry for each window of time. */
interface Run {
  perSecond: number[];
  /** Milliseconds of every call. */
  appends: number[][];
  contexts: number[][];
  cpu: CpuShare[];
  activity: string;
}

async function runAgents(deployment: Deployment, load: Load, watched: readonly Watched[]): Promise<Run> {
  const { palimpsest, pool } = deployment;
  const perSecond: number[] = [];
  const appends: number[][] = [];
  const contexts: number[][] = [];
  let stopped = false;

  const agent = async (number: number): Promise<void> => {
    for (let turn = 0; !stopped; turn++) {
      const session = `${load.name}, ${number}, ${Math.floor(turn / turnsPerSession)}`;
      const messages = agentTurn(messageTokens, number * 10_000 + turn).filter((_, index) => index % 5 === 0);
      const append = { session, turnId: `t-${turn}`, messages };
      const appendMs = await timed(() =>
        load.signals ? appendAndSignal(deployment, append) : store(deployment, append),
      );
      const contextMs = await timed(() => palimpsest.context({ session }));
      appends.at(-1)?.push(appendMs);
      contexts.at(-1)?.push(contextMs);
    }
  };

  const watch = async (): Promise<Pick<Run, 'cpu' | 'activity'>> => {
    try {
      await sleep(warmUpMs);
      const cpuSince = watchCpu(watched);
      const activity = watchActivity(pool);
      for (let window = 0; window < windows; window++) {
        appends.push([]);
        contexts.push([]);
        const ms = await timed(() => sleep(windowMs));
        perSecond.push(((appends.at(-1)?.length ?? 0) / ms) * 1000);
      }
      return { cpu: cpuSince(), activity: await activity() };
    } finally {
      stopped = true;
    }
  };

  const agents = Array.from({ length: load.agents }, (_, number) => agent(number));
  const [seen] = await Promise.all([watch(), ...agents]);
  return { perSecond, appends, contexts, ...seen };
}

interface Append {
  session: string;
  turnId: string;
  messages: ChatMessage[];
}

async function appendAndSignal({ palimpsest }: Deployment, append: Append): Promise<void> {
  const { signalled } = await palimpsest.appendTurn({ ...append, policy });
  if (!signalled) throw new Error('a turn was stored, but Temporal could not be told');
}

async function store({ pool, tenant }: Deployment, append: Append): Promise<void> {
  await appendTurn(pool, { ...append, tenant, policy });
}
