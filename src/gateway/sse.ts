/** Server-sent events of a stream, each with the text in which it came. */
import { StringDecoder } from 'node:string_decoder';
import type { Json } from '../conversation/message.js';

export interface SseEvent {
  /** The event with its empty line. */
  text: string;
  /** Its `data`; null if it has none, as a comment. */
  data: string | null;
}

/**
 * Splits a stream into its events, however its bytes were cut. An event of more than `most` characters comes in parts without
 * data.
 */
export class EventSplitter {
  readonly #decoder = new StringDecoder('utf8');
  /** The event that has no end yet: its whole lines, and the pieces of the next one. A line may have megabytes. */
  #lines = '';
  #pieces: string[] = [];
  #length = 0;

  constructor(private readonly most: number) {}

  *take(bytes: Buffer): Generator<SseEvent> {
    const text = this.#decoder.write(bytes);
    let start = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
      this.#add(text.slice(start, end + 1));
      start = end + 1;
      const line = this.#pieces.join('');
      this.#lines += line;
      this.#pieces = [];
      if (line === '\n' || line === '\r\n') yield eventOf(this.#taken());
    }
    this.#add(text.slice(start));
    if (this.#length > this.most) yield { text: this.#taken(), data: null };
  }

  /** The text after the last whole event. */
  end(): SseEvent | null {
    this.#add(this.#decoder.end());
    return this.#length === 0 ? null : eventOf(this.#taken());
  }

  #add(piece: string): void {
    this.#pieces.push(piece);
    this.#length += piece.length;
  }

  #taken(): string {
    const text = [this.#lines, ...this.#pieces].join('');
    this.#lines = '';
    this.#pieces = [];
    this.#length = 0;
    return text;
  }
}

function eventOf(text: string): SseEvent {
  const data = text
    .split(/\r?\n/)
    .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).replace(/^ /, '')] : []));
  return { text, data: data.length === 0 ? null : data.join('\n') };
}

/** Returns the data as JSON; null if it is none. */
export function jsonIn({ data }: SseEvent): Json {
  if (data === null || !data.trimStart().startsWith('{')) return null;
  try {
    return JSON.parse(data) as Json;
  } catch {
    return null;
  }
}

/** Returns the text of an event with this data. */
export function eventText(data: Json, name?: string): string {
  return `${name === undefined ? '' : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;
}
