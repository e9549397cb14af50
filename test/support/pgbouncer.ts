import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { freePort } from '../../src/runtime/ports.js';
import { leashed } from './leash.js';

const command = 'pgbouncer';

/** Whether the program of Debian's package `pgbouncer` is installed. */
export const hasPgBouncer = spawnSync(command, ['--version']).status === 0;

export interface PgBouncer {
  /** The connection string of a database, through the pooler. */
  through(url: string): string;
  stop(): Promise<void>;
}

/** Starts PgBouncer in transaction mode before the server of `urls`, for their users. */
export async function startPgBouncer(urls: readonly string[]): Promise<PgBouncer> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-pgbouncer-'));
  const port = await freePort();
  const users = path.join(folder, 'users.txt');
  const settings = path.join(folder, 'pgbouncer.ini');
  const parsed = urls.map((url) => new URL(url));
  const userLines = parsed.map(({ username, password }) => `"${username}" "${decodeURIComponent(password)}"`);
  writeFileSync(users, userLines.join('\n'));
  writeFileSync(
    settings,
    [
      '[databases]',
      `* = host=${parsed[0]?.hostname} port=${parsed[0]?.port}`,
      '[pgbouncer]',
      'listen_addr = 127.0.0.1',
      `listen_port = ${port}`,
      'unix_socket_dir =',
      'auth_type = plain',
      `auth_file = ${users}`,
      'pool_mode = transaction',
      'default_pool_size = 4',
      'ignore_startup_parameters = statement_timeout, lock_timeout, idle_in_transaction_session_timeout',
    ].join('\n'),
  );
  // PgBouncer does not run as root.
  const isRoot = process.getuid?.() === 0;
  if (isRoot)
    for (const [file, mode] of [
      [folder, 0o755],
      [users, 0o644],
      [settings, 0o644],
    ] as const)
      chmodSync(file, mode);
  const child = leashed(
    spawn(command, ['-q', ...(isRoot ? ['-u', 'nobody'] : []), settings], {
      stdio: ['ignore', 'ignore', 'pipe'],
    }),
  );
  const through = (url: string) =>
    Object.assign(new URL(url), { hostname: '127.0.0.1', port: String(port) }).toString();
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill();
      await once(child, 'exit');
    }
    rmSync(folder, { recursive: true, force: true });
  };
  let said = '';
  child.stderr?.on('data', (text: Buffer) => (said += text.toString()));
  for (;;) {
    if (child.exitCode !== null) throw new Error(`pgbouncer ended: ${said}`);
    const client = new pg.Client({ connectionString: through(urls[0] ?? '') });
    const up = await client.connect().then(
      () => true,
      () => false,
    );
    await client.end().catch(() => undefined);
    if (up) return { through, stop };
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
