/**
 * The servers of `palimpsest dev` belong to a folder, not to a process: every process that uses the folder finds them, also
 * after a kill. Each test starts separate servers and kills only those.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { defaultCacheDir } from '../../../src/runtime/cache-dir.js';
import { openHome } from '../../../src/runtime/home.js';
import { startPostgres, stopPostgres } from '../../../src/runtime/postgres.js';
import { findProcess, hasEnded } from '../../../src/runtime/process.js';
import { freePort } from '../../../src/runtime/ports.js';
import { findTemporal } from '../../../src/runtime/temporal-binary.js';
import { startTemporal, stopTemporal } from '../../../src/runtime/temporal.js';
import { createDatabase } from '../../support/database.js';
import { leashed, leashServers } from '../../support/leash.js';

const log = () => {};
const cacheDir = defaultCacheDir();
let dataDir: string;
let children: ChildProcess[];

beforeEach(() => {
  dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-runtime-')));
  children = [];
});

afterEach(async () => {
  vi.unstubAllEnvs();
  for (const child of children) child.kill('SIGKILL');
  await Promise.all([stopPostgres(dataDir), stopTemporal(dataDir)]);
  rmSync(dataDir, { recursive: true, force: true });
});

/** Runs `body` in a separate Node process and resolves with the value that it passes to `say`; the process stays alive. */
async function inAnotherProcess<T>(body: string): Promise<{ said: T; kill: () => Promise<void> }> {
  const script = `
    import { openHome } from './src/runtime/home.ts';
    import { startPostgres } from './src/runtime/postgres.ts';
    import { startTemporal } from './src/runtime/temporal.ts';
    const dataDir = ${JSON.stringify(dataDir)}, cacheDir = ${JSON.stringify(cacheDir)}, log = () => {};
    const say = (value) => console.log(JSON.stringify(value));
    setInterval(() => {}, 1_000);
    ${body}`;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
    cwd: fileURLToPath(new URL('../../..', import.meta.url)),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(leashed(child));
  const lines = createInterface({ input: child.stdout });
  const ended = once(child, 'exit').then(() => Promise.reject(new Error('the process ended without a word')));
  const [line] = (await Promise.race([once(lines, 'line'), ended])) as [string];
  ended.catch(() => {});
  const kill = async () => {
    child.kill('SIGKILL');
    await ended.catch(() => {});
  };
  return { said: JSON.parse(line) as T, kill };
}

interface Started {
  pid: number;
  started: boolean;
}

async function query(url: string, ...statements: string[]): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    let rows: unknown[] = [];
    for (const statement of statements) rows = (await client.query<Record<string, unknown>>(statement)).rows;
    return rows;
  } finally {
    await client.end();
  }
}

async function killNow(pid: number): Promise<void> {
  const id = findProcess(pid);
  process.kill(pid, 'SIGKILL');
  expect(id && (await hasEnded(id, 60_000))).toBe(true);
}

describe('the servers of a folder', () => {
  const startBoth = `
    const [postgres, temporal] = await Promise.all([startPostgres({ dataDir, log }), startTemporal({ dataDir, cacheDir, log })]);
    say([postgres, temporal]);`;

  test('outlive kill -9 of the Node process that started them, and the next one uses them', async () => {
    const first = await inAnotherProcess<Started[]>(startBoth);
    expect(first.said).toMatchObject([{ started: true }, { started: true }]);
    await first.kill();

    const postgres = await startPostgres({ dataDir, log });
    const temporal = await startTemporal({ dataDir, cacheDir, log });
    expect([postgres, temporal]).toMatchObject(first.said.map(({ pid }) => ({ pid, started: false })));
    expect(temporal.source).toBe('running');
    expect(await query(postgres.url, 'select current_database() as name')).toEqual([{ name: 'palimpsest' }]);
  });

  test('are started once when several processes start at the same moment', async () => {
    const all = await Promise.all([0, 1, 2].map(() => inAnotherProcess<Started[]>(startBoth)));
    for (const server of [0, 1]) {
      const seen = all.map(({ said }) => said[server]!);
      expect(new Set(seen.map(({ pid }) => pid)).size).toBe(1);
      expect(seen.filter(({ started }) => started)).toHaveLength(1);
    }
  });

  test('end when they are stopped, and start again at the same addresses', async () => {
    const first = {
      postgres: await startPostgres({ dataDir, log }),
      temporal: await startTemporal({ dataDir, cacheDir, log }),
    };
    await query(first.postgres.url, 'create table kept (n int)', 'insert into kept values (7)');
    await Promise.all([first.postgres.stop(), first.temporal.stop()]);
    expect([findProcess(first.postgres.pid), findProcess(first.temporal.pid)]).toEqual([null, null]);
    await Promise.all([first.postgres.stop(), first.temporal.stop()]);

    const again = {
      postgres: await startPostgres({ dataDir, log }),
      temporal: await startTemporal({ dataDir, cacheDir, log }),
    };
    expect(again.postgres).toMatchObject({ url: first.postgres.url, started: true });
    expect(again.temporal).toMatchObject({
      address: first.temporal.address,
      uiUrl: first.temporal.uiUrl,
      source: 'cache',
    });
    expect(await query(again.postgres.url, 'select n from kept')).toEqual([{ n: 7 }]);
  });
});

test('the port of a stopped server is given to no client: the system takes clients’ ports from a range above', async () => {
  const client = createServer().listen(0, '127.0.0.1');
  await once(client, 'listening');
  const { port } = client.address() as AddressInfo;
  client.close();
  for (let one = 0; one < 20; one++) expect(await freePort()).toBeLessThan(Math.min(port, 32_768));
});

describe('PostgreSQL', () => {
  test('recovers after its own kill -9 with everything that was committed', async () => {
    const first = await startPostgres({ dataDir, log });
    await query(first.url, 'create table kept (n int)', 'insert into kept select generate_series(1, 1000)');
    await killNow(first.pid);

    const second = await startPostgres({ dataDir, log });
    expect(second.started).toBe(true);
    expect(await query(second.url, 'select count(*)::int as n from kept')).toEqual([{ n: 1000 }]);
  });

  test('starts although the pid in the file of a killed server now belongs to another process', async () => {
    const first = await startPostgres({ dataDir, log });
    await killNow(first.pid);
    const pidFile = path.join(dataDir, 'postgres', 'postmaster.pid');
    const { uid, gid } = statSync(pidFile);
    const bystander = spawn('sleep', ['600'], {
      stdio: 'ignore',
      ...(process.getuid?.() === 0 ? { uid, gid } : {}),
    });
    children.push(leashed(bystander));
    writeFileSync(pidFile, readFileSync(pidFile, 'utf8').replace(/^\d+/, String(bystander.pid)));

    const second = await startPostgres({ dataDir, log });
    expect(second.started).toBe(true);
    await second.stop();
    expect(findProcess(bystander.pid!)).not.toBeNull();
  });

  test('starts over after an interrupted first start', async () => {
    const first = await inAnotherProcess<string>(`await startPostgres({ dataDir, log: say });`);
    expect(first.said).toContain('creating');
    await first.kill();

    const { url } = await startPostgres({ dataDir, log });
    expect(await query(url, 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  test('says what is missing when the password file is missing', async () => {
    await (await startPostgres({ dataDir, log })).stop();
    rmSync(path.join(dataDir, 'postgres.json'));
    await expect(startPostgres({ dataDir, log })).rejects.toMatchObject({
      type: 'Store.Unavailable',
      message: expect.stringContaining('postgres.json') as string,
    });
  });
});

describe('Temporal', () => {
  test("is found although Node was killed before it wrote the server's address", async () => {
    const first = await startTemporal({ dataDir, cacheDir, log });
    rmSync(path.join(dataDir, 'temporal.json'));
    expect(await startTemporal({ dataDir, cacheDir, log })).toMatchObject({
      pid: first.pid,
      address: first.address,
      started: false,
    });
  });

  test('starts again after its own kill -9', async () => {
    const first = await startTemporal({ dataDir, cacheDir, log, ui: false });
    expect(first.uiUrl).toBeNull();
    await killNow(first.pid);
    expect(await startTemporal({ dataDir, cacheDir, log, ui: false })).toMatchObject({
      address: first.address,
      started: true,
    });
  });

  test('is downloaded if PATH and cache do not have it', async () => {
    const program = '#!/bin/sh\necho temporal version 1.5.1\n';
    writeFileSync(path.join(dataDir, 'temporal'), program, { mode: 0o755 });
    const tar = spawn('tar', ['-czf', 'archive.tar.gz', 'temporal'], { cwd: dataDir });
    await once(tar, 'exit');
    const archive = readFileSync(path.join(dataDir, 'archive.tar.gz'));
    let requests = 0;
    const server = createServer((_, response) => {
      requests += 1;
      response.end(archive);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    vi.stubEnv('PATH', withoutTemporal());

    const other = { url, sha256: 'f'.repeat(64) };
    const forged = path.join(dataDir, 'forged');
    const refused = await findTemporal({ cacheDir: forged, log, archive: other }).catch(
      (error: unknown) => error,
    );
    expect(refused).toMatchObject({ message: expect.stringContaining('instead of ffff') as string });
    expect(
      readdirSync(forged, { recursive: true }).filter((name) => path.basename(String(name)) === 'temporal'),
    ).toEqual([]);

    const fresh = path.join(dataDir, 'cache');
    const search = { cacheDir: fresh, log, archive: { url, sha256: sha256Of(archive) } };
    const first = await findTemporal(search);
    expect(first.source).toBe('download');
    expect(readFileSync(first.path, 'utf8')).toBe(program);
    expect(await findTemporal(search)).toEqual({ path: first.path, source: 'cache' });
    expect(requests).toBe(2);
    server.close();
  });

  test('names every alternative when there is no program to start', async () => {
    vi.stubEnv('PATH', path.join(dataDir, 'empty'));
    const archive = { url: 'http://127.0.0.1:9/temporal.tar.gz', sha256: '' };
    const search = { cacheDir: path.join(dataDir, 'cache'), log, archive };
    await expect(findTemporal(search)).rejects.toMatchObject({
      type: 'Temporal.Unavailable',
      message: expect.stringMatching(
        /not on the PATH; not in .*; download: .*; build: go is not on the PATH/,
      ) as string,
      hint: expect.stringMatching(/TEMPORAL_ADDRESS.*Temporal CLI.*Go/) as string,
    });
  });
});

const sha256Of = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** The PATH of this run without folders that hold a Temporal CLI. */
function withoutTemporal(): string {
  return ['/usr/local/bin', '/usr/bin', '/bin'].join(path.delimiter);
}

describe('the folder', () => {
  test('is left by the last live process, which stops its servers; a killed one does not count', async () => {
    const stopped: string[] = [];
    const stop = (who: string) => () => Promise.resolve(void stopped.push(who));
    const other = await inAnotherProcess<number>('await openHome(dataDir); say(process.pid);');
    const first = await openHome(dataDir);
    expect(first.others()).toEqual([other.said]);
    expect(await first.leave(stop('first'))).toBe(false);

    const second = await openHome(dataDir);
    await other.kill();
    expect(await second.leave(stop('second'))).toBe(true);
    expect(await second.leave(stop('twice'))).toBe(false);
    expect(stopped).toEqual(['second']);
  });

  test('cannot be opened while the last process is stopping its servers', async () => {
    const order: string[] = [];
    const leaving = await openHome(dataDir);
    let opening: Promise<unknown> | undefined;
    await leaving.leave(async () => {
      opening = openHome(dataDir).then(() => order.push('opened'));
      await (await startPostgres({ dataDir, log })).stop();
      order.push('stopped');
    });
    await opening;
    expect(order).toEqual(['stopped', 'opened']);
  });
});

test('test databases are migrated copies, which many processes can make concurrently', async () => {
  const databases = await Promise.all(Array.from({ length: 6 }, () => createDatabase()));
  const migrated = `select count(*)::int > 0 as present from pg_tables where schemaname = 'palimpsest'`;
  for (const { url } of databases) expect(await query(url, migrated)).toEqual([{ present: true }]);
  expect(new Set(databases.map(({ url }) => url)).size).toBe(databases.length);
  await Promise.all(databases.map(({ drop }) => drop()));
});
