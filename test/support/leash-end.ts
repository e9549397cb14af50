/**
 * Ends what a killed test process left behind. The arguments are processes as `pid:start`, and folders of embedded servers as
 * paths.
 */
import { existsSync, rmSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { stopPostgres } from '../../src/runtime/postgres.js';
import { endProcess } from '../../src/runtime/process.js';
import { stopTemporal } from '../../src/runtime/temporal.js';

const left = process.argv.slice(2);

// Processes end first, because they would start their servers again.
for (const one of left.filter((name) => !isAbsolute(name))) {
  const [pid, started = ''] = one.split(':');
  await endProcess({ pid: Number(pid), started }, [{ signal: 'SIGKILL', ms: 5_000 }]);
}
for (const folder of left.filter((name) => isAbsolute(name) && existsSync(name))) {
  await Promise.all([stopPostgres(folder), stopTemporal(folder)]);
  rmSync(folder, { recursive: true, force: true });
}
