import { digestByRule, isOfChunk } from '../src/compaction/replace/by-rule.js';
import {
  chunkQuestion,
  halvesOf,
  notedAs,
  notesQuestion,
  type NotesAround,
} from '../src/compaction/summarize/questions.js';
import type { ChunkStep, NotesStep } from '../src/compaction/summarize/model-steps.js';
import { isFailure } from '../src/errors.js';
import { readNotes } from '../src/summary/journal/notes.js';
import type { LoggedMessage } from '../src/conversation/message.js';
import { readMembers, readMessages } from '../src/store/log/messages.js';
import { isDrawnAgain, toApplicationFailure } from '../src/temporal/failures.js';
import type { SessionIds } from '../src/contract/ids.js';
import { askingFor, digestTexts, followingOf, previousOf, stateOf } from './asking.js';
import { type LastAnswer, type ModelStepInput, runCompleting } from './last-answer.js';
import { type Attempt, type Dependencies, noteRefusal } from './run.js';
import { answerOnce, type Stored, storeByRule } from './digest.js';

/**
 * Summarizes one slice of the originals. A stored digest is returned without a call. If the model fails permanently at this
 * slice and the step allows it, the rules write the digest and the reference says so. Fails with `Llm.ContextOverflow` and
 * `details: [{ halves: [ChunkRef, ChunkRef] | null }]` if the slice does not fit. The last answer of a compaction is committed at once.
 */
export function summarizeChunk(dependencies: Dependencies) {
  return (given: ModelStepInput<ChunkStep>): Promise<LastAnswer> =>
    runCompleting('summarize chunk', dependencies, given, (input, attempt, meanwhile) =>
      digestOf(dependencies, input, attempt, meanwhile),
    );
}

async function digestOf(
  dependencies: Dependencies,
  { step, summarizer, ...payer }: Omit<ModelStepInput<ChunkStep>, 'completes'>,
  attempt: Attempt,
  meanwhile?: () => Promise<void>,
): Promise<Stored> {
  const { pool } = dependencies;
  const { fromSeq, throughSeq } = step.chunk;
  const { notes } = step;
  let reading: Promise<LoggedMessage[]> | undefined;
  const originals = () => (reading ??= readMessages(pool, payer, fromSeq, throughSeq));
  const [asking, members, previous, state] = await Promise.all([
    askingFor(dependencies, payer, summarizer, attempt.signal, notes ? 'journal' : 'snapshot'),
    readMembers(pool, payer, fromSeq, throughSeq),
    step.fold ? previousOf(dependencies, payer, step.foldGeneration) : null,
    notes ? stateOf(dependencies, payer, payer.baseGeneration) : '',
    // The key depends on the redacted texts.
    summarizer.redaction === '' ? null : originals(),
  ]);
  try {
    if (!notes) {
      const question = await chunkQuestion(asking, step, members, previous, originals);
      return await answerOnce(dependencies, asking, question, payer, attempt, meanwhile);
    }
    const around = () => aroundOf(dependencies, payer, notes, state);
    const question = await notesQuestion(asking, step, members, around, originals);
    const { digest, text } = await answerOnce(dependencies, asking, question, payer, attempt, meanwhile);
    return { digest: { ...digest, ...notedAs(text, state, asking.counter) }, text };
  } catch (error) {
    if (!isFailure(error) || isDrawnAgain(error, attempt.draw)) throw error;
    const overflows = error.type === 'Llm.ContextOverflow';
    const halves = overflows ? await halvesOf(asking, step.chunk, await originals()) : null;
    const rulesServe = step.rulesServe === true && halves === null && isOfChunk(error);
    const made = rulesServe ? await digestByRule(asking, step, await originals()) : null;
    if (made) noteRefusal('summarize chunk', error);
    if (made) return await storeByRule(dependencies, asking, made, payer, error.type, attempt);
    if (!overflows) throw error;
    noteRefusal('summarize chunk', error);
    throw toApplicationFailure(error, { attempt: attempt.number, drawn: true, details: [{ halves }] });
  }
}

/** Loads the material that accompanies a chunk. */
async function aroundOf(
  dependencies: Dependencies,
  ids: SessionIds,
  { before, followsFromSeq, stateTokens }: NotesStep,
  state: string,
): Promise<NotesAround> {
  const [[text = null], follows] = await Promise.all([
    digestTexts(dependencies, ids, before?.key ? [before.key] : []),
    followsFromSeq === null ? [] : followingOf(dependencies, ids, followsFromSeq),
  ]);
  return {
    before: before && { throughSeq: before.throughSeq, text: text === null ? null : readNotes(text).notes },
    follows,
    state: stateTokens === null ? null : { text: state, maxTokens: stateTokens },
  };
}
