import { ApplicationFailure, CancellationScope, isCancellation } from '@temporalio/workflow';
import type { Plan } from '../src/compaction/plan/plan-types.js';
import type { DigestRef, ModelSteps } from '../src/compaction/summarize/model-steps.js';
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
function modelSteps(
  { ids, answers, ahead }: CompactionRun,
  { baseGeneration, summarizer }: Plan,
  deadlineMs: number,
): ModelSteps {
  const { summarizeChunk, consolidate, changeState } = modelActivities(deadlineMs);
  const payer = { ...ids, baseGeneration, ahead };
  return {
    readChunk: async (step, label) =>
      noted(await summarizeChunk.executeWithOptions({ summary: label }, [{ ...payer, step, summarizer }])),
    merge: async (step, label) =>
      noted(await consolidate.executeWithOptions({ summary: label }, [{ ...payer, step, summarizer }])),
    changeState: async (step, label) => {
      const answer = await changeState.executeWithOptions({ summary: label }, [
        { ...payer, step, summarizer },
      ]);
      return answer && noted(answer);
    },
    overflow: (error) => {
      const failure = failureOf(error);
      if (failure?.type !== 'Llm.ContextOverflow') return null;
      const [detail] = failure.details as [{ halves?: [ChunkRef, ChunkRef] | null }?];
      return { halves: detail?.halves ?? null };
    },
    failed: (type, message) => ApplicationFailure.nonRetryable(message, type),
  };

  function noted(answer: DigestRef): DigestRef {
    answers.push(answer);
    return answer;
  }
}
