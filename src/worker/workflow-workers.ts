import { Worker, type CompiledWorkerOptions, type WorkerOptions } from '@temporalio/worker';
import type { Logger } from '@temporalio/common';
import type { WorkflowCreator } from '@temporalio/worker/lib/workflow/interface.js';
import type { WorkflowBundleWithSourceMapAndFilename as Bundle } from '@temporalio/worker/lib/workflow/workflow-worker-thread/input.js';
import { startWorkflowThread, takeWorkflowThread } from './workflow-thread.js';

/**
 * Returns a function that creates workers whose workflows share one thread. The SDK's own function starts a thread for each
 * worker: 40 MB and 0.3 s of CPU time. All these workers need the same workflow code, and no activities.
 */
export function workersOfOneThread(): (options: WorkerOptions) => Promise<Worker> {
  let bundle: Promise<Bundle | undefined> | undefined;
  let shared: Promise<WorkflowCreator> | undefined;
  let users = 0;

  class SharingWorker extends Worker {
    protected static override getOrCreateBundle(options: CompiledWorkerOptions, logger: Logger) {
      return (bundle ??= super.getOrCreateBundle(options, logger));
    }

    protected static override async createWorkflowCreator(
      code: Bundle,
      options: CompiledWorkerOptions,
      logger: Logger,
    ): Promise<WorkflowCreator> {
      users++;
      shared ??= inOwnThread(code, options, logger) ?? super.createWorkflowCreator(code, options, logger);
      const creator = await shared;
      return {
        createWorkflow: (given) => creator.createWorkflow(given),
        destroy: async () => {
          if (--users === 0) await creator.destroy();
        },
      };
    }
  }
  return (options) => SharingWorker.create(options);
}

/** Does what the SDK's `ThreadedVMWorkflowCreator.create` does, in a thread of ours, which may have been started before. */
function inOwnThread(
  workflowBundle: Bundle,
  { activities, debugMode, isolateExecutionTimeoutMs, reuseV8Context = true }: CompiledWorkerOptions,
  logger: Logger,
): Promise<WorkflowCreator> | undefined {
  // In debug mode, the SDK runs workflows without a thread.
  if (debugMode) return undefined;
  startWorkflowThread();
  const thread = takeWorkflowThread();
  if (thread === undefined) return undefined;
  const create = async () => {
    const { ThreadedVMWorkflowCreator, WorkerThreadClient } =
      await import('@temporalio/worker/lib/workflow/threaded-vm.js');
    const client = new WorkerThreadClient(thread, logger);
    await client.send({
      ...{ type: 'init', workflowBundle, isolateExecutionTimeoutMs, reuseV8Context },
      registeredActivityNames: new Set(activities.keys()),
      hasPatchActivationCallback: false,
    });
    return new ThreadedVMWorkflowCreator([client]);
  };
  return create();
}
