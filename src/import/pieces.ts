/** A text of JSON in pieces that can be parsed one by one: lines, elements of an array, or one document. */
import { invalid } from '../errors.js';

export interface Piece {
  text: string;
  /** Of its first character, from 1. */
  line: number;
  /** More characters than are taken; `text` is empty. */
  tooLong: boolean;
}

export interface Pieces {
  layout: 'lines' | 'elements' | 'document';
  pieces: AsyncGenerator<Piece>;
}

/**
 * Looks at the first lines to tell the layout. `longest`: characters of one piece that are held in memory; a longer one is
 * read over. Throws `Input.Invalid` for an empty text.
 */
export async function piecesOf(text: AsyncIterable<string>, longest: number): Promise<Pieces> {
  const reader = new TextReader(text);
  if (!(await reader.skipSpace())) throw invalid('The input is empty.');
  const first = await reader.peekLine(longest);
  const second = first === null ? null : await reader.peekLine(longest, first.end);
  // A value a line, or a broken first line before one that is whole.
  const isLines = first !== null && second !== null && (parses(first.text) || parsesAsObject(second.text));
  if (isLines) return { layout: 'lines', pieces: reader.lines(longest) };
  if (reader.next() === '[') return { layout: 'elements', pieces: reader.elements(longest) };
  return { layout: 'document', pieces: reader.document(longest) };
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const parsesAsObject = (text: string): boolean => /^\s*\{/.test(text) && parses(text);

/** A buffer over the text that forgets what was read. */
class TextReader {
  private readonly chunks: AsyncIterator<string>;
  private buffer = '';
  private at = 0;
  private ended = false;
  private line = 1;

  constructor(text: AsyncIterable<string>) {
    this.chunks = text[Symbol.asyncIterator]();
  }

  next(): string | undefined {
    return this.buffer[this.at];
  }

  /** False at the end of the text. */
  async skipSpace(): Promise<boolean> {
    for (;;) {
      while (this.at < this.buffer.length) {
        const character = this.buffer[this.at]!;
        if (character === '\n') this.line++;
        else if (!/[ \t\r]/.test(character)) return true;
        this.at++;
      }
      if (!(await this.more())) return false;
    }
  }

  /** The next filled line from `from` on (an offset in the buffer), without reading on; null where there is none, or one too long. */
  async peekLine(longest: number, from = this.at): Promise<{ text: string; end: number } | null> {
    // Nothing is forgotten while one looks ahead: offsets count from the place read so far.
    let start = from - this.at;
    for (;;) {
      const end = this.buffer.indexOf('\n', this.at + start);
      if (end >= 0) {
        const text = this.buffer.slice(this.at + start, end);
        if (text.trim() !== '') return { text, end: end + 1 };
        start = end + 1 - this.at;
        continue;
      }
      if (this.buffer.length - this.at - start > longest) return null;
      if (await this.more()) continue;
      const text = this.buffer.slice(this.at + start);
      return text.trim() === '' ? null : { text, end: this.buffer.length };
    }
  }

  async *lines(longest: number): AsyncGenerator<Piece> {
    while (await this.skipSpace()) {
      const line = this.line;
      yield { ...(await this.take(longest, (from) => this.buffer.indexOf('\n', from))), line };
    }
  }

  async *document(longest: number): AsyncGenerator<Piece> {
    const line = this.line;
    yield { ...(await this.take(longest, () => -1)), line };
  }

  /** The elements of the array that begins here; what is wrong between them becomes part of a piece, and no JSON. */
  async *elements(longest: number): AsyncGenerator<Piece> {
    this.at++;
    for (;;) {
      if (!(await this.skipSpace())) throw invalid(`Line ${this.line}: the array is not closed.`);
      if (this.next() === ']') break;
      const line = this.line;
      const scan = new ElementScan();
      yield { ...(await this.take(longest, (from) => scan.end(this.buffer, from))), line };
      if (this.next() === ',') this.at++;
    }
    this.at++;
    if (await this.skipSpace()) throw invalid(`Line ${this.line}: nothing may follow the array.`);
  }

  /** Text up to the offset that `find` answers, looking at each character once; up to the end where it answers -1. */
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
      for (const character of text.match(/\n/g) ?? []) this.line += character.length;
      if (!tooLong && parts.length + text.length > longest) {
        tooLong = true;
        parts = '';
      }
      if (!tooLong) parts += text;
      this.at = upTo;
      if (end >= 0 || !(await this.more())) return { text: parts, tooLong };
    }
  }

  private async more(): Promise<boolean> {
    if (this.ended) return false;
    const { value, done } = await this.chunks.next();
    this.buffer = this.buffer.slice(this.at) + (done ? '' : value);
    this.at = 0;
    this.ended = done === true;
    return !this.ended;
  }
}

/** Where one element of an array ends: at the comma or bracket on its own level. */
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
      else if (code === 0x7d || code === 0x5d) this.depth--;
    }
    return -1;
  }
}
