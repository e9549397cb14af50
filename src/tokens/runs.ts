/**
 * Cuts text where a byte-pair encoder would meet an unbroken run longer than `RUN_LIMIT`. Encoders first split text
 * into words, numbers, punctuation and white space, then merge inside each piece at quadratic cost: 100,000 times
 * `a` takes seconds in gpt-tokenizer 4. Text without such a run comes back whole, so its count is exact;
 * a cut moves a count by at most 4 tokens (measured: 0 or 1 in words, CJK, emoji, rules and boxes; 4 in `-=-=-=`).
 */

/** UTF-16 code units. A piece of this length encodes in well under a millisecond. @internal Tests stand on either side of it. */
export const RUN_LIMIT = 256;

const DIGIT = 0;
const SPACE = 1;
const LETTER = 2;
const OTHER = 3;
/** Combining marks: o200k_base counts them as letters, cl100k_base as punctuation, so they prolong either run. */
const MARK = 4;
/** Line ends (and, in o200k_base, slashes) that follow punctuation belong to the same piece. */
const LINE_ENDS = 5;

function classOf(character: string): number {
  if (/\p{N}/u.test(character)) return DIGIT;
  if (/\s/u.test(character)) return SPACE;
  if (/\p{L}/u.test(character)) return LETTER;
  return /\p{M}/u.test(character) ? MARK : OTHER;
}

let basicPlane: Uint8Array | undefined;

function classTable(): Uint8Array {
  if (basicPlane !== undefined) return basicPlane;
  basicPlane = new Uint8Array(0x10000);
  for (let unit = 0; unit < basicPlane.length; unit++) basicPlane[unit] = classOf(String.fromCharCode(unit));
  return basicPlane;
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;
const isLineEnd = (unit: number): boolean => unit === 0x0a || unit === 0x0d;
const SLASH = 0x2f;

/** The class of a run after one more character, or null where that character begins a new run. */
function prolonged(run: number, found: number, unit: number): number | null {
  if (run === LINE_ENDS) return isLineEnd(unit) || unit === SLASH ? LINE_ENDS : null;
  if (run === OTHER && isLineEnd(unit)) return LINE_ENDS;
  // Numbers are encoded three digits at a time, so digits never form a run.
  if (run === DIGIT || found === DIGIT) return null;
  if (run === MARK) return found;
  return found === run || found === MARK ? run : null;
}

/**
 * The text in slices, in order and without gaps, none of which holds an unbroken run above {@link RUN_LIMIT}.
 * Linear in the length; a surrogate pair is never cut.
 */
export function* unbrokenRunsSplit(text: string): Generator<string> {
  if (text.length <= RUN_LIMIT) {
    yield text;
    return;
  }
  const classes = classTable();
  let sliceStart = 0;
  let runStart = 0;
  let runClass = DIGIT;
  for (let at = 0; at < text.length;) {
    const unit = text.charCodeAt(at);
    const pair = isHighSurrogate(unit) && at + 1 < text.length;
    const found = pair ? classOf(text.slice(at, at + 2)) : (classes[unit] ?? OTHER);
    const width = pair ? 2 : 1;
    const run = prolonged(runClass, found, unit);
    if (run === null) runStart = at;
    runClass = run ?? found;
    if (at + width - runStart > RUN_LIMIT) {
      yield text.slice(sliceStart, at);
      sliceStart = at;
      runStart = at;
    }
    at += width;
  }
  yield text.slice(sliceStart);
}
