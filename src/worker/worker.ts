import type { RunningWorker, WorkerSettings } from './settings.js';

export type { RunningWorker, WorkerSettings };

/** Starts a worker that serves the queues of its roles: orchestration, database steps, model calls. */
export async function startWorker(settings: WorkerSettings): Promise<RunningWorker> {
  // Clients of the library, which export this function, need none of the worker's SDK.
  const { runWorker } = await import('./run-worker.js');
  return runWorker(settings);
}
