import {
  ActivityCancellationType,
  proxyActivities,
  workflowInfo,
  type ActivityInterfaceFor,
} from '@temporalio/workflow';
import type { DatabaseActivities, ModelActivities } from '../activities/index.js';
import { beyondDeadlineMs, isOfBackfill, stepQueues } from '../src/temporal/names.js';

/*
 * Every step heartbeats (activities/run.ts), so that a killed worker is noticed within the heartbeat timeout rather than the
 * start-to-close timeout. Retries of passing failures (an outage, a busy endpoint) are limited by time, never by attempts,
 * because a deployment must not use them up. Failures that are not known to be temporary are final after a few attempts
 * (src/temporal/failures.ts).
 */
const heartbeatTimeout = '10 seconds';

/**
 * Steps on PostgreSQL take seconds at most, but a commit may read megabytes. Retries bridge ten minutes of a database outage;
 * after that the compaction fails and the context stays unchanged. A backfill survives hours of outage, and its steps may wait
 * long for a slot, but at most a day.
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
 * Model calls. The client's timeout ends a call that hangs; missed heartbeats reveal a lost worker. Retries may continue until
 * the compaction's deadline. A provider's Retry-After replaces the interval. At the deadline the workflow goes on to the
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
