import type { Recovery } from '../../policy/resolve.js';
import type { TokenCounter } from '../../tokens/counter.js';

/** Most tokens of an excerpt, step by step; 0 leaves the pointer alone. */
export const excerptSteps = [2_000, 500, 120, 0] as const;

/** Below this many tokens head and tail say nothing. */
const leastExcerptTokens = 16;

/** Share of the room that is tried first: head and tail are often denser than the text as a whole, and a second count is dear. */
const firstTry = 0.95;

/** Longer call ids are not repeated in a pointer. */
const maxPointerIdLength = 64;

/** Shorter forms of texts and of call arguments: head and tail, and a pointer to the original. Deterministic. */
export interface Original {
  /** Seq of the message that is kept in full. */
  seq: number;
  /** Id of the answered call, as the context shows it; null where there is none. */
  callId: string | null;
  /** What is left out beside text, e.g. `2 media parts`; empty for nothing. */
  besides: string;
  recovery: Recovery;
}

/**
 * A text of about `tokens` tokens cut down to `maxTokens`. The cost depends on the excerpt, not on the text. Null where the pointer does
 * not fit into `maxTokens` with anything beside it.
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

/** The same with `middle` between head and tail; it is given the number of characters that are left out there. */
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

/** For example `message 17 is kept in full: get_tool_response("call_abc")`; by its number where no call is known. */
export function whereKept({ seq, callId, recovery }: Original): string {
  if (recovery === 'none') return `message ${seq} is kept in full`;
  const call =
    callId !== null && callId.length <= maxPointerIdLength
      ? `get_tool_response(${JSON.stringify(callId)})`
      : `get_tool_response(message ${seq})`;
  return `message ${seq} is kept in full: ${call}`;
}

/** What stands for a range of left-out messages. */
export function omissionNote(fromSeq: number, throughSeq: number, recovery: Recovery): string {
  const what = fromSeq === throughSeq ? `Message ${fromSeq} is` : `Messages ${fromSeq}–${throughSeq} are`;
  const how = recovery === 'none' ? '' : ': use expand_history';
  return `[${what} left out here to fit the context window; kept in full${how}]`;
}

/**
 * Arguments of a call cut down to about `maxTokens`, always valid JSON. Long strings lose their middle and everything else stays as it
 * is written; where that is not enough, or the arguments are no JSON, one object says what was left out.
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
 * The JSON with every string value whose literal is longer than `longest` replaced by what `shorten` makes of the literal. Works on the
 * text, so that numbers and everything else stay as they were written; keys are never touched: two cut alike would become one.
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

/** Index behind the closing quote of the string literal that opens at `open`. */
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

/** The first `length` code units, one less where that would split a surrogate pair. */
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

/** 48210 → "48,210", the same on every machine. */
function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}
