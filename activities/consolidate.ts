import type { SummarizerSettings } from '../src/compaction/plan/plan-types.js';
import { mergeNotesQuestion, mergeQuestion } from '../src/compaction/summarize/questions.js';
import type { DigestRef, MergeStep } from '../src/compaction/summarize/model-steps.js';
import type { SessionIds } from '../src/contract/ids.js';
import { askingFor, digestText, previousOf } from './asking.js';
import type { Dependencies } from './dependencies.js';
import { answerOnce } from './digest.js';
import { runModelStep } from './run.js';

export interface ConsolidateInput extends SessionIds {
  baseGeneration: number;
  step: MergeStep;
  summarizer: SummarizerSettings;
}

/** Merges neighbouring digests into one; at the root, together with the previous snapshot. */
export function consolidate(dependencies: Dependencies) {
  return ({ step, summarizer, ...payer }: ConsolidateInput): Promise<DigestRef> =>
    runModelStep('consolidate', async (attempt) => {
      const [asking, previous] = await Promise.all([
        askingFor(dependencies, payer, summarizer, attempt.signal, step.notes ? 'journal' : 'snapshot'),
        step.root ? previousOf(dependencies, payer, step.foldGeneration) : null,
      ]);
      const texts = (keys: readonly string[]) =>
        Promise.all(keys.map((key) => digestText(dependencies, payer, key)));
      const question = step.notes
        ? mergeNotesQuestion(asking, step, texts)
        : mergeQuestion(asking, step, previous, texts);
      return answerOnce(dependencies, asking, question, payer, attempt);
    });
}
