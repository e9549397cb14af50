import { invalid } from '../../errors.js';
import { quoted, runsOf, sliceOverlap, splitsPair, type Run } from './words.js';
import { storable } from '../connection/values.js';
import type { SearchMode } from '../../contract/archive.js';

/** One way in which a text can match a word of the query. */
interface Alternative {
  /** In the syntax of PostgreSQL's `tsquery`. */
  tsquery: string;
  /** Share of the word's weight: 1 for the whole word, less for a part of it. */
  share: number;
}

/** A parsed query. */
export type Pattern =
  | {
      mode: 'words';
      /** The words of the query. The later alternatives of a word count only if no text contains the first alternative. */
      terms: Alternative[][];
      /** Each word together with the next one, as `tsquery`: `shipment 12` does not mean a shipment of 12 pieces. */
      pairs: string[];
      /** Quoted phrases. Every hit contains them character by character and as whole words, in upper or lower case. */
      exact: string[];
      /** Paths, codes and names from code, verbatim. Texts that contain one of them rank before all others. */
      identifiers: string[];
      /** Words to mark in a snippet, and the beginning of a word to mark. */
      words: Set<string>;
      prefix: string | null;
    }
  | { mode: 'substring'; text: string };

/** A parsed query of words. */
export type WordsPattern = Extract<Pattern, { mode: 'words' }>;

const longestQuery = 10_000;

/** Maximum number of words of a query that are searched. Further words would only take more time. */
const mostTerms = 24;

/** Shorter pieces of an identifier, and shorter beginnings of a word, carry no meaning. */
const shortestPiece = 3;
const shares = { part: 0.3, beginning: 0.5 };

/**
 * Parses a query of words if it holds a word or a quoted phrase, and otherwise a literal text such as `%` or `=>`.
 * Throws `Input.Invalid` for a query that is empty or too long.
 */
export function parseQuery(query: string, mode: SearchMode = 'words'): Pattern {
  if (typeof query !== 'string' || query.trim() === '') {
    throw invalid('The query is empty.', 'query', 'Give words or characters to search for.');
  }
  const text = storable(query.trim());
  const pattern = mode === 'words' && text.length <= longestQuery ? wordsPattern(text) : null;
  if (pattern !== null) return pattern;
  const longest = mode === 'words' && text.length > longestQuery ? longestQuery : sliceOverlap;
  if (text.length <= longest) return { mode: 'substring', text };
  throw tooLong(text, longest);
}

function tooLong(text: string, longest: number) {
  return invalid(
    `The query has ${text.length} characters, more than ${longest}.`,
    'query',
    'Search for a part of it, or for a few of its words.',
  );
}

function wordsPattern(text: string): WordsPattern | null {
  const exact: string[] = [];
  const chunks: Chunk[] = [];
  for (const [chunk, phrase] of text.matchAll(/"([^"]*)"|[^\s"]+/g)) {
    if (phrase === undefined) chunks.push(...chunkOf(chunk));
    else if (phrase.length > sliceOverlap) throw tooLong(phrase, sliceOverlap);
    else if (phrase.trim() !== '') exact.push(phrase);
  }
  if (chunks.length === 0 && exact.length === 0) return null;
  const last = chunks.at(-1);
  const beginning = last?.word !== undefined && last.word.length >= shortestPiece && text.endsWith(last.text);
  const prefix = beginning ? last.word! : null;
  const terms = new Map(chunks.map((chunk) => [chunk.alternatives[0].tsquery, chunk.alternatives]));
  if (prefix !== null)
    terms.get(quoted(prefix))?.push({ tsquery: `${quoted(prefix)}:*`, share: shares.beginning });
  return {
    mode: 'words',
    terms: [...terms.values()].slice(0, mostTerms),
    pairs: neighbours([...terms.keys()].slice(0, mostTerms)),
    exact,
    identifiers: [...new Set(chunks.flatMap(({ identifier }) => identifier ?? []))].slice(0, mostTerms),
    words: new Set(chunks.flatMap(({ marked }) => marked)),
    prefix,
  };
}

/** A piece of the query between spaces. */
interface Chunk {
  text: string;
  alternatives: [Alternative, ...Alternative[]];
  /** Set if the piece is one plain word. */
  word?: string;
  /** Set if the piece has several parts, or mixes letters and digits. */
  identifier?: string;
  /** Words to mark if the text does not contain the whole piece. */
  marked: string[];
}

function chunkOf(text: string): Chunk[] {
  const runs = [...runsOf(text)].filter(({ parts }) => parts.length > 0);
  const [first] = runs;
  if (first === undefined) return [];
  const parts = runs.flatMap((run) => run.parts.map(({ word }) => word));
  const [word] = parts;
  if (word !== undefined && parts.length === 1) {
    const mixed = /\p{L}/u.test(word) && /\p{N}/u.test(word);
    const identifier = mixed ? { identifier: word } : {};
    return [
      { text, alternatives: [{ tsquery: quoted(word), share: 1 }], word, ...identifier, marked: [word] },
    ];
  }
  const telling = parts.filter((part) => part.length >= shortestPiece);
  const pieces = telling.length > 0 ? telling.map(quoted) : neighbours(parts.map(quoted));
  const whole = runs.length === 1 ? (first.whole ?? []) : [];
  const identifier = trimmed(text);
  return [
    {
      text,
      alternatives: [
        { tsquery: phraseOf(runs), share: 1 },
        ...pieces.map((tsquery) => ({ tsquery, share: shares.part })),
      ],
      ...(identifier === '' ? {} : { identifier }),
      marked: [...(telling.length > 0 ? telling : parts), ...[whole].flat()],
    },
  ];
}

/** The text without punctuation around it. */
const trimmed = (text: string): string => text.replace(/^[^\p{L}\p{N}_$/.~-]+|[^\p{L}\p{N}_$/]+$/gu, '');

/**
 * The parts as neighbours in the text. A single identifier also matches under its whole name (`userId` finds `userid`
 * and `user_id`).
 */
function phraseOf(runs: readonly Run[]): string {
  const phrase = runs.flatMap(({ parts }) => parts.map(({ word }) => quoted(word))).join(' <-> ');
  const whole = runs.length === 1 ? runs[0]?.whole : null;
  return whole ? `(${quoted(whole)} | (${phrase}))` : `(${phrase})`;
}

/**
 * In scripts without spaces every character is a part, and pairs of characters distinguish more than single characters. The same
 * is true of other short pieces.
 */
function neighbours(parts: readonly string[]): string[] {
  return parts.slice(1).map((part, index) => `(${parts[index]!} <-> ${part})`);
}

/** Marks around the first match of a snippet. The text may hold such marks itself. */
const matchMarks = { open: '«', close: '»' } as const;

/** UTF-16 code units before and after a match. */
const around = { before: 100, behind: 200 };

/**
 * The offset of the match in the slice, and a line that shows it with the match between `«` and `»`. `at` gives the
 * offset of a hit without a match.
 */
export function snippetOf(text: string, pattern: Pattern, at?: number): { offset: number; snippet: string } {
  const { from, to } = at === undefined ? placeOf(text, pattern) : { from: at, to: at };
  let start = Math.max(0, at ?? from - around.before);
  if (splitsPair(text, start)) start -= 1;
  let end = Math.min(text.length, Math.max(to, from + around.behind));
  if (splitsPair(text, end)) end += 1;
  const match = to > from ? `${matchMarks.open}${text.slice(from, to)}${matchMarks.close}` : '';
  const line = `${start > 0 ? '…' : ''}${text.slice(start, from)}${match}${text.slice(to, end)}${end < text.length ? '…' : ''}`;
  return { offset: from, snippet: line.replace(/\s+/g, ' ').trim() };
}

/** The first match. With several words, the match that has the most other words close after it. */
function placeOf(text: string, pattern: Pattern): { from: number; to: number } {
  if (pattern.mode === 'substring') return literalIn(text, pattern.text) ?? { from: 0, to: 0 };
  for (const exact of pattern.exact) {
    const place = literalIn(text, exact, wordEdges(exact));
    if (place) return place;
  }
  for (const identifier of pattern.identifiers) {
    const place = literalIn(text, identifier);
    if (place) return place;
  }
  const places: { word: string; from: number; to: number }[] = [];
  for (const { parts, whole } of runsOf(text)) {
    const first = parts[0];
    const last = parts.at(-1);
    if (first && last && whole !== null && matches(whole, pattern))
      places.push({ word: whole, from: first.from, to: last.to });
    else places.push(...parts.filter(({ word }) => matches(word, pattern)));
  }
  const company = (at: number) => {
    const near = new Set<string>();
    const from = places[at]?.from ?? 0;
    for (let next = at; next < places.length; next += 1) {
      const place = places[next];
      if (place === undefined || place.from > from + around.behind) break;
      near.add(place.word);
    }
    return near.size;
  };
  let best = 0;
  let most = 0;
  for (let at = 0; at < Math.min(places.length, 2_000) && most < pattern.words.size; at += 1) {
    const size = company(at);
    if (size > most) [best, most] = [at, size];
  }
  const place = places[best];
  return place ? { from: place.from, to: place.to } : { from: 0, to: 0 };
}

/** Whether a literal begins or ends with a word character. If so, the neighbouring character must not belong to the same word. */
export function wordEdges(literal: string): { before: boolean; behind: boolean } {
  return { before: /^[A-Za-z0-9_]/.test(literal), behind: /[A-Za-z0-9_]$/.test(literal) };
}

function literalIn(
  text: string,
  literal: string,
  { before, behind } = { before: false, behind: false },
): { from: number; to: number } | null {
  // The engine of regular expressions refuses a literal of several thousand characters.
  if (literal.length > sliceOverlap) {
    const from = text.toLowerCase().indexOf(literal.toLowerCase());
    return from < 0 ? null : { from, to: Math.min(text.length, from + literal.length) };
  }
  const escaped = literal.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  const source = `${before ? '(?<![A-Za-z0-9_])' : ''}${escaped}${behind ? '(?![A-Za-z0-9_])' : ''}`;
  const match = new RegExp(source, 'iu').exec(text);
  return match && { from: match.index, to: match.index + match[0].length };
}

function matches(word: string, { words, prefix }: WordsPattern): boolean {
  return words.has(word) || (prefix !== null && word.startsWith(prefix));
}
