import { ApplicationFailure, isCancellation, workflowInfo } from '@temporalio/workflow';
import type { CommitRequest, Committed } from '../activities/commit.js';
import type { Method, Plan } from '../src/compaction/plan/plan-types.js';
import { resultsOf } from '../src/compaction/summarize/last-answer.js';
import type { DigestRef } from '../src/compaction/summarize/model-steps.js';
import type { Summarized } from '../src/compaction/summarize/summarize.js';
import type { RepairProblem } from '../src/summary/ask/repair.js';
import { failureOf } from '../src/temporal/failures.js';
import { fallsBack, msToDeadline, type CompactionRun } from './compaction-run.js';
import { databaseActivities, modelActivities } from './options.js';

/** The summary to commit. */
export interface Summary {
  method: Method;
  /** Null if no model wrote it. */
  summarized: Summarized | null;
  /** The model failure that caused the fallback. */
  failure: CommitRequest['failure'];
}

/** Commits the plan's new context. If the snapshot fails its checks, the model repairs it once. */
export async function commitSummary(run: CompactionRun, plan: Plan, summary: Summary): Promise<Committed> {
  run.page.phase('committing');
  const { commit } = databaseActivities();
  const { method, failure } = summary;
  const request = commitRequest(run, plan, summary);
  const label = `commit generation ${plan.baseGeneration + 1} · ${method}${failure ? `, because of ${failure.type}` : ''}`;
  let answer = await commit.executeWithOptions({ summary: label }, [request]);
  if ('repair' in answer) {
    const repaired = await repairedOnce(run, plan, request, answer.repair);
    answer = await commit.executeWithOptions({ summary: `${label}, after a repair` }, [repaired]);
  }
  if ('repair' in answer)
    throw ApplicationFailure.nonRetryable(
      'the snapshot is still too long after its repair',
      'Summary.NotSmaller',
    );
  run.page.committed(answer);
  return answer;
}

function commitRequest(
  { ids, force, answers, settles }: CompactionRun,
  plan: Plan,
  { method, summarized, failure }: Summary,
): CommitRequest {
  const { chunks: _chunks, messages: _messages, method: _method, ...references } = plan;
  const { startTime, workflowId, runId } = workflowInfo();
  return {
    ...ids,
    plan: references,
    method,
    failed: failure !== null,
    ...(summarized ? resultsOf(summarized, answers) : withoutResults(plan, failure, answers)),
    force,
    repaired: summarized === null,
    startedAt: startTime.getTime(),
    workflowId,
    runId,
    failure,
    ...(settles === true ? { settles } : {}),
  };
}

function withoutResults(plan: Plan, failure: Summary['failure'], answers: readonly DigestRef[]) {
  const nothing = { chunks: [], snapshot: null, layers: [], messages: [], digests: [], failure: null };
  const chunksByRule = failure === null ? 0 : plan.chunks.length;
  return { ...resultsOf({ ...nothing, chunksByRule }, answers), written: null };
}

/** Returns the request with the repaired snapshot, or with the first snapshot if the repair fails or is too late. */
async function repairedOnce(
  { page }: CompactionRun,
  plan: Plan,
  request: CommitRequest,
  problem: RepairProblem,
): Promise<CommitRequest> {
  page.phase('repairing');
  const once = { ...request, repaired: true };
  const leftMs = msToDeadline(plan);
  if (request.written === null || leftMs <= 0) return once;
  const { repair } = modelActivities(leftMs);
  try {
    const label = `repair of the snapshot: ${problem}`;
    const { key, startedAt, endedAt } = await repair.executeWithOptions({ summary: label }, [
      { ...request, problem },
    ]);
    return {
      ...once,
      written: { ...request.written, snapshot: key },
      digests: [...request.digests, key],
      paid: [...request.paid, key],
      modelSpans: endedAt > startedAt ? [...request.modelSpans, [startedAt, endedAt]] : request.modelSpans,
    };
  } catch (error) {
    const failure = failureOf(error);
    if (isCancellation(error) || failure === null || !fallsBack(failure.type)) throw error;
    page.note(`The repair failed (**${failure.type}**); the first snapshot is judged as it is.`);
    return once;
  } finally {
    page.phase('committing');
  }
}
