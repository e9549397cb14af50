import { isCancellation } from '@temporalio/workflow';
import type { Committed } from '../activities/commit.js';
import type { CompactionReason, Plan } from '../src/compaction/plan/plan-types.js';
import type { SessionIds } from '../src/contract/ids.js';
import { isModelFailureType } from '../src/errors.js';
import { compactionWorkflowId } from '../src/temporal/names.js';
import { failureOf, hasOnlyWaited } from '../src/temporal/failures.js';
import { commitSummary } from './compaction-commit.js';
import { summarizeInTime } from './compaction-model.js';
import { CompactionPage } from './compaction-page.js';
import { fallsBack, hasFewerSteps, type CompactionRun } from './compaction-run.js';
import { databaseActivities } from './options.js';
import { assertOwnId } from './own-id.js';

export interface CompactionInput extends SessionIds {
  v: 1;
  reason: CompactionReason;
  /** Requested by an operator: ignores size, gain, exhausted mark and back-off. */
  force: boolean;
  /** Last message whose notes were written ahead. Absent if there are none, or if an earlier version started the compaction. */
  writtenThroughSeq?: number | null;
  /** Absent if the compaction must plan first. */
  plan?: Plan;
  /** The starter is a session that leaves to the commit what follows it. */
  settles?: boolean;
}

/** Maximum number of attempts at the model's part if answers are deleted before the commit; one deadline covers all attempts. */
const mostTries = 3;

/**
 * Runs one compaction: plan, summarize in chunks, consolidate, commit. The context does not change before the commit's single
 * transaction. Returns null if there is nothing to do or, with `force`, if the result was refused because it saves too little or
 * lacks a pin. Fails with a typed reason if the context had to be left unchanged.
 */
export async function compaction(input: CompactionInput): Promise<Committed | null> {
  const { tenant, session, incarnation, reason, force, settles } = input;
  const ids: SessionIds = { tenant, session, incarnation };
  assertOwnId((id) => compactionWorkflowId(ids, Number(id.split('/').at(-1))));
  const fewer = hasFewerSteps();
  const page = new CompactionPage(!fewer);
  const run: CompactionRun = { ids, reason, force, settles, lastAnswerCommits: fewer, page, answers: [] };
  try {
    const plan = input.plan ?? (await makePlan(input));
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

function makePlan({ tenant, session, incarnation, reason, force, writtenThroughSeq }: CompactionInput) {
  const { plan } = databaseActivities();
  const request = { tenant, session, incarnation, reason, force, writtenThroughSeq };
  return plan.executeWithOptions({ summary: `plan · ${reason}` }, [request]);
}

/** Uses the rules if the model fails permanently, unless the policy has no fallback or nothing is evicted. */
async function replaceByModelOrRules(run: CompactionRun, plan: Plan): Promise<Committed> {
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
 * Repeats the model's part if answers were deleted before the commit: stored answers are used again, the others are requested
 * and paid for again.
 */
async function replaceByModel(run: CompactionRun, plan: Plan): Promise<Committed> {
  for (let tries = 1; ; tries++) {
    try {
      const summarized = await summarizeInTime(run, plan);
      if (run.committed) {
        run.page.committed(run.committed);
        return run.committed;
      }
      return await commitSummary(run, plan, { method: 'model', summarized, failure: null });
    } catch (error) {
      const failure = failureOf(error);
      if (failure?.type !== 'Store.DigestGone' || tries === mostTries) throw error;
      run.page.note(`Asking again (**${failure.type}** ${failure.message}).`, failure.type);
    }
  }
}

/**
 * Throws the failure, and records it unless another compaction was committed first. Returns null if the result of a compaction
 * on request was refused because it saves too little or lacks a pin.
 */
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
