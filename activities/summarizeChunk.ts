import type { SummarizerSettings } from '../src/compaction/plan-types.js';
import { chunkQuestion, halvesOf } from '../src/compaction/questions.js';
import type { ChunkStep, DigestRef } from '../src/compaction/summarize.js';
import { isFailure } from '../src/errors.js';
import { readMembers, readMessages } from '../src/store/messages.js';
import { toApplicationFailure } from '../src/temporal/failures.js';
import type { SessionIds } from '../src/temporal/names.js';
import { askingFor, previousOf } from './asking.js';
import type { Dependencies } from './dependencies.js';
import { answerOnce } from './digest.js';
import { runModelStep } from './run.js';

export interface SummarizeChunkInput extends SessionIds {
  baseGeneration: number;
  step: ChunkStep;
  summarizer: SummarizerSettings;
}

/**
 * Summarizes one slice of the originals. A stored digest is returned without a call.
 * Fails with `Llm.ContextOverflow` and `details: [{ halves: [ChunkRef, ChunkRef] | null }]` where the slice does not fit.
 */
export function summarizeChunk(dependencies: Dependencies) {
  return ({ step, summarizer, ...payer }: SummarizeChunkInput): Promise<DigestRef> =>
    runModelStep('summarize chunk', async (attempt) => {
      const { pool } = dependencies;
      const { fromSeq, throughSeq } = step.chunk;
      const [asking, members, previous] = await Promise.all([
        askingFor(dependencies, payer, summarizer, attempt.signal),
        readMembers(pool, payer, fromSeq, throughSeq),
        step.fold ? previousOf(dependencies, payer, step.foldGeneration) : null,
      ]);
      const originals = () => readMessages(pool, payer, fromSeq, throughSeq);
      try {
        const question = chunkQuestion(asking, step, members, previous, originals);
        return await answerOnce(dependencies, asking, question, payer, attempt);
      } catch (error) {
        if (!isFailure(error, 'Llm.ContextOverflow')) throw error;
        const halves = await halvesOf(asking, step.chunk, await originals());
        throw toApplicationFailure(error, { attempt: attempt.number, drawn: true, details: [{ halves }] });
      }
    });
}
