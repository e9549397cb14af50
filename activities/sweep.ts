import { Context, log } from '@temporalio/activity';
import { finishErasures as finish } from '../src/erase/executions.js';
import { isFailure } from '../src/errors.js';
import { type PolicyLayers, policyOf } from '../src/policy/layers.js';
import { openBackfills, postponeBackfill } from '../src/store/backfills/jobs.js';
import { type OverdueSession, postpone, readOverdue } from '../src/store/sessions/overdue.js';
import { reasonOf } from '../src/temporal/calls.js';
import { type Dependencies, runStep } from './run.js';

export interface SweepPage {
  /** Maximum number of sessions. */
  most: number;
}

/** Counts for the sessions of one page. */
export interface Swept {
  signalled: number;
  /** Sessions that could not be signalled; a later sweep retries them. */
  failed: number;
  /** Sessions that a backfill handles or will handle. */
  left: number;
}

/** Concurrent signals. */
const concurrency = 16;

type Outcome = 'signalled' | 'unanswered' | 'impossible' | 'left';

/**
 * Signals the sessions that have waited longest without a known active workflow, with a share for every tenant. A session that
 * cannot be signalled does not delay the others; every session is checked again later, whether or not its signal succeeded.
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

/** Maximum number of jobs checked in one sweep. */
const mostJobs = 200;

export interface Revived {
  revived: number;
  /** Jobs that could not be checked; the next sweep retries them. */
  failed: number;
}

/** Starts a workflow for each unfinished backfill that has none. */
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
          log.warn('a backfill could not be checked', { ...ids, ...reasonOf(error) });
          await postponeBackfill(pool, ids);
        }
      }
      return counts;
    });
}

export interface FinishErasuresInput {
  /** Maximum number of erased sessions to process. @default 100 */
  most?: number;
}

export interface FinishedErasures {
  /** Erased sessions that were processed. */
  erasures: number;
  /** Runs that the server was told to delete. */
  executions: number;
  /** Sessions whose deletion could not be requested completely. */
  unfinished: number;
}

/** After this long the sweep starts no further erasure: a step may take two minutes. */
const beginsForMs = 60_000;

/** Continues erasures whose executions Temporal still held, and erasures that were made while Temporal did not answer. */
export function finishErasures({ pool }: Dependencies) {
  return ({ most }: FinishErasuresInput = {}): Promise<FinishedErasures> =>
    runStep('finish erasures', async ({ signal }) => {
      const { client } = Context.current();
      const limits = { forMs: beginsForMs, ...(most === undefined ? {} : { most }) };
      const finished = await finish({ pool, client }, { signal, ...limits });
      if (finished.erasures > 0) log.info('erasures were continued', { ...finished });
      return finished;
    });
}
