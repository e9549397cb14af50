import { log } from '@temporalio/activity';
import type { Plan } from '../src/compaction/plan/plan-types.js';
import { isFailure } from '../src/errors.js';
import { planSession } from './plan.js';
import type { Start } from './recordOutcomes.js';
import { type Dependencies, runStep } from './run.js';

export interface PlanSessionsInput {
  tenant: string;
  sessions: Pick<Start, 'session' | 'incarnation' | 'force'>[];
}

/** Larger plans stay out of the history of the job. */
const mostPlanBytes = 16 * 1024;

/**
 * Plans the compactions of several sessions for a backfill. Null in place of a plan: the compaction has to plan by itself, and to
 * report why nothing can be done.
 */
export function planSessions(dependencies: Dependencies) {
  return ({ tenant, sessions }: PlanSessionsInput): Promise<(Plan | null)[]> =>
    runStep('plan sessions', async ({ signal }) => {
      const plans: (Plan | null)[] = [];
      for (const session of sessions)
        plans.push(await planOf(dependencies, { tenant, ...session, reason: 'backfill' }, signal));
      return plans;
    });
}

async function planOf(
  dependencies: Dependencies,
  input: Parameters<typeof planSession>[1],
  signal: AbortSignal,
): Promise<Plan | null> {
  try {
    const plan = await planSession(dependencies, input, signal);
    return 'nothing' in plan || JSON.stringify(plan).length > mostPlanBytes ? null : plan;
  } catch (error) {
    if (signal.aborted || isFailure(error, 'Store.Unavailable')) throw error;
    log.info('a session of a backfill could not be planned', {
      failure: isFailure(error) ? error.type : 'unknown',
    });
    return null;
  }
}
