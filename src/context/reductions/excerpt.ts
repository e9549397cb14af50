import type { Recovery } from '../../policy/defaults.js';
import type { TokenCounter } from '../../tokens/counter.js';

/** Maximum tokens of an excerpt, by step; 0 leaves only the pointer. */
export const excerptSteps = [2_000, 500, 120, 0] as const;

/** Minimum tokens of beginning and end; shorter pieces are useless. */
const leastExcerptTokens = 16;

/** Share of the room used in the first attempt: beginning and end are often denser than the whole text, and a second count is expensive. */
const firstTry = 0.95;

/** Longer call ids are not repeated in a pointer. */
const maxPointerIdLength = 64;

/** The message that an excerpt (beginning, end and pointer) stands for. Excerpts are deterministic. */
export interface Original {
  /** Seq of the message, which the log keeps in full. */
  seq: number;
  /** Id of the answered call as shown in the context, or null. */
  callId: string | null;
  /** Parts left out in addition to text, e.g. `2 media parts`; may be empty. */
  besides: string;
  recovery: Recovery;
}

/**
 * Cuts a text of about `tokens` tokens down to `maxTokens`. The cost depends on the excerpt, not on the text. Null if `maxTokens` has no
 * room for the pointer and some text.
 */
export function excerptOf(
  text: string,
  tokens: number,
  maxTokens: number,
  original: Original,
  counter: TokenCounter,
): string | null {
  if (maxTokens === 0) return pointer(text.length, original);
  const middle = (characters: number) => pointer(characters, original);
  return excerptAround(text, tokens, maxTokens, middle, original, counter);
}

/** {@link excerptOf} with `middle` between beginning and end; its argument is the number of characters left out. */
export function excerptAround(
  text: string,
  tokens: number,
  maxTokens: number,
  middle: (characters: number) => string,
  { besides }: Pick<Original, 'besides'>,
  counter: TokenCounter,
): string | null {
  const room = maxTokens - counter.count(middle(text.length)) - 2;
  if (room < leastExcerptTokens) return null;
  if (besides !== '' && text.length < room * 8) {
    const whole = [...(text === '' ? [] : [text]), middle(0)].join('\n');
    if (counter.count(whole) <= maxTokens) return whole;
  }
  const expected = (firstTry * room * text.length) / Math.max(1, tokens);
  let characters = Math.min(Math.floor(expected), text.length - 1);
  for (let attempt = 0; attempt < 6 && characters > 1; attempt += 1) {
    const head = startOf(text, Math.ceil(characters / 2));
    const tail = endOf(text, Math.floor(characters / 2));
    const excerpt = `${head}\n${middle(text.length - head.length - tail.length)}\n${tail}`;
    const size = counter.count(excerpt);
    if (size <= maxTokens) return excerpt;
    characters = Math.floor((characters * maxTokens * 0.9) / size);
  }
  return null;
}

/** For example `[… 48,210 characters left out; message 17 is kept in full: get_tool_response("call_abc")]`. */
function pointer(characters: number, original: Original): string {
  return `[… ${leftOut(characters, original)}; ${whereKept(original)}]`;
}

/** For example `48,210 characters and 2 media parts left out`. */
export function leftOut(characters: number, { besides }: Original): string {
  const what = [characters > 0 ? `${grouped(characters)} characters` : '', besides].filter(
    (part) => part !== '',
  );
  return `${what.join(' and ')} left out`;
}

/** For example `message 17 is kept in full: get_tool_response("call_abc")`; with the message's number if no call is known. */
export function whereKept({ seq, callId, recovery }: Original): string {
  if (recovery === 'none') return `message ${seq} is kept in full`;
  const call =
    callId !== null && callId.length <= maxPointerIdLength
      ? `get_tool_response(${JSON.stringify(callId)})`
      : `get_tool_response(message ${seq})`;
  return `message ${seq} is kept in full: ${call}`;
}

/** The note that replaces a range of omitted messages. */
export function omissionNote(fromSeq: number, throughSeq: number, recovery: Recovery): string {
  const what = fromSeq === throughSeq ? `Message ${fromSeq} is` : `Messages ${fromSeq}–${throughSeq} are`;
  const how = recovery === 'none' ? '' : ': use expand_history';
  return `[${what} left out here to fit the context window; kept in full${how}]`;
}

/**
 * Cuts arguments of a call down to about `maxTokens`; the result is always valid JSON. Long strings lose their middle, and everything
 * else stays as written. If that is not enough, or if the arguments are not JSON, an object with an excerpt or a pointer replaces them.
 */
export function excerptOfArguments(
  json: string,
  tokens: number,
  maxTokens: number,
  { seq, recovery }: Pick<Original, 'seq' | 'recovery'>,
  counter: TokenCounter,
): string {
  const original = { seq, callId: null, besides: '', recovery };
  if (maxTokens === 0) return JSON.stringify({ left_out: pointer(json.length, original) });
  if (isJson(json)) {
    for (const longest of [maxTokens * 2, maxTokens / 2, 40]) {
      const shorter = shortenStrings(json, longest, seq);
      if (counter.count(shorter) <= maxTokens) return shorter;
    }
  }
  const excerpt = excerptOf(json, tokens, Math.floor(maxTokens * 0.8), original, counter);
  return JSON.stringify({ left_out: excerpt ?? pointer(json.length, original) });
}

export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function shortenStrings(json: string, longest: number, seq: number): string {
  return mapStrings(json, longest + 60, (literal) => shortenLiteral(literal, longest, seq));
}

/**
 * Replaces every string literal longer than `longest` by the result of `shorten`. It works on the text, so that numbers and everything
 * else stay as written. Keys are not changed: two shortened keys could become equal.
 */
export function mapStrings(json: string, longest: number, shorten: (literal: string) => string): string {
  let mapped = '';
  let at = 0;
  for (let open = json.indexOf('"'); open !== -1; open = json.indexOf('"', at)) {
    const end = endOfLiteral(json, open);
    const literal = json.slice(open, end);
    mapped +=
      json.slice(at, open) + (literal.length > longest && !isKey(json, end) ? shorten(literal) : literal);
    at = end;
  }
  return mapped + json.slice(at);
}

function isKey(json: string, end: number): boolean {
  const colon = /\s*:/y;
  colon.lastIndex = end;
  return colon.test(json);
}

/** Index after the closing quote of the string literal that opens at `open`. */
function endOfLiteral(json: string, open: number): number {
  let at = open + 1;
  while (json[at] !== '"') at += json[at] === '\\' ? 2 : 1;
  return at + 1;
}

function shortenLiteral(literal: string, longest: number, seq: number): string {
  const text = JSON.parse(literal) as string;
  const head = startOf(text, Math.ceil(longest / 2));
  const tail = endOf(text, Math.floor(longest / 2));
  const leftOut = text.length - head.length - tail.length;
  if (leftOut <= 0) return literal;
  return JSON.stringify(`${head}[… ${grouped(leftOut)} characters left out; see message ${seq}]${tail}`);
}

/** The first `length` code units, or one less if the end would split a surrogate pair. */
export function startOf(text: string, length: number): string {
  return text.slice(0, splitsPair(text, length) ? length - 1 : length);
}

function endOf(text: string, length: number): string {
  const from = text.length - length;
  return text.slice(splitsPair(text, from) ? from + 1 : from);
}

function splitsPair(text: string, at: number): boolean {
  return /^[\uD800-\uDBFF][\uDC00-\uDFFF]$/.test(text.slice(Math.max(0, at - 1), at + 1));
}

/** 48210 → "48,210" on every machine, whatever its locale. */
function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}
