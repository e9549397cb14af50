/** Finds words unit by unit: each match of a pattern is an array, which takes longer to make than a word takes to read. */
import type { Steps } from '../../steps.js';

const LETTER = 1;
const MARK = 2;
const OTHER = 3;

/** The class of each UTF-16 unit that was met. Halves of a pair have the class of their character. */
const classes = new Uint8Array(1 << 16);

const isHalf = (unit: number): boolean => (unit & 0xf800) === 0xd800;

function classAt(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  if (!isHalf(unit)) return (classes[unit] ||= classOf(text[at] ?? ''));
  const from = unit < 0xdc00 ? at : Math.max(0, at - 1);
  return classOf(text.slice(from, from + 2));
}

function classOf(character: string): number {
  if (/^\p{L}$/u.test(character)) return LETTER;
  return /^\p{M}$/u.test(character) ? MARK : OTHER;
}

export const isLetterAt = (text: string, at: number): boolean => classAt(text, at) === LETTER;

/** Units between two steps: a few milliseconds of work. */
const UNITS_OF_STEP = 32_768;

/** Reads a text in steps. `read` reads what begins in a part of it, and returns where that ends. */
function* inParts(text: string, read: (from: number, to: number) => number): Steps<void> {
  for (let at = 0; at < text.length; yield) at = read(at, Math.min(at + UNITS_OF_STEP, text.length));
}

/** The letters of a run: small ones of ASCII alone, any without a surrogate pair, or any at all. */
export type Letters = 'small' | 'basic' | 'any';

/** Calls `each` with the bounds of every run of letters and marks: `text.match(/[\p{L}\p{M}]+/gu)`. */
export function eachRun(text: string, each: (from: number, to: number, of: Letters) => void): Steps<void> {
  return inParts(text, (begin, end) => {
    let at = begin;
    for (; at < end; at++) {
      const from = at;
      let unit = text.charCodeAt(at);
      while (unit >= 97 && unit <= 122) unit = text.charCodeAt(++at);
      let of: Letters = 'small';
      for (; at < text.length && classAt(text, at) !== OTHER; at++)
        if (isHalf(text.charCodeAt(at))) of = 'any';
        else if (of === 'small') of = 'basic';
      if (at > from) each(from, at, of);
    }
    return at;
  });
}

/** Units of a token of {@link eachToken}, and which of them it begins and ends with. */
const INSIDE = 1;
const SIGN = 2;
const SMALL = 3;
const DIGIT = 4;
const ofToken = new Uint8Array(1 << 7);
for (let unit = 0; unit < ofToken.length; unit++) {
  const character = String.fromCharCode(unit);
  if (/\d/.test(character)) ofToken[unit] = DIGIT;
  else if (/[a-z]/.test(character)) ofToken[unit] = SMALL;
  else if (/[_/\\@.]/.test(character)) ofToken[unit] = SIGN;
  else if (/[\w#$:~+%-]/.test(character)) ofToken[unit] = INSIDE;
}

/** Calls `each` with matches of `[a-z0-9][\w@#$./\\:~+%-]*[a-z0-9]`: all that have a digit or one of `_/\@.`, and few others. */
export function eachToken(text: string, each: (token: string) => void): Steps<void> {
  return inParts(text, (begin, end) => {
    let at = begin;
    for (; at < end; at++) {
      let from = -1;
      let last = -1;
      let isTold = false;
      for (let unit = 0; (unit = text.charCodeAt(at)) < 128; at++) {
        const found = ofToken[unit]!;
        if (found === 0) break;
        if (found >= SMALL) {
          if (from === -1) from = at;
          last = at;
        }
        if (found === DIGIT || (found === SIGN && from !== -1)) isTold = true;
      }
      if (isTold && last > from) each(text.slice(from, last + 1));
    }
    return at;
  });
}
