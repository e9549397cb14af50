import { fork, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { HttpPalimpsest } from '../../src/http-client/index.js';
import type { PalimpsestOptions } from '../../src/library/connections.js';
import { type WorkerRole, workerRoles } from '../../src/config/schema.js';
import type { WorkerSettings } from '../../src/worker/worker.js';
import { createDatabase } from '../deployment.js';
import type { Watched } from '../processes.js';
import type { Servers } from '../servers.js';

/** The whole product in separate processes, as on one machine in production. */
export interface LiveDeployment {
  /** The database as its superuser. */
  ownerUrl: string;
  client: HttpPalimpsest;
  watched: Watched[];
  /** Imports a file with `palimpsest import`; answers its last line. */
  importFile: (file: string, args: readonly string[]) => Promise<Record<string, number>>;
  close(): Promise<void>;
}

const queuePrefix = 'live';

/** `apart`: a separate worker process serves backfills. */
export async function deployLive(
  servers: Servers,
  { latencyMs, apart }: { latencyMs: number; apart: boolean },
): Promise<LiveDeployment> {
  const { ownerUrl, databaseUrl, ...roles } = await createDatabase(servers.adminUrl, 'live');
  const temporal = { address: servers.temporalAddress };
  const children: ChildProcess[] = [];
  const close = async () => {
    // The API and the worker first: they call the others.
    for (const child of children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, 'exit');
      if (child.connected) child.disconnect();
      await ended;
    }
  };
  const start = async (script: string, env: Record<string, string>) => {
    const child = fork(fileURLToPath(new URL(script, import.meta.url)), {
      execArgv: ['--import', 'tsx'],
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    children.push(child);
    const said = await saidFirst(child, script);
    return { said, pid: child.pid! };
  };
  try {
    const model = await start('model-process.ts', { LATENCY_MS: String(latencyMs) });
    const settings: WorkerSettings = {
      ...{ databaseUrl, ...roles, temporal, queuePrefix, shutdownGraceMs: 2_000 },
      model: {
        apiKey: 'bench',
        baseUrl: model.said,
        summaryModel: 'bench-summarizer',
        contextWindow: 128_000,
      },
      workflowBundle: { codePath: servers.workflowBundle },
    };
    const work = (roles: readonly WorkerRole[]) =>
      start('../worker-process.ts', { WORKER: JSON.stringify({ ...settings, roles }) });
    const worker = await work(apart ? workerRoles.filter((role) => role !== 'backfill') : workerRoles);
    const backfill = apart ? [{ name: 'backfill worker', pid: (await work(['backfill'])).pid }] : [];
    const connect: PalimpsestOptions = { databaseUrl, temporal, queuePrefix, poolSize: 16 };
    const api = await start('api-process.ts', { API: JSON.stringify(connect) });
    return {
      ownerUrl,
      client: await HttpPalimpsest.connect({ url: api.said }),
      watched: [
        { name: 'API', pid: api.pid },
        { name: 'worker', pid: worker.pid },
        ...backfill,
        { name: 'Temporal', pid: servers.temporalPid },
        { name: 'PostgreSQL', pid: servers.postgresPid, withChildren: true },
        { name: 'model endpoint', pid: model.pid },
        { name: 'agents', pid: process.pid },
      ],
      importFile: (file, args) => runImport(databaseUrl, file, args),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The first message of a child; throws with its output if it ends before. */
async function saidFirst(child: ChildProcess, script: string): Promise<string> {
  let errors = '';
  child.stderr?.on('data', (text: Buffer) => (errors = (errors + text.toString()).slice(-4_000)));
  const ended = once(child, 'exit').then(() => {
    throw new Error(`${script} ended:\n${errors}`);
  });
  ended.catch(() => undefined);
  const [said] = (await Promise.race([once(child, 'message'), ended])) as [string];
  return said;
}

async function runImport(
  databaseUrl: string,
  file: string,
  args: readonly string[],
): Promise<Record<string, number>> {
  const cli = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', cli, 'import', file, '--json', ...args], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let last = '';
  child.stdout.on('data', (text: Buffer) => {
    last = (last + text.toString()).slice(-20_000);
  });
  const [code] = (await once(child, 'close')) as [number];
  if (code !== 0) throw new Error(`palimpsest import ended with ${code}: ${last.slice(-500)}`);
  const { total } = JSON.parse(last.trim().split('\n').at(-1)!) as { total: Record<string, number> };
  return total;
}
