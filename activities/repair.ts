import { makeReplacement } from '../src/compaction/replace/replacement.js';
import { repairQuestion } from '../src/compaction/summarize/questions.js';
import type { DigestRef } from '../src/compaction/summarize/model-steps.js';
import { PalimpsestError } from '../src/errors.js';
import { inSlices } from '../src/steps.js';
import type { RepairProblem } from '../src/summary/ask/repair.js';
import { askingFor } from './asking.js';
import { type Dependencies, runStep } from './run.js';
import { answerOnce } from './digest.js';
import { loadReplacement, type ReplacementRequest } from './replacement.js';

export interface RepairInput extends ReplacementRequest {
  /** `dropped` was reported by commits of earlier versions; the snapshot is then used as it is, without a request. */
  problem: RepairProblem | 'dropped';
}

/** Requests a snapshot once more if `commit` found it too long. If the new answer is no better, it is not requested again. */
export function repair(dependencies: Dependencies) {
  return ({ problem, ...request }: RepairInput): Promise<DigestRef> =>
    runStep('repair', async (attempt) => {
      const { plan, written } = request;
      const snapshot = written?.snapshot ?? null;
      if (snapshot === null) throw new PalimpsestError('Store.Corrupt', 'there is no snapshot to repair');
      const at = Date.now();
      if (problem === 'dropped')
        return { key: snapshot, tokens: 0, cached: true, startedAt: at, endedAt: at };
      const asking = await askingFor(dependencies, request, plan.summarizer, attempt.signal);
      const question = repairQuestion(asking, snapshot, problem, async () => {
        const { input } = await loadReplacement(
          dependencies,
          { ...request, repaired: false },
          attempt.signal,
        );
        const made = await inSlices(makeReplacement(input), attempt.signal);
        if ('repair' in made) return made;
        throw new PalimpsestError(
          'Store.StaleGeneration',
          'nothing is left to repair: the policy changed meanwhile',
        );
      });
      const { tenant, session } = request;
      const payer = { tenant, session, baseGeneration: plan.baseGeneration };
      return (await answerOnce(dependencies, asking, question, payer, attempt)).digest;
    });
}
