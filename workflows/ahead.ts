import { isCancellation } from '@temporalio/workflow';
import type { Plan } from '../src/compaction/plan/plan-types.js';
import type { SessionIds } from '../src/contract/ids.js';
import { aheadWorkflowId } from '../src/temporal/names.js';
import { failureOf } from '../src/temporal/failures.js';
import { summarizeInTime } from './compaction-model.js';
import { CompactionPage } from './compaction-page.js';
import { assertOwnId } from './own-id.js';
import { hasFewerSteps, type CompactionRun } from './compaction-run.js';

export interface AheadInput extends SessionIds {
  v: 1;
  /** The plan of the compaction that will be due at the threshold. */
  plan: Plan;
}

/**
 * Makes the model calls of a future compaction. The answers are stored and held for the session, and the compaction finds them
 * when the trigger is met. Nothing is committed. A failure appears on the page and changes nothing.
 */
export async function ahead({ tenant, session, incarnation, plan }: AheadInput): Promise<void> {
  const ids: SessionIds = { tenant, session, incarnation: plan.incarnation ?? incarnation };
  assertOwnId(() => aheadWorkflowId(ids, plan.baseGeneration));
  const page = new CompactionPage(!hasFewerSteps());
  const run: CompactionRun = { ids, reason: 'trigger', force: false, ahead: true, page, answers: [] };
  try {
    page.plan(plan);
    const { digests } = await summarizeInTime(run, plan);
    page.finish(`Written ahead: ${digests.length} answers.`);
  } catch (error) {
    if (isCancellation(error)) throw error;
    const { type, message } = failureOf(error) ?? { type: 'Unknown', message: String(error) };
    page.finish(`Not written ahead: **${type}** ${message}`, type);
  }
}
