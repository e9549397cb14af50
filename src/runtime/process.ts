import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/**
 * A process by pid and the moment it started. A pid alone is not enough: it is given out again after a while, and after
 * a reboot at once.
 */
export interface ProcessId {
  pid: number;
  /** Opaque; equal for the same process only. */
  started: string;
}

/** The process with this pid, or null when there is none (a zombie has ended: it only waits to be collected). */
export function findProcess(pid: number): ProcessId | null {
  const started = process.platform === 'linux' ? startedOnLinux(pid) : startedByPs(pid);
  return started === null ? null : { pid, started };
}

export function isRunning(id: ProcessId): boolean {
  return findProcess(id.pid)?.started === id.started;
}

export function self(): ProcessId {
  return (own ??= findProcess(process.pid) ?? { pid: process.pid, started: 'unknown' });
}
let own: ProcessId | undefined;

/** The command line of a running process, its words separated and followed by one blank; '' when there is none to see. */
export function commandOf(pid: number): string {
  if (process.platform !== 'linux') return `${ps('args', pid) ?? ''} `;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}

/** Pids of all processes this user may see. */
export function listPids(): number[] {
  const names =
    process.platform === 'linux'
      ? readdirSync('/proc')
      : execFileSync('ps', ['-A', '-o', 'pid='], { encoding: 'utf8' }).split(/\s+/);
  return names.filter((name) => /^\d+$/.test(name)).map(Number);
}

/** Resolves to true as soon as the process has ended, to false when it has not within `ms`. @internal Tests wait with it for processes that they have killed. */
export async function hasEnded(id: ProcessId, ms: number): Promise<boolean> {
  const deadline = Date.now() + ms;
  while (isRunning(id)) {
    if (Date.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return true;
}

/** Sends the signals one after the other, each with its time to take effect, until the process has ended. */
export async function endProcess(
  id: ProcessId,
  steps: { signal: NodeJS.Signals; ms: number }[],
): Promise<void> {
  for (const { signal, ms } of steps) {
    if (!isRunning(id)) return;
    try {
      process.kill(id.pid, signal);
    } catch {
      // It ended in between.
    }
    if (await hasEnded(id, ms)) return;
  }
  throw new Error(`process ${id.pid} does not end`);
}

// `pid (name) state ppid …`: the name may hold blanks and parentheses; field 22 counts clock ticks since boot.
function startedOnLinux(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return null;
    return `${fields[19]}.${bootId()}`;
  } catch {
    return null;
  }
}

function bootId(): string {
  return (boot ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').slice(0, 8));
}
let boot: string | undefined;

function startedByPs(pid: number): string | null {
  if ((ps('stat', pid) ?? 'Z').startsWith('Z')) return null;
  return ps('lstart', pid)?.replaceAll(/\W+/g, '.') ?? null;
}

function ps(column: string, pid: number): string | null {
  try {
    const env = { ...process.env, LC_ALL: 'C' };
    const output = execFileSync('ps', ['-ww', '-o', `${column}=`, '-p', String(pid)], {
      encoding: 'utf8',
      env,
    });
    return output.trim() || null;
  } catch {
    return null;
  }
}
