import { activityInfo } from '@temporalio/activity';
import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { Metrics } from '../src/process/metrics.js';
import { backfillPriorityKey } from '../src/temporal/names.js';

/** Counts every attempt of every step: how long it waited in its queue, how long it took, how it ended. */
export function attemptMetrics(metrics: Metrics): ActivityInterceptorsFactory {
  return () => ({
    inbound: {
      async execute(input, next) {
        const { activityType, priority, currentAttemptScheduledTimestampMs } = activityInfo();
        const startedAt = Date.now();
        let result = 'ok';
        try {
          return await next(input);
        } catch (error) {
          result = resultOf(error);
          throw error;
        } finally {
          const backfill = (priority?.priorityKey ?? 0) >= backfillPriorityKey;
          const waitedMs = startedAt - currentAttemptScheduledTimestampMs;
          metrics.activity(activityType, backfill, result, waitedMs, Date.now() - startedAt);
        }
      },
    },
  });
}

function resultOf(error: unknown): string {
  if (error instanceof CancelledFailure) return 'cancelled';
  return error instanceof ApplicationFailure && error.type ? error.type : 'error';
}
