/** What a query asks for, and where a text answers it. */
import { invalid } from '../errors.js';
import { quoted, runsOf, sliceOverlap, splitsPair, type Run } from './search-text.js';
import { storable } from './text.js';

/** `words`: every word, in any order, `"several words"` as a phrase. `substring`: these characters, whatever their case. */
export type SearchMode = 'words' | 'substring';

/** A query understood. */
export type Pattern =
  | {
      mode: 'words';
      /** As PostgreSQL reads it. */
      tsquery: string;
      /** Words to mark in a snippet; the last one may be the beginning of a word. */
      words: Set<string>;
      prefix: string | null;
    }
  | { mode: 'substring'; text: string };

const longestQuery = 10_000;

/**
 * A query of words alone when it holds some, else (`%`, `=>`) these very characters. Throws `Input.Invalid` for one that
 * is empty or too long.
 */
export function parseQuery(query: string, mode: SearchMode = 'words'): Pattern {
  if (typeof query !== 'string' || query.trim() === '') {
    throw invalid('The query is empty.', 'query', 'Name words, or characters to look for.');
  }
  const text = storable(query.trim());
  const pattern = mode === 'words' && text.length <= longestQuery ? wordsPattern(text) : null;
  if (pattern !== null) return pattern;
  const longest = mode === 'words' && text.length > longestQuery ? longestQuery : sliceOverlap;
  if (text.length <= longest) return { mode: 'substring', text };
  throw invalid(
    `The query has ${text.length} characters, more than ${longest}.`,
    'query',
    'Look for a part of it, or for a few of its words.',
  );
}

function wordsPattern(text: string): Pattern | null {
  const chunks = chunksOf(text).filter(({ runs }) => runs.length > 0);
  const last = chunks.at(-1);
  if (last === undefined) return null;
  const prefix = last.phrase ? null : (last.runs.at(-1)?.parts.at(-1)?.word ?? null);
  const conditions = chunks.map((chunk) => conditionOf(chunk.runs, prefix !== null && chunk === last));
  const words = chunks.flatMap(({ runs }) =>
    runs.flatMap(({ parts, whole }) => [
      ...parts.map(({ word }) => word),
      ...(whole === null ? [] : [whole]),
    ]),
  );
  return { mode: 'words', tsquery: [...new Set(conditions)].join(' & '), words: new Set(words), prefix };
}

/** What stands between blanks, or between quotation marks. */
function chunksOf(text: string): { runs: Run[]; phrase: boolean }[] {
  return [...text.matchAll(/"([^"]*)"|[^\s"]+/g)].map(([chunk, phrase]) => ({
    runs: [...runsOf(phrase ?? chunk)].filter(({ parts }) => parts.length > 0),
    phrase: phrase !== undefined,
  }));
}

/** Neighbours in the text; an identifier by itself also under its whole name (`userId` finds `userid` and `user_id`). */
function conditionOf(runs: readonly Run[], prefix: boolean): string {
  const word = (name: string, last: boolean) => `${quoted(name)}${last && prefix ? ':*' : ''}`;
  const parts = runs.flatMap((run) => run.parts);
  const phrase = parts.map((part, index) => word(part.word, index === parts.length - 1)).join(' <-> ');
  const whole = runs.length === 1 ? runs[0]?.whole : null;
  return whole ? `(${word(whole, true)} | (${phrase}))` : `(${phrase})`;
}

/** Around the first match of a snippet; the text may hold such marks itself. */
export const matchMarks = { open: '«', close: '»' } as const;
/** Code units before and behind a match. */
const around = { before: 100, behind: 200 };

/** Where the slice answers, as an offset into it, and a line that shows it with the match between `«` and `»`. */
export function snippetOf(text: string, pattern: Pattern): { offset: number; snippet: string } {
  const { from, to } = placeOf(text, pattern);
  let start = Math.max(0, from - around.before);
  if (splitsPair(text, start)) start -= 1;
  let end = Math.min(text.length, Math.max(to, from + around.behind));
  if (splitsPair(text, end)) end += 1;
  const match = to > from ? `${matchMarks.open}${text.slice(from, to)}${matchMarks.close}` : '';
  const line = `${start > 0 ? '…' : ''}${text.slice(start, from)}${match}${text.slice(to, end)}${end < text.length ? '…' : ''}`;
  return { offset: from, snippet: line.replace(/\s+/g, ' ').trim() };
}

/** The first match; with several words, the one that has most others close behind it. */
function placeOf(text: string, pattern: Pattern): { from: number; to: number } {
  if (pattern.mode === 'substring') {
    const literal = pattern.text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
    const match = new RegExp(literal, 'iu').exec(text);
    return match ? { from: match.index, to: match.index + match[0].length } : { from: 0, to: 0 };
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

function matches(word: string, { words, prefix }: Extract<Pattern, { mode: 'words' }>): boolean {
  return words.has(word) || (prefix !== null && word.startsWith(prefix));
}
