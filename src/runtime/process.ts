import { execFileSync, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readdirSync, readFileSync, statSync, truncateSync } from 'node:fs';

/**
 * A process, identified by its pid and start time. A pid alone is not enough, because it is reused after a while, and at once
 * after a reboot.
 */
export interface ProcessId {
  pid: number;
  /** Opaque; equal only for the same process. */
  started: string;
}

/** Returns the process with this pid, or null if there is none. A zombie counts as ended. */
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

/** Returns the command line of a running process, each word followed by a blank, or '' if none is visible. */
export function commandOf(pid: number): string {
  if (process.platform !== 'linux') return `${ps('args', pid) ?? ''} `;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}

/** Returns the pids of all processes that this user may see. */
export function listPids(): number[] {
  const names =
    process.platform === 'linux'
      ? readdirSync('/proc')
      : execFileSync('ps', ['-A', '-o', 'pid='], { encoding: 'utf8' }).split(/\s+/);
  return names.filter((name) => /^\d+$/.test(name)).map(Number);
}

/**
 * Resolves to true as soon as the process has ended, or to false if it has not ended within `ms`. @internal Tests use it to
 * wait for processes that they have killed.
 */
export async function hasEnded(id: ProcessId, ms: number): Promise<boolean> {
  const deadline = Date.now() + ms;
  while (isRunning(id)) {
    if (Date.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return true;
}

/** Sends the signals in order and gives each its time, until the process has ended. */
export async function endProcess(
  id: ProcessId,
  steps: { signal: NodeJS.Signals; ms: number }[],
): Promise<void> {
  for (const { signal, ms } of steps) {
    if (!isRunning(id)) return;
    try {
      process.kill(id.pid, signal);
    } catch {
      // The process ended in the meantime.
    }
    if (await hasEnded(id, ms)) return;
  }
  throw new Error(`process ${id.pid} does not end`);
}

// The file has `pid (name) state ppid …`. The name may contain blanks and parentheses. Field 22 is the start time, in clock
// ticks since boot.
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

export interface Daemon {
  id: ProcessId;
  /** Returns the last lines written since the start. If the server panicked, the line with the reason comes first. */
  output(): string;
}

const logLimitBytes = 16 * 1024 * 1024;
const outputLines = 8;

/**
 * Starts a server that outlives this process. It gets its own session, so that neither Ctrl-C in the terminal nor the end of
 * Node reaches it, and a log file for its output, so that no pipe breaks. Its environment contains only `PATH`, `HOME` and
 * `env`, not the caller's keys and settings.
 */
export async function startDaemon(options: {
  command: string;
  args: string[];
  env?: NodeJS.ProcessEnv;
  logFile: string;
  uid?: number;
  gid?: number;
}): Promise<Daemon> {
  const { command, args, logFile, uid, gid } = options;
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, ...options.env };
  if (existsSync(logFile) && statSync(logFile).size > logLimitBytes) truncateSync(logFile);
  const log = openSync(logFile, 'a', 0o600);
  const before = statSync(logFile).size;
  try {
    const child = spawn(command, args, { env, uid, gid, detached: true, stdio: ['ignore', log, log] });
    const pid = await new Promise<number>((resolve, reject) => {
      child.once('spawn', () => resolve(child.pid ?? 0));
      child.once('error', reject);
    });
    child.unref();
    const output = () => {
      const lines = readFileSync(logFile).subarray(before).toString().trimEnd().split('\n');
      const last = lines.slice(-outputLines);
      // In a trace, the reason precedes a long stack and is therefore not among the last lines.
      const panic = lines.slice(0, -outputLines).find((line) => /^(?:panic|fatal error):/.test(line));
      return (panic === undefined ? last : [panic, ...last]).join('\n');
    };
    return { id: findProcess(pid) ?? { pid, started: 'ended' }, output };
  } finally {
    closeSync(log);
  }
}
