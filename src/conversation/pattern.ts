/**
 * Matches regular expressions of a policy on text of a session. Both are untrusted, so they run on a linear-time engine (RE2),
 * in windows of bounded length, and for at most {@link MOST_MATCHING_MS} per task. Patterns have the syntax of JavaScript with
 * the flag `u`, without lookaround and back-references, which cannot be matched in linear time, and with RE2's inline flags
 * such as `(?i)`.
 */
import { LRUCache } from 'lru-cache';
import { RE2JS } from 're2js';
import { invalid } from '../errors.js';

/** Maximum characters of a pattern, and maximum of its {@link sizeOf}. */
export const LONGEST_PATTERN = 1_000;
const LARGEST_PATTERN = 1_000;
/** Maximum of a pattern's {@link rangesOf}. RE2JS compiles as many in about 20 ms. */
const MOST_RANGES = 100_000;
/** Maximum of {@link weightOf} of all patterns of a list. */
const HEAVIEST_LIST = 30_000;
/** RE2JS needs the same time for this many ranges as for one instruction. */
const RANGES_PER_INSTRUCTION = 30;

interface PatternProblem {
  /** Predicate of a sentence whose subject is the pattern. */
  problem: string;
  hint: string;
}

class UnreadablePattern extends Error {
  constructor(readonly problem: PatternProblem) {
    super(problem.problem);
  }
}

const lookaround =
  'Match the surrounding words as well: replace `(?<=key: )\\w+` by `key: (\\w+)`. Exclude a character with a class: replace `(?!x).` by `[^x]`.';
const backReference = 'Write the repeated part again, or give one pattern for each case.';

/** Escapes, classes, openings of groups, quantifiers, and single other characters. */
const token =
  /\\Q[^]*?(?:\\E|$)|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:[pPu]\{[^}]*\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|x\{[^}]*\}|c[A-Za-z]|[pP][A-Z]|k<[^>]*>|[^])|\((?:\?(?:<?[=!]|P?<\w+>|[a-zA-Z-]*[:)]))?|\[:\^?\w+:\]|[*+?]\??|\{\d+(?:,\d*)?\}\??|[^]/gu;

/**
 * Translates a pattern into RE2's syntax. If the same characters have different meanings (`\s`, `[^]`, `\u0041`,
 * `\p{Script=Greek}`), JavaScript's meaning is kept. Throws {@link UnreadablePattern}.
 */
function inRe2(pattern: string): string {
  let inClass = false;
  const pieces: string[] = [];
  const tokens = [...pattern.matchAll(token)].map(([read]) => read);
  for (let index = 0; index < tokens.length; index++) {
    const read = tokens[index]!;
    if (read.startsWith('\\')) pieces.push(escapeInRe2(read, inClass));
    else if (inClass) {
      inClass = read !== ']';
      pieces.push(read);
    } else if (/^\(\?<?[=!]$/.test(read)) {
      throw new UnreadablePattern({ problem: `uses ${read}…), a lookaround`, hint: lookaround });
    } else if (read === '[' && isAnything(tokens, index)) {
      pieces.push('(?s:.)');
      index += 2;
    } else {
      inClass = read === '[';
      pieces.push(read);
      // A `]` at the start of a class, also after `^`, is a character of that class.
      if (inClass && tokens[index + 1] === '^') pieces.push(tokens[++index]!);
      if (inClass && tokens[index + 1] === ']') pieces.push(tokens[++index]!);
    }
  }
  return pieces.join('');
}

/**
 * Whether the class that begins at this token is `[^]` (any character). In `[^]]` it is not: the last bracket closes the class,
 * and the first one is its character.
 */
function isAnything(tokens: readonly string[], index: number): boolean {
  if (tokens[index + 1] !== '^' || tokens[index + 2] !== ']') return false;
  return tokens.slice(index + 3).find((read) => read === '[' || read === ']') !== ']';
}

/** The contents of character classes for JavaScript's white space and, within a longer class, for all other characters. */
const space =
  '\\t-\\r\\x{20}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}\\x{FEFF}';
const noSpace =
  '\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{FEFE}\\x{FF00}-\\x{10FFFF}';

function escapeInRe2(read: string, inClass: boolean): string {
  const kind = read[1] ?? '';
  if (kind === 'Q' || read === '\\') return read;
  if (/^[1-9]$/.test(kind) || kind === 'k')
    throw new UnreadablePattern({ problem: `uses ${read}, a back-reference`, hint: backReference });
  if (kind === 's') return inClass ? space : `[${space}]`;
  // RE2 folds the case of a class before it negates it, which takes no time for white space.
  if (kind === 'S') return inClass ? noSpace : `[^${space}]`;
  if (kind === 'b' && inClass) return '\\x{8}';
  if (kind === '0') return '\\x{0}';
  if (kind === 'c') return `\\x{${((read.codePointAt(2) ?? 0) % 32).toString(16)}}`;
  if (kind === 'u' && read.length > 2) return codePoint(read);
  if (kind === 'p' || kind === 'P')
    return read.replace(/\{(?:Script|sc|Script_Extensions|scx|General_Category|gc)=/, '{');
  return read;
}

/** `\u{1F600}`, `\u0041`, `\uD83D\uDE00`. */
function codePoint(read: string): string {
  const [first = 0, second] = [...read.matchAll(/[0-9a-fA-F]+/g)].map(([digits]) => parseInt(digits, 16));
  const point = second === undefined ? first : 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  return `\\x{${point.toString(16)}}`;
}

/**
 * Estimates the number of instructions of a compiled pattern before it is compiled: one per character or class, times its
 * repetitions.
 */
function sizeOf(pattern: string): number {
  const open = [0];
  let last = 0;
  let inClass = false;
  for (const [read] of pattern.matchAll(token)) {
    const outer = open.at(-1) ?? 0;
    const times = inClass ? null : timesOf(read);
    if (inClass) inClass = read !== ']';
    else if (read.startsWith('(')) {
      open.push(0);
      last = 0;
    } else if (read === ')') {
      last = (open.pop() ?? 0) + 1;
      open.push((open.pop() ?? 0) + last);
    } else if (times !== null) {
      open[open.length - 1] = outer + last * (times - 1) + 1;
      last = last * times + 1;
    } else {
      inClass = read === '[';
      last = read.startsWith('\\Q') ? read.length : 1;
      open[open.length - 1] = outer + last;
    }
  }
  return open.reduce((sum, size) => sum + size, 0);
}

/** Largest number of ranges of a Unicode property, rounded up. */
const PROPERTY_RANGES = 1_000;
/** RE2 folds the case of a range by looking at each of its code points from `A` to the last one with another case. */
const FIRST_FOLDED = 0x41;
const LAST_FOLDED = 0x1e943;
/** RE2JS needs the same time to add one range as to fold this many code points. */
const FOLDED_PER_RANGE = 8;

/**
 * Estimates the work of reading the character classes of a pattern before it is compiled: their ranges, and the code points
 * whose case is folded, where the pattern has the flag `i`. Repetitions share the class that was read once.
 */
function rangesOf(pattern: string): number {
  const tokens = [...pattern.matchAll(token)].map(([read]) => read);
  const folds = tokens.some((read) => /^\(\?[a-zA-Z-]*i/.test(read));
  const folded = (from: number, to: number) =>
    folds ? Math.max(0, Math.min(to, LAST_FOLDED) - Math.max(from, FIRST_FOLDED)) / FOLDED_PER_RANGE : 0;
  let ranges = 0;
  let inClass = false;
  for (const [index, read] of tokens.entries()) {
    if (/^\\[pP]/.test(read)) ranges += folds ? 2 * PROPERTY_RANGES : PROPERTY_RANGES;
    else if (!inClass) inClass = read === '[' && !isAnything(tokens, index);
    else if (read === ']' && tokens[index - 1] !== '[' && tokens.slice(index - 2, index).join('') !== '[^')
      inClass = false;
    else if (read === '\\S') ranges += 1 + folded(0, LAST_FOLDED);
    else if (read === '-')
      ranges += 1 + folded(pointOf(tokens[index - 1], 0), pointOf(tokens[index + 1], LAST_FOLDED));
    else ranges += 1;
  }
  return Math.ceil(ranges);
}

/** The code point of one character of a class, which may be escaped; `otherwise` if it is written in a rare form. */
function pointOf(read: string | undefined, otherwise: number): number {
  if (read === undefined) return otherwise;
  if (!read.startsWith('\\')) return read.codePointAt(0) ?? otherwise;
  if (/^\\(?:u[0-9a-fA-F]{4}|[ux]\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2})$/.test(read))
    return parseInt(read.replace(/[^0-9a-fA-F]/g, ''), 16);
  return /^\\[^\w]$/.test(read) ? (read.codePointAt(1) ?? otherwise) : otherwise;
}

/** Estimates the work of compiling a pattern, in instructions; 0 for one that is refused without being compiled. */
function weightOf(pattern: string): number {
  if (pattern.length > LONGEST_PATTERN) return 0;
  const size = sizeOf(pattern);
  const ranges = rangesOf(pattern);
  if (size > LARGEST_PATTERN || ranges > MOST_RANGES) return 0;
  return size + Math.ceil(ranges / RANGES_PER_INSTRUCTION);
}

/** The reason why a list of patterns is refused, found before any of them is compiled; null for a list that may be compiled. */
export function problemOfPatterns(patterns: readonly string[]): PatternProblem | null {
  const weight = patterns.reduce((sum, pattern) => sum + weightOf(pattern), 0);
  if (weight <= HEAVIEST_LIST) return null;
  return {
    problem: `holds patterns that are too large together: with their repetitions and classes expanded they have about ${weight} characters`,
    hint: `Give fewer or shorter patterns: at most ${HEAVIEST_LIST} characters are allowed together.`,
  };
}

/** How often a quantifier's atom is compiled; null if `read` is not a quantifier. */
function timesOf(read: string): number | null {
  if (/^[*+?]\??$/.test(read)) return 1;
  const bounds = /^\{(\d+)(?:,(\d*))?\}\??$/.exec(read);
  if (!bounds) return null;
  const [, least = '', most] = bounds;
  // Each optional repetition counts twice: its atom and a branch. An unbounded repetition ends with one more copy, which is a
  // loop.
  if (most === undefined) return Number(least);
  return most === '' ? Number(least) + 1 : Number(least) + 2 * Math.max(0, Number(most) - Number(least));
}

/**
 * Length in UTF-16 code units up to which a match is always found whole. A longer match may be found in pieces or not at all.
 * @internal Tests use sizes on either side of it.
 */
export const LONGEST_FOUND = 1_000;

/**
 * The same length for redaction, which searches in longer pieces. For a large pattern the pieces are shorter (`longestHidden`),
 * because each step of the automaton takes time for every state.
 */
const LONGEST_HIDDEN = 50_000;
const mostSteps = 2_000_000;

function longestHidden(pattern: string): number {
  return Math.max(LONGEST_FOUND, Math.min(LONGEST_HIDDEN, Math.floor(mostSteps / sizeOf(pattern))));
}

/** Maximum milliseconds of matching per task, that is per {@link Matching}. */
const MOST_MATCHING_MS = 20_000;

export interface Match {
  from: number;
  to: number;
  match: string;
  /** Whether the match may be part of a longer one that exceeds the searched piece. */
  isPiece: boolean;
}

/** Compiled patterns. Each has states of up to 8 MB. */
const compiled = new LRUCache<string, RE2JS | PatternProblem>({ max: 32, memoMethod: compileNow });

const compile = (pattern: string): RE2JS | PatternProblem => compiled.memo(pattern);

function compileNow(pattern: string): RE2JS | PatternProblem {
  if (pattern.length > LONGEST_PATTERN)
    return {
      problem: `has ${pattern.length} characters`,
      hint: `Write it in at most ${LONGEST_PATTERN}, or as several patterns.`,
    };
  try {
    const translated = inRe2(pattern);
    const size = sizeOf(pattern);
    if (size > LARGEST_PATTERN)
      return {
        problem: `is too large: with its repetitions expanded it has about ${size} characters`,
        hint: `Use fewer repetitions: at most ${LARGEST_PATTERN} characters are allowed.`,
      };
    if (rangesOf(pattern) > MOST_RANGES)
      return {
        problem: 'has character classes that are too large together',
        hint: 'Use fewer Unicode properties (`\\p{…}`), and no large ranges of characters with the flag `i`.',
      };
    return RE2JS.compile(translated, RE2JS.MULTILINE);
  } catch (error) {
    if (error instanceof UnreadablePattern) return error.problem;
    const { name, message } = error as Error;
    if (!name.startsWith('RE2JS')) throw error;
    return {
      problem: `is not valid RE2 syntax: ${message.replace(/^error parsing regexp: |\(\?m\)/g, '')}`,
      hint: 'Use the syntax of RE2: JavaScript without lookaround and back-references, with repetitions up to 1,000.',
    };
  }
}

/** The reason why a pattern is refused, or null. */
export function problemOfPattern(pattern: string): PatternProblem | null {
  const known = compile(pattern);
  return known instanceof RE2JS ? null : known;
}

/** Throws `Input.Invalid` for a pattern that cannot be matched. */
export function assertPattern(pattern: string, path: string): void {
  const problem = problemOfPattern(pattern);
  if (problem) throw invalid(`${path} ${problem.problem}.`, path, problem.hint);
}

/** The matching of one task; its time limit covers all patterns and texts. */
export class Matching {
  private spentMs = 0;
  private readonly mostMs: number;
  private readonly signal: AbortSignal | undefined;

  /** Once the signal is aborted, `search` throws its reason. */
  constructor({ mostMs = MOST_MATCHING_MS, signal }: { mostMs?: number; signal?: AbortSignal } = {}) {
    this.mostMs = mostMs;
    this.signal = signal;
  }

  /**
   * Yields non-empty matches in order, without overlaps, and null after each attempt so that other work can run. `^` and `$`
   * match at line ends. Throws `Input.Invalid` if the pattern is refused, or if all matching of the task takes too long.
   */
  search(text: string, pattern: string, path: string): Generator<Match | null, void> {
    return this.searchIn(LONGEST_FOUND, text, pattern, path);
  }

  /**
   * {@link search} for redaction. It finds longer matches. A match that may continue beyond its piece is extended to the end of
   * the text, and the search ends there.
   */
  *searchHidden(text: string, pattern: string, path: string): Generator<Match | null, void> {
    assertPattern(pattern, path);
    for (const found of this.searchIn(longestHidden(pattern), text, pattern, path)) {
      if (found?.isPiece) {
        yield { ...found, to: text.length, match: text.slice(found.from) };
        return;
      }
      yield found;
    }
  }

  private *searchIn(
    longest: number,
    text: string,
    pattern: string,
    path: string,
  ): Generator<Match | null, void> {
    assertPattern(pattern, path);
    const searched = inLines(text, pattern);
    let next = 0;
    let cutAt = -1;
    for (let at = 0; at < text.length;) {
      const end = Math.min(text.length, at + 2 * longest);
      const last = end === text.length;
      // Matches that begin in the second half of a window are searched in the next one, which contains them whole.
      const decided = last ? end : lineStart(searched, at + longest, at);
      // The previous character shows whether a word or a line begins here.
      const before = at === 0 ? 0 : at - 1;
      const window = searched.slice(before, end);
      for (let from = Math.max(next, at); from < decided;) {
        const found = this.timed(pattern, path, (expression) => find(expression, window, from - before));
        yield null;
        if (found === null || before + found.from >= decided) break;
        from = before + found.to;
        if (found.from === found.to) {
          from += (text.codePointAt(from) ?? 0) > 0xffff ? 2 : 1;
          continue;
        }
        const isCut = !last && from === end;
        const start = before + found.from;
        next = from;
        yield { from: start, to: next, match: text.slice(start, next), isPiece: isCut || start === cutAt };
        if (isCut) cutAt = next;
      }
      at = Math.max(decided, at + 1);
    }
  }

  private timed<Result>(pattern: string, path: string, work: (expression: RE2JS) => Result): Result {
    this.signal?.throwIfAborted();
    const since = performance.now();
    const expression = compile(pattern);
    if (!(expression instanceof RE2JS)) throw new Error('the pattern was not checked before it was matched');
    const result = work(expression);
    this.spentMs += performance.now() - since;
    if (this.spentMs <= this.mostMs) return result;
    throw invalid(
      `${path} is still matching after ${Math.round(this.spentMs)} ms.`,
      path,
      `All patterns of a policy together may take ${this.mostMs} ms: give fewer patterns, or ones that match less text.`,
    );
  }
}

interface Span {
  from: number;
  to: number;
}

/** The first match that begins at `from` or later. Most windows have none, and testing for a match is much faster than finding it. */
function find(expression: RE2JS, window: string, from: number): Span | null {
  if (from <= 1 && !expression.test(window)) return null;
  const matcher = expression.matcher(window);
  return matcher.find(from) ? { from: matcher.start(), to: matcher.end() } : null;
}

/** JavaScript has four line terminators, RE2 only one, so the others are replaced unless the pattern names one of them. */
function inLines(text: string, pattern: string): string {
  const namesTerminator =
    /\\r|\\x0[dD]|\\x\{0*[dD]\}|\\u\{?(?:0{0,4}[dD]\b|000[dD]|202[89])|[\r\u2028\u2029]/.test(pattern);
  return namesTerminator || !/[\r\u2028\u2029]/.test(text) ? text : text.replace(/[\r\u2028\u2029]/g, '\n');
}

/**
 * The start of the last line that begins in the second half of the range from `from` to `at`; if there is none, `at`, moved off
 * a surrogate pair.
 */
function lineStart(text: string, at: number, from: number): number {
  const lowest = from + Math.floor((at - from) / 2);
  const end = text.slice(lowest, at).lastIndexOf('\n');
  if (end >= 0) return lowest + end + 1;
  const isLow = text.charCodeAt(at) >= 0xdc00 && text.charCodeAt(at) <= 0xdfff;
  return isLow ? at - 1 : at;
}

/** Whether a short text has a match. False if the pattern is refused. */
export function hasMatch(pattern: string, text: string): boolean {
  const expression = compile(pattern);
  return expression instanceof RE2JS && expression.test(inLines(text, pattern));
}
