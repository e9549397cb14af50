import { log } from '@temporalio/activity';
import { openBackfills } from '../src/store/backfills/jobs.js';
import { reasonOf } from '../src/temporal/calls.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

/** Jobs looked at in one sweep. */
const mostJobs = 200;

export interface Revived {
  revived: number;
  /** Could not be looked at, and are by the next sweep. */
  failed: number;
}

/** Starts the workflows of backfills that have not ended and have none. */
export function reviveBackfills({ pool, backfills }: Dependencies) {
  return (): Promise<Revived> =>
    runStep('revive backfills', async ({ signal }) => {
      if (!backfills) throw new Error('this process has no client of Temporal to sweep with');
      const counts: Revived = { revived: 0, failed: 0 };
      for (const ids of await openBackfills(pool, mostJobs)) {
        signal.throwIfAborted();
        try {
          if (!(await backfills.revive(ids))) continue;
          counts.revived += 1;
          log.info('a backfill without a workflow was started again', { ...ids });
        } catch (error) {
          counts.failed += 1;
          log.warn('a backfill could not be looked after', { ...ids, ...reasonOf(error) });
        }
      }
      return counts;
    });
}
