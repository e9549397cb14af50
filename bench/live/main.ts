/**
 * `npm run bench -- live [--live 200] [--backfill 10000] [--minutes 15] [--apart]`: live sessions over HTTP alone, then the
 * same while a backfill of many old sessions runs on the same machine. Prints one table, checks at the end that no message is
 * lost, and exits with 1 if one is.
 */
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { Pool } from 'pg';
import type { Backfill } from '../../src/contract/backfills.js';
import { openPool } from '../../src/store/connection/pool.js';
import { residentMemory, watchCpu } from '../processes.js';
import { startServers, type Servers } from '../servers.js';
import { deployLive, type LiveDeployment } from './deployment.js';
import { oldSessionOf, readMaterial, window, type Material } from './material.js';
import { Players, type Phase } from './players.js';
import { print, type LiveOptions, type Memory, type Outcome } from './report.js';
import { verify } from './verify.js';
import { compactionWaits } from './waits.js';

const job = 'old-sessions';
const warmUpMs = 15_000;

/** Answers the exit code. */
export async function live(args: string[]): Promise<number> {
  const options = optionsOf(args);
  const say = (line: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${line}`);
  const servers = await startServers(say);
  let deployment: LiveDeployment | undefined;
  try {
    deployment = await deployLive(servers, options);
    servers.alsoStop(async () => deployment?.close());
    const outcome = await measure(servers, deployment, options, say);
    print(outcome);
    const errors = outcome.alone.errors.size + outcome.beside.errors.size;
    return outcome.verified.wrong.length + errors > 0 ? 1 : 0;
  } finally {
    await deployment?.close();
    await servers.stop();
  }
}

async function measure(
  servers: Servers,
  { ownerUrl, client, watched, importFile }: LiveDeployment,
  options: LiveOptions,
  say: (line: string) => void,
): Promise<Outcome> {
  const material = await readMaterial();
  say(`${material.source}; ${options.backfill} old sessions are written and imported`);
  const file = path.join(servers.dataDir, 'old.jsonl');
  await writeOld(file, material, options.backfill);
  const policy = JSON.stringify({ contextWindow: window });
  const imported = await importFile(file, ['--policy', policy, '--keep-duplicates', '--concurrency', '8']);
  const pool = openPool(ownerUrl, { max: 4, applicationName: 'bench' });
  const memory = new MemoryWatch(() =>
    watched.map(({ name, pid, withChildren }) => memoryOf(name, pid, withChildren)),
  );
  const players = new Players(client, material, options.live, options.pauseMs);
  say(`${options.live} live sessions; warming up, then ${options.baseline} s alone`);
  await sleep(warmUpMs);
  players.next();
  memory.begin();
  let cpu = watchCpu(watched);
  await sleep(options.baseline * 1_000);
  const alone = { ...players.next(), cpu: cpu() };
  say(`beside them a backfill of ${options.backfill}, ${options.concurrency} at once`);
  cpu = watchCpu(watched);
  await client.startBackfill({ job, select: { prefix: 'old-' }, concurrency: options.concurrency });
  const ran = await backfilled(client, options.minutes * 60_000, say);
  const beside = { ...players.next(), cpu: cpu() };
  memory.end();
  await players.stop();
  say('live sessions end; the log of each is compared with what was sent');
  const ended = ran.endedAt === null ? await cancelled(client) : ran;
  // Waits for work in flight, so that the waits and counts below are complete.
  await quiet(pool);
  const waits = (phase: Phase) => compactionWaits(pool, players.sessions, phase);
  const [aloneWaits, besideWaits] = [await waits(alone), await waits(beside)];
  const { sample } = options;
  const verified = await verify(client, pool, players.sessions, material, {
    ...{ count: options.backfill, sample, job: ended },
  });
  await pool.end();
  return {
    ...{ options, source: material.source, imported, job: { ...ended, perSecond: ran.perSecond } },
    alone: { ...alone, waits: aloneWaits },
    beside: { ...beside, waits: besideWaits },
    ...{ memory: memory.seen(), verified },
  };
}

/** Until it has ended, or time is up. */
async function backfilled(
  client: LiveDeployment['client'],
  patienceMs: number,
  say: (line: string) => void,
): Promise<Backfill> {
  const until = Date.now() + patienceMs;
  for (let looks = 0; ; looks++) {
    const seen = await client.backfill({ job });
    if (seen.endedAt !== null || Date.now() > until) return seen;
    const { compacted, unchanged, failed, selected } = seen.counts;
    if (looks % 15 === 0)
      say(
        `${compacted} compacted, ${unchanged} unchanged, ${failed} failed of ${selected}; ${seen.perSecond.toFixed(1)}/s`,
      );
    await sleep(1_000);
  }
}

async function cancelled(client: LiveDeployment['client']): Promise<Backfill> {
  await client.cancelBackfill({ job });
  for (;;) {
    const seen = await client.backfill({ job });
    if (seen.endedAt !== null) return seen;
    await sleep(500);
  }
}

/** No compaction was committed for a while. */
async function quiet(pool: Pool): Promise<void> {
  const text = `select coalesce(extract(epoch from now() - max(created_at)), 60)::float8 as seconds from palimpsest.compactions`;
  for (let looks = 0; looks < 30; looks++) {
    const { rows } = await pool.query<{ seconds: number }>(text);
    if (rows[0]!.seconds > 3) return;
    await sleep(1_000);
  }
}

async function writeOld(file: string, material: Material, count: number): Promise<void> {
  const stream = createWriteStream(file);
  for (let index = 0; index < count; index++)
    if (!stream.write(`${JSON.stringify(oldSessionOf(material, index))}\n`)) await once(stream, 'drain');
  stream.end();
  await once(stream, 'close');
}

function optionsOf(args: string[]): LiveOptions {
  const { values } = parseArgs({
    args,
    options: {
      live: { type: 'string', default: '200' },
      backfill: { type: 'string', default: '10000' },
      minutes: { type: 'string', default: '15' },
      baseline: { type: 'string', default: '60' },
      pause: { type: 'string', default: '4000' },
      latency: { type: 'string', default: '300' },
      concurrency: { type: 'string', default: '16' },
      sample: { type: 'string', default: '1000' },
      apart: { type: 'boolean', default: false },
    },
  });
  const number = (name: Exclude<keyof typeof values, 'apart'>): number => {
    const value = Number(values[name]);
    if (Number.isFinite(value) && value > 0) return value;
    throw new Error(`--${name} must be a number above 0, not ${values[name]}`);
  };
  return {
    ...{ live: number('live'), backfill: number('backfill'), minutes: number('minutes') },
    ...{ baseline: number('baseline'), pauseMs: number('pause'), latencyMs: number('latency') },
    ...{ concurrency: number('concurrency'), sample: number('sample') },
    apart: values.apart,
  };
}

function memoryOf(name: string, pid: number, withChildren = false): Memory {
  return { name, megabytes: residentMemory(pid, withChildren) };
}

/** Looks once a second. */
class MemoryWatch {
  private first: Memory[] = [];
  private last: Memory[] = [];
  private readonly most = new Map<string, Memory>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly look: () => Memory[]) {}

  begin(): void {
    this.first = this.look();
    this.timer = setInterval(() => this.note(), 1_000);
  }

  end(): void {
    clearInterval(this.timer);
    this.note();
  }

  seen(): Outcome['memory'] {
    return { start: this.first, end: this.last, most: [...this.most.values()] };
  }

  private note(): void {
    this.last = this.look();
    for (const one of this.last)
      if (one.megabytes > (this.most.get(one.name)?.megabytes ?? 0)) this.most.set(one.name, one);
  }
}
