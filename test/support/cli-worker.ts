import { spawn } from 'node:child_process';
import path from 'node:path';
import { inject } from 'vitest';
import { databaseEnv } from './cli.js';
import { program } from './compiled.js';
import { leashed } from './leash.js';
import type { Stack } from './stack.js';

/**
 * `palimpsest worker` in a separate process, as in operation: configured by variables, controlled by signals, observed by its
 * log and its metrics.
 */
export interface CliWorker {
  pid: number;
  /** Its output so far, on both streams. */
  output(): string;
  /** The lines of its log. */
  log(): Record<string, unknown>[];
  /** Text of a page of its status server. */
  page(name: '/metrics' | '/healthz' | '/readyz'): Promise<{ status: number; text: string }>;
  signal(name: NodeJS.Signals): void;
  /** Exit code, or the signal that ended it. */
  exited: Promise<number | NodeJS.Signals>;
}

const startMs = 180_000;

/** Starts the worker. Resolves once it polls its task queues. */
export async function startCliWorker(
  stack: Pick<Stack, 'databaseUrl' | 'temporal' | 'queuePrefix' | 'model'>,
  env: Record<string, string> = {},
): Promise<CliWorker> {
  const child = spawn(process.execPath, [program('src/cli/main.ts'), 'worker'], {
    env: {
      ...{ PATH: process.env['PATH'], HOME: process.env['HOME'] },
      ...databaseEnv(stack.databaseUrl),
      TEMPORAL_ADDRESS: stack.temporal.address,
      OPENAI_API_KEY: 'test',
      OPENAI_BASE_URL: stack.model.url,
      PALIMPSEST_SUMMARY_MODEL: 'test-summarizer',
      PALIMPSEST_QUEUE_PREFIX: stack.queuePrefix,
      PALIMPSEST_CACHE: path.dirname(inject('workflowBundlePath')),
      PALIMPSEST_METRICS_ADDRESS: '127.0.0.1:0',
      // The next sweep is at midnight, unless a test of the sweep sets another interval.
      PALIMPSEST_WORKER_SWEEP_INTERVAL_MS: '86400000',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  leashed(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (piece: Buffer) => void (output += piece.toString()));
  const exited = new Promise<number | NodeJS.Signals>((resolve) =>
    child.once('exit', (code, signal) => resolve(signal ?? code ?? -1)),
  );
  const log = () =>
    output
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  const polling = () => log().find(({ msg }) => msg === 'worker is polling');
  const deadline = Date.now() + startMs;
  while (!polling()) {
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`the worker does not start:\n${output}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  const url = String(polling()?.['status']);
  return {
    pid: child.pid ?? 0,
    output: () => output,
    log,
    page: async (name) => {
      const answer = await fetch(`${url}${name}`);
      return { status: answer.status, text: await answer.text() };
    },
    signal: (name) => void child.kill(name),
    exited,
  };
}

/** Returns the samples of one metric: each value by its labels as they are written. */
export function samplesOf(text: string, metric: string): Map<string, number> {
  const found = [...text.matchAll(new RegExp(`^${metric}(\\{[^}]*\\})? (\\S+)$`, 'gm'))];
  return new Map(found.map(([, labels = '', value]) => [labels, Number(value)]));
}
