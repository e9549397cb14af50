/** Splits the tokens of a context by part, and measures the prefix that a commit leaves unchanged. */
import type { ChatMessage } from '../../conversation/message.js';
import { FRAMING_TOKENS } from '../../tokens/message.js';
import type { TokenCounter } from '../../tokens/counter.js';
import {
  headParts,
  type Head,
  type HeadLayout,
  type HeadPart,
  type HeadStretch,
  type ViewItem,
  type ViewSource,
} from './view.js';

/** Tokens of a context: the sum of system, head, carried and tail is the context, the sum of the parts is the head. */
export interface ContextBreakdown {
  /** Leading system messages. */
  system: number;
  /** The summary turn and its acknowledgment. */
  head: number;
  /** Parts of the head; null if an earlier version wrote it. */
  parts: Record<HeadPart, number> | null;
  /** The request of the run that contains the cut. */
  carried: number;
  /** Messages after the cut as shown, with their separators. */
  tail: number;
}

/** `items` are the items of a request as sent, `layout` is the layout of its head. */
export function breakdownOf(items: readonly ViewItem[], layout: Head['layout']): ContextBreakdown {
  const members = items.flatMap(({ source, tokens, joined }) => joined ?? [{ source, tokens }]);
  const of = (...sources: ViewSource[]) =>
    sum(members.filter(({ source }) => sources.includes(source)).map(({ tokens }) => tokens));
  return breakdown(sum(items.map(({ tokens }) => tokens)), {
    system: of('system'),
    head: of('summarization', 'acknowledgment'),
    carried: of('carried'),
    layout,
  });
}

/** The breakdown from sizes; the rest of `tokens` is the tail. */
export function breakdownBySizes(
  tokens: number,
  system: number,
  head: Omit<Head, 'messages'> | null,
): ContextBreakdown {
  const carried = head === null || head.carriedSeq === null ? 0 : (head.tokens.at(-1) ?? 0);
  return breakdown(tokens, {
    system,
    head: sum(head?.tokens ?? []) - carried,
    carried,
    layout: head?.layout,
  });
}

function breakdown(
  tokens: number,
  {
    system,
    head,
    carried,
    layout,
  }: Pick<ContextBreakdown, 'system' | 'head' | 'carried'> & Pick<Head, 'layout'>,
): ContextBreakdown {
  return { system, head, parts: partsOf(head, layout), carried, tail: tokens - system - head - carried };
}

const noParts = Object.fromEntries(headParts.map((part) => [part, 0])) as Record<HeadPart, number>;

/** The note has all tokens that no other part has, including the acknowledgment. */
function partsOf(head: number, layout: Head['layout']): ContextBreakdown['parts'] {
  if (head === 0) return noParts;
  if (!layout) return null;
  const others = headParts.filter((part) => part !== 'note').map((part) => layout.tokens[part]);
  return { ...noParts, ...layout.tokens, note: head - sum(others) };
}

/** The layout of a summary turn of `tokens` tokens whose text consists of the stretches. */
export function layoutOf(
  text: string,
  stretches: readonly HeadStretch[],
  tokens: number,
  counter: TokenCounter,
): HeadLayout {
  const texts = new Map<HeadPart, string>();
  let at = 0;
  for (const { part, characters } of stretches) {
    texts.set(part, (texts.get(part) ?? '') + text.slice(at, at + characters));
    at += characters;
  }
  texts.delete('note');
  const counted = [...texts].map(([part, own]): [HeadPart, number] => [part, counter.count(own)]);
  // Differences at the joints of parts count with the note.
  const note = tokens - sum(counted.map(([, own]) => own));
  return { stretches: [...stretches], tokens: { ...noParts, ...Object.fromEntries(counted), note } };
}

/**
 * Tokens of the longest common prefix of two contexts: the part of `after` that a provider's prompt cache contains after
 * `before`. The first message that differs is compared by character.
 */
export function commonPrefix(
  before: readonly ViewItem[],
  after: readonly ViewItem[],
  counter: TokenCounter,
): number {
  let tokens = 0;
  for (const [index, item] of after.entries()) {
    const known = before[index];
    if (known === undefined) break;
    if (!isSame(known, item))
      return tokens + Math.min(item.tokens, opening(known.message, item.message, counter));
    tokens += item.tokens;
  }
  return tokens;
}

/** Whether two items are the same message to a provider. */
export function isSame(a: ViewItem, b: ViewItem): boolean {
  return a.message === b.message || (a.tokens === b.tokens && isAlike(a.message, b.message));
}

/** Compares JSON: both values were built in the same way, so their fields have the same order. */
function isAlike(a: object, b: object): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function opening(before: ChatMessage, after: ChatMessage, counter: TokenCounter): number {
  const { content: a, ...rest } = before;
  const { content: b, ...others } = after;
  if (typeof a !== 'string' || typeof b !== 'string' || !isAlike(rest, others)) return 0;
  let length = 0;
  while (length < Math.min(a.length, b.length) && a.charCodeAt(length) === b.charCodeAt(length)) length++;
  if (/[\uD800-\uDBFF]/.test(a.charAt(length - 1))) length--;
  return length === 0 ? 0 : FRAMING_TOKENS + counter.count(b.slice(0, length));
}

function sum(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total + size, 0);
}
