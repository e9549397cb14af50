import { activityInfo } from '@temporalio/activity';
import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { Metrics } from '../src/process/metrics.js';
import { backfillPriorityKey } from '../src/temporal/names.js';

/** Records for every attempt of every step its time in the queue, its duration and its result. */
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

/** Live sessions count as active until this many milliseconds after their last step. */
const recentMs = 2_000;
/** So few that live sessions which become active find the process nearly free. */
const mostUnslotted = 4;
/** Must stay below the heartbeat timeout of a step. */
const longestRestMs = 2_500;

/**
 * Slows a backfill down in a process that also serves live sessions. While live sessions are active, each step of the backfill
 * rests afterwards, so that it works for only `share` of its slot's time. A running step is not preempted; the rests leave the
 * process, PostgreSQL and Temporal idle more often for live steps.
 */
export class BackfillThrottle {
  private liveAt = -Infinity;
  private working = 0;
  private readonly waiting: (() => void)[] = [];

  /** `share` is above 0 and at most 1. */
  constructor(private readonly share: number) {}

  private get isLive(): boolean {
    return performance.now() - this.liveAt < recentMs;
  }

  /**
   * Does work of the backfill outside its slots. Null, and nothing is done, if live sessions are active, also once the work's turn
   * comes.
   */
  async whileQuiet<Result>(work: () => Promise<Result>): Promise<Result | null> {
    if (this.isLive) return null;
    if (this.working >= mostUnslotted) await new Promise<void>((resolve) => this.waiting.push(resolve));
    else this.working++;
    try {
      return this.isLive ? null : await work();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.working--;
    }
  }

  readonly live: ActivityInterceptorsFactory = () => ({
    inbound: {
      execute: (input, next) => {
        this.liveAt = performance.now();
        return next(input);
      },
    },
  });

  readonly backfill: ActivityInterceptorsFactory = () => ({
    inbound: {
      execute: async (input, next) => {
        const startedAt = performance.now();
        try {
          return await next(input);
        } finally {
          const tookMs = performance.now() - startedAt;
          const restMs = Math.min(tookMs * (1 / this.share - 1), longestRestMs);
          if (this.isLive && restMs > 0) await new Promise((resolve) => setTimeout(resolve, restMs));
        }
      },
    },
  });
}
