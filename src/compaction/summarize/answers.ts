/** The stored form of a model's answer: the answer is checked as written, then claims that only tools made move to their section. */
import type { Redact } from '../../summary/redaction/redact.js';
import { PalimpsestError } from '../../errors.js';
import { acceptDigest, acceptSnapshot, digestLimit, draftOf } from '../../summary/answer/accept.js';
import { Ground } from '../../summary/answer/grounding.js';
import type { PromptSettings, SummaryRequest } from '../../summary/ask/prompts.js';
import { relocateToolClaims } from '../../summary/origins/provenance.js';
import type { Sources } from '../../summary/origins/sources.js';
import { readSummary } from '../../summary/answer/structured.js';
import type { Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { SummarizerSettings } from '../plan/plan-types.js';

/** Settings shared by all calls of one compaction. */
export interface Asking {
  tenant: string;
  summarizer: SummarizerSettings;
  prompt: PromptSettings;
  /** Removes the parts of a text that a summarizer must not see. */
  redact: Redact;
  counter: TokenCounter;
}

/** The properties of a request by which its answer is judged. */
export interface Asked {
  kind: 'digest' | 'draft' | 'snapshot';
  /** The requested limit. Drafts and snapshots are judged by the snapshot's limit. */
  maxTokens: number;
  /** Tokens of the material that the answer replaces. */
  inputTokens: number;
  ground: Ground;
  sources: () => Sources;
}

/**
 * Maximum characters of an answer. Summaries are far shorter, even with reasoning; searching megabytes of markup for a summary
 * takes long.
 */
const LONGEST_ANSWER = 1_000_000;

/**
 * Returns the text to store for an answer. Throws `Llm.BadOutput` or `Summary.NotSmaller`. The labels that are added to tools'
 * claims never make an answer too long: the answer is judged as the model wrote it or, if moving the claims has made it
 * shorter, after the move.
 */
export function storable(asking: Asking, answer: string, asked: Asked): string {
  const { prompt, counter, redact } = asking;
  const text = answerText(asking, answer);
  const limit = asked.kind === 'digest' ? digestLimit(asked.maxTokens) : asking.summarizer.snapshotCeiling;
  const tokens = counter.count(text);
  const room = Math.max(tokens, Math.min(limit, asked.inputTokens - 1));
  const fits = (relocated: string) => counter.count(relocated) <= room;
  const relocated = relocateToolClaims(text, asked.sources(), prompt.sections, fits);
  accepted(asking, counter.count(relocated) < tokens ? relocated : text, asked);
  return redact(relocated);
}

/** The summary in an answer. Throws `Llm.BadOutput` if the answer is far too long. */
export function answerText({ prompt }: Asking, answer: string): string {
  if (answer.length > LONGEST_ANSWER) {
    throw new PalimpsestError('Llm.BadOutput', `the answer has ${answer.length} characters`, {
      hint: 'A summary is never that long: the model may repeat itself, or the endpoint may not be a model.',
    });
  }
  return readSummary(answer, prompt);
}

function accepted({ counter, prompt, summarizer }: Asking, text: string, asked: Asked): string {
  const { kind, inputTokens, ground } = asked;
  const limits = { inputTokens, counter, sections: prompt.sections };
  if (kind === 'digest') return acceptDigest(text, { ...limits, ground, maxTokens: asked.maxTokens });
  const ceiling = { ...limits, maxTokens: summarizer.snapshotCeiling };
  return kind === 'draft' ? draftOf(text, { ...ceiling, ground }) : acceptSnapshot(text, ceiling, ground);
}

/** The record of a request, with which its answer is compared; `empty`: the same request without the record. */
export function groundOf(record: readonly (string | null)[], empty: SummaryRequest): Steps<Ground> {
  const asked = empty.messages.map(({ content }) => content).join('\n');
  return Ground.reading(record.filter((text) => text !== null).join('\n'), asked);
}
