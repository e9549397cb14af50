import { isFailure } from '../src/errors.js';
import { renderMessage } from '../src/conversation/render.js';
import { acceptDigest, acceptSnapshot } from '../src/summary/accept.js';
import { digestKey, halveChunk, transcriptOf, type ChunkRef } from '../src/summary/chunk.js';
import { chunkRequest, foldRequest, PROMPT_VERSION } from '../src/summary/prompts.js';
import { loadCompaction } from '../src/store/compactions.js';
import { readMembers, readMessages } from '../src/store/messages.js';
import { toApplicationFailure } from '../src/temporal/failures.js';
import type { SessionIds } from '../src/temporal/names.js';
import { counterFor } from '../src/tokens/counter.js';
import type { Dependencies } from './dependencies.js';
import { answerOnce, counted, countRequest, type DigestRef } from './digest.js';
import type { SummarizerSettings } from './plan.js';
import { runModelStep } from './run.js';

/** Tokens. */
const shortestDigest = 64;

export interface SummarizeChunkInput extends SessionIds {
  baseGeneration: number;
  chunk: ChunkRef;
  /** The range fits one request: fold it with the previous snapshot right away, the result is the new snapshot. */
  fold: boolean;
  summarizer: SummarizerSettings;
}

/**
 * Summarizes one slice of the evicted originals. A stored digest is returned without a call.
 * Fails with `Llm.ContextOverflow` and `details: [{ halves: [ChunkRef, ChunkRef] | null }]` where the slice does not fit.
 */
export function summarizeChunk({ pool, model }: Dependencies) {
  return ({ chunk, fold, summarizer, baseGeneration, ...ids }: SummarizeChunkInput): Promise<DigestRef> =>
    runModelStep('summarize chunk', async (attempt) => {
      const counter = counterFor(summarizer.tokenizer);
      const members = await readMembers(pool, ids, chunk.fromSeq, chunk.throughSeq);
      const previous = fold ? await loadCompaction(pool, ids, baseGeneration) : null;
      const most = fold ? summarizer.snapshotTokens : summarizer.digestTokens;
      // A short slice deserves a shorter digest, not one of its own length.
      const maxTokens = Math.min(most, Math.max(shortestDigest, Math.floor(chunk.tokens / 2)));
      const key = digestKey({
        tenant: ids.tenant,
        kind: fold ? 'fold' : 'chunk',
        members: [
          ...(previous?.snapshot ? [`snapshot ${previous.snapshotSha256}`] : []),
          ...members.map(({ seq, sha256 }) => sha256 + slice(chunk, seq)),
        ],
        promptVersion: PROMPT_VERSION,
        model: summarizer.model,
        limits: { maxTokens, chunkTokens: summarizer.chunkTokens },
      });
      const readOriginals = () => readMessages(pool, ids, chunk.fromSeq, chunk.throughSeq);
      try {
        return await answerOnce(
          { pool, model, ids, baseGeneration, key, kind: fold ? 'fold' : 'chunk', summarizer, attempt },
          async () => {
            const transcript = transcriptOf(chunk, await readOriginals());
            const snapshot = previous?.snapshot ?? null;
            const inputTokens = counted(
              () => counter.count(transcript) + (snapshot ? counter.count(snapshot) : 0),
            );
            const requestWith = (text: string, before: string | null) =>
              fold
                ? foldRequest({ previous: before, digests: [], transcript: text, key, maxTokens })
                : chunkRequest({ transcript: text, key, maxTokens });
            return {
              request: requestWith(transcript, snapshot),
              // The material is counted once, and what is around it.
              tokens: counted(() => inputTokens() + countRequest(requestWith('', null), counter)),
              accept: (text) =>
                fold
                  ? acceptSnapshot(text, {
                      inputTokens: inputTokens(),
                      maxTokens: summarizer.snapshotCeiling,
                      counter,
                    })
                  : acceptDigest(text, { inputTokens: inputTokens(), maxTokens, counter }),
            };
          },
        );
      } catch (error) {
        if (!isFailure(error, 'Llm.ContextOverflow')) throw error;
        const originals = await readOriginals();
        const halves = halveChunk(
          chunk,
          originals.map((logged) => ({
            seq: logged.seq,
            tokens: logged.tokens,
            text: () => renderMessage(logged),
          })),
          counter,
        );
        throw toApplicationFailure(error, { attempt: attempt.number, drawn: true, details: [{ halves }] });
      }
    });
}

/** Which part of a member the chunk reads; empty for the whole. */
function slice({ fromSeq, fromChar, throughSeq, throughChar }: ChunkRef, seq: number): string {
  const from = seq === fromSeq ? fromChar : 0;
  const to = seq === throughSeq ? throughChar : null;
  return from === 0 && to === null ? '' : `:${from}-${to ?? ''}`;
}
