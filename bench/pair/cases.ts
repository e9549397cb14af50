/** What is measured of each side. A case is run on both sides in turn, once to warm up and then once a round. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import { dialogue } from '../../test/support/dialogue.js';
import { median, quantile, type Unit } from '../figures.js';
import { residentMemory } from '../processes.js';
import { type Actions, actionsIn } from './actions.js';
import type { CpuTimes, Side } from './side.js';

export interface Reading {
  what: string;
  unit: Unit;
  value: number;
}

interface Run {
  side: Side;
  /** No two runs have the same; it makes ids of sessions and jobs. */
  id: string;
  /** Share of the load, at most 1; less to warm up. */
  share: number;
  /** Folder for files. */
  dataDir: string;
}

export interface Case {
  /** Seconds of one run on one side, on two cores that do nothing else. */
  seconds: number;
  /** A process that starts for each run has nothing to warm up. @default true */
  warmUp?: boolean;
  /** Starts processes of the built package. */
  needsBuild?: boolean;
  run(run: Run): Promise<Reading[]>;
}

export const cases: Record<string, Case> = {
  'turns-1': { seconds: 8, run: (run) => turns(run, 1) },
  'turns-64': { seconds: 8, run: (run) => turns(run, 64) },
  'compaction-1': {
    seconds: 10,
    run: (run) => compactions(run, { turns: 30, messageTokens: 150, policy: { contextWindow: 32_000 } }, 6),
  },
  'compaction-8': {
    seconds: 14,
    run: (run) =>
      compactions(
        run,
        {
          ...{ turns: 60, messageTokens: 300 },
          // The same messages are evicted by versions with other defaults.
          policy: { contextWindow: 128_000, keep: { messages: 24 }, summary: { chunkTokens: 13_500 } },
        },
        4,
      ),
  },
  waits: { seconds: 20, run: waits },
  history: { seconds: 6, warmUp: false, run: history },
  backfill: { seconds: 25, run: backfill },
  beside: { seconds: 40, warmUp: false, run: besideBackfill },
  http: { seconds: 25, run: http },
  start: { seconds: 8, warmUp: false, needsBuild: true, run: start },
  memory: { seconds: 25, warmUp: false, run: memory },
  commit: { seconds: 60, warmUp: false, run: largeCommit },
};

async function turns({ side, id, share }: Run, agents: number): Promise<Reading[]> {
  side.endpoint.restart(0);
  await side.call('turns', { prefix: `${id}-warm`, agents, ms: 1_500 * share });
  const { result, cpu } = await side.measureCpu(() =>
    side.call('turns', { prefix: id, agents, ms: 5_000 * share }),
  );
  const count = result.appends.length;
  return [
    { what: 'turns a second', unit: 'turns/s', value: (count / result.ms) * 1_000 },
    { what: 'append, p50', unit: 'ms', value: median(result.appends) },
    { what: 'append, p99', unit: 'ms', value: quantile(result.appends, 0.99) },
    { what: 'context, p50', unit: 'ms', value: median(result.contexts) },
    { what: 'context, p99', unit: 'ms', value: quantile(result.contexts, 0.99) },
    ...cpuOf('turn', cpu, count),
  ];
}

function cpuOf(unit: string, cpu: CpuTimes, count: number): Reading[] {
  const sum = Object.values(cpu).reduce((total, ms) => total + ms, 0);
  return [...Object.entries(cpu), ['all processes', sum] as const].map(([name, ms]) => ({
    what: `CPU of a ${unit}, ${name}`,
    unit: 'ms',
    value: ms / count,
  }));
}

interface Conversation {
  turns: number;
  messageTokens: number;
  policy: { contextWindow: number; keep?: { messages: number }; summary?: { chunkTokens: number } };
}

const modelMs = 300;

/** From the call that appends the due turn to the commit, without the time in which a model call was running. */
async function compactions(
  { side, id, share }: Run,
  conversation: Conversation,
  most: number,
): Promise<Reading[]> {
  side.endpoint.restart(modelMs);
  const beyond: number[] = [];
  const inModel: number[] = [];
  const count = Math.max(1, Math.round(most * share));
  let last = { chunks: 0, evicted: 0 };
  const { cpu } = await side.measureCpu(async () => {
    for (let number = 0; number < count; number++) {
      const session = `${id}-${number}`;
      const { due } = await side.call('compaction', { session, ...conversation });
      const committed = await side.committedAt(session);
      const busy = side.endpoint.busyMs(due, committed);
      beyond.push(committed - due - busy);
      inModel.push(busy);
      last = await outcomeOf(side, session);
    }
  });
  return [
    { what: 'compaction beyond the model', unit: 'ms', value: median(beyond) },
    { what: 'time with a model call running', unit: 'ms', value: median(inModel) },
    { what: 'model calls of a compaction', unit: 'calls', value: side.endpoint.calls() / count },
    { what: 'chunks of a compaction', unit: 'chunks', value: last.chunks },
    { what: 'evicted messages', unit: 'messages', value: last.evicted },
    ...cpuOf('compaction with its turns', cpu, count),
  ];
}

async function outcomeOf(side: Side, session: string) {
  const [outcome] = await side.call('outcomes', { session });
  if (outcome?.method !== 'model')
    throw new Error(`${side.name}: not a compaction by the model: ${JSON.stringify(outcome)}`);
  return outcome;
}

/** Callers that wait for a compaction: how long after the commit they have their answer. */
async function waits({ side, id, share }: Run): Promise<Reading[]> {
  side.endpoint.restart(modelMs);
  const count = Math.max(1, Math.round(8 * share));
  const readings: Reading[] = [];
  for (const waitBy of ['context', 'compact'] as const) {
    const late: number[] = [];
    for (let number = 0; number < count; number++) {
      const session = `${id}-${waitBy}-${number}`;
      const { woken } = await side.call('compaction', {
        ...{ session, waitBy, turns: 30, messageTokens: 150, policy: { contextWindow: 32_000 } },
      });
      late.push(woken - (await side.committedAt(session)));
    }
    const what = waitBy === 'context' ? 'context with waitMs' : 'compact';
    readings.push(
      { what: `${what}: answer after the commit, median`, unit: 'ms', value: median(late) },
      { what: `${what}: answer after the commit, most`, unit: 'ms', value: Math.max(...late) },
    );
  }
  return readings;
}

/** What Temporal stores and counts for a session of 20 turns, without and with a compaction at the end. */
async function history({ side, id }: Run): Promise<Reading[]> {
  side.endpoint.restart(0);
  const readings: Reading[] = [];
  for (const [what, messages] of [
    ['20 turns', 1_000_000],
    ['20 turns and a compaction', 120],
  ] as const) {
    const session = `${id}-${messages}`;
    await side.call('session', {
      ...{ session, turns: 20 },
      policy: { contextWindow: 32_000, trigger: { messages }, keep: { messages: 12 } },
    });
    const { events, actions } = await storedOf(side.temporal, session);
    readings.push(
      { what: `${what}: events`, unit: 'events', value: events },
      { what: `${what}: actions`, unit: 'actions', value: actions },
    );
  }
  return readings;
}

/** Counts the workflows of a session once the server's list has them and they add nothing. */
async function storedOf(client: Client, session: string): Promise<Actions> {
  let before: Actions = { events: 0, actions: 0 };
  for (let tries = 0; tries < 60; tries++) {
    await sleep(500);
    const now: Actions = { events: 0, actions: 0 };
    for await (const { workflowId, runId } of client.workflow.list()) {
      if (!workflowId.includes(session)) continue;
      const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
      const found = actionsIn(events ?? []);
      now.events += found.events;
      now.actions += found.actions;
    }
    if (now.events > 0 && now.events === before.events) return now;
    before = now;
  }
  return before;
}

/** Old sessions, imported as a platform imports them. */
async function importSessions({ side, id, dataDir }: Run, count: number): Promise<string> {
  const prefix = `${id}-old-`;
  const messages = dialogue(18).flat();
  const lines = Array.from({ length: count }, (_, index) => {
    const session = `${prefix}${index}`;
    const own = messages.map(({ role, content }) => ({
      role,
      content: `${session}: ${typeof content === 'string' ? content : ''}`,
    }));
    return JSON.stringify({ id: session, messages: own });
  });
  const file = path.join(dataDir, `${side.name}-${id}.jsonl`);
  writeFileSync(file, `${lines.join('\n')}\n`);
  await side.import(file, { contextWindow: 4_000 });
  return prefix;
}

async function backfill(run: Run): Promise<Reading[]> {
  const { side, id, share } = run;
  side.endpoint.restart(0);
  const count = Math.max(10, Math.round(300 * share));
  const prefix = await importSessions(run, count);
  const { result, cpu } = await side.measureCpu(async () => {
    await side.call('startBackfill', { job: id, prefix, concurrency: 32 });
    return side.call('backfillEnd', { job: id });
  });
  const { counts, createdAt, endedAt } = result;
  if (counts.compacted !== count)
    throw new Error(`${side.name}: not all sessions were compacted: ${JSON.stringify(counts)}`);
  const seconds = (Date.parse(endedAt ?? '') - Date.parse(createdAt)) / 1_000;
  return [
    { what: 'backfilled sessions a second, 32 at once', unit: 'sessions/s', value: count / seconds },
    ...cpuOf('backfilled session', cpu, count),
  ];
}

/** Compactions of live sessions, alone and while a backfill runs. */
async function besideBackfill(run: Run): Promise<Reading[]> {
  const { side, id, share } = run;
  side.endpoint.restart(modelMs);
  const count = Math.max(2, Math.round(12 * share));
  const live = async (what: string): Promise<number[]> => {
    const waited: number[] = [];
    for (let number = 0; number < count; number++) {
      const session = `${id}-${what}-${number}`;
      const { due } = await side.call('compaction', {
        ...{ session, turns: 30, messageTokens: 150, policy: { contextWindow: 32_000 } },
      });
      waited.push((await side.committedAt(session)) - due);
    }
    return waited;
  };
  const prefix = await importSessions(run, Math.max(100, Math.round(1_500 * share)));
  const alone = await live('alone');
  await side.call('startBackfill', { job: id, prefix, concurrency: 32, begun: true });
  const beside = await live('beside');
  const { compacted, pending } = await side.call('cancelBackfill', { job: id });
  await side.call('backfillEnd', { job: id });
  if (pending === 0) throw new Error(`${side.name}: the backfill ended before the live compactions`);
  return [
    { what: 'live compaction alone, median', unit: 'ms', value: median(alone) },
    { what: 'live compaction beside a backfill, median', unit: 'ms', value: median(beside) },
    { what: 'beside against alone', unit: '×', value: median(beside) / median(alone) },
    { what: 'sessions backfilled meanwhile', unit: 'sessions', value: compacted },
  ];
}

/** The same turns through the library and over HTTP, alternately for the times and one after the other for the CPU. */
/** The API runs until the case `start`, so that no young process is measured. */
async function http({ side, id, share }: Run): Promise<Reading[]> {
  side.endpoint.restart(0);
  const { url: apiUrl, isNew } = await side.startApi();
  if (isNew) await side.call('turns', { prefix: `${id}-new`, agents: 1, ms: 60_000 * share, apiUrl });
  await side.call('bothWays', { prefix: `${id}-warm`, turns: 60, apiUrl });
  const turnsOfEach = Math.max(10, Math.round(300 * share));
  const { library, http: overHttp } = await side.call('bothWays', {
    ...{ prefix: `${id}-both`, turns: turnsOfEach, apiUrl },
  });
  const readings: Reading[] = [];
  for (const what of ['appends', 'contexts'] as const) {
    const [own, other] = [median(library[what]), median(overHttp[what])];
    const one = what.slice(0, -1);
    readings.push(
      { what: `${one} by library, p50`, unit: 'ms', value: own },
      { what: `${one} by HTTP, p50`, unit: 'ms', value: other },
      { what: `${one}, HTTP against library`, unit: '×', value: other / own },
    );
  }
  const cpuBy = async (way: { apiUrl?: string }, what: string): Promise<CpuTimes> => {
    const { result, cpu } = await side.measureCpu(() =>
      side.call('turns', { prefix: `${id}-${what}`, agents: 1, ms: 4_000 * share, ...way }),
    );
    return Object.fromEntries(Object.entries(cpu).map(([name, ms]) => [name, ms / result.appends.length]));
  };
  const ofLibrary = await cpuBy({}, 'library');
  const ofHttp = await cpuBy({ apiUrl }, 'http');
  const sum = (cpu: CpuTimes) => Object.values(cpu).reduce((total, ms) => total + ms, 0);
  const ownShare = (cpu: CpuTimes) => (cpu['client'] ?? 0) + (cpu['API'] ?? 0);
  return [
    ...readings,
    ...cpuOf('turn by library', ofLibrary, 1),
    ...cpuOf('turn by HTTP', ofHttp, 1),
    { what: 'CPU of all processes, HTTP against library', unit: '×', value: sum(ofHttp) / sum(ofLibrary) },
    {
      what: 'CPU of client and API, HTTP against library',
      ...{ unit: '×', value: ownShare(ofHttp) / ownShare(ofLibrary) },
    },
  ];
}

/** From the start of the process to what it does first. */
async function start({ side, id }: Run): Promise<Reading[]> {
  side.endpoint.restart(0);
  await side.stopWorker();
  await side.stopApi();
  const session = `${id}-start`;
  await side.call('dueTurn', { session, policy: { contextWindow: 32_000, trigger: { messages: 6 } } });
  const started = Date.now();
  await side.launchWorker().polls;
  const polling = Date.now();
  const first = await firstTaskOf(side.temporal, session);
  const apiStarted = Date.now();
  await side.startApi();
  const answered = Date.now();
  await side.stopApi();
  return [
    { what: 'worker: start to "worker is polling"', unit: 'ms', value: polling - started },
    { what: 'worker: start to its first finished workflow task', unit: 'ms', value: first - started },
    { what: 'API: start to its first answer', unit: 'ms', value: answered - apiStarted },
  ];
}

/** Unix milliseconds by the server's clock. */
async function firstTaskOf(client: Client, session: string): Promise<number> {
  for (let tries = 0; tries < 600; tries++) {
    for await (const { workflowId, runId } of client.workflow.list()) {
      if (!workflowId.includes(session)) continue;
      const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
      const done = events?.find((event) => event.workflowTaskCompletedEventAttributes);
      if (done?.eventTime) return Number(done.eventTime.seconds) * 1_000 + (done.eventTime.nanos ?? 0) / 1e6;
    }
    await sleep(100);
  }
  throw new Error(`no workflow of ${session} was taken up`);
}

/** A fresh worker, then the same with open sessions. */
async function memory({ side, id, share }: Run): Promise<Reading[]> {
  side.endpoint.restart(0);
  await side.restartWorker();
  const empty = await settledMemory(side.workerPid);
  const count = Math.max(10, Math.round(1_000 * share));
  await side.call('openSessions', { prefix: `${id}-open`, count });
  const full = await settledMemory(side.workerPid);
  return [
    { what: 'worker without sessions, resident', unit: 'MB', value: empty },
    { what: `worker with ${count.toLocaleString('en-US')} sessions, resident`, unit: 'MB', value: full },
  ];
}

/** Median over two seconds, in MB. */
async function settledMemory(pid: number): Promise<number> {
  const seen: number[] = [];
  for (let look = 0; look < 10; look++) {
    await sleep(200);
    seen.push(residentMemory(pid));
  }
  return median(seen);
}

/** A compaction of 2 million tokens: how long it holds the event loops of the worker. */
async function largeCommit({ side, id, share }: Run): Promise<Reading[]> {
  side.endpoint.restart(0);
  await side.restartWorker({ watchStalls: true });
  const conversation = {
    turns: Math.max(20, Math.round(1_000 * share)),
    messageTokens: 340,
    policy: { contextWindow: 4_000_000, keep: { messages: 24 }, summary: { chunkTokens: 90_000 } },
  };
  const session = `${id}-large`;
  const { due } = await side.call('compaction', { session, ...conversation });
  const committed = await side.committedAt(session);
  const { chunks, tokensBefore } = await outcomeOf(side, session);
  // The last line is written when a loop is free again.
  await sleep(500);
  const { main, thread } = side.stalls(due);
  await side.restartWorker();
  return [
    { what: 'tokens before the compaction', unit: 'tokens', value: tokensBefore },
    { what: 'chunks', unit: 'chunks', value: chunks },
    { what: 'due turn to commit', unit: 'ms', value: committed - due },
    { what: "longest hold of the worker's event loop", unit: 'ms', value: main },
    { what: 'longest hold of a thread of the worker', unit: 'ms', value: thread },
  ];
}
