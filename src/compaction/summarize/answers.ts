/** The stored form of a model's answer: judged as the model wrote it, then with claims that only tools made moved to their section. */
import type { Redact } from '../../summary/redaction/redact.js';
import { PalimpsestError } from '../../errors.js';
import { acceptDigest, acceptSnapshot, digestLimit, draftOf } from '../../summary/answer/accept.js';
import { Ground } from '../../summary/answer/grounding.js';
import type { PromptSettings, SummaryRequest } from '../../summary/ask/prompts.js';
import { relocateToolClaims } from '../../summary/origins/provenance.js';
import type { Sources } from '../../summary/origins/sources.js';
import { readSummary } from '../../summary/answer/structured.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { SummarizerSettings } from '../plan/plan-types.js';

/** Same for every call of one compaction. */
export interface Asking {
  tenant: string;
  summarizer: SummarizerSettings;
  prompt: PromptSettings;
  /** Takes out of a text what no summarizer may see. */
  redact: Redact;
  counter: TokenCounter;
}

/** The request behind an answer, as the answer is judged by it. */
export interface Asked {
  kind: 'digest' | 'draft' | 'snapshot';
  /** The limit that was asked for. Drafts and snapshots are judged by the snapshot's own. */
  maxTokens: number;
  /** Tokens of what the answer stands for. */
  inputTokens: number;
  ground: Ground;
  sources: () => Sources;
}

/** Characters. Thoughts included, no summary comes near it; looking for one in megabytes of markup takes long. */
const LONGEST_ANSWER = 1_000_000;

/**
 * Throws `Llm.BadOutput` or `Summary.NotSmaller`. Labels of tools' claims are ours: they take no more room than the limit
 * leaves, so that an answer within it stays within it; what is left out with them counts in the answer's favour.
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

/** The summary in an answer. Throws `Llm.BadOutput` where there is far too much to look for one. */
export function answerText({ prompt }: Asking, answer: string): string {
  if (answer.length > LONGEST_ANSWER) {
    throw new PalimpsestError('Llm.BadOutput', `the answer has ${answer.length} characters`, {
      hint: 'No summary is that long: the model repeats itself, or something else answered.',
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

/** The record of a request, to compare its answer with; `empty`: the same request without it. */
export function groundOf(record: readonly (string | null)[], empty: SummaryRequest): Ground {
  const asked = empty.messages.map(({ content }) => content).join('\n');
  return new Ground(record.filter((text) => text !== null).join('\n'), asked);
}
