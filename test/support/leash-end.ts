/** Ends the leftovers of a killed test process: processes as `pid:start`, folders of embedded servers by path. */
import { existsSync, rmSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { stopPostgres } from '../../src/runtime/postgres.js';
import { endProcess } from '../../src/runtime/process.js';
import { stopTemporal } from '../../src/runtime/temporal.js';

const left = process.argv.slice(2);

// Processes first: they would start their servers again.
for (const one of left.filter((name) => !isAbsolute(name))) {
  const [pid, started = ''] = one.split(':');
  await endProcess({ pid: Number(pid), started }, [{ signal: 'SIGKILL', ms: 5_000 }]);
}
for (const folder of left.filter((name) => isAbsolute(name) && existsSync(name))) {
  await Promise.all([stopPostgres(folder), stopTemporal(folder)]);
  rmSync(folder, { recursive: true, force: true });
}
