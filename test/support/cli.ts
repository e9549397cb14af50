import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { program } from './compiled.js';
import type { CommandEnded, CommandLine } from './cli-host.js';
import { leashed, leashServers } from './leash.js';
import { roleUrls } from './pool.js';
import type { Stack } from './stack.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const ownVariables = /^(?:DATABASE_URL|TEMPORAL_|OPENAI_|PALIMPSEST_|LOG_|NO_COLOR|FORCE_COLOR|COLUMNS|npm_)/;

export interface Ended {
  code: number | null;
  signal: string | null;
  stdout: string;
  stderr: string;
}

function variables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const clean = Object.entries(process.env).filter(([name]) => !ownVariables.test(name));
  return { ...Object.fromEntries(clean), PALIMPSEST_DATA: '/nowhere/palimpsest', ...env };
}

/** The command line in a separate process. */
export class CliProcess {
  stdout = '';
  stderr = '';
  readonly ended: Promise<Ended>;
  readonly child: ChildProcess;
  private readonly watchers: (() => void)[] = [];

  constructor(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    const child = spawn(process.execPath, [program('src/cli/main.ts'), ...args], {
      cwd: root,
      env: variables(env),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child = leashed(child);
    if (env.PALIMPSEST_DATA) leashServers(env.PALIMPSEST_DATA);
    this.child.stdout?.on('data', (chunk: Buffer) => this.note((this.stdout += chunk.toString())));
    this.child.stderr?.on('data', (chunk: Buffer) => this.note((this.stderr += chunk.toString())));
    this.ended = new Promise((resolve) =>
      this.child.on('close', (code, signal) => {
        resolve({ code, signal, stdout: this.stdout, stderr: this.stderr });
        this.note('');
      }),
    );
  }

  /** Resolves once the output matches; rejects if the process ends first. */
  async shows(pattern: RegExp): Promise<void> {
    const seen = new Promise<void>((resolve) => {
      const look = () => pattern.test(this.stdout + this.stderr) && resolve();
      this.watchers.push(look);
      look();
    });
    const gone = this.ended.then(({ stdout, stderr }) => {
      if (!pattern.test(stdout + stderr))
        throw new Error(`ended without ${String(pattern)}:\n${stdout}\n${stderr}`);
    });
    await Promise.race([seen, gone]);
  }

  private note(_: string): void {
    for (const look of this.watchers) look();
  }
}

let host: ChildProcess | undefined;
const waiting = new Map<number, (ended: Ended) => void>();
let commands = 0;

function startHost(): ChildProcess {
  const child = spawn(process.execPath, [program('test/support/cli-host.ts')], {
    cwd: root,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  child.on('message', ({ number, ...ended }: CommandEnded) => {
    waiting.get(number)?.({ signal: null, ...ended });
    waiting.delete(number);
  });
  child.once('exit', (code, signal) => {
    host = undefined;
    for (const answer of waiting.values()) answer({ code, signal, stdout: '', stderr: 'the host has ended' });
    waiting.clear();
  });
  child.unref();
  child.channel?.unref();
  return leashed(child);
}

/**
 * Runs command lines to their end, one at a time, in one shared process. Tests of signals, pipes and concurrent events need a
 * separate process: `CliProcess`.
 */
export const runCli = (args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> =>
  new Promise((resolve) => {
    const number = ++commands;
    waiting.set(number, resolve);
    host ??= startHost();
    host.send({ number, args, env: variables(env) } satisfies CommandLine);
  });

/** The environment variables that name a database and its roles. */
export function databaseEnv(databaseUrl: string): Record<string, string> {
  const { maintenanceUrl, eraserUrl } = roleUrls(databaseUrl);
  return {
    DATABASE_URL: databaseUrl,
    ...(maintenanceUrl === undefined ? {} : { PALIMPSEST_MAINTENANCE_URL: maintenanceUrl }),
    ...(eraserUrl === undefined ? {} : { PALIMPSEST_ERASER_URL: eraserUrl }),
  };
}

/** The environment variables that tell the command line where a stack's servers are. */
export function stackEnv(stack: Pick<Stack, 'databaseUrl' | 'temporal' | 'queuePrefix'>): NodeJS.ProcessEnv {
  return {
    ...databaseEnv(stack.databaseUrl),
    TEMPORAL_ADDRESS: stack.temporal.address,
    PALIMPSEST_QUEUE_PREFIX: stack.queuePrefix,
  };
}

/** Runs commands as the tenant of a stack. */
export function cliOf(stack: Stack) {
  const env = stackEnv(stack);
  const withTenant = (args: readonly string[]) => [
    ...args.slice(0, 1),
    '--tenant',
    stack.queuePrefix,
    ...args.slice(1),
  ];
  return {
    env,
    run: (args: readonly string[], more: NodeJS.ProcessEnv = {}) =>
      runCli(withTenant(args), { ...env, ...more }),
    /** Runs a command in a separate process, to its end. */
    spawn: (args: readonly string[]) => new CliProcess(withTenant(args), env).ended,
    start: (args: readonly string[], more: NodeJS.ProcessEnv = {}) =>
      new CliProcess(withTenant(args), { ...env, ...more }),
    async json<T = Record<string, unknown>>(args: readonly string[]): Promise<T> {
      const { code, stdout, stderr } = await runCli(withTenant([...args, '--json']), env);
      if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${stdout}${stderr}`);
      return JSON.parse(stdout) as T;
    },
  };
}

/** Parses NDJSON. */
export const linesOf = <T = Record<string, unknown>>(stdout: string): T[] =>
  stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);
