import type { ActivityInterceptorsFactory } from '@temporalio/worker';

/** A step of a live session no longer ago than this says that live sessions are at work. Milliseconds. */
const recentMs = 2_000;
/** Below the heartbeat timeout of a step. */
const longestRestMs = 2_500;

/**
 * How fast a backfill may go in a process that serves live sessions too: while they are at work, its steps rest so long
 * that they take `share` of their slots' time; otherwise none rests. What has begun is not preempted, hence live work
 * finds the process, PostgreSQL and Temporal idle more often.
 */
export class Pace {
  private liveAt = -Infinity;

  /** `share`: above 0, at most 1. */
  constructor(private readonly share: number) {}

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
          const now = performance.now();
          const restMs = Math.min((now - startedAt) * (1 / this.share - 1), longestRestMs);
          if (now - this.liveAt < recentMs && restMs > 0)
            await new Promise((resolve) => setTimeout(resolve, restMs));
        }
      },
    },
  });
}
