/**
 * Decodes bytes to text in bounded memory (recognises gzip by content and refuses invalid UTF-8), and cuts JSON text
 * into pieces that can be parsed one by one: lines, elements of an array, or one document.
 */
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { invalid } from '../errors.js';

/** Throws `Input.Invalid` for damaged gzip data and for text that cannot be kept exactly. */
export async function* decodedText(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (chunk?: Buffer): string => {
    try {
      return decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      throw invalid('The text is not valid UTF-8.', undefined, 'Convert it, for instance with iconv.');
    }
  };
  for await (const chunk of await unzipped(bytes)) yield decode(chunk);
  yield decode();
}

async function unzipped(bytes: AsyncIterable<Buffer>): Promise<AsyncIterable<Buffer>> {
  const chunks = bytes[Symbol.asyncIterator]();
  let start = Buffer.alloc(0);
  let done = false;
  while (start.length < 2 && !done) {
    const next = await chunks.next();
    done = next.done === true;
    if (!next.done) start = Buffer.concat([start, next.value]);
  }
  const whole = resumed(start, chunks);
  return start[0] === 0x1f && start[1] === 0x8b ? gunzip(whole) : whole;
}

async function* resumed(start: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  try {
    if (start.length > 0) yield start;
    for (let next = await rest.next(); !next.done; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}

async function* gunzip(bytes: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const source = Readable.from(bytes);
  const unzip = createGunzip();
  source.once('error', (error) => unzip.destroy(error));
  try {
    yield* source.pipe(unzip);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (!code?.startsWith('Z_')) throw error;
    throw invalid(`The gzip data is damaged or cut off: ${(error as Error).message}.`);
  } finally {
    source.destroy();
  }
}

export interface Piece {
  text: string;
  /** Line of the first character of the piece, from 1. */
  line: number;
  column: number;
  /** The piece has more characters than allowed, and `text` is empty. */
  tooLong: boolean;
}

interface Pieces {
  layout: 'lines' | 'elements' | 'document';
  pieces: AsyncGenerator<Piece>;
}

/** Maximum number of characters that are examined to detect the layout. */
const mostPeeked = 16_000_000;

/**
 * Detects the layout by the first lines. `longest` limits the characters of a piece held in memory; the text of a
 * longer piece is skipped. Throws `Input.Invalid` for an empty text.
 */
export async function piecesOf(text: AsyncIterable<string>, longest: number): Promise<Pieces> {
  const reader = new TextReader(text);
  if (!(await reader.skipSpace())) throw invalid('The input is empty.');
  if (await holdsLines(reader)) return { layout: 'lines', pieces: reader.lines(longest) };
  if (reader.next() === '[') return { layout: 'elements', pieces: reader.elements(longest) };
  return { layout: 'document', pieces: reader.document(longest) };
}

async function holdsLines(reader: TextReader): Promise<boolean> {
  const { lines, isAll } = await reader.peekLines(1, mostPeeked);
  const [first = ''] = lines;
  // The first line does not end within the limit: an array is read by its elements, an object as a line.
  if (lines.length === 1) return !isAll && first.startsWith('{');
  if (parses(first)) return true;
  // The text is one document over several lines, or has one value per line and a broken first value. The next lines decide.
  const further = await reader.peekLines(9, mostPeeked);
  const rest = further.lines.slice(1, further.isAll ? undefined : -1);
  return rest.filter(parsesAsObject).length * 2 > rest.length;
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const parsesAsObject = (text: string): boolean => /^[ \t]*\{/.test(text) && parses(text);

/** Tests for characters other than JSON's white space. Other white space (U+2028, no-break spaces) is part of the text. */
const isFilled = (line: string): boolean => /[^ \t\r\n]/.test(line);

/** A buffer over the text that drops consumed characters. */
class TextReader {
  private readonly chunks: AsyncIterator<string>;
  private buffer = '';
  private at = 0;
  private ended = false;
  private line = 1;
  /** Characters before `at` in the present line. */
  private before = 0;

  constructor(text: AsyncIterable<string>) {
    this.chunks = text[Symbol.asyncIterator]();
  }

  next(): string | undefined {
    return this.buffer[this.at];
  }

  /** Advances past the given text, which begins here. */
  private pass(text: string): void {
    const lines = text.split('\n');
    this.line += lines.length - 1;
    this.before = (lines.length > 1 ? 0 : this.before) + lines.at(-1)!.length;
    this.at += text.length;
  }

  private place(): { line: number; column: number } {
    return { line: this.line, column: this.before + 1 };
  }

  /** Returns false at the end of the text. */
  async skipSpace(): Promise<boolean> {
    for (;;) {
      while (this.at < this.buffer.length) {
        const character = this.buffer[this.at]!;
        if (character !== '\n' && character !== ' ' && character !== '\t' && character !== '\r') return true;
        this.pass(character);
      }
      if (!(await this.more())) return false;
    }
  }

  /**
   * Returns the next lines that are not blank, without consuming them: more than `count` (the last may be
   * incomplete), or fewer if the text ends first (`isAll`) or exceeds `most` characters.
   */
  async peekLines(count: number, most: number): Promise<{ lines: string[]; isAll: boolean }> {
    for (;;) {
      const ahead = this.buffer.slice(this.at);
      const lines = ahead.split('\n').filter(isFilled);
      const isAll = this.ended;
      if (lines.length > count || isAll || ahead.length >= most) return { lines, isAll };
      await this.readLine(most - ahead.length);
    }
  }

  /** Reads at least up to a line feed. Chunks are joined once, so that the time is linear in the length of the line. */
  private async readLine(most: number): Promise<void> {
    const chunks = [this.buffer.slice(this.at)];
    for (let length = 0; length < most; length += chunks.at(-1)!.length) {
      const next = await this.chunks.next();
      if (next.done) {
        this.ended = true;
        break;
      }
      chunks.push(next.value);
      if (next.value.includes('\n')) break;
    }
    this.buffer = chunks.join('');
    this.at = 0;
  }

  async *lines(longest: number): AsyncGenerator<Piece> {
    while (await this.skipSpace()) {
      const place = this.place();
      yield { ...(await this.take(longest, (from) => this.buffer.indexOf('\n', from))), ...place };
    }
  }

  async *document(longest: number): AsyncGenerator<Piece> {
    const place = this.place();
    yield { ...(await this.take(longest, () => -1)), ...place };
  }

  /**
   * Yields the elements of the array that begins here. Errors between elements become part of a piece, so that the piece is
   * invalid JSON.
   */
  async *elements(longest: number): AsyncGenerator<Piece> {
    this.pass('[');
    for (;;) {
      if (!(await this.skipSpace())) throw invalid(`Line ${this.line}: the array is not closed.`);
      if (this.next() === ']') break;
      const place = this.place();
      const scan = new ElementScan();
      yield { ...(await this.take(longest, (from) => scan.end(this.buffer, from))), ...place };
      if (this.next() === ',') this.pass(',');
    }
    this.pass(']');
    if (await this.skipSpace()) throw invalid(`Line ${this.line}: text follows the array.`);
  }

  /**
   * Takes the text up to the offset that `find` returns, or to the end if `find` returns -1. Looks at each character
   * once.
   */
  private async take(
    longest: number,
    find: (from: number) => number,
  ): Promise<{ text: string; tooLong: boolean }> {
    let parts = '';
    let tooLong = false;
    for (;;) {
      const end = find(this.at);
      const upTo = end < 0 ? this.buffer.length : end;
      const text = this.buffer.slice(this.at, upTo);
      if (!tooLong && parts.length + text.length > longest) {
        tooLong = true;
        parts = '';
      }
      if (!tooLong) parts += text;
      this.pass(text);
      if (end >= 0 || !(await this.more())) return { text: parts, tooLong };
    }
  }

  private async more(): Promise<boolean> {
    if (this.ended) return false;
    const next = await this.chunks.next();
    this.buffer = this.buffer.slice(this.at) + (next.done ? '' : next.value);
    this.at = 0;
    this.ended = next.done === true;
    return !this.ended;
  }
}

/** Finds the end of an array element: the comma or bracket on its own level. */
class ElementScan {
  private depth = 0;
  private inString = false;
  private escaped = false;

  end(buffer: string, from: number): number {
    for (let at = from; at < buffer.length; at++) {
      const code = buffer.charCodeAt(at);
      if (this.inString) {
        if (this.escaped) this.escaped = false;
        else if (code === 0x5c) this.escaped = true;
        else if (code === 0x22) this.inString = false;
      } else if (code === 0x22) this.inString = true;
      else if (code === 0x7b || code === 0x5b) this.depth++;
      else if (this.depth === 0 && (code === 0x2c || code === 0x5d)) return at;
      else if (code === 0x7d || code === 0x5d) this.depth = Math.max(0, this.depth - 1);
    }
    return -1;
  }
}
