import type { Plan } from '../plan/plan-types.js';
import { type ChunkStep, type DigestRef, type MergeStep, spansOf, type StateStep } from './model-steps.js';
import { summarize, type Summarized } from './summarize.js';

type Step = ChunkStep | MergeStep | StateStep;

/** A model call of a compaction, and its answer. */
export interface Answered {
  step: Step;
  answer: DigestRef;
}

/** A call must be made whose answer is not known. */
class Missing extends Error {}

/** The model's results, if these answers are all that the plan needs; otherwise null. */
export async function summarizedBy(plan: Plan, answered: readonly Answered[]): Promise<Summarized | null> {
  const answers = new Map(answered.map(({ step, answer }) => [JSON.stringify(step), answer]));
  const known = (step: Step): Promise<DigestRef> => {
    const answer = answers.get(JSON.stringify(step));
    return answer ? Promise.resolve(answer) : Promise.reject(new Missing());
  };
  const steps = {
    ...{ readChunk: known, merge: known, changeState: known },
    overflow: () => null,
    failed: () => new Missing(),
  };
  try {
    return await summarize(plan, steps, { chunk: () => undefined, consolidating: () => undefined });
  } catch (error) {
    if (error instanceof Missing) return null;
    throw error;
  }
}

/** What a commit says of the model's results. `answers`: also those of failed attempts. */
export function resultsOf(
  { chunks, snapshot, layers, changes, messages, ...summarized }: Summarized,
  answers: readonly DigestRef[],
) {
  return {
    written: { chunks, snapshot, layers, messages, ...(changes === undefined ? {} : { changes }) },
    chunksByRule: summarized.chunksByRule,
    chunkFailure: summarized.failure,
    digests: summarized.digests,
    paid: [...new Set(answers.map(({ key }) => key))],
    modelSpans: spansOf(answers),
  };
}
