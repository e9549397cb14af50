import { Context } from '@temporalio/activity';
import { WorkflowFailedError, WorkflowNotFoundError, type Client } from '@temporalio/client';
import { endOfFailure, endOfOutcome, type End } from '../src/temporal/failures.js';
import { typed } from '../src/temporal/calls.js';
import type { CompactionOutcome } from '../src/contract/workflows.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

/** A compaction that is running under another parent: an earlier run of the job, or the session itself. */
export interface Followed {
  session: string;
  workflowId: string;
  /** Null: whichever runs now. */
  runId: string | null;
  /** Begun by this job. */
  own: boolean;
}

/** Those that have ended, and how. */
export function followCompactions(_: Dependencies) {
  return ({ followed }: { followed: Followed[] }): Promise<{ session: string; end: End }[]> =>
    runStep('follow compactions', async () => {
      const { client } = Context.current();
      const ends = await Promise.all(followed.map((one) => endOf(client, one)));
      return followed.flatMap(({ session }, index) => {
        const end = ends[index] ?? null;
        return end === null ? [] : [{ session, end }];
      });
    });
}

/** Null while it runs. */
async function endOf(client: Client, { workflowId, runId, own }: Followed): Promise<End | null> {
  const handle = client.workflow.getHandle<() => Promise<CompactionOutcome | null>>(
    workflowId,
    runId ?? undefined,
  );
  try {
    const { status } = await handle.describe();
    if (status.name === 'RUNNING') return null;
    if (!own) return { kind: 'elsewhere' };
    return endOfOutcome(await handle.result());
  } catch (error) {
    // Its history has expired: what it came to stands in the session's row.
    if (error instanceof WorkflowNotFoundError) return { kind: 'elsewhere' };
    if (error instanceof WorkflowFailedError) return endOfFailure(error);
    return typed(() => Promise.reject(error));
  }
}
