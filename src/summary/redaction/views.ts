/** Other readings of a text: a secret may be escaped, wrapped, or broken by characters that nobody sees. */

import type { Steps } from '../../steps.js';
import { tokenPrefixes } from './forms.js';
import { nextMatch } from './search.js';

/** A reading of a text, with the place of each of its characters in the original. */
export interface View {
  text: string;
  /** Maps a span of this reading to the original. */
  original: (from: number, to: number) => Span;
}

export interface Span {
  from: number;
  to: number;
}

const asWritten = (text: string): View => ({ text, original: (from, to) => ({ from, to }) });

/**
 * A reading in which each match of `form` becomes the text that `read` returns; null leaves the match. Every match contains one of
 * the `signs`, if there are any.
 */
function* reading(
  view: View,
  form: RegExp,
  signs: readonly string[],
  read: (match: string) => string | null,
): Steps<View | null> {
  if (signs.length > 0 && !signs.some((sign) => view.text.includes(sign))) return null;
  const pieces: string[] = [];
  // Each piece: its first character here, its first character in `view`, and the length there if it differs.
  const begins: number[] = [];
  const origins: number[] = [];
  const replaced: (number | null)[] = [];
  let length = 0;
  let copied = 0;
  const add = (piece: string, origin: number, from: number | null) => {
    if (piece === '') return;
    pieces.push(piece);
    begins.push(length);
    origins.push(origin);
    replaced.push(from);
    length += piece.length;
  };
  for (let at = 0; ;) {
    const next = yield* nextMatch(form, view.text, at);
    if (next === null) break;
    yield;
    const [match] = next.read;
    const index = next.base + next.read.index;
    at = index + match.length;
    const piece = read(match);
    if (piece === null) continue;
    add(view.text.slice(copied, index), copied, null);
    add(piece, index, match.length);
    copied = index + match.length;
  }
  if (copied === 0) return null;
  add(view.text.slice(copied), copied, null);
  const pieceOf = (at: number): number => {
    let [low, high] = [0, begins.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (begins[middle]! <= at) low = middle;
      else high = middle - 1;
    }
    return low;
  };
  const original = (from: number, to: number): Span => {
    const [first, last] = [pieceOf(from), pieceOf(to - 1)];
    const whole = replaced[last]!;
    return view.original(
      replaced[first] === null ? origins[first]! + from - begins[first]! : origins[first]!,
      whole === null ? origins[last]! + to - begins[last]! : origins[last]! + whole,
    );
  };
  return { text: pieces.join(''), original };
}

/** Characters without width, which break a word without a trace. */
const unseen = /[\u00AD\u180E\u200B-\u200F\u2060-\u2064\uFEFF]+/g;
const withoutUnseen = (view: View) => reading(view, unseen, [], () => '');

const escaped = /\\(?:[nrt"'/\\]|u00[0-7][0-9a-fA-F])/g;
const unescaped: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' };
const withoutEscapes = (view: View) =>
  reading(view, escaped, ['\\'], (match) =>
    match.startsWith('\\u')
      ? String.fromCharCode(parseInt(match.slice(2), 16))
      : (unescaped[match[1]!] ?? match[1]!),
  );

const percent = /%[2-7][0-9A-Fa-f]/g;
const withoutPercents = (view: View) =>
  reading(view, percent, ['%'], (match) => String.fromCharCode(parseInt(match.slice(1), 16)));

/**
 * A line end inside a word, also inside a text that is joined with `+` or `\`. The next line begins with random characters,
 * and not with a token of its own.
 */
const lineEnd = new RegExp(
  `(?<=[\\w.+/=-])(?:(?:\\\\|["'] ?[+.\\\\]?)?[ \\t]{0,8}\\r?\\n[ \\t]{0,40}(?:[+.>] ?)?["']?|["'] ?\\+ ?["'])(?!${tokenPrefixes})(?=[\\w.+/=-]{0,100}(?:\\d|[A-Za-z][A-Z]))`,
  'g',
);
const withoutLineEnds = (view: View) => reading(view, lineEnd, ['\n', '+'], () => '');

/** JSON in a string of JSON in a string of JSON. */
const MOST_ESCAPES = 3;

/**
 * The readings in which secrets are searched. `joined` lacks the ends of lines inside words; only tokens whose form leaves no
 * doubt are searched there.
 */
export function* viewsOf(text: string): Steps<{ plain: View[]; joined: View[] }> {
  const first = (yield* withoutUnseen(asWritten(text))) ?? asWritten(text);
  const plain = [first];
  let escapes: View | null = first;
  for (let depth = 0; depth < MOST_ESCAPES && escapes !== null; depth++) {
    escapes = yield* withoutEscapes(escapes);
    if (escapes !== null) plain.push(escapes);
  }
  const joined: View[] = [];
  for (const view of plain) {
    const without = yield* withoutLineEnds(view);
    if (without !== null) joined.push(without);
  }
  const decoded = yield* withoutPercents(first);
  if (decoded !== null) plain.push(decoded);
  return { plain, joined };
}
