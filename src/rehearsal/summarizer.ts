/** Computes the requests and the largest answers of a summarizer without calling one. */
import type { Plan, SummarizerSettings } from '../compaction/plan/plan-types.js';
import { countRequest } from '../compaction/summarize/questions.js';
import { settingsOf } from '../compaction/plan/summarizer-settings.js';
import type { DigestRef, ModelSteps } from '../compaction/summarize/model-steps.js';
import { summarize } from '../compaction/summarize/summarize.js';
import type { LoggedMessage } from '../conversation/message.js';
import { openingTag, renderMessage } from '../conversation/render.js';
import { PalimpsestError } from '../errors.js';
import type { Limits } from '../limits/limits.js';
import type { Policy } from '../policy/defaults.js';
import { cutChunks, MESSAGE_LABEL_TOKENS, type ChunkRef } from '../summary/ask/chunk.js';
import { chunkRequest, promptSettings } from '../summary/ask/prompts.js';
import type { TokenCounter } from '../tokens/counter.js';

/** Requests to the summarizer and their tokens. */
export interface SummarizerUse {
  calls: number;
  input: number;
  output: number;
}

/** The messages that one compaction evicts, and the summary that the summarizer would merge them into. */
export interface Eviction {
  fromSeq: number;
  throughSeq: number;
  evicted: readonly LoggedMessage[];
  /** Everything before the cut, for the mode that reads all of it. */
  archive: readonly LoggedMessage[];
  /** Tokens of the current snapshot, 0 without one. */
  previousTokens: number;
}

/** No digest is requested at a smaller size. */
const shortestDigest = 64;

/** Tokens of the delimiters around a digest or a snapshot, and of the closing tag of a message. */
const delimiterTokens = 48;
const closingTokens = 3;
const noProgress = { chunk: () => {}, consolidating: () => {} };

/**
 * Follows the requests of each compaction in the order of the service, with the same chunks and the same tree. Every answer is
 * assumed to have its maximum length, and an answered request is not repeated.
 */
export class SummarizerEstimate {
  private readonly known = new Map<string, DigestRef>();
  private readonly promptTokens: number;

  constructor(
    private readonly policy: Policy,
    private readonly counter: TokenCounter,
  ) {
    const prompt = promptSettings(policy.summary);
    const empty = chunkRequest({ transcript: '', key: '0'.repeat(64), maxTokens: shortestDigest, prompt });
    this.promptTokens = countRequest(empty, counter);
  }

  /** `limits` are those in force, which an economic trigger adapts to the session. */
  async compaction(eviction: Eviction, limits: Limits): Promise<SummarizerUse> {
    const use: SummarizerUse = { calls: 0, input: 0, output: 0 };
    if (this.policy.summary.method === 'extractive') return use;
    await summarize(
      this.planOf(eviction, settingsOf(this.policy, limits)),
      this.steps(use, eviction),
      noProgress,
    );
    return use;
  }

  private planOf(
    { fromSeq, throughSeq, evicted, archive, previousTokens }: Eviction,
    summarizer: SummarizerSettings,
  ): Plan {
    const { mode, fallback } = this.policy.summary;
    const folds = mode === 'incremental' && previousTokens > 0;
    return {
      baseGeneration: 0,
      policyVersion: 1,
      reason: 'trigger',
      method: 'model',
      mode,
      fromSeq,
      throughSeq,
      carriedSeq: null,
      chunks: this.chunksOf(mode === 'full_rewrite' ? archive : evicted, summarizer),
      readFromSeq: mode === 'full_rewrite' ? 1 : fromSeq,
      foldGeneration: folds ? 0 : null,
      previousTokens: folds ? previousTokens : 0,
      layers: [],
      messages: [],
      reductions: 'policy',
      tokensBefore: 0,
      evictedMessages: evicted.length,
      evictedTokens: 0,
      partial: false,
      withoutModel: null,
      summarizer,
      fallback,
    };
  }

  private chunksOf(messages: readonly LoggedMessage[], { chunkTokens }: SummarizerSettings): ChunkRef[] {
    const items = messages.map((logged) => ({
      seq: logged.seq,
      tokens: logged.tokens,
      text: () => (logged.tokens > chunkTokens / 2 ? renderMessage(logged) : ''),
    }));
    return cutChunks(items, chunkTokens, this.counter);
  }

  /** Chunks are cut by the longest possible message labels; the request has each message's actual label. */
  private labelShare(messages: readonly LoggedMessage[]): number {
    let [labelled, atMost] = [0, 0];
    for (const { seq, message, tokens } of messages) {
      labelled += tokens + this.counter.count(openingTag(seq, message)) + closingTokens;
      atMost += tokens + MESSAGE_LABEL_TOKENS;
    }
    return atMost === 0 ? 1 : Math.min(1, labelled / atMost);
  }

  private steps(use: SummarizerUse, { throughSeq, previousTokens, evicted }: Eviction): ModelSteps {
    const share = this.labelShare(evicted);
    const snapshotTokens = previousTokens + delimiterTokens;
    const ask = (key: string, input: number, maxTokens: number): Promise<DigestRef> => {
      const stored = this.known.get(key);
      if (stored) return Promise.resolve({ ...stored, cached: true });
      const answer: DigestRef = { key, tokens: maxTokens, cached: false, startedAt: 0, endedAt: 0 };
      this.known.set(key, answer);
      use.calls += 1;
      use.input += this.promptTokens + input;
      use.output += maxTokens;
      return Promise.resolve(answer);
    };
    return {
      readChunk: ({ chunk, fold, foldGeneration, maxTokens }) => {
        const { fromSeq, fromChar, throughChar, tokens } = chunk;
        const answer = Math.min(maxTokens, Math.max(shortestDigest, Math.floor(tokens / 2)));
        const key = ['chunk', fromSeq, fromChar, chunk.throughSeq, throughChar, fold, maxTokens].join(' ');
        return ask(
          key,
          Math.ceil(tokens * share) + (fold && foldGeneration !== null ? snapshotTokens : 0),
          answer,
        );
      },
      merge: ({ digests, root, foldGeneration, maxTokens }) => {
        const read = digests.reduce(
          (sum, key) => sum + (this.known.get(key)?.tokens ?? 0) + delimiterTokens,
          0,
        );
        const previous = root && foldGeneration !== null;
        // A root is a different request at each compaction, because it merges a different snapshot.
        const key = [`merge of (${digests.join(', ')})`, maxTokens, previous ? throughSeq : ''].join(' ');
        return ask(key, read + (previous ? snapshotTokens : 0), maxTokens);
      },
      changeState: ({ digests, maxTokens }) => {
        const read = digests.reduce((sum, key) => sum + (this.known.get(key)?.tokens ?? 0), 0);
        return ask(`state after ${digests.join(', ')}`, read + maxTokens, maxTokens);
      },
      overflow: () => null,
      failed: (_type, message) => new PalimpsestError('Summary.DepthExceeded', message),
    };
  }
}
