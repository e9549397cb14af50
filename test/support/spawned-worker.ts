import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { inject } from 'vitest';
import type { Stack } from './stack.js';
import type { DoomedWorker } from './worker-process.js';

/** A worker of this stack in a process of its own, so that a test can stop and kill it. */
export function spawnWorker(
  stack: Stack,
  options: Pick<DoomedWorker, 'die' | 'timeouts'> = {},
): ChildProcess {
  const settings: DoomedWorker = {
    databaseUrl: stack.databaseUrl,
    address: stack.temporal.address,
    queuePrefix: stack.queuePrefix,
    workflowBundlePath: inject('workflowBundlePath'),
    modelUrl: stack.model.url,
    ...options,
  };
  const script = fileURLToPath(new URL('./worker-process.ts', import.meta.url));
  return spawn(process.execPath, ['--import', 'tsx', script], {
    env: { ...process.env, WORKER: JSON.stringify(settings) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}
