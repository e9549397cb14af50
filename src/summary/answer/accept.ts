/**
 * The only way in which text becomes a digest or a snapshot. Other systems replace the history by error texts, refusals and
 * empty answers (langchain-ai/langchain#38867); here the types exclude such texts.
 */
import { PalimpsestError } from '../../errors.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { Ground } from './grounding.js';
import { missingPins } from './pins.js';
import { layersOf, type Section, sections as builtIn } from './sections.js';
import { hasSections } from './snapshot.js';

declare const accepted: unique symbol;

/** The summary of one slice. */
export type Digest = string & { readonly [accepted]: 'digest' };

/** The consolidated summary of all evicted messages. */
export type Snapshot = string & { readonly [accepted]: 'snapshot' };

/** A well-formed summary that may be too long for a snapshot. It may be repaired, but never enters a context. */
export type Draft = string & { readonly [accepted]: 'draft' };

/** The sizes by which a text is accepted. */
export interface Acceptance {
  /** Tokens that the text replaces: the slice for a digest, all messages that the head replaces for a snapshot. */
  inputTokens: number;
  /** The requested limit. */
  maxTokens: number;
  counter: TokenCounter;
  /** The requested sections. */
  sections?: readonly Section[];
}

/** The acceptance of a model's answer, which must have content of its record. */
export interface AnswerAcceptance extends Acceptance {
  ground: Ground;
}

/**
 * Models overrun a limit given in words. A digest may exceed its limit by this factor, since it is read only once more; a
 * snapshot stays in the context and must not exceed its limit.
 */
const DIGEST_TOLERANCE = 1.5;

/** A draft beyond this factor cannot be shortened by a repair. */
const DRAFT_TOLERANCE = 3;

/** Maximum tokens of a digest with this requested limit. */
export function digestLimit(maxTokens: number): number {
  return Math.floor(maxTokens * DIGEST_TOLERANCE);
}

/**
 * The digest in a model's answer, without wrappers. Throws `Llm.BadOutput` for text that is not a summary (empty, or without
 * content of its record, such as refusals and error texts), and `Summary.NotSmaller` if it is not smaller than its source or far
 * above its limit.
 */
export function acceptDigest(text: string, { maxTokens, ground, ...rest }: AnswerAcceptance): Digest {
  const limits = { ...rest, maxTokens: digestLimit(maxTokens) };
  return accept(text, 'digest', limits, ground) as Digest;
}

/**
 * Accepts a snapshot of the extractive summarizer, or an accepted draft; `ground` as for an answer. Throws like
 * {@link acceptDigest}; never trims.
 */
export function acceptSnapshot(text: string, limits: Acceptance, ground?: Ground): Snapshot {
  return accept(text, 'snapshot', limits, ground) as Snapshot;
}

/**
 * Accepts a journal that `layeredSnapshot` joined from accepted entries. The text stays unchanged, so that its beginning never
 * changes. Throws like {@link acceptDigest}, and also if a layer is empty.
 */
export function acceptLayered(text: string, { sections, ...size }: Acceptance): Snapshot {
  const layers = layersOf(text);
  for (const layer of layers) refuseEmpty(layer, 'layer', sections);
  if (layers.length === 0) refuseEmpty(text, 'snapshot', sections);
  refuseSize(text, 'snapshot', size);
  return text as Snapshot;
}

/** Accepts a well-formed summary of at most three times the requested length, which a repair may make a snapshot. Throws like {@link acceptDigest}. */
export function draftOf(text: string, { maxTokens, ground, ...rest }: AnswerAcceptance): Draft {
  const limits = { ...rest, maxTokens: maxTokens * DRAFT_TOLERANCE, inputTokens: Infinity };
  return accept(text, 'draft', limits, ground) as Draft;
}

function accept(answer: string, kind: string, { sections, ...size }: Acceptance, ground?: Ground): string {
  const text = unwrapped(answer, sections);
  refuseEmpty(text, kind, sections);
  refuseSize(text, kind, size);
  if (ground) refuseForeign(text, kind, ground);
  return text;
}

function refuseEmpty(text: string, kind: string, sections?: readonly Section[]): void {
  const saysSomething = text
    .split('\n')
    .some((line) => /[\p{L}\p{N}]/u.test(line) && !hasSections(line, sections));
  if (!saysSomething) throw noSummary(`the ${kind} is empty`, { characters: text.length });
}

function refuseForeign(text: string, kind: string, ground: Ground): void {
  const grounding = ground.of(text);
  if (grounding === null || grounding.found >= grounding.needed) return;
  throw noSummary(`the ${kind} holds too little of the record to be a summary of it`, {
    characters: text.length,
    found: Math.round(grounding.found),
    needed: Math.round(grounding.needed),
  });
}

function noSummary(message: string, details: Record<string, number>): PalimpsestError {
  const hint =
    'The model may have refused, or a proxy may have answered instead. Nothing was replaced. Try another summary model if this repeats.';
  return new PalimpsestError('Llm.BadOutput', message, { details, hint });
}

function refuseSize(text: string, kind: string, { inputTokens, maxTokens, counter }: Acceptance): void {
  const tokens = counter.count(text);
  if (tokens < inputTokens && tokens <= maxTokens) return;
  const than =
    tokens >= inputTokens
      ? `not smaller than the ${inputTokens} it stands for`
      : `above the limit of ${maxTokens}`;
  throw new PalimpsestError('Summary.NotSmaller', `the ${kind} has ${tokens} tokens, ${than}`, {
    details: { tokens, inputTokens: Number.isFinite(inputTokens) ? inputTokens : null, maxTokens },
  });
}

/** The answer without reasoning, without a fence or tag around it, and without characters that a database refuses. */
export function unwrapped(answer: string, sections: readonly Section[] = builtIn): string {
  let text = answer
    .replaceAll('\0', '')
    .replace(/\p{Cs}/gu, '\uFFFD')
    .trim();
  for (let layers = 0; layers < 4; layers++) {
    const inner = withoutTag(withoutFence(withoutThoughts(text, sections)), sections).trim();
    if (inner === text) break;
    text = inner;
  }
  return text;
}

const thoughtTags = ['think', 'thinking', 'thought', 'reasoning', 'scratchpad', 'analysis'];

/** Removes reasoning before the answer; without an end tag, all text is reasoning. Some templates omit the opening tag. */
function withoutThoughts(text: string, sections: readonly Section[]): string {
  const opening = /^<(\w{1,12})>/.exec(text)?.[1]?.toLowerCase();
  if (opening !== undefined && thoughtTags.includes(opening)) {
    const end = text.toLowerCase().indexOf(`</${opening}>`);
    return end < 0 ? '' : text.slice(end + opening.length + 3).trim();
  }
  const end = text.indexOf('</think>');
  if (end < 0 || text.slice(0, end).includes('<think>')) return text;
  // A text that begins with a known section is a summary that quotes the tag.
  return hasSections(text.split('\n', 1)[0]!, sections) ? text : text.slice(end + 8).trim();
}

function withoutFence(text: string): string {
  const opening = /^```([\w-]{0,12})[ \t]*\n/.exec(text);
  if (!opening || !text.endsWith('```')) return text;
  const inner = text.slice(opening[0].length, -3);
  const wrapsAll = ['md', 'markdown', 'xml', 'text', 'txt'].includes(opening[1]!.toLowerCase());
  return wrapsAll || !inner.includes('```') ? inner : text;
}

/** `<state_snapshot>…</state_snapshot>`, after at most a sentence of introduction. An unclosed tag means that the answer was cut off. */
function withoutTag(text: string, sections: readonly Section[]): string {
  const opening = /<(state_snapshot|summary|conversation_summary)>/i.exec(text.slice(0, 200));
  if (!opening || hasSections(text.slice(0, opening.index), sections)) return text;
  const start = opening.index + opening[0].length;
  const end = text.toLowerCase().lastIndexOf(`</${opening[1]!.toLowerCase()}>`);
  if (end >= start && text.length - end < 200) return text.slice(start, end);
  return opening.index === 0 && end < 0 ? '' : text;
}

export interface HeadAcceptance {
  /** Tokens of the context before the compaction and with the new head. */
  tokensBefore: number;
  tokensAfter: number;
  /** Share of the context that must be saved, 0 to 1. */
  minGain: number;
  pins: readonly string[];
  /** Text of the summary turn. */
  head: string;
}

/** Throws `Summary.NotSmaller` if the new context saves too little, `Summary.PinsLost` if the head lacks a pin word for word. */
export function acceptHead({ tokensBefore, tokensAfter, minGain, pins, head }: HeadAcceptance): void {
  if (tokensAfter >= tokensBefore || tokensBefore - tokensAfter < minGain * tokensBefore) {
    const change = `${tokensBefore} → ${tokensAfter} tokens`;
    throw new PalimpsestError(
      'Summary.NotSmaller',
      `the context would go ${change}, short of the gain of ${minGain * 100} %`,
      {
        details: { tokensBefore, tokensAfter, minGain },
        hint: 'Lower summary.minGain or summary.maxTokens, or keep fewer messages.',
      },
    );
  }
  const lost = missingPins(pins, head);
  if (lost.length > 0) {
    throw new PalimpsestError(
      'Summary.PinsLost',
      `${lost.length} of ${pins.length} pins are not in the head word for word`,
      {
        path: `policy.pins[${lost[0]}]`,
        details: { lost: lost.join(', ') },
      },
    );
  }
}
