import type { LoggedMessage } from '../../conversation/message.js';
import { renderMessage } from '../../conversation/render.js';
import { digestKey, halveChunk, readBy, transcriptOf, type ChunkRef } from '../../summary/ask/chunk.js';
import { chunkRequest, foldRequest, mergeRequest, type SummaryRequest } from '../../summary/ask/prompts.js';
import { repairRequest, type RepairProblem } from '../../summary/ask/repair.js';
import { readAhead, sourcesIn } from '../../summary/origins/sources.js';
import type { TokenCounter } from '../../tokens/token-counter.js';
import { groundOf, storable, type Asking } from './answers.js';
import { readable } from '../../summary/redaction/withheld.js';
import type { ChunkStep, MergeStep } from './model-steps.js';

/** A question to the summarizer about one chunk, merge or repair: the key of its answer, the request, and the check of the answer. */
export interface Question {
  kind: 'chunk' | 'fold' | 'merge' | 'repair';
  /** Content key: the same question finds the stored answer. */
  key: string;
  prepare: () => Promise<Prepared>;
}

interface Prepared {
  request: SummaryRequest;
  /** Tokens of the request. Counted while the model is at work, because that takes as long as sending it. */
  tokens: () => number;
  /** The text to store. Throws `Llm.BadOutput` or `Summary.NotSmaller`. */
  accept: (answer: string) => string;
}

/** A snapshot that texts are folded with. */
export interface Previous {
  text: string;
  /** Hex. */
  sha256: string;
}

/** Fewest tokens asked of a digest. */
const shortestDigest = 64;

/** Tokens asked of a chunk's digest: a short slice deserves a shorter one, not one of its own length. */
export function digestTokens({ tokens }: ChunkRef, maxTokens: number): number {
  return Math.min(maxTokens, Math.max(shortestDigest, Math.floor(tokens / 2)));
}

export function chunkQuestion(
  asking: Asking,
  step: ChunkStep,
  members: readonly { seq: number; sha256: string }[],
  previous: Previous | null,
  originals: () => Promise<readonly LoggedMessage[]>,
): Question {
  const { chunk, fold } = step;
  const { counter } = asking;
  const kind = fold ? 'fold' : 'chunk';
  const maxTokens = digestTokens(chunk, step.maxTokens);
  const key = digestKey({
    ...keyParts(asking),
    kind,
    // Transcripts name messages by number, so equal texts at other places are other questions.
    members: [
      ...snapshotMember(previous),
      `from ${chunk.fromSeq}`,
      ...members.map(({ seq, sha256 }) => sha256 + sliceOf(chunk, seq)),
    ],
    limits: { maxTokens, chunkTokens: asking.summarizer.chunkTokens },
  });
  return {
    kind,
    key,
    async prepare() {
      const messages = await readable(await originals(), asking.summarizer, asking.redact);
      const transcript = transcriptOf(chunk, messages);
      const sources = once(() => readAhead(sourcesIn(readBy(chunk, messages), [before])));
      const requestWith = (text: string, before: string | null) =>
        fold
          ? foldRequest({
              previous: before,
              digests: [],
              transcript: text,
              key,
              maxTokens,
              prompt: asking.prompt,
            })
          : chunkRequest({ transcript: text, key, maxTokens, prompt: asking.prompt });
      const before = previous ? asking.redact(previous.text) : null;
      const inputTokens = once(
        () => counter.count(transcript) + (before === null ? 0 : counter.count(before)),
      );
      const ground = once(() => groundOf([before, transcript], requestWith('', null)));
      return {
        request: requestWith(transcript, before),
        // The material is counted once, and what is around it; its words are read in the same time.
        tokens: once(() => {
          if (asking.prompt.checksOrigins) sources();
          ground();
          return inputTokens() + countRequest(requestWith('', null), counter);
        }),
        accept: (answer) =>
          storable(asking, answer, {
            ...{ kind: fold ? 'draft' : 'digest', maxTokens, inputTokens: inputTokens() },
            ...{ ground: ground(), sources },
          }),
      };
    },
  };
}

export function mergeQuestion(
  asking: Asking,
  { digests, coveredTokens, root, maxTokens }: MergeStep,
  previous: Previous | null,
  textsOf: (keys: readonly string[]) => Promise<string[]>,
): Question {
  const { counter } = asking;
  const kind = root ? 'fold' : 'merge';
  const key = digestKey({
    ...keyParts(asking),
    kind,
    members: [...snapshotMember(previous), ...digests],
    limits: { maxTokens },
  });
  return {
    kind,
    key,
    async prepare() {
      const texts = await textsOf(digests);
      const before = previous ? asking.redact(previous.text) : null;
      const asked = { digests: texts, key, maxTokens, prompt: asking.prompt };
      const request = root ? foldRequest({ ...asked, previous: before }) : mergeRequest(asked);
      const empty = { ...asked, digests: [] };
      const ground = () =>
        groundOf([before, ...texts], root ? foldRequest({ ...empty, previous: null }) : mergeRequest(empty));
      const inputTokens = coveredTokens + (before === null ? 0 : counter.count(before));
      return {
        request,
        tokens: once(() => countRequest(request, counter)),
        accept: (answer) =>
          storable(asking, answer, {
            ...{ kind: root ? 'draft' : 'digest', maxTokens, inputTokens },
            ground: ground(),
            sources: () => sourcesIn([], [before, ...texts]),
          }),
      };
    },
  };
}

/** Asks once more for a snapshot that was too long, or had dropped what must not be dropped. */
export function repairQuestion(
  asking: Asking,
  snapshotKey: string,
  problem: RepairProblem,
  found: () => Promise<{ snapshot: string; missing: readonly string[] }>,
): Question {
  const { counter } = asking;
  const maxTokens = asking.summarizer.snapshotTokens;
  const key = digestKey({
    ...keyParts(asking),
    kind: 'repair',
    members: [snapshotKey, problem],
    limits: { maxTokens },
  });
  return {
    kind: 'repair',
    key,
    async prepare() {
      const { snapshot, missing } = await found();
      const asked = { problem, maxTokens, key, prompt: asking.prompt };
      const request = repairRequest({ ...asked, snapshot, missing });
      return {
        request,
        tokens: once(() => countRequest(request, counter)),
        // There is no second repair: one that is too long comes to nothing, and the first snapshot has to do.
        accept: (answer) =>
          storable(asking, answer, {
            ...{ kind: 'snapshot', maxTokens, inputTokens: Infinity },
            ground: groundOf([snapshot, ...missing], repairRequest({ ...asked, snapshot: '', missing: [] })),
            sources: () => sourcesIn([], [snapshot]),
          }),
      };
    },
  };
}

/** The two halves of a chunk that did not fit; null where it cannot be halved any more. */
export async function halvesOf(
  { counter, summarizer, redact }: Asking,
  chunk: ChunkRef,
  originals: readonly LoggedMessage[],
): Promise<[ChunkRef, ChunkRef] | null> {
  const items = (await readable(originals, summarizer, redact)).map((logged) => ({
    seq: logged.seq,
    tokens: logged.tokens,
    text: () => renderMessage(logged),
  }));
  return halveChunk(chunk, items, counter);
}

function keyParts({ tenant, summarizer, prompt }: Asking) {
  return { tenant, promptVersion: prompt.version, promptHash: prompt.hash, model: summarizer.model };
}

function snapshotMember(previous: Previous | null): string[] {
  return previous === null ? [] : [`snapshot ${previous.sha256}`];
}

/** Which part of a member the chunk reads; empty for the whole. */
function sliceOf({ fromSeq, fromChar, throughSeq, throughChar }: ChunkRef, seq: number): string {
  const from = seq === fromSeq ? fromChar : 0;
  const to = seq === throughSeq ? throughChar : null;
  return from === 0 && to === null ? '' : `:${from}-${to ?? ''}`;
}

/** Tokens of a request, each message with its framing. */
export function countRequest({ messages }: SummaryRequest, counter: TokenCounter): number {
  return messages.reduce((sum, { content }) => sum + counter.count(content) + 4, 0);
}

/** The same at every call, worked out at the first. */
function once<T extends number | object>(work: () => T): () => T {
  let done: T | undefined;
  return () => (done ??= work());
}
