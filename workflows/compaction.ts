import { isCancellation } from '@temporalio/workflow';
import type { CompactionReason, Plan } from '../src/compaction/plan/plan-types.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { CompactionOutcome } from '../src/contract/compactions.js';
import { isModelFailureType } from '../src/errors.js';
import { compactionWorkflowId } from '../src/temporal/names.js';
import { failureOf, hasOnlyWaited } from '../src/temporal/failures.js';
import { commitSummary } from './compaction-commit.js';
import { summarizeInTime } from './compaction-model.js';
import { CompactionPage } from './compaction-page.js';
import { fallsBack, type CompactionRun } from './compaction-run.js';
import { databaseActivities } from './options.js';
import { assertOwnId } from './own-id.js';

export interface CompactionInput extends SessionIds {
  v: 1;
  reason: CompactionReason;
  /** Requested by an operator: ignores size, gain, exhausted mark and back-off. */
  force: boolean;
  /** Last message whose notes were written ahead. Absent if there are none, or if an earlier version started the compaction. */
  writtenThroughSeq?: number | null;
}

/** Maximum repetitions of the model's part after answers were deleted; the deadline counts from the first. */
const mostTries = 3;

/**
 * Runs one compaction: plan, summarize in chunks, consolidate, commit. The context does not change before the commit's single
 * transaction. Returns null if there is nothing to do or, with `force`, if the result would not be smaller. Fails with a typed
 * reason if the context had to be left unchanged.
 */
export async function compaction(input: CompactionInput): Promise<CompactionOutcome | null> {
  const { tenant, session, incarnation, reason, force, writtenThroughSeq } = input;
  const ids: SessionIds = { tenant, session, incarnation };
  assertOwnId((id) => compactionWorkflowId(ids, Number(id.split('/').at(-1))));
  const run: CompactionRun = { ids, reason, force, page: new CompactionPage(), answers: [] };
  try {
    const { plan: makePlan } = databaseActivities();
    const planning = { summary: `plan · ${reason}` };
    const plan = await makePlan.executeWithOptions(planning, [{ ...ids, reason, force, writtenThroughSeq }]);
    if ('nothing' in plan) {
      run.page.finish(`Nothing to do: ${plan.nothing}.`);
      return null;
    }
    run.page.plan(plan);
    run.ids = { ...ids, incarnation: plan.incarnation ?? incarnation };
    return plan.method === 'model'
      ? await replaceByModelOrRules(run, plan)
      : await commitSummary(run, plan, { method: plan.method, summarized: null, failure: null });
  } catch (error) {
    if (isCancellation(error)) throw error;
    return leaveUnchanged(run, error);
  }
}

/** Uses the rules if the model fails permanently, unless the policy has no fallback or nothing is evicted. */
async function replaceByModelOrRules(run: CompactionRun, plan: Plan): Promise<CompactionOutcome> {
  const evicts = plan.throughSeq >= plan.fromSeq;
  try {
    return await replaceByModel(run, plan);
  } catch (error) {
    if (isCancellation(error)) throw error;
    const failure = failureOf(error);
    if (!failure || !fallsBack(failure.type) || plan.fallback === 'none' || !evicts) throw error;
    const { type, message } = failure;
    run.page.note(
      `The model failed (**${type}** ${message}); the extractive fallback writes the summary.`,
      type,
    );
    return await commitSummary(run, plan, {
      method: 'extractive',
      summarized: null,
      failure: { type, message, onlyWaited: hasOnlyWaited(failure) },
    });
  }
}

/**
 * Repeats the model's part if answers were deleted before the commit: stored answers are found, the other answers are paid for again.
 */
async function replaceByModel(run: CompactionRun, plan: Plan): Promise<CompactionOutcome> {
  for (let tries = 1; ; tries++) {
    try {
      const summarized = await summarizeInTime(run, plan);
      return await commitSummary(run, plan, { method: 'model', summarized, failure: null });
    } catch (error) {
      const failure = failureOf(error);
      if (failure?.type !== 'Store.DigestGone' || tries === mostTries) throw error;
      run.page.note(`Asking again (**${failure.type}** ${failure.message}).`, failure.type);
    }
  }
}

/** Records the failure and throws it; returns null if a compaction on request was refused because it saves too little. */
async function leaveUnchanged({ ids, force, page }: CompactionRun, error: unknown): Promise<null> {
  const failure = failureOf(error) ?? { type: 'Unknown', message: String(error), details: [] };
  const { type, message } = failure;
  const refused = type === 'Summary.NotSmaller' || type === 'Summary.PinsLost';
  page.finish(`Context unchanged: **${type}** ${message}`, type);
  if (refused && force) return null;
  if (type !== 'Store.StaleGeneration') {
    const { giveUp } = databaseActivities();
    const model = isModelFailureType(type) && !refused;
    await giveUp.executeWithOptions({ summary: type }, [
      { ...ids, type, message, exhausted: refused, model, onlyWaited: hasOnlyWaited(failure) },
    ]);
  }
  throw error;
}
