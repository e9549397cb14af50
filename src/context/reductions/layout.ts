import { sizeOf, type ViewItem } from '../view/view.js';
import type { Recovery } from '../../policy/defaults.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';
import { omissionNote } from './excerpt.js';

/** Items of the tail on one side of the newest user message. */
export interface Segment {
  /** Index of its first item in the view. */
  first: number;
  items: ViewItem[];
  /** Only messages with a smaller seq may be omitted. */
  below: number;
}

export interface Layout {
  /** The tail before and after the newest user message; all of it is `before` if the tail has no user message. */
  before: Segment;
  after: Segment;
  /** The newest user message, if it is in the tail. */
  newest: ViewItem | null;
  /** The group of the latest result, or null. */
  latestGroup: number | null;
  latestTokens: number;
  /** The agent's newest answer, if the tail has it and no result is newer. */
  latestAnswer: ViewItem | null;
  /** Leading system messages, head, and newest user message. */
  untouchableTokens: number;
}

const headSources = new Set<ViewItem['source']>(['system', 'summarization', 'acknowledgment', 'carried']);

/** Divides a view for reduction. */
export function layoutOf(view: readonly ViewItem[]): Layout {
  const start = view.findIndex(({ source }) => !headSources.has(source));
  const first = start === -1 ? view.length : start;
  const userAt = view.findLastIndex((item, index) => index >= first && isUserMessage(item));
  const newest = view[userAt] ?? null;
  const split = newest === null ? view.length : userAt;

  const latest = view.reduce<ViewItem | null>(
    (last, item) => (isResult(item) && item.throughSeq >= (last?.throughSeq ?? 0) ? item : last),
    null,
  );
  const answer = view.findLast((item, index) => index >= first && isAnswer(item));
  const latestItems = view.filter(({ group }) => group === latest?.group);
  return {
    before: { first, items: view.slice(first, split), below: newest?.fromSeq ?? Infinity },
    after: { first: split + 1, items: view.slice(split + 1), below: Infinity },
    newest,
    latestGroup: latest?.group ?? null,
    latestTokens: sizeOf(latestItems),
    latestAnswer: answer !== undefined && answer.fromSeq > (latest?.throughSeq ?? 0) ? answer : null,
    untouchableTokens: sizeOf(view.slice(0, first)) + (newest?.tokens ?? 0),
  };
}

function isUserMessage({ source, role }: ViewItem): boolean {
  return role === 'user' && (source === 'log' || source === 'reduced');
}

function isAnswer({ role, message }: ViewItem): boolean {
  return role === 'assistant' && !message.tool_calls?.length && !message.function_call;
}

/** Includes orphan results, although the context shows them as user messages: the newest orphan result is also new to the model. */
function isResult({ role }: ViewItem): boolean {
  return role === 'tool' || role === 'function';
}

/** The first `count` items of a segment, which can be omitted without breaking a group. */
export interface Prefix {
  count: number;
  fromSeq: number;
  throughSeq: number;
  tokens: number;
}

/**
 * The parts of a segment between groups with a spared item, in order and up to the latest tool batch. If `spared` is null, the whole
 * segment.
 */
export function partsBetween(
  segment: Segment,
  spared: ((item: ViewItem) => boolean) | null,
  latestGroup: number | null,
): Segment[] {
  if (spared === null) return [segment];
  const { first, items, below } = segment;
  const groups = new Set(items.filter(spared).map(({ group }) => group));
  const parts: Segment[] = [];
  for (let start = 0; start < items.length;) {
    let end = start;
    while (end < items.length && !groups.has(items[end]!.group)) end += 1;
    const part = items.slice(start, end);
    if (part.length > 0) parts.push({ first: first + start, items: part, below: items[end]?.group ?? below });
    const stays = items[end]?.group;
    if (stays === undefined || stays === latestGroup) break;
    start = end;
    while (items[start]?.group === stays) start += 1;
  }
  return parts;
}

/** Shortest first. No prefix has a result that was recorded after its end. */
export function omittablePrefixes({ items, below }: Segment): Prefix[] {
  const prefixes: Prefix[] = [];
  let tokens = 0;
  let throughSeq = 0;
  for (const [index, item] of items.entries()) {
    tokens += item.tokens;
    throughSeq = Math.max(throughSeq, item.throughSeq);
    const next = items[index + 1];
    const whole = next?.group !== item.group && throughSeq < (next?.group ?? below);
    if (whole) prefixes.push({ count: index + 1, fromSeq: items[0]!.fromSeq, throughSeq, tokens });
  }
  return prefixes;
}

/** The note that replaces a range. */
export function noteFor(
  { fromSeq, throughSeq }: { fromSeq: number; throughSeq: number },
  counter: TokenCounter,
  recovery: Recovery,
): ViewItem {
  const message = { role: 'user' as const, content: omissionNote(fromSeq, throughSeq, recovery) };
  const tokens = countMessage(message, counter);
  return {
    fromSeq,
    throughSeq,
    message,
    tokens,
    source: 'omitted',
    group: fromSeq,
    role: 'user',
    tool: null,
  };
}

/** The notes, in view order, that replace the whole tail except the newest user message. */
export function notesForEverything(
  { before, after, newest }: Layout,
  counter: TokenCounter,
  recovery: Recovery,
): { before: ViewItem[]; after: ViewItem[] } {
  const boundary = newest?.fromSeq ?? Infinity;
  const seqs = [...before.items, ...after.items].flatMap(({ fromSeq, throughSeq }) =>
    throughSeq === 0 ? [] : [fromSeq, throughSeq],
  );
  const note = (side: number[]) =>
    side.length === 0
      ? []
      : [
          noteFor(
            {
              fromSeq: side.reduce((a, b) => Math.min(a, b)),
              throughSeq: side.reduce((a, b) => Math.max(a, b)),
            },
            counter,
            recovery,
          ),
        ];
  return {
    before: note(seqs.filter((seq) => seq < boundary)),
    after: note(seqs.filter((seq) => seq > boundary)),
  };
}
