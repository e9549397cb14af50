import { log } from '@temporalio/activity';
import { isFailure } from '../src/errors.js';
import { policyOf, type PolicyLayers } from '../src/policy/layers.js';
import { postpone, readOverdue, type OverdueSession } from '../src/store/sessions/overdue.js';
import { reasonOf } from '../src/temporal/calls.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

export interface SweepPage {
  /** Sessions at most. */
  most: number;
}

/** Sessions of one page. */
export interface Swept {
  signalled: number;
  /** They could not be signalled, and are tried again by a later sweep. */
  failed: number;
  /** A backfill has them, or comes to them. */
  left: number;
}

/** Signals at once. */
const concurrency = 16;

type Outcome = 'signalled' | 'unanswered' | 'impossible' | 'left';

/**
 * Signals the sessions that have waited longest and that no workflow is known to be at work on, a share for every tenant.
 * What cannot be signalled holds no other up: each is looked at again later, told or not.
 */
export function sweepSessions({ pool, workflows, metrics }: Dependencies) {
  return ({ most }: SweepPage): Promise<Swept> =>
    runStep('sweep', async ({ signal }) => {
      if (!workflows) throw new Error('this process has no client of Temporal to sweep with');
      const sessions = await readOverdue(pool, most);
      const outcomes = new Map<OverdueSession, Outcome>();
      const waiting = sessions.values();
      const signalNext = async () => {
        for (const session of waiting) {
          signal.throwIfAborted();
          outcomes.set(session, await tell(workflows, session));
        }
      };
      await Promise.all(Array.from({ length: concurrency }, signalNext));
      const having = (...wanted: Outcome[]) => sessions.filter((one) => wanted.includes(outcomes.get(one)!));
      await postpone(pool, having('signalled', 'impossible', 'left'), true);
      await postpone(pool, having('unanswered'), false);
      const swept = {
        signalled: having('signalled').length,
        failed: having('unanswered', 'impossible').length,
        left: having('left').length,
      };
      metrics?.swept(swept);
      if (sessions.length > 0) log.info('waiting sessions were found', { ...swept });
      return swept;
    });
}

async function tell(
  workflows: NonNullable<Dependencies['workflows']>,
  { tenant, session, policy, inBackfill }: OverdueSession,
): Promise<Outcome> {
  if (inBackfill) return 'left';
  try {
    await workflows.signalMeasure(
      { tenant, session },
      policyOf(JSON.parse(policy) as PolicyLayers).idleAfter,
    );
    return 'signalled';
  } catch (error) {
    log.warn('a waiting session could not be signalled', { tenant, session, ...reasonOf(error) });
    return isFailure(error, 'Temporal.Unavailable') ? 'unanswered' : 'impossible';
  }
}
