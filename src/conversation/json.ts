import { invalid, type PalimpsestError } from '../errors.js';
import type { Json } from './message.js';

/** Maximum nesting. Deeper values could overflow the stack, and real messages are far below it. */
const deepestNesting = 500;

/** A key or an index of a path. */
type Step = string | number;

/** `messages`, 3, `content`, `odd key` → `messages[3].content["odd key"]`. */
function joinPath(root: string, steps: readonly Step[]): string {
  return steps.reduce<string>((path, step) => {
    if (typeof step === 'number') return `${path}[${step}]`;
    if (!/^[\p{L}_$][\p{L}\p{N}_$-]*$/u.test(step)) return `${path}[${JSON.stringify(step)}]`;
    return path === '' ? step : `${path}.${step}`;
  }, root);
}

/** Sets an own property, including `__proto__`, as `JSON.parse` does. */
function setOwn(object: { [key: string]: Json }, key: string, value: Json): void {
  if (key !== '__proto__') object[key] = value;
  else Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
}

/**
 * Returns the number of a key such as `0` or `42`, which JavaScript moves to the front of an object in ascending order; null for
 * other keys.
 */
function arrayIndex(key: string): number | null {
  return /^(?:0|[1-9][0-9]{0,9})$/.test(key) && Number(key) < 2 ** 32 - 1 ? Number(key) : null;
}

/** Maximum length of a path in an error message: nesting and keys may be as long as the input. */
const pathLimit = 200;

/**
 * The origin of the text, for error messages: the line and column at which it begins, from 1, and the first part of every path.
 * Also the limit on the number of values.
 */
interface Origin {
  line?: number;
  column?: number;
  path?: string;
  /** Fields of an object whose values must be kept exactly; the others are read as by JSON.parse. @default all */
  exactIn?: readonly string[];
  /** Maximum number of values. @default unlimited */
  mostValues?: number;
  /** The error for more values. */
  tooMany?: () => PalimpsestError;
}

/**
 * Parses strict JSON. It refuses text that a JavaScript value cannot reproduce exactly: duplicate keys, numbers beyond double
 * precision, `-0`, integer-like keys out of order, nesting beyond {@link deepestNesting}.
 * Throws `Input.Invalid` with line, column and path.
 * @example parseExact('{"a":1,"a":2}') // Line 1, column 8: the key "a" appears twice.
 */
export function parseExact(text: string, origin: Origin = {}): Json {
  return new ExactParser(text, origin).parse();
}

class ExactParser {
  private at = 0;
  private values = 0;
  private readonly mostValues: number;
  private readonly steps: Step[] = [];
  private readonly plainCharacters = /[^"\\\u0000-\u001f]*/y;
  private readonly escape = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
  private readonly number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
  private readonly space = /[ \t\n\r]*/y;

  constructor(
    private readonly text: string,
    private readonly origin: Origin,
  ) {
    this.mostValues = origin.mostValues ?? Infinity;
  }

  parse(): Json {
    if (this.text.startsWith('\uFEFF')) throw this.failure('the text begins with a byte order mark');
    this.skipSpace();
    const value = this.value();
    if (this.at < this.text.length) throw this.failure(`unexpected ${this.found()} after the value`);
    return value;
  }

  /** One value and the white space after it. */
  private value(): Json {
    const value = this.bareValue();
    this.skipSpace();
    return value;
  }

  private bareValue(): Json {
    if (++this.values > this.mostValues)
      throw this.origin.tooMany?.() ?? this.failure(`there are more than ${this.mostValues} values`);
    switch (this.text.charAt(this.at)) {
      case '{':
        return this.object();
      case '[':
        return this.array();
      case '"':
        return this.string();
      case 't':
        return this.word('true', true);
      case 'f':
        return this.word('false', false);
      case 'n':
        return this.word('null', null);
      default:
        return this.numberValue();
    }
  }

  private object(): Json {
    const object: { [key: string]: Json } = {};
    let lastIndex = -1;
    let named = false;
    this.open();
    if (this.closes('}')) return object;
    for (;;) {
      const start = this.at;
      if (this.text[start] !== '"')
        throw this.failure(`expected a key in double quotes, found ${this.found()}`);
      const key = this.string();
      this.steps.push(key);
      const isExactHere = this.mustBeExact();
      if (isExactHere && Object.hasOwn(object, key))
        throw this.failure(`the key ${JSON.stringify(key)} appears twice`, start);
      const index = arrayIndex(key);
      if (index === null) named = true;
      else if (isExactHere && (named || index < lastIndex))
        throw this.failure(`the order of the key "${key}" cannot be kept`, start);
      else lastIndex = index;
      this.skipSpace();
      this.expect(':');
      setOwn(object, key, this.value());
      this.steps.pop();
      if (this.closes('}')) return object;
      this.expect(',', '}');
    }
  }

  private mustBeExact(): boolean {
    const { exactIn } = this.origin;
    return exactIn === undefined || exactIn.some((field) => field === this.steps[0]);
  }

  private array(): Json {
    const array: Json[] = [];
    this.open();
    if (this.closes(']')) return array;
    for (;;) {
      this.steps.push(array.length);
      array.push(this.value());
      this.steps.pop();
      if (this.closes(']')) return array;
      this.expect(',', ']');
    }
  }

  private string(): string {
    const start = this.at++;
    let escaped = false;
    for (;;) {
      this.plainCharacters.lastIndex = this.at;
      this.plainCharacters.test(this.text);
      this.at = this.plainCharacters.lastIndex;
      const next = this.text[this.at];
      if (next === '"') break;
      if (next === undefined) throw this.failure('the string is not closed', start);
      if (next !== '\\')
        throw this.failure(`the control character ${JSON.stringify(next)} must be escaped in a string`);
      escaped = true;
      this.skipEscape();
    }
    this.at++;
    if (!escaped) return this.text.slice(start + 1, this.at - 1);
    return String(JSON.parse(this.text.slice(start, this.at)));
  }

  private skipEscape(): void {
    this.escape.lastIndex = this.at;
    if (!this.escape.test(this.text)) {
      const found = this.text.slice(this.at, this.at + 2);
      throw this.failure(`${JSON.stringify(found)} is not an escape sequence`);
    }
    this.at = this.escape.lastIndex;
  }

  private numberValue(): number {
    const start = this.at;
    this.number.lastIndex = start;
    const literal = this.number.exec(this.text)?.[0];
    if (literal === undefined) throw this.failure(`expected a value, found ${this.found()}`);
    this.at += literal.length;
    if (/[\w.+-]/.test(this.text[this.at] ?? '')) throw this.failure('this is not a number in JSON', start);
    if (!this.mustBeExact() || isExact(literal)) return Number(literal);
    const shown = literal.length > 40 ? `${literal.slice(0, 40)}…` : literal;
    throw this.failure(
      `the number ${shown} cannot be kept exactly (it would become ${Number(literal)})`,
      start,
      'Send it as a string.',
    );
  }

  private word<T extends Json>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.at)) throw this.failure(`expected a value, found ${this.found()}`);
    this.at += word.length;
    return value;
  }

  private open(): void {
    if (this.steps.length >= deepestNesting)
      throw this.failure(`values are nested deeper than ${deepestNesting}`);
    this.at++;
    this.skipSpace();
  }

  private closes(bracket: string): boolean {
    if (this.text[this.at] !== bracket) return false;
    this.at++;
    return true;
  }

  private expect(mark: string, alternative?: string): void {
    if (this.text[this.at] !== mark) {
      const expected = alternative === undefined ? `"${mark}"` : `"${mark}" or "${alternative}"`;
      throw this.failure(`expected ${expected}, found ${this.found()}`);
    }
    this.at++;
    this.skipSpace();
  }

  private skipSpace(): void {
    this.space.lastIndex = this.at;
    this.space.test(this.text);
    this.at = this.space.lastIndex;
  }

  private found(): string {
    const point = this.text.codePointAt(this.at);
    return point === undefined ? 'the end of the text' : JSON.stringify(String.fromCodePoint(point));
  }

  private failure(problem: string, at = this.at, hint?: string): PalimpsestError {
    const before = this.text.slice(0, at);
    const line = (this.origin.line ?? 1) + (before.match(/\r\n?|\n/g)?.length ?? 0);
    const lineStart = Math.max(before.lastIndexOf('\n'), before.lastIndexOf('\r'));
    const column = at - lineStart + (lineStart < 0 ? (this.origin.column ?? 1) - 1 : 0);
    const whole = joinPath(this.origin.path ?? '', this.steps);
    const path = whole.length > pathLimit ? `${whole.slice(0, pathLimit)}…` : whole;
    const where = path === '' ? '' : ` (at ${path})`;
    return invalid(
      `Line ${line}, column ${column}: ${problem}${where}.`,
      path === '' ? undefined : path,
      hint,
    );
  }
}

/** The normal form of an unsigned decimal number: `12.50`, `1.25e1` and `12.5` are all 125 · 10⁻¹. Zero has no digits. */
function decimalOf(literal: string): { digits: string; exponent: number } {
  const [mantissa = '', exponent = '0'] = literal.toLowerCase().split('e');
  const [whole = '', fraction = ''] = mantissa.split('.');
  const significant = (whole + fraction).replace(/^0+/, '');
  const digits = withoutTrailingZeros(significant);
  if (digits === '') return { digits, exponent: 0 };
  return { digits, exponent: Number(exponent) - fraction.length + (significant.length - digits.length) };
}

/** Avoids `/0+$/`, which takes quadratic time if another digit follows the zeros. */
function withoutTrailingZeros(digits: string): string {
  let end = digits.length;
  while (digits[end - 1] === '0') end--;
  return digits.slice(0, end);
}

const unsigned = (literal: string): string => (literal.startsWith('-') ? literal.slice(1) : literal);

/**
 * Whether JavaScript keeps a JSON number as the same decimal number: it keeps `1.0` and `1e2` (as `1` and `100`), but not
 * `9007199254740993`, `0.1000000000000000055`, `1e400`, `1e-400` and `-0`.
 */
function isExact(literal: string): boolean {
  if (/^-?[1-9][0-9]{0,14}$/.test(literal) || literal === '0') return true;
  const value = Number(literal);
  if (!Number.isFinite(value) || Object.is(value, -0)) return false;
  const given = decimalOf(unsigned(literal));
  const kept = decimalOf(unsigned(String(value)));
  return given.digits === kept.digits && given.exponent === kept.exponent;
}

/**
 * Asserts that a value in memory is JSON that `JSON.stringify` writes unchanged. It refuses, with the path, NaN, infinities,
 * -0, bigint, functions, symbols, instances of classes (Date, Map, …), objects with `toJSON`, cycles, and holes and undefined in
 * arrays. An undefined property counts as absent.
 */
export function checkPlainJson(value: unknown, path: string): asserts value is Json {
  checkValue(value, path, [], new Set());
}

function checkValue(value: unknown, root: string, steps: Step[], above: Set<object>): void {
  const refuse = (problem: string): PalimpsestError => {
    const path = joinPath(root, steps);
    return invalid(`${path} ${problem}.`, path, 'Give a value that JSON can represent exactly.');
  };
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return;
  if (typeof value === 'number') {
    if (Number.isFinite(value) && !Object.is(value, -0)) return;
    throw refuse(`is ${Object.is(value, -0) ? '-0' : value}, which JSON cannot represent`);
  }
  if (typeof value !== 'object')
    throw refuse(`is ${value === undefined ? 'undefined' : `a ${typeof value}`}`);
  if (above.has(value)) throw refuse('refers back to a value that contains it');
  if (steps.length >= deepestNesting) throw refuse(`is nested deeper than ${deepestNesting}`);
  if (typeof Reflect.get(value, 'toJSON') === 'function') throw refuse('has a toJSON method');
  if (Object.getOwnPropertySymbols(value).length > 0) throw refuse('has a symbol among its keys');
  above.add(value);
  const within = (step: Step, inner: unknown): void => {
    steps.push(step);
    checkValue(inner, root, steps, above);
    steps.pop();
  };
  if (Array.isArray(value)) {
    if (Object.keys(value).length !== value.length) throw refuse('has holes or keys that are not indexes');
    value.forEach((inner, index) => within(index, inner));
  } else {
    const kind: unknown = Object.getPrototypeOf(value);
    // An object of another realm has that realm's Object.prototype, whose prototype is also null.
    const plain = kind === null || Object.getPrototypeOf(kind) === null;
    if (!plain) throw refuse(`is an instance of ${value.constructor?.name || 'a class'}`);
    for (const [key, inner] of Object.entries(value)) if (inner !== undefined) within(key, inner);
  }
  above.delete(value);
}

/**
 * The value of a JSON text inside a message, such as the arguments of a call. Undefined if the text is not JSON, or is nested
 * deeper than a message: its value could overflow the stack.
 */
export function jsonWithin(text: string): Json | undefined {
  if (isDeep(text)) return undefined;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

function isDeep(text: string): boolean {
  let depth = 0;
  for (const [token] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}]/gs)) {
    if (token === '[' || token === '{') depth++;
    else if (token === ']' || token === '}') depth--;
    if (depth > deepestNesting) return true;
  }
  return false;
}

/** A value as text, for keys of maps and for messages. */
export const asText = (value: Json | undefined): string =>
  typeof value === 'object' ? JSON.stringify(value) : String(value);
