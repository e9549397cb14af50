/**
 * The content of a text, in any language: its words, the character pairs of scripts without spaces between words, its numbers
 * and identifiers. Each has a weight, its share in the content. There are no word lists.
 */
import { atOnce, type Steps } from '../../steps.js';
import { eachRun, eachToken, isLetterAt } from '../text/runs.js';

/** The content of one text. */
interface Matter {
  /** Words in lower case; the value is the length in characters. */
  words: ReadonlyMap<string, number>;
  /** Runs of characters in scripts without spaces. */
  grams: ReadonlySet<string>;
  /** Numbers and identifiers, with their weights. */
  exact: ReadonlyMap<string, number>;
  /** Mean length of all words, with repetitions. */
  meanLength: number;
}

/** Replaces full-width forms and ligatures by plain characters, and removes invisible characters. */
function plainForm(text: string): string {
  return /[^\0-\x7F]/.test(text) ? text.normalize('NFKC').replace(/[\p{Cf}\u0640\u064B-\u065F]/gu, '') : text;
}

/** Writes 1,200 and 1 200 as 1200. Two separate numbers may be joined too: `HAT260 167`. */
function ungrouped(text: string): string {
  return text.replace(/(?<=\d)[,'\u2019 ](?=\d{3}(?!\d))/g, '');
}

/**
 * Scripts that are compared by character pairs. Korean has spaces, but attaches grammar to its words. U+30FC lengthens a
 * Japanese vowel.
 */
const together =
  '\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Hangul}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}\\u30FC';
const isUnspaced = new RegExp(`[${together}]`, 'u');
const pieces = new RegExp(`[${together}](?:[${together}]|\\p{M})*|[^${together}]+`, 'gu');
/** Scripts in which a syllable takes two to four characters. */
const longGrams = /[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

/** `text` is in plain form and lower case. */
function* matterOf(text: string): Steps<Matter> {
  const words = new Map<string, number>();
  const grams = new Set<string>();
  let total = 0;
  let count = 0;
  yield* eachRun(text, (from, to, of) => {
    const run = text.slice(from, to);
    const isWord = of === 'small' || words.has(run) || !isUnspaced.test(run);
    for (const piece of isWord ? [run] : (run.match(pieces) ?? [])) {
      if (!isWord && isUnspaced.test(piece)) {
        addGrams(piece, grams);
        continue;
      }
      const length = of === 'any' ? [...piece].length : piece.length;
      words.set(piece, length);
      total += Math.min(length, LONGEST_COUNTED);
      count += 1;
    }
  });
  const exact = yield* exactIn(text);
  return { words, grams, exact, meanLength: count === 0 ? USUAL_MEAN : total / count };
}

/** Maximum length with which a word counts in the mean, so that encoded bytes and compounds do not raise it. */
const LONGEST_COUNTED = 12;
const USUAL_MEAN = 4.6;

function addGrams(run: string, grams: Set<string>): void {
  const characters = [...run];
  const size = longGrams.test(run) ? 4 : 2;
  for (let at = 0; at + size <= characters.length; at++) grams.add(characters.slice(at, at + size).join(''));
}

const LARGEST_WEIGHT = 8;

/**
 * In all languages, longer words carry more information (Piantadosi, Tily and Gibson 2011, "Word lengths are optimized for
 * efficient communication"). Words shorter than two thirds of the mean are mostly grammar and have the weight 0.
 */
function weightOfWord(length: number, meanLength: number): number {
  const mean = Math.min(7, Math.max(2.5, meanLength));
  return Math.max(0, Math.min(LARGEST_WEIGHT, (length / mean - 0.65) * 4.6));
}

/** Pairs with Hiragana are mostly grammar; a Han character carries about as much as half a word. */
function weightOfGram(gram: string): number {
  if (/\p{Script=Hiragana}/u.test(gram)) return /\p{Script=Han}/u.test(gram) ? 0.5 : 0;
  if (/\p{Script=Han}/u.test(gram)) return 2;
  return /\p{Script=Hangul}/u.test(gram) ? 1.5 : 0.75;
}

/** Numbers of two digits and more, times and decimals, words with digits in them, and names of code, files and addresses. */
function* exactIn(text: string): Steps<Map<string, number>> {
  const found = new Map<string, number>();
  const read = new Set<string>();
  yield* eachToken(text, (token) => {
    if (read.has(token)) return;
    read.add(token);
    if (token.length >= 6 && token.length <= 200 && /[a-z](?:[_/\\@][a-z0-9]|\.[a-z]{1,4}$)/.test(token))
      found.set(token, LARGEST_WEIGHT);
    if (!/\d/.test(token)) return;
    if (/^\d+(?:[.:]\d+)+$/.test(token))
      found.set(token, Math.min(LARGEST_WEIGHT, 2.5 * (token.replace(/\D/g, '').length - 1)));
    for (const [part] of token.matchAll(/[a-z0-9]*\d[a-z0-9]*/g)) {
      const weight = /[a-z]/.test(part) ? 1.5 * part.length : 2.5 * (part.length - 1);
      if (part.length > 1 && part.length <= 64) found.set(part, Math.min(LARGEST_WEIGHT, weight));
    }
  });
  return found;
}

const SHORTEST_NAME = 3;
const LONGEST_NAME = 41;
const namesOfRun = /(?<!\p{L})\p{L}[\p{L}\p{M}]{2,40}/gu;

/** Above this share of capitals inside sentences, the language capitalizes all nouns. */
const MOST_CAPITALS = 0.2;

/**
 * Words that are the same in every language, in lower case: words that are usually capitalized within sentences, or usually
 * written as code; words with a capital after the first letter (`macOS`); and, in a text of another script, words in Latin
 * letters. If all nouns have a capital, or the text is too short to know, a word is a name only after another capitalized word.
 * `text` is in plain form.
 */
function* namesIn(text: string, isLatin: boolean): Steps<Set<string>> {
  const names = new Set<string>();
  const capital = new Map<string, number>();
  const code = new Map<string, number>();
  const small = new Map<string, number>();
  const behindCapital = new Set<string>();
  const add = (to: Map<string, number>, word: string) => to.set(word, (to.get(word) ?? 0) + 1);
  let inside = 0;
  let capitals = 0;
  const read = (word: string, index: number, isSmall: boolean) => {
    const key = isSmall ? word : word.toLowerCase();
    const isInside = text[index - 1] === ' ' && isInSentence(text[index - 2] ?? '');
    if ((!isSmall && isIdentifier(text, word, index)) || (!isLatin && isLatinWord(word))) names.add(key);
    if (isInside) inside += 1;
    if (isCode(text, word, index)) add(code, key);
    else if (isSmall || /^\p{Ll}/u.test(word)) add(small, key);
    else if (isInside && /^\p{Lu}/u.test(word)) {
      add(capital, key);
      capitals += 1;
      if (/\p{Lu}\p{Ll}+ $/u.test(text.slice(Math.max(0, index - 42), index))) behindCapital.add(key);
    }
  };
  yield* eachRun(text, (from, to, of) => {
    if (of !== 'any' && to - from < SHORTEST_NAME) return;
    const run = text.slice(from, to);
    if (of !== 'any' && run.length <= LONGEST_NAME && isLetterAt(text, from)) read(run, from, of === 'small');
    else for (const { 0: word, index } of run.matchAll(namesOfRun)) read(word, from + index, false);
  });
  const allNouns = capitals > MOST_CAPITALS * inside;
  for (const [word, times] of [...capital, ...code]) {
    const isNamed = code.has(word) || !allNouns || behindCapital.has(word);
    if (isNamed && times > 2 * (small.get(word) ?? 0)) names.add(word);
  }
  return names;
}

function isInSentence(before: string): boolean {
  return (before >= 'a' && before <= 'z') || /[\p{Ll}\p{N},;)]/u.test(before);
}

/** `` `venv` `` and `exec(`. */
function isCode(text: string, word: string, index: number): boolean {
  const next = text[index + word.length];
  return next === '(' || (next === '`' && text[index - 1] === '`');
}

/** `RestrictedPython`, `macOS`, but not parts of encoded bytes. */
function isIdentifier(text: string, word: string, index: number): boolean {
  if (!/^\p{L}\p{Ll}+\p{Lu}/u.test(word)) return false;
  const around = (text[index - 1] ?? ' ') + (text[index + word.length] ?? ' ');
  return !/[\d+/=]/.test(around);
}

/** At least four letters, because two or three are a word in many languages. */
function isLatinWord(word: string): boolean {
  return /^[a-z]{4,}$/i.test(word);
}

function isMostlyLatin(text: string): boolean {
  const beyondAscii = (text.match(/[^\0-\x7F]+/g) ?? []).join('');
  const others = beyondAscii.match(/(?!\p{Script=Latin})\p{L}/gu)?.length ?? 0;
  return others === 0 || others < (text.match(/\p{Script=Latin}/gu)?.length ?? 0);
}

/**
 * The evidence that an answer has content of its record, and the evidence required. A summary has the evidence, in any language
 * and form; a refusal, an error page, a placeholder or a counter-question lacks it, however it is worded. There is no list of
 * wordings.
 */
interface Grounding {
  /** Weight of the content that the answer shares with the record, less half of the other content. */
  found: number;
  needed: number;
}

/**
 * These constants were chosen with recorded sessions and the training half of test/acceptance; the other half measures them
 * (docs/decisions.md).
 */
const LEAST_JUDGED = 4;
const SHARE_NEEDED = 0.12;
const FIRST_NEEDED = 6;
/** Applies if the record has numbers or identifiers and the answer has none of them. */
const FIRST_WITHOUT_EXACT = 15;
const PER_ROOT = 0.7;
/**
 * Content that the record lacks counts against the answer with this share of its weight. Character pairs count less, since they
 * also arise where two words meet.
 */
const FOREIGN_WORD = 0.5;
const FOREIGN_GRAM = 0.25;
/** An answer in another language can share only numbers, identifiers and names. */
const ABROAD = { least: 6, most: 16, perRoot: 0.8, oneName: 5, longestName: 8 };
/** Maximum letters of an ending, and minimum letters of its stem. */
const ENDINGS = [1, 2, 3];
const SHORTEST_STEM = 5;

/** What is read from a record and the request around it. */
interface Read {
  text: string;
  matter: Matter;
  /** Numbers and identifiers. A number with separators (`12,000`) is included as one number and as its parts. */
  exact: ReadonlyMap<string, number>;
  names: ReadonlySet<string>;
  isLatin: boolean;
  asked: ReadonlySet<string>;
}

/** A record with which answers are compared. The time is linear in the texts. */
export class Ground {
  private readonly matter: Matter;
  private readonly exact: ReadonlyMap<string, number>;
  private readonly names: ReadonlySet<string>;
  /** The names shortened by their last letter, their last two and their last three. */
  private readonly stems: ReadonlySet<string>;
  private readonly isLatin: boolean;
  /** Every word once, between spaces. */
  private readonly words: string;
  private readonly text: string;
  private readonly asked: ReadonlySet<string>;
  private readonly weight: number;
  private readonly exactWeight: number;

  /** `asked` is the text of the request around the record; an answer gains nothing by repeating it. */
  static *reading(record: string, asked: string): Steps<Ground> {
    const plain = plainForm(withoutLabels(record));
    yield;
    const text = plain.toLowerCase();
    const matter = yield* matterOf(text);
    const isLatin = isMostlyLatin(plain);
    const names = yield* namesIn(plain, isLatin);
    const request = yield* matterOf(plainForm(asked).toLowerCase());
    const joined = ungrouped(text);
    const parts = joined === text ? [] : yield* exactIn(joined);
    return new Ground({
      ...{ text, matter, names, isLatin },
      exact: new Map([...parts, ...matter.exact]),
      asked: new Set([...request.words.keys()].map(beginning)),
    });
  }

  private constructor({ text, matter, exact, names, isLatin, asked }: Read) {
    this.text = text;
    this.matter = matter;
    this.exact = exact;
    this.names = names;
    this.stems = new Set([...names].flatMap((name) => ENDINGS.map((ending) => name.slice(0, -ending))));
    this.isLatin = isLatin;
    this.words = ` ${[...matter.words.keys()].join(' ')} `;
    this.asked = asked;
    this.weight = this.weightOf(matter);
    this.exactWeight = total(matter.exact.values());
  }

  /**
   * Returns the evidence in an answer. Null if the record has too little content for a comparison, such as a greeting, or media
   * alone.
   */
  of(answer: string): Grounding | null {
    if (this.weight + this.exactWeight < LEAST_JUDGED) return null;
    const text = plainForm(answer.replace(/<[^<>\n]{0,400}>/g, ' ')).toLowerCase();
    const matter = atOnce(matterOf(text));
    const exact = Math.max(this.exactOf(matter.exact), this.exactOf(atOnce(exactIn(ungrouped(text)))));
    const found = this.wordsIn(matter) + this.gramsIn(matter) + Math.max(0, exact);
    const first = exact <= 0 && this.exactWeight >= ABROAD.least ? FIRST_WITHOUT_EXACT : FIRST_NEEDED;
    const needed = Math.max(Math.min(first, SHARE_NEEDED * this.weight), PER_ROOT * Math.sqrt(this.weight));
    if (found >= needed) return { found, needed };
    const abroad = this.abroad(matter, exact, answer);
    return abroad.found >= abroad.needed ? abroad : { found, needed };
  }

  private weightOf({ words, grams }: Matter): number {
    let sum = 0;
    for (const [word, length] of words)
      if (!this.asked.has(beginning(word))) sum += weightOfWord(length, this.matter.meanLength);
    for (const gram of grams) sum += weightOfGram(gram);
    return sum;
  }

  /** Returns the weight of the shared words, less a share of the other words. Words of the request do not count. */
  private wordsIn({ words }: Matter): number {
    let sum = 0;
    for (const [word, length] of words) {
      if (this.asked.has(beginning(word))) continue;
      const weight = weightOfWord(length, this.matter.meanLength);
      sum += this.hasWord(word) ? weight : -weight * FOREIGN_WORD;
    }
    return sum;
  }

  private gramsIn({ grams }: Matter): number {
    let sum = 0;
    for (const gram of grams) sum += weightOfGram(gram) * (this.matter.grams.has(gram) ? 1 : -FOREIGN_GRAM);
    return sum;
  }

  /** Content that an answer in another language can share with the record; in another script, every word in Latin letters. */
  private abroad({ words }: Matter, exact: number, answer: string): Grounding {
    const isForeignScript = this.isLatin && !isMostlyLatin(plainForm(answer));
    const isKept = (word: string) =>
      !this.asked.has(beginning(word)) &&
      (this.hasName(word) || (isForeignScript && isLatinWord(word) && this.matter.words.has(word)));
    const kept = [...words].filter(([word]) => isKept(word));
    const named = total(kept.map(([, length]) => Math.min(ABROAD.longestName, length)));
    const root = ABROAD.perRoot * Math.sqrt(this.exactWeight + 8 * this.names.size);
    return {
      found: exact + (kept.length === 1 ? Math.min(ABROAD.oneName, named) : named),
      needed: Math.max(ABROAD.least, Math.min(ABROAD.most, root)),
    };
  }

  /** Names are inflected too: they match with up to three letters more or less at their end. */
  private hasName(word: string): boolean {
    if (this.names.has(word)) return true;
    if (word.length < SHORTEST_STEM) return false;
    return (
      ENDINGS.some(
        (ending) => word.length - ending >= SHORTEST_STEM && this.names.has(word.slice(0, -ending)),
      ) || this.stems.has(word)
    );
  }

  /**
   * A word of the answer also counts if a word of the record begins with about its first two thirds or contains about its last
   * two thirds.
   */
  private hasWord(word: string): boolean {
    if (this.matter.words.has(word)) return true;
    if (word.length >= 4 && this.words.includes(` ${beginning(word)}`)) return true;
    // Arabic and Hebrew attach article and preposition to the beginning of a word.
    if (/^[\p{Script=Arabic}\p{Script=Hebrew}]/u.test(word)) {
      return [1, 2, 3].some((from) => word.length - from >= 3 && this.words.includes(word.slice(from)));
    }
    return word.length >= 6 && this.words.includes(word.slice(-Math.ceil(word.length * 0.7)));
  }

  private exactOf(exact: Matter['exact']): number {
    let sum = 0;
    for (const [token, weight] of exact) {
      const isPart = token.length >= 5 && /[a-z]/.test(token) && this.text.includes(token);
      // A time or a decimal may have another form, so its parts count.
      sum += this.exact.has(token) || isPart ? weight : /[.:]/.test(token) ? 0 : -weight / 2;
    }
    return sum;
  }
}

function beginning(word: string): string {
  return word.length <= 4 ? word : word.slice(0, Math.max(4, Math.ceil(word.length * 0.65)));
}

function total(weights: Iterable<number>): number {
  let sum = 0;
  for (const weight of weights) sum += weight;
  return sum;
}

/**
 * Removes the text that renderMessage and the prompts put around messages and digests, and the roles of speakers, since neither
 * is content. Names in labels remain.
 */
function withoutLabels(record: string): string {
  return record.replace(
    /<\/?(?:message|call|media|transcript|digest|previous_snapshot|state_snapshot)\b([^>\n]{0,400})>/g,
    (_tag, attributes: string) =>
      ` ${[...attributes.matchAll(/(?:name|origin)="(?:(?:system|developer|user|assistant|tool|function)(?![^":]):?)?([^"]*)"/g)].map(([, value = '']) => value).join(' ')} `,
  );
}
