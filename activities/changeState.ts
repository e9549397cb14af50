import type { SummarizerSettings } from '../src/compaction/plan/plan-types.js';
import { stateQuestion } from '../src/compaction/summarize/questions.js';
import type { DigestRef, StateStep } from '../src/compaction/summarize/model-steps.js';
import { askingFor, digestText, followingOf, stateOf } from './asking.js';
import { beforeCommit, type Completion, type LastAnswer, withCommit } from './last-answer.js';
import { type Attempt, type Dependencies, runModelStep } from './run.js';
import { answerOnce, failsForGood, type Payer } from './digest.js';

export interface ChangeStateInput extends Payer {
  step: StateStep;
  summarizer: SummarizerSettings;
  completes?: Completion;
}

/**
 * Asks the model for the changes that new notes make to the state of the parent generation. Returns null if the model fails
 * permanently; in this case the state stays unchanged.
 */
export function changeState(dependencies: Dependencies) {
  return ({ completes, ...input }: ChangeStateInput): Promise<LastAnswer | null> =>
    runModelStep('change state', async (attempt) => {
      const meanwhile = beforeCommit(dependencies, input, completes, attempt.signal);
      const answer = await changesOf(dependencies, input, attempt, meanwhile);
      if (answer === null) return null;
      return withCommit(dependencies, input, completes, { step: input.step, answer }, attempt.signal);
    });
}

async function changesOf(
  dependencies: Dependencies,
  { step, summarizer, ...payer }: Omit<ChangeStateInput, 'completes'>,
  attempt: Attempt,
  meanwhile?: () => Promise<void>,
): Promise<DigestRef | null> {
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
    (keys) => Promise.all(keys.map((key) => digestText(dependencies, payer, key))),
  );
  try {
    return await answerOnce(dependencies, asking, question, payer, attempt, meanwhile);
  } catch (error) {
    if (failsForGood(error, attempt)) return null;
    throw error;
  }
}
