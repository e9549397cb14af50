/**
 * Regular expressions of a policy on text of the session. JavaScript's engine backtracks: one that repeats a repetition
 * takes exponential time on a text that someone else chose. Such patterns are refused, and the others only ever see
 * windows of bounded length, so that any text takes linear time.
 */
import { invalid } from '../errors.js';

/** Longest match that is surely found whole, UTF-16 code units; longer ones may be found in pieces or not at all. */
export const LONGEST_FOUND = 1_000;
const WINDOW = 2 * LONGEST_FOUND;

export interface Match {
  from: number;
  to: number;
  match: string;
  /** It may go on, or have begun before: longer than what is looked at in one piece. */
  isPiece: boolean;
}

/** Matches in order, not overlapping, none empty. `^` and `$` are ends of lines. Throws `Input.Invalid` like {@link refusePattern}. */
export function* matchesIn(text: string, pattern: string, path: string): Generator<Match> {
  const reason = refusePattern(pattern);
  if (reason !== null) {
    throw invalid(`The pattern ${reason}.`, path, 'Write it without a repetition inside a repetition.');
  }
  const expression = new RegExp(pattern, 'gmu');
  let next = 0;
  let cutAt = -1;
  for (let at = 0; at < text.length;) {
    const end = Math.min(text.length, at + WINDOW);
    const last = end === text.length;
    // What begins in the second half of a window is looked for in the next, which shows it whole.
    const decided = last ? end : lineStart(text, at + LONGEST_FOUND, at);
    const window = text.slice(at, end);
    expression.lastIndex = Math.max(0, next - at);
    for (let found = expression.exec(window); found; found = expression.exec(window)) {
      const from = at + found.index;
      if (from >= decided) break;
      if (found[0] === '') {
        expression.lastIndex += 1;
        continue;
      }
      next = from + found[0].length;
      const isCut = !last && next === end;
      yield { from, to: next, match: found[0], isPiece: isCut || from === cutAt };
      if (isCut) cutAt = next;
    }
    at = Math.max(decided, at + 1);
  }
}

/** The beginning of the last line before `at`, if it lies in the upper half of the window; otherwise `at`, off a surrogate pair. */
function lineStart(text: string, at: number, from: number): number {
  const lowest = from + LONGEST_FOUND / 2;
  const end = text.slice(lowest, at).lastIndexOf('\n');
  if (end >= 0) return lowest + end + 1;
  const isLow = text.charCodeAt(at) >= 0xdc00 && text.charCodeAt(at) <= 0xdfff;
  return isLow ? at - 1 : at;
}

/** What is known of a group while its pattern is read. */
interface Group {
  /** Its atoms by alternative; null for a group inside it. */
  alternatives: (string | null)[][];
  /** Atoms that may stand there more or less often; null for groups. */
  loose: (string | null)[];
}

/** Escapes, classes, openings of groups, quantifiers, and all other characters one by one. */
const token =
  /\\(?:[pPuk]\{[^}]*\}|k<[^>]*>|[^])|\[(?:\\[^]|[^\]\\])*\]|\((?:\?(?:[:=!]|<[=!]|<\w+>))?|[*+?]\??|\{\d+(?:,\d*)?\}\??|[^]/gu;
/** Repetitions of at most so many count as bounded. */
const FEW = 10;

/**
 * Why a pattern is not run: it is no regular expression, or a part that is repeated can match the same text in several
 * ways, so that a text may take exponential time. null where nothing speaks against it. Strict: some harmless ones are refused.
 */
export function refusePattern(pattern: string): string | null {
  try {
    new RegExp(pattern, 'gmu');
  } catch {
    return 'is not a regular expression';
  }
  const open: Group[] = [emptyGroup()];
  let last: { atom: string | null; group: Group | null } = { atom: null, group: null };
  for (const [read] of pattern.matchAll(token)) {
    const group = open.at(-1);
    if (!group) return 'is not a regular expression';
    if (read.startsWith('(')) open.push(emptyGroup());
    else if (read === '|') group.alternatives.push([]);
    else if (read === ')') {
      open.pop();
      const outer = open.at(-1);
      outer?.alternatives.at(-1)?.push(null);
      // What is loose inside a group is loose around it too.
      if (group.loose.length > 0) outer?.loose.push(...group.loose);
      last = { atom: null, group };
    } else if (isQuantifier(read)) {
      if (isMany(read) && last.group && isAmbiguous(last.group))
        return 'repeats what can match in several ways';
      if (!/^\{(\d+)\}/.test(read) || isMany(read)) group.loose.push(last.atom);
    } else {
      group.alternatives.at(-1)?.push(read);
      last = { atom: read, group: null };
    }
  }
  return null;
}

function emptyGroup(): Group {
  return { alternatives: [[]], loose: [] };
}

function isQuantifier(read: string): boolean {
  return /^(?:[*+?]\??|\{\d+(?:,\d*)?\}\??)$/.test(read);
}

function isMany(read: string): boolean {
  if (/^[*+]/.test(read)) return true;
  const bounds = /^\{(\d+)(,(\d*))?\}/.exec(read);
  if (!bounds) return false;
  if (bounds[2] !== undefined && bounds[3] === '') return true;
  return Number(bounds[3] ?? bounds[1]) > FEW;
}

/**
 * A repeated group is clear where each round begins, or ends, with a character that nothing loose in it matches, as in
 * `(?:-\w+)*`; and where its alternatives begin differently.
 */
function isAmbiguous({ alternatives, loose }: Group): boolean {
  const starts = alternatives.map((atoms) => plainCharacter(atoms[0]));
  if (alternatives.length > 1 && (starts.includes(null) || new Set(starts).size < starts.length)) return true;
  if (loose.length === 0) return false;
  if (loose.includes(null)) return true;
  return !alternatives.every((atoms) =>
    [atoms[0], atoms.at(-1)].some((edge) => {
      const character = plainCharacter(edge);
      return character !== null && !loose.some((atom) => matches(atom ?? '', character));
    }),
  );
}

/** The one character that an atom matches; null for a class, a group or nothing. */
function plainCharacter(atom: string | null | undefined): string | null {
  if (atom === null || atom === undefined) return null;
  if (/^\\[^\w]$/u.test(atom)) return atom.slice(1);
  return /^[^\\[\].^$]$/u.test(atom) ? atom : null;
}

function matches(atom: string, character: string): boolean {
  return new RegExp(`^(?:${atom})$`, 'u').test(character);
}
