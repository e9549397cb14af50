import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { commandOf, findProcess, type ProcessId } from './process.js';

/** The live server of this cluster, as its `postmaster.pid` names it: line 1 pid, line 4 port. */
export function findPostmaster(cluster: string): { id: ProcessId; port: number } | null {
  const [pid, , , port] = readPidFile(cluster);
  const id = findProcess(Number(pid));
  if (!id || !port || !isPostgresOn(cluster, id.pid)) return null;
  return { id, port: Number(port) };
}

/**
 * Postgres refuses to start while a process of its account has the pid in the file that a killed server left. Such a pid is
 * replaced by one that cannot exist; the rest of the file stays, because Postgres tells from it whether backends of the
 * killed server are still at work.
 */
export function forgetDeadPostmaster(cluster: string): void {
  const [pid, ...rest] = readPidFile(cluster);
  if (!pid || isPostgresOn(cluster, Number(pid))) return;
  writeFileSync(path.join(cluster, 'postmaster.pid'), ['2147483646', ...rest].join('\n'));
}

function isPostgresOn(cluster: string, pid: number): boolean {
  return findProcess(pid) !== null && commandOf(pid).includes(`-D ${cluster} `);
}

function readPidFile(cluster: string): string[] {
  try {
    return readFileSync(path.join(cluster, 'postmaster.pid'), 'utf8').split('\n');
  } catch {
    return [];
  }
}
