import { createRequire } from 'node:module';
import { invalid } from '../errors.js';
import { bytePairCount } from './byte-pairs.js';
import { isKnownAnthropicModel, modelName } from './windows.js';

export interface TokenCounter {
  readonly name: TokenizerName;
  /**
   * Counts the tokens of a text in linear time; special tokens such as `<|endoftext|>` count as plain text. Throws
   * `Input.Invalid` only if a custom counter fails.
   */
  count(text: string): number;
}

/**
 * The built-in tokenizers. `o200k_base` and `cl100k_base` are OpenAI's byte-pair encodings; `chars/4` and `chars/3.3`
 * estimate from characters for vendors that publish no tokenizer.
 */
export const tokenizerNames = ['o200k_base', 'cl100k_base', 'chars/4', 'chars/3.3'] as const;

export type TokenizerName = (typeof tokenizerNames)[number] | `custom:${string}`;

/** A counter for a byte-pair encoding, which is loaded at first use. @internal Tests compare it with gpt-tokenizer's. */
export function bytePairCounter(name: TokenizerName, load: () => (text: string) => number): TokenCounter {
  let countSlice: ((text: string) => number) | undefined;
  return {
    name,
    count(text) {
      if (text === '') return 0;
      countSlice ??= load();
      let tokens = 0;
      for (const slice of unbrokenRunsSplit(text)) tokens += countSlice(slice);
      return tokens;
    },
  };
}

/**
 * A counter that estimates from characters. An ASCII character counts 1/`perToken`; a character of another alphabet (Latin with
 * accents, Greek, Cyrillic, Hebrew, Arabic, …) half a token; a character from U+0900 on (Indic scripts, CJK, Hangul, symbols)
 * one token; a character beyond the basic plane, such as an emoji, two. Without these weights, texts in these scripts are
 * undercounted by up to 40 % (langchain-ai/deepagents#2121).
 */
function characterCounter(name: TokenizerName, perToken: number): TokenCounter {
  return {
    name,
    count(text) {
      let ascii = 0;
      let alphabetic = 0;
      let dense = 0;
      for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        if (unit < 0x80) ascii++;
        else if (unit < 0x900) alphabetic++;
        else dense++; // includes both halves of a surrogate pair
      }
      return Math.ceil(ascii / perToken + alphabetic / 2 + dense);
    },
  };
}

const require = createRequire(import.meta.url);

/** Vocabulary and pattern are gpt-tokenizer's, of which a counter in memory takes ten times as much. */
function loadEncoding(name: 'o200k_base' | 'cl100k_base'): (text: string) => number {
  const patterns = require('gpt-tokenizer/cjs/encodingParams/constants') as Record<string, RegExp>;
  const pieces = patterns[name === 'o200k_base' ? 'O200K_TOKEN_SPLIT_REGEX' : 'CL100K_TOKEN_SPLIT_REGEX'];
  if (pieces === undefined) throw new Error(`gpt-tokenizer has no pattern for ${name}`);
  return bytePairCount(require.resolve(`gpt-tokenizer/data/${name}.tiktoken`), pieces);
}

const counters: Record<(typeof tokenizerNames)[number], TokenCounter> = {
  o200k_base: bytePairCounter('o200k_base', () => loadEncoding('o200k_base')),
  cl100k_base: bytePairCounter('cl100k_base', () => loadEncoding('cl100k_base')),
  'chars/4': characterCounter('chars/4', 4),
  'chars/3.3': characterCounter('chars/3.3', 3.3),
};

/** Milliseconds in which the first requests of a process that waited for it are answered. */
const preloadAfterMs = 1_000;

/**
 * Loads the default tokenizer, which holds the event loop for about 80 ms, a second after a process is ready: the requests that
 * waited for the process come first, and no later one has to wait.
 */
export function preloadTokenizer(): void {
  setTimeout(() => counters.o200k_base.count('a'), preloadAfterMs).unref();
}

const registered = new Map<string, TokenCounter>();

/**
 * Registers a custom counter for policies with `tokenizer: 'custom:<name>'`. Register it in every process that appends,
 * reads or compacts. `count` must be deterministic and accept any text; texts above 65,536 characters are passed in slices.
 * Throws `Input.Invalid` for a name that a policy cannot use.
 * @example registerCounter('llama3', (text) => tokenizer.encode(text).length)
 */
export function registerCounter(name: string, count: (text: string) => number): void {
  if (!/^[\w.-]{1,60}$/.test(name)) {
    throw invalid(
      `${JSON.stringify(name)} is not a valid name of a counter.`,
      'counters',
      'Use 1 to 60 letters, digits, dots, dashes and underscores; policies refer to it as custom:<name>.',
    );
  }
  if (typeof count !== 'function')
    throw invalid(`The counter ${name} is not a function.`, `counters.${name}`);
  registered.set(`custom:${name}`, customCounter(`custom:${name}`, count));
}

/** Counters by name, for `connect` and `startWorker`. */
export type Counters = Readonly<Record<string, (text: string) => number>>;

export function registerCounters(counters: Counters = {}): void {
  for (const [name, count] of Object.entries(counters)) registerCounter(name, count);
}

/** Throws `Input.Invalid` for a custom counter that this process has not registered. */
export function counterFor(name: TokenizerName): TokenCounter {
  const counter = isBuiltIn(name) ? counters[name] : registered.get(name);
  if (counter !== undefined) return counter;
  throw invalid(
    `The counter ${name} is not registered in this process.`,
    'policy.tokenizer',
    'Pass it to connect and to startWorker as `counters`, or call registerCounter() first.',
  );
}

function isBuiltIn(name: TokenizerName): name is keyof typeof counters {
  return Object.hasOwn(counters, name);
}

const o200k = /^(gpt-4o|gpt-4\.|gpt-[5-9]|gpt-oss|gpt-audio|gpt-realtime|chatgpt|chat-latest|codex|o\d)/;
const cl100k = /^(gpt-4|gpt-3\.5|gpt-35|text-embedding-)/;

/**
 * The tokenizer of a model: OpenAI's encoding for its models, characters / 3.3 for Anthropic's, characters / 4 for others.
 * Without a model it is `o200k_base`, which is closer to current tokenizers than a count of characters.
 */
export function tokenizerForModel(model?: string): TokenizerName {
  if (model === undefined) return 'o200k_base';
  const name = modelName(model);
  if (o200k.test(name)) return 'o200k_base';
  if (cl100k.test(name)) return 'cl100k_base';
  return isKnownAnthropicModel(name) ? 'chars/3.3' : 'chars/4';
}

/**
 * Maximum UTF-16 code units per call of a custom counter; callers may do other work between two slices.
 * @internal Tests use sizes on either side of it.
 */
export const SLICE_CHARACTERS = 65_536;

/** Distance from the end of a slice within which white space is searched for the cut. */
const LOOK_BACK = 1_024;

/** Splits the text into slices, in order and without gaps, at white space if possible and never inside a surrogate pair. */
export function* textSlices(text: string): Generator<string> {
  let from = 0;
  while (text.length - from > SLICE_CHARACTERS) {
    const end = from + SLICE_CHARACTERS;
    const space = text.slice(end - LOOK_BACK, end).search(/\s\S*$/);
    const high = text.charCodeAt(end - 1);
    const insidePair = high >= 0xd800 && high <= 0xdbff;
    const cut = space === -1 ? (insidePair ? end - 1 : end) : end - LOOK_BACK + space;
    yield text.slice(from, cut);
    from = cut;
  }
  yield text.slice(from);
}

/**
 * A counter that calls the platform's function. Long texts are passed in slices, so that the calls are the same whether or not
 * the caller pauses between them. `count` throws `Input.Invalid` if the function throws or returns no valid number.
 */
function customCounter(name: `custom:${string}`, count: (text: string) => number): TokenCounter {
  const counted = (text: string): number => {
    const tokens = attempt(name, count, text);
    if (typeof tokens === 'number' && Number.isFinite(tokens) && tokens >= 0) return Math.ceil(tokens);
    throw invalid(
      `The counter ${name} returned ${String(tokens)} for a text of ${text.length} characters.`,
      'policy.tokenizer',
      'A counter must return the number of tokens: finite, 0 or more.',
    );
  };
  return {
    name,
    count(text) {
      let tokens = 0;
      for (const slice of textSlices(text)) tokens += slice === '' ? 0 : counted(slice);
      return tokens;
    },
  };
}

function attempt(name: string, count: (text: string) => number, text: string): unknown {
  try {
    return count(text);
  } catch (error) {
    throw invalid(
      `The counter ${name} failed on a text of ${text.length} characters: ${error instanceof Error ? error.message : String(error)}`,
      'policy.tokenizer',
      'A counter must accept every text: empty ones, megabytes, NUL and halves of surrogate pairs.',
    );
  }
}

/** UTF-16 code units. A piece of this length is encoded in well under a millisecond. @internal Tests use sizes on either side of it. */
export const RUN_LIMIT = 256;

/** Whether a counter is one of the byte-pair encodings, which take much longer than a count of characters. */
export const isBytePair = ({ name }: TokenCounter): boolean =>
  name === 'o200k_base' || name === 'cl100k_base';

/** Characters of a text that are searched by {@link joinableStart}. */
const MOST_JOINABLE = 65_536;

/**
 * Length of the start of a text that a byte-pair encoding may encode otherwise if a line precedes it. The encodings split texts
 * into pieces before they merge. A piece ends before white space that follows a letter or digit, and between a line end and what is
 * neither white space, a slash nor a mark. Null if no such place is among the first {@link MOST_JOINABLE} characters.
 */
export function joinableStart(text: string): number | null {
  if (/^[^\s/\p{M}]/u.test(text)) return 0;
  const found = /[\p{L}\p{N}](?=\s)|[\r\n](?=[^\s/\p{M}])/u.exec(text.slice(0, MOST_JOINABLE));
  return found === null ? null : found.index + found[0].length;
}

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

/** The class of a run after one more character, or null if that character begins a new run. */
function prolonged(run: number, found: number, unit: number): number | null {
  if (run === LINE_ENDS) return isLineEnd(unit) || unit === SLASH ? LINE_ENDS : null;
  if (run === OTHER && isLineEnd(unit)) return LINE_ENDS;
  // Encoders take at most three digits at a time, so digits never form a run.
  if (run === DIGIT || found === DIGIT) return null;
  if (run === MARK) return found;
  return found === run || found === MARK ? run : null;
}

const isSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdfff;

/** False if no run has both characters of the text, the one before `at` and the one there. */
function mayJoin(text: string, at: number, classes: Uint8Array): boolean {
  const [before, unit] = [text.charCodeAt(at - 1), text.charCodeAt(at)];
  if (isSurrogate(before) || isSurrogate(unit)) return true;
  const [one, other] = [classes[before], classes[unit]];
  if (one === DIGIT || other === DIGIT) return false;
  if (one === other || one === MARK || other === MARK) return true;
  return (one === OTHER && isLineEnd(unit)) || (isLineEnd(before) && unit === SLASH);
}

/** A run above {@link RUN_LIMIT} covers one of the places that lie this far apart. Only the characters around them are read. */
function mayHaveLongRun(text: string): boolean {
  if (text.length <= RUN_LIMIT) return false;
  const classes = classTable();
  for (let place = RUN_LIMIT; place < text.length; place += RUN_LIMIT) {
    let from = place;
    let through = place;
    while (through - from < RUN_LIMIT && from > 0 && mayJoin(text, from, classes)) from--;
    while (through - from < RUN_LIMIT && through + 1 < text.length && mayJoin(text, through + 1, classes))
      through++;
    if (through - from >= RUN_LIMIT) return true;
  }
  return false;
}

/**
 * Splits the text into slices, in order and without gaps, so that no slice has an unbroken run above {@link RUN_LIMIT}.
 * Encoders first split text into words, numbers, punctuation and white space, then merge inside each piece at quadratic cost:
 * 100,000 times `a` takes seconds in gpt-tokenizer 4. Text without such a run is returned whole, so its count is exact;
 * a cut changes a count by at most 4 tokens (measured: 0 or 1 in words, CJK, emoji, rules and boxes; 4 in `-=-=-=`).
 * Takes linear time; a surrogate pair is never cut. @internal Tests join the slices.
 */
export function* unbrokenRunsSplit(text: string): Generator<string> {
  if (!mayHaveLongRun(text)) {
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
