/**
 * The matter of a text, in any language: its words, the character pairs of scripts that put no spaces between words, its
 * numbers and identifiers. Each is weighed by how much it tells. No word is known beforehand.
 */

/** What one text is made of. */
export interface Matter {
  /** Words in lower case; the value is the length in characters. */
  words: ReadonlyMap<string, number>;
  /** Runs of characters in scripts without spaces. */
  grams: ReadonlySet<string>;
  /** Numbers and identifiers, with their weights. */
  exact: ReadonlyMap<string, number>;
  /** Mean length of the words as they stand, repeated ones included. */
  meanLength: number;
}

/** Full-width forms, ligatures and the like in their plain form; without characters that nobody sees; 1,200 as 1200. */
export function plainForm(text: string): string {
  const visible = /[^\0-\x7F]/.test(text)
    ? text.normalize('NFKC').replace(/[\p{Cf}\u0640\u064B-\u065F]/gu, '')
    : text;
  return visible.replace(/(?<=\d)[,'\u2019 ](?=\d{3}(?!\d))/g, '');
}

/** Korean has spaces, but glues grammar to its words. U+30FC makes a vowel long. */
const together =
  '\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Hangul}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}\\u30FC';
const isUnspaced = new RegExp(`[${together}]`, 'u');
const pieces = new RegExp(`[${together}](?:[${together}]|\\p{M})*|[^${together}]+`, 'gu');
/** One syllable of theirs takes two to four characters. */
const longGrams = /[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

/** `text`: in plain form and lower case. */
export function matterOf(text: string): Matter {
  const words = new Map<string, number>();
  const grams = new Set<string>();
  let total = 0;
  let count = 0;
  const isAscii = !/[^\0-\x7F]/.test(text);
  for (const [run] of text.matchAll(isAscii ? /[a-z]+/g : /[\p{L}\p{M}]+/gu)) {
    for (const piece of !isAscii && isUnspaced.test(run) ? (run.match(pieces) ?? []) : [run]) {
      if (!isAscii && isUnspaced.test(piece)) addGrams(piece, grams);
      else {
        const length = isAscii ? piece.length : [...piece].length;
        words.set(piece, length);
        total += Math.min(length, LONGEST_COUNTED);
        count += 1;
      }
    }
  }
  return { words, grams, exact: exactIn(text), meanLength: count === 0 ? USUAL_MEAN : total / count };
}

/** Encoded bytes and compounds must not move the mean. */
const LONGEST_COUNTED = 12;
const USUAL_MEAN = 4.6;

function addGrams(run: string, grams: Set<string>): void {
  const characters = [...run];
  const size = longGrams.test(run) ? 4 : 2;
  for (let at = 0; at + size <= characters.length; at++) grams.add(characters.slice(at, at + size).join(''));
}

const LARGEST_WEIGHT = 8;

/**
 * What a word tells grows with its length, in all languages (Piantadosi, Tily and Gibson 2011, "Word lengths are optimized
 * for efficient communication"); words shorter than two thirds of the mean are mostly grammar and tell nothing.
 */
export function weightOfWord(length: number, meanLength: number): number {
  const mean = Math.min(7, Math.max(2.5, meanLength));
  return Math.max(0, Math.min(LARGEST_WEIGHT, (length / mean - 0.65) * 4.6));
}

/** Pairs with Hiragana are mostly grammar; one character of Han tells about as much as half a word. */
export function weightOfGram(gram: string): number {
  if (/\p{Script=Hiragana}/u.test(gram)) return /\p{Script=Han}/u.test(gram) ? 0.5 : 0;
  if (/\p{Script=Han}/u.test(gram)) return 2;
  return /\p{Script=Hangul}/u.test(gram) ? 1.5 : 0.75;
}

/** Numbers of two digits and more, times and decimals, words with digits in them, and names of code, files and addresses. */
function exactIn(text: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const [token] of text.matchAll(/[a-z0-9][\w@#$./\\:~+%-]*[a-z0-9]/g)) {
    if (token.length >= 6 && token.length <= 200 && /[a-z](?:[_/\\@][a-z0-9]|\.[a-z]{1,4}$)/.test(token))
      found.set(token, LARGEST_WEIGHT);
    if (!/\d/.test(token)) continue;
    if (/^\d+(?:[.:]\d+)+$/.test(token))
      found.set(token, Math.min(LARGEST_WEIGHT, 2.5 * (token.replace(/\D/g, '').length - 1)));
    for (const [part] of token.matchAll(/[a-z0-9]*\d[a-z0-9]*/g)) {
      const weight = /[a-z]/.test(part) ? 1.5 * part.length : 2.5 * (part.length - 1);
      if (part.length > 1 && part.length <= 64) found.set(part, Math.min(LARGEST_WEIGHT, weight));
    }
  }
  return found;
}

/** Above this share of capitals inside sentences, a language writes all its nouns with one. */
const MOST_CAPITALS = 0.2;

/**
 * Words that stay what they are in every language, in lower case: those written with a capital inside a sentence, or as
 * code, and rarely without; those with a capital inside; and in a text of another script the words in Latin letters. Where
 * all nouns have a capital, or too little was said to know, only what stands behind another capital is a name. `text`: in
 * plain form.
 */
export function namesIn(text: string): Set<string> {
  const names = new Set<string>();
  const capital = new Map<string, number>();
  const code = new Map<string, number>();
  const small = new Map<string, number>();
  const behindCapital = new Set<string>();
  const isLatin = isMostlyLatin(text);
  const add = (to: Map<string, number>, word: string) => to.set(word, (to.get(word) ?? 0) + 1);
  let inside = 0;
  let capitals = 0;
  for (const { 0: word, index } of text.matchAll(/(?<!\p{L})\p{L}[\p{L}\p{M}]{2,40}/gu)) {
    const key = word.toLowerCase();
    const before = text.slice(Math.max(0, index - 2), index);
    const isInside = /[\p{Ll}\p{N},;)] $/u.test(before);
    if (isIdentifier(text, word, index) || (!isLatin && isLatinWord(word))) names.add(key);
    if (isInside) inside += 1;
    if (isCode(text, word, index)) add(code, key);
    else if (/^\p{Ll}/u.test(word)) add(small, key);
    else if (isInside && /^\p{Lu}/u.test(word)) {
      add(capital, key);
      capitals += 1;
      if (/\p{Lu}\p{Ll}+ $/u.test(text.slice(Math.max(0, index - 42), index))) behindCapital.add(key);
    }
  }
  const allNouns = capitals > MOST_CAPITALS * inside;
  for (const [word, times] of [...capital, ...code]) {
    const isNamed = code.has(word) || !allNouns || behindCapital.has(word);
    if (isNamed && times > 2 * (small.get(word) ?? 0)) names.add(word);
  }
  return names;
}

/** `` `venv` `` and `exec(`. */
function isCode(text: string, word: string, index: number): boolean {
  const next = text[index + word.length];
  return next === '(' || (next === '`' && text[index - 1] === '`');
}

/** `RestrictedPython`, `macOS`, but no letters out of encoded bytes. */
function isIdentifier(text: string, word: string, index: number): boolean {
  if (!/^\p{L}\p{Ll}+\p{Lu}/u.test(word)) return false;
  const around = (text[index - 1] ?? ' ') + (text[index + word.length] ?? ' ');
  return !/[\d+/=]/.test(around);
}

/** At least four letters: two or three make a word of many languages. */
export function isLatinWord(word: string): boolean {
  return /^[a-z]{4,}$/i.test(word);
}

export function isMostlyLatin(text: string): boolean {
  const others = text.match(/(?!\p{Script=Latin})\p{L}/gu)?.length ?? 0;
  return others === 0 || others < (text.match(/\p{Script=Latin}/gu)?.length ?? 0);
}
