/**
 * Finds the speakers whose words a text uses. The word sequences of that text are indexed, and the sources are read once:
 * memory is bounded by the text, time is linear in the sources, and equal input gives equal results.
 */

/** Consecutive words that count as copied; fewer in a shorter text. */
const LONGEST_RUN = 4;

export interface Word {
  text: string;
  /** Position in the text. */
  from: number;
  to: number;
}

const wordForm = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{M}\p{N}]+/gu;
const plainWord = /[a-z0-9]+/g;
const escapes = /\\[nrt"]|&lt;|&gt;|&amp;|&quot;/g;
const unseen = /[\p{Cf}\uFF01-\uFF5E]/gu;
/** Part of a word that is removed from it. */
const invisible = '\u0300';

export function wordsOf(text: string): Word[] {
  return [...eachWord(text)];
}

/** Works line by line, since a line of ASCII characters takes a tenth of the time of other lines. */
function* eachWord(text: string): Generator<Word> {
  for (let from = 0; from < text.length;) {
    const end = text.indexOf('\n', from);
    const to = end < 0 ? text.length : end;
    const line = visible(text.slice(from, to));

    for (const match of line.matchAll(/[^\0-\x7F]/.test(line) ? wordForm : plainWord)) {
      const word = match[0].includes(invisible) ? match[0].replaceAll(invisible, '') : match[0];
      const at = from + match.index;
      if (word !== '') yield { text: word, from: at, to: at + match[0].length };
    }
    from = to + 1;
  }
}

/**
 * Removes differences that people do not see: letter case, width, invisible characters, escapes of JSON, and tags. The length
 * stays the same.
 */
function visible(line: string): string {
  const unescaped =
    line.includes('\\') || line.includes('&')
      ? line.replace(escapes, (escape) => ' '.repeat(escape.length))
      : line;
  const lower = unescaped.toLowerCase();
  // Some capitals are longer in lower case.
  const even =
    lower.length === line.length ? lower : unescaped.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  return even.replace(unseen, (found) =>
    /\p{Cf}/u.test(found) ? invisible.repeat(found.length) : found.normalize('NFKC').toLowerCase(),
  );
}

/** A text, or its words if they were already read. */
export type Said = string | readonly string[];

/** The words of a text for `Wording.read`, so that they can be read before the answer arrives. */
export function inWords(text: string): readonly string[] {
  return wordsOf(text).map((word) => word.text);
}

function* wordsSaid(said: Said): Generator<string> {
  if (typeof said !== 'string') yield* said;
  else for (const { text } of eachWord(said)) yield text;
}

/** The speakers of a word sequence. */
interface Evidence {
  trusted: boolean;
  /** Origins with these words, in order of appearance; bounded. */
  origins: string[];
}

const MOST_ORIGINS = 3;
/** Larger than any number of different words, so that a node and a word make one key below 2^53. */
const MOST_WORDS = 2 ** 21;
const ROOT = 0;

/** The word sequences of some texts, with their speakers. */
export class Wording {
  private readonly ids = new Map<string, number>();
  /** The sequences as a tree: a node and a word give the next node. */
  private readonly steps = new Map<number, number>();
  /** The evidence of each node; null if no sequence ends there. */
  private readonly evidence: (Evidence | null)[] = [null];

  /** Adds a text whose speakers are to be found. */
  expect(words: readonly Word[]): void {
    for (const run of runsOf(words)) {
      let node = ROOT;
      for (const { text } of run) {
        const id = this.ids.get(text) ?? this.ids.size;
        this.ids.set(text, id);
        const key = node * MOST_WORDS + id;
        node = this.steps.get(key) ?? this.evidence.push(null) - 1;
        this.steps.set(key, node);
      }
      this.evidence[node] ??= { trusted: false, origins: [] };
    }
  }

  /** Reads a source; `origin` is null for a trusted source. */
  read(said: Said, origin: string | null): void {
    let begun: number[] = [];
    for (const word of wordsSaid(said)) {
      const id = this.ids.get(word);
      const next: number[] = [];
      if (id !== undefined) {
        begun.push(ROOT);
        for (const node of begun) {
          const reached = this.steps.get(node * MOST_WORDS + id);
          if (reached === undefined) continue;
          next.push(reached);
          const found = this.evidence[reached];
          if (found) note(found, origin);
        }
      }
      begun = next;
    }
  }

  /** For each word of an added text: whether it is in a sequence of trusted sources, and the origins of such sequences. */
  credit(words: readonly Word[]): { trusted: boolean; origins: readonly string[] }[] {
    const credited = words.map(() => ({ trusted: false, origins: [] as readonly string[] }));
    runsOf(words).forEach((run, at) => {
      const found = this.evidenceOf(run);
      if (!found) return;
      for (const word of credited.slice(at, at + run.length)) {
        word.trusted ||= found.trusted;
        if (word.origins.length === 0) word.origins = found.origins;
      }
    });
    return credited;
  }

  private evidenceOf(run: readonly Word[]): Evidence | null {
    let node: number | undefined = ROOT;
    for (const { text } of run) {
      const id = this.ids.get(text);
      node = id === undefined ? undefined : this.steps.get(node * MOST_WORDS + id);
      if (node === undefined) return null;
    }
    return this.evidence[node] ?? null;
  }
}

function note(found: Evidence, origin: string | null): void {
  if (origin === null) found.trusted = true;
  else if (found.origins.length < MOST_ORIGINS && !found.origins.includes(origin)) found.origins.push(origin);
}

/** Returns all sequences of four consecutive words; in short texts, of two or three. A single word identifies no speaker. */
function runsOf(words: readonly Word[]): Word[][] {
  const length = words.length < 6 ? Math.min(3, words.length) : LONGEST_RUN;
  if (length < 2) return [];
  return words.slice(0, words.length - length + 1).map((_, at) => words.slice(at, at + length));
}
