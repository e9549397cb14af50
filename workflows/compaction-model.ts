import { ApplicationFailure, CancellationScope, isCancellation, workflowInfo } from '@temporalio/workflow';
import type { Plan } from '../src/compaction/plan/plan-types.js';
import type { Completion, LastAnswer } from '../activities/last-answer.js';
import type { Answered } from '../src/compaction/summarize/last-answer.js';
import type { ModelSteps } from '../src/compaction/summarize/model-steps.js';
import { summarize, type Summarized } from '../src/compaction/summarize/summarize.js';
import { count } from '../src/numbers.js';
import type { ChunkRef } from '../src/summary/ask/chunk.js';
import { failureOf } from '../src/temporal/failures.js';
import { msToDeadline, type CompactionRun } from './compaction-run.js';
import { modelActivities } from './options.js';
import { startTimer } from './timer.js';

/** Runs the model's part. Throws `Llm.Unavailable` at the deadline of the summary. */
export async function summarizeInTime(run: CompactionRun, plan: Plan): Promise<Summarized> {
  run.page.phase('summarizing');
  const deadlineMs = Math.max(1, msToDeadline(plan));
  const scope = new CancellationScope();
  return scope.run(async () => {
    const deadline = startTimer(deadlineMs, 'deadline of the summary', () => scope.cancel());
    try {
      return await summarize(plan, modelSteps(run, plan, deadlineMs), run.page);
    } catch (error) {
      if (!isCancellation(error) || !deadline.fired) throw error;
      const message = `no summary within ${count(plan.summarizer.deadlineMs)} ms`;
      throw ApplicationFailure.nonRetryable(message, 'Llm.Unavailable');
    } finally {
      // Ends the timer and, after a failure, the other calls in flight.
      scope.cancel();
    }
  });
}

/** Adapts activities to the steps of `summarize`. */
function modelSteps(run: CompactionRun, plan: Plan, deadlineMs: number): ModelSteps {
  const { summarizeChunk, consolidate, changeState } = modelActivities(deadlineMs);
  const { baseGeneration, summarizer } = plan;
  const payer = { ...run.ids, baseGeneration, ahead: run.ahead };
  const answered: Answered[] = [];
  let inFlight = 0;
  return {
    readChunk: (step, label) =>
      ask(step, (more) =>
        summarizeChunk.executeWithOptions({ summary: label }, [{ ...payer, step, summarizer, ...more }]),
      ),
    merge: (step, label) =>
      ask(step, (more) =>
        consolidate.executeWithOptions({ summary: label }, [{ ...payer, step, summarizer, ...more }]),
      ),
    changeState: (step, label) =>
      ask(step, (more) =>
        changeState.executeWithOptions({ summary: label }, [{ ...payer, step, summarizer, ...more }]),
      ),
    overflow: (error) => {
      const failure = failureOf(error);
      if (failure?.type !== 'Llm.ContextOverflow') return null;
      const [detail] = failure.details as [{ halves?: [ChunkRef, ChunkRef] | null }?];
      return { halves: detail?.halves ?? null };
    },
    failed: (type, message) => ApplicationFailure.nonRetryable(message, type),
  };

  async function ask<Answer extends LastAnswer | null>(
    step: Answered['step'],
    call: (more: { completes?: Completion }) => Promise<Answer>,
  ): Promise<Answer> {
    const more = mayBeLast() ? { completes: completionOf(run, plan, answered) } : {};
    inFlight++;
    try {
      const answer = await call(more);
      if (answer === null) return answer;
      const { committed, ...digest } = answer;
      if (committed) run.committed = committed;
      run.answers.push(digest);
      answered.push({ step, answer: digest });
      return answer;
    } finally {
      inFlight--;
    }
  }

  /** After a failed attempt at the model's part, the commit is a step of its own, which knows the answers of all attempts. */
  function mayBeLast(): boolean {
    const isFirstAttempt = run.answers.length === answered.length;
    return (
      run.lastAnswerCommits === true &&
      isFirstAttempt &&
      inFlight === 0 &&
      answered.length + 1 >= plan.chunks.length
    );
  }
}

function completionOf(
  { force, settles }: CompactionRun,
  plan: Plan,
  answered: readonly Answered[],
): Completion {
  const { startTime, workflowId, runId } = workflowInfo();
  const startedAt = startTime.getTime();
  return { force, settles, startedAt, workflowId, runId, plan, answered: [...answered] };
}
