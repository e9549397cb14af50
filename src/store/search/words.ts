/**
 * The searchable text of a message in slices, and the words of a text. Words are computed here instead of by a text
 * search configuration of the server, so that they depend neither on its locale nor on its parser, which keeps
 * `getUserName` whole and treats `src/store/pool.ts` as one word.
 */
import type { ChatMessage } from '../../conversation/message.js';
import { argumentsOf, nameOf } from '../../conversation/render.js';
import { textOf } from '../../conversation/validate.js';
import { storable } from '../connection/values.js';

/**
 * UTF-16 code units of a slice: at most 98,304 bytes in UTF-8, whose words stay below the 1 MB limit of a `tsvector`.
 * @internal Tests put words across the edge of a slice.
 */
export const sliceLength = 32_768;
/** Code units that two neighbouring slices share. A literal up to this length is found across the edge, too. */
export const sliceOverlap = 2_000;
/** How far before its end a slice searches for whitespace. */
const edgeReach = 200;

export interface TextSlice {
  /** Where the slice begins in the message's text, in UTF-16 code units. */
  offset: number;
  text: string;
}

/**
 * The text of a message: its content (media as `[image]`), then each call as its name and its arguments with strings
 * unescaped, then reasoning. Content comes first, so that an offset into string content is also an offset into this
 * text. NUL and lone surrogates are replaced one for one.
 */
export function searchableText(message: ChatMessage): string {
  const { tool_calls: calls, function_call: legacy } = message;
  const reasoning = message['reasoning_content'] ?? message['reasoning'];
  const pieces = [
    textOf(message),
    ...(Array.isArray(calls) ? calls.map((call) => `${nameOf(call)}\n${unescaped(argumentsOf(call))}`) : []),
    legacy ? `${legacy.name}\n${unescaped(legacy.arguments)}` : '',
    typeof reasoning === 'string' ? reasoning : '',
  ];
  return storable(pieces.filter((piece) => piece !== '').join('\n'));
}

/**
 * `{"path":"a.ts","id":12345678901234567890}` → `{path:a.ts,id:12345678901234567890}`: unescapes string literals and
 * keeps all other text. Invalid JSON keeps quotes without a partner.
 */
function unescaped(json: string): string {
  let text = '';
  let at = 0;
  for (let open = json.indexOf('"'); open !== -1; open = json.indexOf('"', at)) {
    const end = endOfLiteral(json, open);
    text += json.slice(at, open) + literalText(json.slice(open, end));
    at = end;
  }
  return text + json.slice(at);
}

/**
 * Index after the closing quote of the literal that opens at `open`; the end of the text if there is no closing
 * quote.
 */
function endOfLiteral(json: string, open: number): number {
  for (let at = open + 1; at < json.length; at += 1) {
    const character = json[at];
    if (character === '"') return at + 1;
    if (character === '\\') at += 1;
  }
  return json.length;
}

function literalText(literal: string): string {
  try {
    return String(JSON.parse(literal));
  } catch {
    return literal;
  }
}

/** Cuts a text into overlapping slices, preferably at whitespace and never through a surrogate pair. */
export function slicesOf(text: string): TextSlice[] {
  const slices: TextSlice[] = [];
  for (let offset = 0; ;) {
    if (text.length - offset <= sliceLength) {
      if (offset === 0 || offset < text.length) slices.push({ offset, text: text.slice(offset) });
      return slices;
    }
    const end = edgeBefore(text, offset + sliceLength);
    slices.push({ offset, text: text.slice(offset, end) });
    offset = edgeBefore(text, end - sliceOverlap);
  }
}

function edgeBefore(text: string, limit: number): number {
  for (let at = limit; at > limit - edgeReach; at--) if (/\s/.test(text.charAt(at - 1))) return at;
  return splitsPair(text, limit) ? limit - 1 : limit;
}

/** Whether a cut of `text` before index `at` would separate a surrogate pair. */
export function splitsPair(text: string, at: number): boolean {
  if (at <= 0 || at >= text.length) return false;
  const before = text.charCodeAt(at - 1);
  const after = text.charCodeAt(at);
  return before >= 0xd800 && before <= 0xdbff && after >= 0xdc00 && after <= 0xdfff;
}

/** One word of a text. `from` and `to` are its bounds in UTF-16 code units. */
interface Word {
  word: string;
  from: number;
  to: number;
}

/** Longer runs are data (base64, joined hashes). Each counts as one word that consists of its first characters. */
const longestWord = 128;
const runs = /[\p{L}\p{M}\p{N}_$]+|\p{Extended_Pictographic}/gu;
const unspaced = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}]/u;
/**
 * Boundaries in an identifier: underscores, a change to upper case, the last capital of an acronym, a script without
 * spaces.
 */
const inner =
  /[_$]+|(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})|(?<=[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}])|(?=[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}])/u;
const plain = /^(?:[a-z0-9]+|[A-Z]?[a-z0-9]*|[A-Z0-9]+)$/;

/**
 * One run of letters and digits: its parts, and the whole if it has several parts (`getUserName`: get, user, name;
 * getusername).
 */
export interface Run {
  parts: Word[];
  whole: string | null;
}

/** The runs of a text in order. Parts of consecutive runs are neighbours in a phrase. */
export function* runsOf(text: string): Generator<Run> {
  for (const { 0: run, index } of text.matchAll(runs)) yield read(run, index);
}

const isPlain = (run: string): boolean => run.length <= longestWord && plain.test(run);

function read(run: string, from: number): Run {
  const whole = { from, to: from + run.length };
  if (isPlain(run)) return { parts: [{ word: run.toLowerCase(), ...whole }], whole: null };
  if (run.length <= longestWord) return identifier(run, from);
  return { parts: [{ word: folded(run.slice(0, longestWord)), ...whole }], whole: null };
}

function identifier(run: string, from: number): Run {
  const parts: Word[] = [];
  let at = 0;
  for (const piece of run.split(inner)) {
    if (piece === undefined || piece === '') continue;
    at = run.indexOf(piece, at);
    parts.push({ word: folded(piece), from: from + at, to: from + at + piece.length });
    at += piece.length;
  }
  const whole = parts.length > 1 && !unspaced.test(run) ? parts.map(({ word }) => word).join('') : null;
  return { parts, whole };
}

/** Folds compatibility forms and case, which do not distinguish words. */
function folded(word: string): string {
  return storable(word.normalize('NFKC').toLowerCase());
}

/** Further positions of a word in a slice help neither rank nor phrases. */
const mostPositions = 64;

/** The words of a slice as the text form of a `tsvector`. */
export function wordsVector(text: string): string {
  const positions = new Map<string, { at: string; count: number }>();
  const note = (word: string, position: number) => {
    const known = positions.get(word);
    if (known === undefined) positions.set(word, { at: String(position), count: 1 });
    else if (known.count++ < mostPositions) known.at += `,${position}`;
  };
  let position = 0;
  // `match` makes one array, where `matchAll` makes one for each run.
  for (const run of text.match(runs) ?? []) {
    if (isPlain(run)) {
      note(run.toLowerCase(), ++position);
      continue;
    }
    const { parts, whole } = read(run, 0);
    if (whole !== null) note(whole, position + 1);
    for (const { word } of parts) note(word, ++position);
  }
  let vector = '';
  for (const [word, { at }] of positions) vector += ` ${quoted(word)}:${at}`;
  return vector.slice(1);
}

/** A word in the syntax of `tsvector` and `tsquery`. */
export function quoted(word: string): string {
  return `'${word.replace(/['\\]/g, '$&$&')}'`;
}
