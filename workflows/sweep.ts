import { proxyActivities, setCurrentDetails, workflowInfo } from '@temporalio/workflow';
import type { DatabaseActivities } from '../activities/index.js';
import type { Swept } from '../activities/sweepSessions.js';
import { stepQueues } from '../src/temporal/names.js';

export interface SweepInput {
  v: 1;
  /** Sessions signalled by one step. @default 200 */
  pageSize?: number;
  /** Steps of one sweep; what is left waits for the next one. @default 25 */
  mostPages?: number;
}

/**
 * Finds sessions that wait and that no workflow knows of, and signals them: a page of them after another, until there are no
 * more, none of a page could be signalled, or the sweep has done its share. A schedule starts it; what fails is left to the
 * next one.
 */
export async function sweep({ pageSize = 200, mostPages = 25 }: SweepInput): Promise<Swept> {
  const { sweepSessions } = proxyActivities<DatabaseActivities>({
    taskQueue: stepQueues(workflowInfo().taskQueue).db,
    startToCloseTimeout: '2 minutes',
    scheduleToCloseTimeout: '5 minutes',
    heartbeatTimeout: '10 seconds',
    retry: { initialInterval: '1 second', backoffCoefficient: 2, maximumInterval: '30 seconds' },
  });
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
