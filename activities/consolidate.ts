import { mergedByRule } from '../src/compaction/replace/by-rule.js';
import { mergeNotesQuestion, mergeQuestion } from '../src/compaction/summarize/questions.js';
import type { MergeStep } from '../src/compaction/summarize/model-steps.js';
import { askingFor, digestTexts, previousOf } from './asking.js';
import { type LastAnswer, type ModelStepInput, runCompleting } from './last-answer.js';
import type { Attempt, Dependencies } from './run.js';
import { answerOnce, failsForGood, type Stored, storeByRule } from './digest.js';

/**
 * Merges neighbouring digests into one; at the root, it also merges the previous snapshot. If the model fails permanently and
 * the step allows it, the notes are merged by rule.
 */
export function consolidate(dependencies: Dependencies) {
  return (given: ModelStepInput<MergeStep>): Promise<LastAnswer> =>
    runCompleting('consolidate', dependencies, given, (input, attempt, meanwhile) =>
      merged(dependencies, input, attempt, meanwhile),
    );
}

async function merged(
  dependencies: Dependencies,
  { step, summarizer, ...payer }: Omit<ModelStepInput<MergeStep>, 'completes'>,
  attempt: Attempt,
  meanwhile?: () => Promise<void>,
): Promise<Stored> {
  const [asking, previous] = await Promise.all([
    askingFor(dependencies, payer, summarizer, attempt.signal, step.notes ? 'journal' : 'snapshot'),
    step.root ? previousOf(dependencies, payer, step.foldGeneration) : null,
  ]);
  const texts = (keys: readonly string[]) => digestTexts(dependencies, payer, keys);
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
