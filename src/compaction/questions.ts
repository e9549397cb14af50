/** What a summarizer is asked for one chunk, one merge or one repair, under which key the answer is kept, and what is accepted. */
import type { LoggedMessage } from '../conversation/message.js';
import type { Redact } from '../conversation/redact.js';
import { renderMessage } from '../conversation/render.js';
import { PalimpsestError } from '../errors.js';
import { acceptDigest, acceptSnapshot, draftOf } from '../summary/accept.js';
import { digestKey, halveChunk, readBy, transcriptOf, type ChunkRef } from '../summary/chunk.js';
import {
  chunkRequest,
  foldRequest,
  mergeRequest,
  type PromptSettings,
  type SummaryRequest,
} from '../summary/prompts.js';
import { relocateToolClaims } from '../summary/provenance.js';
import { repairRequest, type RepairProblem } from '../summary/repair.js';
import { readAhead, sourcesIn, type Sources } from '../summary/sources.js';
import { readSummary } from '../summary/structured.js';
import type { TokenCounter } from '../tokens/counter.js';
import type { SummarizerSettings } from './plan-types.js';
import { readable } from './secrets.js';
import type { ChunkStep, MergeStep } from './summarize.js';

/** Same for every call of one compaction. */
export interface Asking {
  tenant: string;
  summarizer: SummarizerSettings;
  prompt: PromptSettings;
  /** Takes out of a text what no summarizer may see. */
  redact: Redact;
  counter: TokenCounter;
}

export interface Question {
  kind: 'chunk' | 'fold' | 'merge' | 'repair';
  /** Content key: the same question finds the stored answer. */
  key: string;
  prepare(): Promise<Prepared>;
}

export interface Prepared {
  request: SummaryRequest;
  /** Tokens of the request. Counted while the model is at work, because that takes as long as sending it. */
  tokens(): number;
  /** The text to store. Throws `Llm.BadOutput` or `Summary.NotSmaller`. */
  accept(answer: string): string;
}

/** A snapshot that texts are folded with. */
export interface Previous {
  text: string;
  /** Hex. */
  sha256: string;
}

/** Fewest tokens asked of a digest. */
const shortestDigest = 64;

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
  // A short slice deserves a shorter digest, not one of its own length.
  const maxTokens = Math.min(step.maxTokens, Math.max(shortestDigest, Math.floor(chunk.tokens / 2)));
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
      return {
        request: requestWith(transcript, before),
        // The material is counted once, and what is around it; its words are read in the same time.
        tokens: once(() => {
          if (asking.prompt.checksOrigins) sources();
          return inputTokens() + countRequest(requestWith('', null), counter);
        }),
        accept: (answer) => {
          const text = readAnswer(asking, answer, sources);
          const limits = { inputTokens: inputTokens(), counter, sections: asking.prompt.sections };
          return fold
            ? draftOf(text, { ...limits, maxTokens: asking.summarizer.snapshotCeiling })
            : acceptDigest(text, { ...limits, maxTokens });
        },
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
      const inputTokens = coveredTokens + (before === null ? 0 : counter.count(before));
      return {
        request,
        tokens: once(() => countRequest(request, counter)),
        accept: (answer) => {
          const text = readAnswer(asking, answer, () => sourcesIn([], [before, ...texts]));
          const limits = { inputTokens, counter, sections: asking.prompt.sections };
          return root
            ? draftOf(text, { ...limits, maxTokens: asking.summarizer.snapshotCeiling })
            : acceptDigest(text, { ...limits, maxTokens });
        },
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
      const request = repairRequest({ snapshot, missing, problem, maxTokens, key, prompt: asking.prompt });
      return {
        request,
        tokens: once(() => countRequest(request, counter)),
        // There is no second repair: one that is too long comes to nothing, and the first snapshot has to do.
        accept: (answer) =>
          acceptSnapshot(
            readAnswer(asking, answer, () => sourcesIn([], [snapshot])),
            {
              inputTokens: Infinity,
              maxTokens: asking.summarizer.snapshotCeiling,
              counter,
              sections: asking.prompt.sections,
            },
          ),
      };
    },
  };
}

/** Characters. Thoughts included, no summary comes near it; looking for one in megabytes of markup takes long. */
const LONGEST_ANSWER = 1_000_000;

/** The summary in an answer, with what only tools said where it belongs. */
function readAnswer({ prompt, redact }: Asking, answer: string, sources: () => Sources): string {
  if (answer.length > LONGEST_ANSWER) {
    throw new PalimpsestError('Llm.BadOutput', `the answer has ${answer.length} characters`, {
      hint: 'No summary is that long: the model repeats itself, or something else answered.',
    });
  }
  const text = readSummary(answer, prompt);
  return redact(prompt.checksOrigins ? relocateToolClaims(text, sources(), prompt.sections) : text);
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
