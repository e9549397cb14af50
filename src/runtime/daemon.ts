import { spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, statSync, truncateSync } from 'node:fs';
import { findProcess, type ProcessId } from './process.js';

export interface Daemon {
  id: ProcessId;
  /** What it has written since it was started: its last lines, after the reason of a panic. */
  output(): string;
}

const logLimitBytes = 16 * 1024 * 1024;
const outputLines = 8;

/**
 * Starts a server that outlives this process: a session of its own, so that neither Ctrl-C in the terminal nor the death of
 * Node reaches it, and a log file for its output, so that no pipe breaks under it. The environment is `PATH`, `HOME` and `env`
 * only: keys and settings of the caller are none of the server's business.
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
      // A trace hides its reason behind its places.
      const panic = lines.slice(0, -outputLines).find((line) => /^(?:panic|fatal error):/.test(line));
      return (panic === undefined ? last : [panic, ...last]).join('\n');
    };
    return { id: findProcess(pid) ?? { pid, started: 'ended' }, output };
  } finally {
    closeSync(log);
  }
}
