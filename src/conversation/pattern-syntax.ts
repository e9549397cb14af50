/**
 * What a pattern of a policy may say: JavaScript's regular expressions with the flag `u`, less what cannot be matched in
 * linear time (lookaround, back-references), and of RE2's own syntax inline flags such as `(?i)`.
 */

/** Most characters of a pattern, and most of its {@link sizeOf}. */
export const LONGEST_PATTERN = 1_000;
export const LARGEST_PATTERN = 1_000;

export interface PatternProblem {
  /** Reads on after "The pattern". */
  problem: string;
  hint: string;
}

export class UnreadablePattern extends Error {
  constructor(readonly problem: PatternProblem) {
    super(problem.problem);
  }
}

const lookaround =
  'Match the words around it too: `key: (\\w+)` for `(?<=key: )\\w+`; a character that must not stand there as a class, `[^x]` for `(?!x).`.';
const backReference = 'Write what is repeated again, or give one pattern for each case.';

/** Escapes, classes, openings of groups, quantifiers, and every other character by itself. */
const token =
  /\\Q[^]*?(?:\\E|$)|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:[pPu]\{[^}]*\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|x\{[^}]*\}|c[A-Za-z]|[pP][A-Z]|k<[^>]*>|[^])|\((?:\?(?:<?[=!]|P?<\w+>|[a-zA-Z-]*[:)]))?|\[:\^?\w+:\]|[*+?]\??|\{\d+(?:,\d*)?\}\??|[^]/gu;

/**
 * The same pattern as RE2 reads it. Where JavaScript and RE2 mean different things by the same characters (`\s`, `[^]`,
 * `\u0041`, `\p{Script=Greek}`), JavaScript's meaning is kept. Throws {@link UnreadablePattern}.
 */
export function inRe2(pattern: string): string {
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
      throw new UnreadablePattern({ problem: `uses ${read}…), which looks around`, hint: lookaround });
    } else if (read === '[' && isAnything(tokens, index)) {
      pieces.push('(?s:.)');
      index += 2;
    } else {
      inClass = read === '[';
      pieces.push(read);
      // A bracket that comes first in a class is one of its characters.
      if (inClass && tokens[index + 1] === '^') pieces.push(tokens[++index]!);
      if (inClass && tokens[index + 1] === ']') pieces.push(tokens[++index]!);
    }
  }
  return pieces.join('');
}

/** `[^]`, unless a bracket further on closes it, as in `[^]]`. */
function isAnything(tokens: readonly string[], index: number): boolean {
  if (tokens[index + 1] !== '^' || tokens[index + 2] !== ']') return false;
  return tokens.slice(index + 3).find((read) => read === '[' || read === ']') !== ']';
}

/** White space of JavaScript, and everything else. */
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
  if (kind === 'S') return inClass ? noSpace : `[${noSpace}]`;
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
 * About how many instructions a pattern compiles to: one for each character or class, times what is repeated. Known
 * before anything is compiled.
 */
export function sizeOf(pattern: string): number {
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

/** How often a quantifier's atom is compiled; null for what is none. */
function timesOf(read: string): number | null {
  if (/^[*+?]\??$/.test(read)) return 1;
  const bounds = /^\{(\d+)(?:,(\d*))?\}\??$/.exec(read);
  if (!bounds) return null;
  const [, least = '', most] = bounds;
  // An optional round takes a branch beside its atom; the last of an unbounded repetition is a loop.
  if (most === undefined) return Number(least);
  return most === '' ? Number(least) + 1 : Number(least) + 2 * Math.max(0, Number(most) - Number(least));
}
