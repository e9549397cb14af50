import { createRequire } from 'node:module';
import { Worker as Thread } from 'node:worker_threads';

const require = createRequire(import.meta.url);

/**
 * The version of @temporalio/worker whose thread this module starts; with any other version, the SDK starts its own later.
 * @internal Tests compare it with the installed one.
 */
export const knownSdk = '1.24.0';

/**
 * Without a limit, the young objects of a thread take up to 192 MB in Node 24 before they are collected. Few objects of a workflow
 * outlive its task, so collecting them more often takes no measurable CPU time.
 */
const resourceLimits = { maxYoungGenerationSizeMb: 6 };

let waiting: Thread | undefined;

/** Starts a thread for workflows, which loads the SDK while this process does other things. */
export function startWorkflowThread(): void {
  const { version } = require('@temporalio/worker/package.json') as { version: string };
  if (waiting !== undefined || version !== knownSdk) return;
  const script = require.resolve('@temporalio/worker/lib/workflow/workflow-worker-thread.js');
  const thread = new Thread(script, { resourceLimits });
  const forget = () => {
    if (waiting === thread) waiting = undefined;
  };
  thread.once('error', forget).once('exit', forget).unref();
  waiting = thread;
}

/** Returns the started thread, once. */
export function takeWorkflowThread(): Thread | undefined {
  const thread = waiting;
  waiting = undefined;
  thread?.ref();
  return thread;
}
