import type { TokenCounter } from './token-counter.js';
import { FRAMING_TOKENS } from './message.js';

/** What a request carries outside the log: tokens, texts, or the system prompt and the tool definitions as sent. */
export type RequestOverhead =
  number | readonly string[] | { system?: string; tools?: readonly Record<string, unknown>[] };

/** Texts shorter than this are counted faster than they are looked up. UTF-16 code units. */
const SHORTEST_REMEMBERED = 1_000;

/** Characters remembered for each counter; beyond, everything is forgotten. */
const MOST_REMEMBERED = 4_000_000;

/** The same system prompt and tools come with every look at a session. */
interface Remembered {
  tokens: Map<string, number>;
  characters: number;
}

const remembered = new WeakMap<TokenCounter, Remembered>();

function countOnce(text: string, counter: TokenCounter): number {
  if (text.length < SHORTEST_REMEMBERED) return counter.count(text);
  let known = remembered.get(counter);
  if (known === undefined || known.characters > MOST_REMEMBERED) {
    known = { tokens: new Map(), characters: 0 };
    remembered.set(counter, known);
  }
  const found = known.tokens.get(text);
  if (found !== undefined) return found;
  const tokens = counter.count(text);
  known.tokens.set(text, tokens);
  known.characters += text.length;
  return tokens;
}

/**
 * Tokens of the request overhead. A system prompt weighs its text and the framing of a message; a tool definition its
 * JSON and the framing: providers rewrite the schema into a form of their own that is somewhat shorter.
 */
export function countOverhead(overhead: RequestOverhead, counter: TokenCounter): number {
  if (typeof overhead === 'number') return overhead;
  const sum = (texts: readonly string[], each: number): number =>
    texts.reduce((total, text) => total + (text === '' ? 0 : countOnce(text, counter) + each), 0);
  if ('length' in overhead) return sum(overhead, 0);
  const { system = '', tools = [] } = overhead;
  return sum([system, ...tools.map((tool) => JSON.stringify(tool))], FRAMING_TOKENS);
}
