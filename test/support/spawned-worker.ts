import { spawn, type ChildProcess } from 'node:child_process';
import { inject } from 'vitest';
import { program } from './compiled.js';
import { leashed } from './leash.js';
import { roleUrls } from './pool.js';
import type { Stack } from './stack.js';
import type { DoomedWorker } from './worker-process.js';

/** Starts a worker of this stack in a separate process, so that a test can stop and kill it. */
export function spawnWorker(
  stack: Stack,
  options: Pick<DoomedWorker, 'die' | 'timeouts'> = {},
): ChildProcess {
  const settings: DoomedWorker = {
    databaseUrl: stack.databaseUrl,
    roles: roleUrls(stack.databaseUrl),
    address: stack.temporal.address,
    queuePrefix: stack.queuePrefix,
    workflowBundlePath: inject('workflowBundlePath'),
    modelUrl: stack.model.url,
    ...options,
  };
  return leashed(
    spawn(process.execPath, [program('test/support/worker-process.ts')], {
      env: { ...process.env, TEMPORAL_DEBUG: '', WORKER: JSON.stringify(settings) },
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  );
}
