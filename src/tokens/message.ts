import { LRUCache } from 'lru-cache';
import {
  type ChatMessage,
  type ContentPart,
  documentText,
  fieldsOf,
  isMedia,
} from '../conversation/message.js';
import { isBytePair, joinableStart, type TokenCounter } from './counter.js';
import { encodedTokens, looksEncoded, mediaTokens } from './media.js';

/** Tokens around each message and each tool call: role, separators, JSON braces (OpenAI cookbook, "How to count tokens"). */
export const FRAMING_TOKENS = 4;

/** The weight of a message: fixed tokens, and texts for a tokenizer to count. */
interface Weight {
  fixed: number;
  texts: string[];
}

/** Fields that are counted by their meaning, and `tool_call_id`, which is not counted because providers replace it. */
const knownFields = new Set([
  ...['role', 'content', 'name', 'refusal', 'reasoning', 'reasoning_content'],
  ...['tool_calls', 'tool_call_id', 'function_call'],
]);

/** UTF-16 code units. Shorter texts are counted each time that a message repeats them. */
const SHORTEST_REPEATED = 40;
const deepestParts = 3;

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Collects the weight of one message. */
class Scale {
  readonly weight: Weight = { fixed: FRAMING_TOKENS, texts: [] };
  private readonly said = new Set<string>();

  text(value: unknown): void {
    if (typeof value !== 'string' || value === '') return;
    this.weight.texts.push(value);
    if (value.length >= SHORTEST_REPEATED) this.said.add(value);
  }

  /**
   * A value of unknown meaning is sent unchanged, so its JSON is counted; encoded data in it counts as media. A text that the
   * message has twice is counted once: routers repeat `reasoning` inside `reasoning_details`.
   */
  unknown(value: unknown): void {
    let media = 0;
    const json = JSON.stringify(value, (_key, inner: unknown) => {
      if (typeof inner !== 'string') return inner;
      if (inner.length >= SHORTEST_REPEATED && this.said.has(inner)) return '';
      if (!looksEncoded(inner)) return inner;
      media += encodedTokens(inner);
      return '';
    });
    this.weight.fixed += media;
    this.weight.texts.push(json);
  }

  part(part: ContentPart, depth = 0): void {
    const document = documentText(part);
    if (document !== null) return this.text(document);
    if (isMedia(part)) {
      this.weight.fixed += mediaTokens(part);
      return;
    }
    const texts = [part.text, part.refusal, part.reasoning, part.thinking].map(text);
    if (texts.some((value) => value !== '')) return texts.forEach((value) => this.text(value));
    if (/text|refusal|reasoning|thinking/.test(part.type)) return;
    const { content, ...rest } = part;
    if (!Array.isArray(content) || depth >= deepestParts) return this.unknown(part);
    // A tool result inside a user message (Anthropic): its parts are counted like other parts.
    this.unknown(rest);
    for (const inner of content) {
      const { type } = fieldsOf(inner);
      if (typeof type === 'string') this.part({ ...fieldsOf(inner), type }, depth + 1);
      else this.unknown(inner);
    }
  }
}

/** Name and arguments of each call. OpenAI's `custom` calls have `input` instead of `arguments`. */
function callsOf(message: ChatMessage): Record<string, unknown>[] {
  const calls = (message.tool_calls ?? []).map((call) => fieldsOf(call.function ?? call.custom));
  return message.function_call ? [...calls, fieldsOf(message.function_call)] : calls;
}

/**
 * The weight of a message in a request: framing, text of its content, `name`, refusal and reasoning text, the name, arguments
 * and framing of each tool call, and every other field with text. Media count by size, pages or seconds. Takes linear time.
 */
export function weightOf(message: ChatMessage): Weight {
  const scale = new Scale();
  const { content } = message;
  scale.text(content);
  if (Array.isArray(content)) for (const part of content) scale.part(part);
  for (const field of [message.name, message.refusal, message.reasoning, message.reasoning_content]) {
    scale.text(field);
  }
  for (const call of callsOf(message)) {
    scale.weight.fixed += FRAMING_TOKENS;
    scale.text(call.name);
    scale.text(call.arguments ?? call.input);
  }
  for (const [field, value] of Object.entries(message)) {
    if (knownFields.has(field)) continue;
    if (typeof value === 'string' && !looksEncoded(value)) scale.text(value);
    else if (value !== null && (typeof value === 'object' || typeof value === 'string')) scale.unknown(value);
  }
  return scale.weight;
}

/** Tokens of one message in a request; see {@link weightOf}. */
export function countMessage(message: ChatMessage, counter: TokenCounter): number {
  const { fixed, texts } = weightOf(message);
  return texts.reduce((sum, value) => sum + counter.count(value), fixed);
}

/** Tokens below which a message is counted again rather than by {@link countLabelled}. */
const LEAST_LABELLED = 1_000;

/** Characters of the other fields up to which their tokens are subtracted. */
const MOST_SUBTRACTED = 262_144;

/**
 * Tokens of a message that shows only the content of a counted message, after a label: in a line of its own or, before parts, as a
 * part. A long content is not counted again. The result equals {@link countMessage}; it is higher if the other fields of
 * the counted message are long, or if its text begins with very much white space.
 */
export function countLabelled(
  shown: ChatMessage,
  { message, tokens }: { message: ChatMessage; tokens: number },
  counter: TokenCounter,
): number {
  const labelTokens = tokens < LEAST_LABELLED ? null : tokensOfLabel(shown, message, counter);
  if (labelTokens === null) return countMessage(shown, counter);
  const own = weightOf({ role: message.role, content: message.content });
  const all = weightOf(message);
  const others = all.texts.slice(own.texts.length);
  const isShort = others.reduce((sum, { length }) => sum + length, 0) <= MOST_SUBTRACTED;
  const otherTokens = isShort ? others.reduce((sum, other) => sum + counter.count(other), 0) : 0;
  return tokens - (all.fixed - own.fixed) - otherTokens + labelTokens;
}

/** Null if the content must be counted with its label. */
function tokensOfLabel(
  { content: shown }: ChatMessage,
  { content }: ChatMessage,
  counter: TokenCounter,
): number | null {
  if (Array.isArray(shown) && Array.isArray(content)) return counter.count(text(shown[0]?.text));
  if (typeof shown !== 'string' || typeof content !== 'string') return null;
  if (!isBytePair(counter) || !shown.endsWith(content)) return null;
  const start = content.slice(0, joinableStart(content) ?? 0);
  return counter.count(shown.slice(0, shown.length - content.length) + start) - counter.count(start);
}

/** The part of a request outside the log: tokens, texts, or the system prompt and the tool definitions as sent. */
type RequestOverhead = number | readonly string[] | { system?: string; tools?: readonly object[] };

/** UTF-16 code units. Counting a shorter text is faster than a lookup. */
const SHORTEST_REMEMBERED = 1_000;

/** Maximum number of characters cached per counter. Each access to a session counts the same system prompt and tools. */
const MOST_REMEMBERED = 4_000_000;

const remembered = new WeakMap<TokenCounter, LRUCache<string, number>>();

function countOnce(text: string, counter: TokenCounter): number {
  if (text.length < SHORTEST_REMEMBERED) return counter.count(text);
  const known =
    remembered.get(counter) ??
    new LRUCache<string, number>({
      maxSize: MOST_REMEMBERED,
      sizeCalculation: (_, { length }) => length,
      memoMethod: (uncounted) => counter.count(uncounted),
    });
  remembered.set(counter, known);
  return known.memo(text);
}

/**
 * Tokens of the request overhead. A system prompt counts as its text and the framing of a message, a tool definition as its
 * JSON and the framing. Providers convert the schema into a form that is somewhat shorter.
 */
export function countOverhead(overhead: RequestOverhead, counter: TokenCounter): number {
  if (typeof overhead === 'number') return overhead;
  const sum = (texts: readonly string[], each: number): number =>
    texts.reduce((total, text) => total + (text === '' ? 0 : countOnce(text, counter) + each), 0);
  if ('length' in overhead) return sum(overhead, 0);
  const { system = '', tools = [] } = overhead;
  return sum([system, ...tools.map((tool) => JSON.stringify(tool))], FRAMING_TOKENS);
}
