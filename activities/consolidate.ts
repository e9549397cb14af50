import type { SummarizerSettings } from '../src/compaction/plan/plan-types.js';
import { mergedByRule } from '../src/compaction/replace/by-rule.js';
import { mergeNotesQuestion, mergeQuestion } from '../src/compaction/summarize/questions.js';
import type { DigestRef, MergeStep } from '../src/compaction/summarize/model-steps.js';
import { askingFor, digestText, previousOf } from './asking.js';
import { beforeCommit, type Completion, type LastAnswer, withCommit } from './last-answer.js';
import { type Attempt, type Dependencies, runModelStep } from './run.js';
import { answerOnce, failsForGood, storeByRule, type Payer } from './digest.js';

export interface ConsolidateInput extends Payer {
  step: MergeStep;
  summarizer: SummarizerSettings;
  completes?: Completion;
}

/**
 * Merges neighbouring digests into one; at the root, it also merges the previous snapshot. If the model fails permanently and
 * the step allows it, the notes are merged by rule.
 */
export function consolidate(dependencies: Dependencies) {
  return ({ completes, ...input }: ConsolidateInput): Promise<LastAnswer> =>
    runModelStep('consolidate', async (attempt) => {
      const meanwhile = beforeCommit(dependencies, input, completes, attempt.signal);
      const answer = await merged(dependencies, input, attempt, meanwhile);
      return withCommit(dependencies, input, completes, { step: input.step, answer }, attempt.signal);
    });
}

async function merged(
  dependencies: Dependencies,
  { step, summarizer, ...payer }: Omit<ConsolidateInput, 'completes'>,
  attempt: Attempt,
  meanwhile?: () => Promise<void>,
): Promise<DigestRef> {
  const [asking, previous] = await Promise.all([
    askingFor(dependencies, payer, summarizer, attempt.signal, step.notes ? 'journal' : 'snapshot'),
    step.root ? previousOf(dependencies, payer, step.foldGeneration) : null,
  ]);
  const texts = (keys: readonly string[]) =>
    Promise.all(keys.map((key) => digestText(dependencies, payer, key)));
  const question = step.notes
    ? mergeNotesQuestion(asking, step, texts)
    : mergeQuestion(asking, step, previous, texts);
  try {
    return await answerOnce(dependencies, asking, question, payer, attempt, meanwhile);
  } catch (error) {
    if (step.rulesServe !== true || !failsForGood(error, attempt)) throw error;
    const made = mergedByRule(asking, await texts(step.digests), step.maxTokens);
    return storeByRule(dependencies, asking, made, payer, error.type, attempt);
  }
}
