import {
  ActivityCancellationType,
  proxyActivities,
  workflowInfo,
  type ActivityInterfaceFor,
} from '@temporalio/workflow';
import type { DatabaseActivities, ModelActivities } from '../activities/index.js';
import { beyondDeadlineMs, isOfBackfill, stepQueues } from '../src/temporal/names.js';

/*
 * Every step heartbeats (activities/run.ts), so a killed worker is noticed within the heartbeat timeout rather than
 * within the start-to-close timeout. Retries of what passes (an outage, a busy endpoint) are bounded by time, never by
 * attempts: a deploy must not use them up. What is not known to pass is final after a few (src/temporal/failures.ts).
 */
const heartbeatTimeout = '10 seconds';

/**
 * Steps on Postgres: seconds at most, but a commit may read megabytes. Ten minutes of a database that is away are
 * bridged by retrying; after that the compaction fails and the context is as before. A backfill has time: hours hold it up
 * and do not end it, and its steps may wait long for their turn, but a day ends them.
 */
export function databaseActivities(): ActivityInterfaceFor<DatabaseActivities> {
  const { taskQueue } = workflowInfo();
  return proxyActivities<DatabaseActivities>({
    taskQueue: stepQueues(taskQueue).db,
    startToCloseTimeout: '2 minutes',
    scheduleToCloseTimeout: isOfBackfill(taskQueue) ? '1 day' : '10 minutes',
    heartbeatTimeout,
    retry: { initialInterval: '500 milliseconds', backoffCoefficient: 2, maximumInterval: '30 seconds' },
  });
}

/**
 * Model calls: the client's own timeout ends a call that hangs, missed heartbeats a worker that is gone; the whole may retry until the
 * compaction's deadline. A provider's Retry-After replaces the interval. On the deadline the workflow goes on to the
 * fallback at once (TRY_CANCEL) while the call is being aborted.
 */
export function modelActivities(deadlineMs: number): ActivityInterfaceFor<ModelActivities> {
  return proxyActivities<ModelActivities>({
    taskQueue: stepQueues(workflowInfo().taskQueue).llm,
    startToCloseTimeout: deadlineMs + beyondDeadlineMs,
    scheduleToCloseTimeout: deadlineMs + beyondDeadlineMs,
    heartbeatTimeout,
    cancellationType: ActivityCancellationType.TRY_CANCEL,
    retry: { initialInterval: '1 second', backoffCoefficient: 2, maximumInterval: '30 seconds' },
  });
}
