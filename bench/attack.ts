/**
 * `npm run bench -- attack [--kind body,pattern] [--seconds 60] [--runs 3] [--json FILE]`: a healthy client at ten requests per
 * second, first alone and then during an attack by another tenant, on separate servers; every run is reported. Exits with 1 if
 * the healthy client got a 5xx during an attack, or lost an answer. The attacks are in attack/attacks.ts.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import type { ConfiguredToken } from '../src/api/settings.js';
import { attacks } from './attack/attacks.js';
import type { Target } from './attack/target.js';
import { healthyClient, type Healthy, type Latencies } from './attack/healthy.js';
import { deploy, type Deployment } from './deployment.js';
import { quantile } from './figures.js';
import { describeCpu, residentMemory, watchCpu, type CpuShare } from './processes.js';
import { startServers, type Servers } from './servers.js';

interface Summary {
  count: number;
  p50: number;
  p99: number;
  max: number;
  answers: Record<string, number>;
}

interface AttackRun {
  kind: string;
  run: number;
  /** `alone`: without the attack, before it, on the same servers. */
  phase: 'alone' | 'attacked';
  healthy: Record<keyof Healthy, Summary>;
  /** What came of the attack. */
  attack: Record<string, number>;
  /** Largest resident memory, MB. */
  memory: { api: number; worker: number };
  cpu: CpuShare[];
}

/** Answers the exit code. */
export async function attack(args: string[]): Promise<number> {
  const { kinds, seconds, runs, json } = optionsOf(args);
  const say = (line: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${line}`);
  const servers = await startServers(say);
  const done: AttackRun[] = [];
  try {
    // Separate servers for each run, so that no attack affects the next one.
    for (const kind of kinds)
      for (let run = 1; run <= runs; run++) {
        say(`${kind}, run ${run} of ${runs}: ${seconds} s alone, ${seconds} s beside the attack`);
        done.push(...(await runOnce(servers, kind, run, seconds)));
      }
  } finally {
    await servers.stop();
  }
  print(done, kinds);
  if (json !== undefined) writeFileSync(json, `${JSON.stringify({ seconds, runs: done }, null, 2)}\n`);
  return done.some(({ phase, healthy }) => phase === 'attacked' && failedIn(healthy) > 0) ? 1 : 0;
}

async function runOnce(servers: Servers, kind: string, run: number, seconds: number): Promise<AttackRun[]> {
  const deployment = await deploy(servers);
  const api = await startTenantsApi(servers, deployment);
  const watched = [
    { name: 'API', pid: api.pid },
    { name: 'worker', pid: deployment.worker.pid },
    { name: 'Temporal', pid: servers.temporalPid },
    { name: 'PostgreSQL', pid: servers.postgresPid, withChildren: true },
    { name: 'healthy client', pid: process.pid },
  ];
  const healthyBy = (name: string, length: number) =>
    healthyClient(api.target.address, tokenOf(deployment, 'healthy'), name, length);
  const measured = async (phase: AttackRun['phase'], attacker: Attacker | null): Promise<AttackRun> => {
    const memory = { api: 0, worker: 0 };
    const look = setInterval(() => {
      memory.api = Math.max(memory.api, residentMemory(api.pid));
      memory.worker = Math.max(memory.worker, residentMemory(deployment.worker.pid));
    }, 100);
    const cpu = watchCpu(watched);
    const healthy = await healthyBy(phase, seconds);
    const shares = cpu();
    clearInterval(look);
    const noted = attacker ? await attacker.stop() : {};
    return { kind, run, phase, healthy: summaries(healthy), attack: noted, memory, cpu: shares };
  };
  try {
    // Lets both processes compile their hot code.
    await healthyBy('warm-up', Math.min(10, seconds));
    const alone = await measured('alone', null);
    return [alone, await measured('attacked', startAttacker(kind, api.target))];
  } finally {
    // After an attack they may be unable to end.
    api.process.kill('SIGKILL');
    deployment.worker.kill('SIGKILL');
    await deployment.close();
  }
}

interface Attacker {
  /** Ends the attack; answers what came of it. */
  stop(): Promise<Record<string, number>>;
}

function startAttacker(kind: string, target: Target): Attacker {
  const child = fork(fileURLToPath(new URL('attack/attacker-process.ts', import.meta.url)), {
    execArgv: ['--import', 'tsx'],
    env: { ...process.env, ATTACK: JSON.stringify({ kind, target }) },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const told = once(child, 'message') as Promise<[Record<string, number>]>;
  const ended = once(child, 'exit').then(() => {
    throw new Error('the attacker ended by itself');
  });
  ended.catch(() => undefined);
  return {
    async stop() {
      child.send('stop');
      const [noted] = await Promise.race([told, ended]);
      child.disconnect();
      return noted;
    },
  };
}

interface TenantsApi {
  target: Target;
  process: ChildProcess;
  pid: number;
}

/** A tenant's name is its token. Each deployment has separate tenants, since all share one Temporal with its workflow ids. */
function tokenOf({ tenant }: Deployment, who: 'healthy' | 'attacker'): string {
  return `${tenant}-${who}`;
}

async function startTenantsApi(servers: Servers, deployment: Deployment): Promise<TenantsApi> {
  const { databaseUrl, tenant: queuePrefix } = deployment;
  const temporal = { address: servers.temporalAddress };
  // As many connections as `palimpsest api` has.
  const library = { databaseUrl, temporal, queuePrefix, poolSize: 20 };
  const tokens = (['healthy', 'attacker'] as const)
    .map((who) => tokenOf(deployment, who))
    .map((name): ConfiguredToken => ({
      tenant: name,
      sha256: createHash('sha256').update(name).digest('hex'),
    }));
  const child = fork(fileURLToPath(new URL('api-process.ts', import.meta.url)), {
    execArgv: ['--import', 'tsx'],
    env: { ...process.env, API: JSON.stringify({ library, api: { port: 0, tokens } }) },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const ended = once(child, 'exit').then(() => {
    throw new Error('the API process ended');
  });
  const [address] = (await Promise.race([once(child, 'message'), ended])) as [string];
  ended.catch(() => undefined);
  const target = { address, token: tokenOf(deployment, 'attacker'), databaseUrl };
  return { target, process: child, pid: child.pid! };
}

function summaries(healthy: Healthy): AttackRun['healthy'] {
  return {
    requests: summaryOf(healthy.requests),
    healthz: summaryOf(healthy.healthz),
    readyz: summaryOf(healthy.readyz),
    compactions: summaryOf(healthy.compactions),
  };
}

function summaryOf({ ms, answers }: Latencies): Summary {
  const count = Object.values(answers).reduce((sum, number) => sum + number, 0);
  const at = (q: number) => (ms.length === 0 ? NaN : quantile(ms, q));
  return { count, p50: at(0.5), p99: at(0.99), max: at(1), answers };
}

/** Requests of the healthy client that ended with a 5xx or without an answer. */
function failedIn({ requests, healthz, readyz }: AttackRun['healthy']): number {
  return [requests, healthz, readyz]
    .flatMap(({ answers }) => Object.entries(answers))
    .reduce((sum, [answer, count]) => (/^[1-4]\d\d$/.test(answer) ? sum : sum + count), 0);
}

function print(done: readonly AttackRun[], kinds: readonly string[]): void {
  const table = new Table({
    head: ['attack', 'run', '', 'what', 'count', 'p50', 'p99', 'most', 'answers'],
    style: { head: [], border: [] },
    colAligns: ['left', 'right', 'left', 'left', 'right', 'right', 'right', 'right', 'left'],
  });
  const ms = (value: number) => (Number.isNaN(value) ? '–' : `${Math.round(value)} ms`);
  for (const { kind, run, phase, healthy } of done)
    for (const [what, { count, p50, p99, max, answers }] of Object.entries(healthy))
      table.push([kind, run, phase, what, count, ms(p50), ms(p99), ms(max), inOneLine(answers)]);
  console.log(table.toString());
  for (const { kind, run, phase, attack: noted, memory, cpu } of done)
    console.log(
      `${kind} ${run} ${phase}: memory at most API ${Math.round(memory.api)} MB, worker ${Math.round(memory.worker)} MB; ` +
        `cores ${describeCpu(cpu)}${phase === 'alone' ? '' : `; attack: ${inOneLine(noted)}`}`,
    );
  for (const kind of kinds) console.log(`${kind}: ${attacks[kind]!.description}.`);
  console.log(
    `${os.cpus().length} cores (${os.cpus()[0]?.model ?? 'unknown'}), ${Math.round(os.totalmem() / 2 ** 30)} GB, ` +
      `Node ${process.version}; load ${os.loadavg()[0]!.toFixed(1)}.`,
  );
}

function inOneLine(counts: Record<string, number>): string {
  return Object.entries(counts)
    .map(([what, count]) => `${count} × ${what}`)
    .join(', ');
}

function optionsOf(args: string[]): { kinds: string[]; seconds: number; runs: number; json?: string } {
  const { values } = parseArgs({
    args,
    options: {
      kind: { type: 'string', default: Object.keys(attacks).join(',') },
      seconds: { type: 'string', default: '60' },
      runs: { type: 'string', default: '3' },
      json: { type: 'string' },
    },
  });
  const kinds = values.kind.split(',');
  const unknown = kinds.find((kind) => !Object.hasOwn(attacks, kind));
  if (unknown !== undefined)
    throw new Error(`There is no attack ${unknown}; there are ${Object.keys(attacks).join(', ')}.`);
  const number = (name: 'seconds' | 'runs'): number => {
    const value = Number(values[name]);
    if (Number.isInteger(value) && value > 0) return value;
    throw new Error(`--${name} must be a whole number above 0, not ${values[name]}`);
  };
  return {
    kinds,
    seconds: number('seconds'),
    runs: number('runs'),
    ...(values.json ? { json: values.json } : {}),
  };
}
