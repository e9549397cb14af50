/**
 * Turns per second through append and signal: many agents at once in this process, each appending a turn, then reading
 * its context; the worker in another process. Nothing is due, as with most turns.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { PolicyInput } from '../src/policy/schema.js';
import { appendTurn } from '../src/store/turns.js';
import { agentTurn } from './conversation.js';
import { deploy, type Deployment } from './deployment.js';
import { figure, median, quantile, shown, timed, type BenchResult, type Figure } from './figures.js';
import { startTemporalInMemory } from './temporal-in-memory.js';
import { canAccount, inWords, watchCpu, type CpuShare, type Watched } from './processes.js';
import type { Servers } from './servers.js';

const policy: PolicyInput = { contextWindow: 128_000 };
const messageTokens = 60;
const manyAgents = 64;
/** Then the agent begins another one, so that contexts stay of the same size. */
const turnsPerSession = 20;
const windows = 3;
const warmUpMs = 2_000;

export async function turns(servers: Servers): Promise<BenchResult> {
  const figures: Figure[] = [];
  const notes = [
    `A turn has 2 messages of ${messageTokens} tokens, a session ${turnsPerSession} turns; each append is followed by a read of the context.`,
  ];
  await onServer('Temporal on SQLite', servers, servers.temporalPid, undefined, figures, notes);
  const inMemory = await startTemporalInMemory(servers);
  try {
    await onServer('Temporal in memory', servers, inMemory.pid, inMemory.address, figures, notes);
  } finally {
    await inMemory.stop();
  }
  return { figures, notes };
}

async function onServer(
  title: string,
  servers: Servers,
  temporalPid: number,
  temporalAddress: string | undefined,
  figures: Figure[],
  notes: string[],
): Promise<void> {
  const deployment = await deploy(servers, { temporalAddress });
  const watched: Watched[] = [
    { name: 'library and agents', pid: process.pid },
    { name: 'worker', pid: deployment.worker.pid },
    { name: 'Temporal', pid: temporalPid },
    { name: 'PostgreSQL', pid: servers.postgresPid, withChildren: true },
  ];
  try {
    const onDisk = temporalAddress === undefined;
    for (const agents of onDisk ? [1, manyAgents] : [manyAgents]) {
      const run = await runAgents(deployment, agents, watched, onDisk ? 3_000 : 2_500);
      const of = `${agents === 1 ? '1 agent' : `${agents} agents`}, ${title}`;
      figures.push(figure('turns', `turns a second, ${of}`, 'turns/s', run.perSecond));
      if (!onDisk) continue;
      for (const [what, times] of Object.entries({ appendTurn: run.appends, context: run.contexts })) {
        for (const [name, q] of [
          ['p50', 0.5],
          ['p99', 0.99],
        ] as const) {
          figures.push(
            figure(
              'turns',
              `${what} ${name}, ${of}`,
              'ms',
              times.map((window) => quantile(window, q)),
            ),
          );
        }
      }
      notes.push(
        `${of}: CPU in cores: ${inWords(run.cpu)}. ${limitOf(run.cpu)}`,
        `${of}: PostgreSQL: ${run.waits}.`,
      );
      if (agents === 1)
        notes.push(`The append without its signal: ${shown(await storeOnly(deployment))} ms.`);
    }
  } finally {
    await deployment.close();
  }
}

interface Run {
  /** One entry for each window. */
  perSecond: number[];
  appends: number[][];
  contexts: number[][];
  cpu: CpuShare[];
  waits: string;
}

async function runAgents(
  { palimpsest, pool }: Deployment,
  agents: number,
  watched: readonly Watched[],
  windowMs: number,
): Promise<Run> {
  let window = -1;
  let stopped = false;
  const samples = Array.from({ length: windows }, () => ({
    appends: [] as number[],
    contexts: [] as number[],
  }));
  const agent = async (number: number): Promise<void> => {
    for (let turn = 0; !stopped; turn++) {
      const session = `${agents} agents, ${number}, ${Math.floor(turn / turnsPerSession)}`;
      const messages = agentTurn(messageTokens, number * 10_000 + turn).slice(-1);
      messages.unshift({ role: 'user', content: `Turn ${turn}: ${String(messages[0]?.content)}` });
      const appendMs = await timed(async () => {
        const { signalled } = await palimpsest.appendTurn({ session, turnId: `t-${turn}`, messages, policy });
        if (!signalled) throw new Error('a signal was lost');
      });
      const contextMs = await timed(() => palimpsest.context({ session }));
      samples[window]?.appends.push(appendMs);
      samples[window]?.contexts.push(contextMs);
    }
  };
  const working = Promise.all(Array.from({ length: agents }, (_, number) => agent(number)));
  const perSecond: number[] = [];
  const steer = async (): Promise<Pick<Run, 'cpu' | 'waits'>> => {
    await sleep(warmUpMs);
    const cpuSince = watchCpu(watched);
    const waits = watchWaits(pool);
    for (window = 0; window < windows; window++) {
      const ms = await timed(() => sleep(windowMs));
      perSecond.push(((samples[window]?.appends.length ?? 0) / ms) * 1000);
    }
    const seen = { cpu: cpuSince(), waits: await waits() };
    stopped = true;
    return seen;
  };
  const [seen] = await Promise.all([steer().finally(() => (stopped = true)), working]);
  return {
    perSecond,
    appends: samples.map(({ appends }) => appends),
    contexts: samples.map(({ contexts }) => contexts),
    ...seen,
  };
}

/** Looks every 25 ms at what PostgreSQL's connections are doing; answers the mean number of them at each. */
function watchWaits(pool: Deployment['pool']): () => Promise<string> {
  const seen = new Map<string, number>();
  let looks = 0;
  let stopped = false;
  const look = async () => {
    for (; !stopped; looks++) {
      const { rows } = await pool.query<{ what: string; count: number }>(
        `select case when state = 'idle in transaction' then 'waiting for the client in a transaction'
                     else coalesce(wait_event_type || ' ' || wait_event, 'running') end as what, count(*)::int
         from pg_stat_activity
         where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid() group by 1`,
      );
      for (const { what, count } of rows) seen.set(what, (seen.get(what) ?? 0) + count);
      await sleep(25);
    }
  };
  const looking = look();
  return async () => {
    stopped = true;
    await looking;
    const means = [...seen].map(([what, count]) => ({ what, mean: count / looks }));
    return means
      .sort((a, b) => b.mean - a.mean)
      .slice(0, 4)
      .map(({ what, mean }) => `${mean.toFixed(1)} connections ${what}`)
      .join(', ');
  };
}

/** JavaScript runs on one core a process; the servers share what is left of the machine. */
function limitOf(cpu: readonly CpuShare[]): string {
  if (!canAccount) return '';
  const busiest = [...cpu].sort((a, b) => b.cores - a.cores)[0];
  const total = cpu.reduce((sum, { cores }) => sum + cores, 0);
  return `The most: ${busiest?.name}, in all ${total.toFixed(1)}.`;
}

/** Median milliseconds of the store's part alone. */
async function storeOnly({ pool, tenant }: Deployment): Promise<number> {
  const times: number[] = [];
  for (let turn = 0; turn < 200; turn++) {
    const messages = agentTurn(messageTokens, turn).slice(-1);
    const turnId = `t-${turn}`;
    times.push(await timed(() => appendTurn(pool, { tenant, session: 'store only', turnId, messages })));
  }
  return median(times);
}
