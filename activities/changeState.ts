import { stateQuestion } from '../src/compaction/summarize/questions.js';
import type { StateStep } from '../src/compaction/summarize/model-steps.js';
import { askingFor, digestTexts, followingOf, stateOf } from './asking.js';
import { type LastAnswer, type ModelStepInput, runCompleting } from './last-answer.js';
import type { Attempt, Dependencies } from './run.js';
import { answerOnce, failsForGood, type Stored } from './digest.js';

/**
 * Asks the model for the changes that new notes make to the state of the parent generation. Returns null if the model fails
 * permanently; in this case the state stays unchanged.
 */
export function changeState(dependencies: Dependencies) {
  return (given: ModelStepInput<StateStep>): Promise<LastAnswer | null> =>
    runCompleting('change state', dependencies, given, (input, attempt, meanwhile) =>
      changesOf(dependencies, input, attempt, meanwhile),
    );
}

async function changesOf(
  dependencies: Dependencies,
  { step, summarizer, ...payer }: Omit<ModelStepInput<StateStep>, 'completes'>,
  attempt: Attempt,
  meanwhile?: () => Promise<void>,
): Promise<Stored | null> {
  const [asking, text] = await Promise.all([
    askingFor(dependencies, payer, summarizer, attempt.signal, 'journal'),
    stateOf(dependencies, payer, payer.baseGeneration),
  ]);
  const state = { text, maxTokens: step.maxTokens };
  const question = stateQuestion(
    asking,
    step.digests,
    state,
    () => followingOf(dependencies, payer, step.followsFromSeq),
    (keys) => digestTexts(dependencies, payer, keys),
  );
  try {
    return await answerOnce(dependencies, asking, question, payer, attempt, meanwhile);
  } catch (error) {
    if (failsForGood(error, attempt)) return null;
    throw error;
  }
}
