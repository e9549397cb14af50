import {
  patched,
  proxyActivities,
  setCurrentDetails,
  workflowInfo,
  type ActivityInterfaceFor,
} from '@temporalio/workflow';
import type { DatabaseActivities } from '../activities/index.js';
import type { SweepStart } from '../src/contract/workflows.js';
import type { Swept } from '../activities/sweep.js';
import { stepQueues } from '../src/temporal/names.js';

/**
 * Finds waiting sessions that no workflow handles and signals them. Also continues interrupted erasures and restarts backfills
 * that have no workflow. A schedule starts the sweep; failed work is left to the next sweep, and no part blocks another.
 */
export async function sweep(input: SweepStart): Promise<Swept> {
  const signalling = signalWaiting(input);
  const others = patched('finishes erasures and revives backfills')
    ? [
        steps().finishErasures.executeWithOptions({ summary: 'erasures' }, []),
        steps().reviveBackfills.executeWithOptions({ summary: 'backfills' }, []),
      ]
    : [];
  for (const part of await Promise.allSettled([signalling, ...others]))
    if (part.status === 'rejected') throw part.reason;
  return signalling;
}

/** Signals page after page, until no session is left, none of a page could be signalled, or the sweep has reached its limit. */
async function signalWaiting({ pageSize = 200, mostPages = 25 }: SweepStart): Promise<Swept> {
  const { sweepSessions } = steps();
  const all: Swept = { signalled: 0, failed: 0, left: 0 };
  for (let page = 1; page <= mostPages; page++) {
    const { signalled, failed, left } = await sweepSessions({ most: pageSize });
    all.signalled += signalled;
    all.failed += failed;
    all.left += left;
    const rows = [`| ${all.signalled} | ${all.failed} | ${all.left} |`];
    setCurrentDetails(['| signalled | failed | left to a backfill |', '|---|---|---|', ...rows].join('\n'));
    if (signalled + left === 0) break;
  }
  return all;
}

function steps(): ActivityInterfaceFor<DatabaseActivities> {
  return proxyActivities<DatabaseActivities>({
    taskQueue: stepQueues(workflowInfo().taskQueue).db,
    startToCloseTimeout: '2 minutes',
    scheduleToCloseTimeout: '5 minutes',
    heartbeatTimeout: '10 seconds',
    retry: { initialInterval: '1 second', backoffCoefficient: 2, maximumInterval: '30 seconds' },
  });
}
