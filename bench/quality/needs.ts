/**
 * Later use, which needs no labels: an identifier of the evicted messages is *needed* if a later action of the agent is the
 * first to name it again. An action is the arguments of a tool call; in sessions without any call, an assistant's text. If a
 * later user or tool message names it first, it is not needed. Identifiers of the leading system messages do not count, because
 * those are never evicted.
 */
import type { ChatMessage } from '../../src/conversation/message.js';
import { classes, identifiersOf, type IdentifierClass } from './grammar.js';

/** A session as the scorer reads it: per message what it names and what its action names. */
export interface Indexed {
  /** All text of each message: content and the values of its call arguments. */
  texts: string[];
  named: Map<string, IdentifierClass>[];
  acted: Map<string, IdentifierClass>[];
  /** Number of leading system messages. */
  leading: number;
}

export function indexed(messages: readonly ChatMessage[]): Indexed {
  const hasCalls = messages.some(
    ({ tool_calls: calls, function_call: call }) => (calls?.length ?? 0) > 0 || call,
  );
  const contents = messages.map(contentOf);
  const actions = messages.map((message, index) =>
    hasCalls ? argumentsOf(message) : message.role === 'assistant' ? contents[index]! : '',
  );
  const texts = contents.map((content, index) =>
    hasCalls && actions[index] !== '' ? `${content}\n${actions[index]}` : content,
  );
  const firstOther = messages.findIndex(({ role }) => role !== 'system' && role !== 'developer');
  return {
    texts,
    named: texts.map(identifiersOf),
    acted: actions.map(identifiersOf),
    leading: firstOther === -1 ? messages.length : firstOther,
  };
}

/** A session's text as the scorer searches it, one message. */
export function textOf(message: ChatMessage): string {
  return `${contentOf(message)}\n${argumentsOf(message)}`;
}

function contentOf({ content }: ChatMessage): string {
  return typeof content === 'string' ? content : (content ?? []).map(({ text }) => text ?? '').join('\n');
}

function argumentsOf({ tool_calls: calls, function_call: legacy }: ChatMessage): string {
  const raw = (calls ?? []).map((call) => call.function?.arguments ?? '');
  if (legacy) raw.push(legacy.arguments);
  return raw.map(valuesOf).join('\n');
}

function valuesOf(json: string): string {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return json;
  }
  const found: string[] = [];
  collect(value, found);
  return found.join('\n');
}

function collect(value: unknown, found: string[]): void {
  if (typeof value === 'string' || typeof value === 'number') found.push(String(value));
  else if (typeof value === 'object' && value !== null)
    for (const inner of Object.values(value)) collect(inner, found);
}

/**
 * Needed identifiers with their classes, where the messages before `evictedTo` are evicted and the compaction happens
 * before message `now` is written (0-based, exclusive).
 */
export function neededAfter(session: Indexed, evictedTo: number, now: number): Map<string, IdentifierClass> {
  const evicted = new Set<string>();
  for (const named of session.named.slice(session.leading, evictedTo))
    for (const name of named.keys()) evicted.add(name);
  const given = new Set<string>();
  for (const named of session.named.slice(0, session.leading))
    for (const name of named.keys()) given.add(name);
  const needed = new Map<string, IdentifierClass>();
  for (let index = now; index < session.named.length; index++) {
    for (const [name, kind] of session.acted[index]!)
      if (evicted.has(name) && !given.has(name)) needed.set(name, kind);
    for (const name of session.named[index]!.keys()) given.add(name);
  }
  return needed;
}

/**
 * Whether a text holds the identifier word for word, not as a part of a longer word. Underscores behind it may be
 * emphasis, which the grammar trims.
 */
export function holds(text: string, identifier: string): boolean {
  for (let at = text.indexOf(identifier); at >= 0; at = text.indexOf(identifier, at + 1)) {
    const begins = !isWordChar(text[at - 1]) || !isWordChar(identifier[0]);
    let end = at + identifier.length;
    while (text[end] === '_') end++;
    if (begins && !isWordChar(text[end])) return true;
  }
  return false;
}

function isWordChar(char: string | undefined): boolean {
  return char !== undefined && /[A-Za-z0-9_]/.test(char);
}

interface Kept {
  needed: number;
  kept: number;
}

/** Needed and kept, of identifiers proper and of code symbols, and of those that the tail does not show. */
export interface Score {
  identifiers: Kept;
  beyondTail: Kept;
  symbols: Kept;
  byClass: Record<IdentifierClass, Kept>;
}

export function scoreOf(needed: ReadonlyMap<string, IdentifierClass>, context: string, tail: string): Score {
  const score: Score = {
    identifiers: { needed: 0, kept: 0 },
    beyondTail: { needed: 0, kept: 0 },
    symbols: { needed: 0, kept: 0 },
    byClass: Object.fromEntries(classes.map((one) => [one, { needed: 0, kept: 0 }])) as Record<
      IdentifierClass,
      Kept
    >,
  };
  for (const [name, kind] of needed) {
    const isKept = holds(context, name);
    const counts = [score.byClass[kind], kind === 'symbol' ? score.symbols : score.identifiers];
    if (kind !== 'symbol' && !holds(tail, name)) counts.push(score.beyondTail);
    for (const count of counts) {
      count.needed += 1;
      if (isKept) count.kept += 1;
    }
  }
  return score;
}
