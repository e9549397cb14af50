/** Server-sent events of a stream, each with the text in which it came. */
import { StringDecoder } from 'node:string_decoder';
import type { Json } from '../conversation/message.js';

export interface SseEvent {
  /** The event with its empty line. */
  text: string;
  /** Its `data`; null if it has none, as a comment. */
  data: string | null;
}

/** Splits a stream into its events, however its bytes were cut. */
export class EventSplitter {
  readonly #decoder = new StringDecoder('utf8');
  #rest = '';
  /** Begin of the first line of `#rest` that has no end yet. */
  #line = 0;

  *take(bytes: Buffer): Generator<SseEvent> {
    this.#rest += this.#decoder.write(bytes);
    let start = 0;
    for (;;) {
      const end = this.#rest.indexOf('\n', this.#line);
      if (end < 0) break;
      const line = this.#rest.slice(this.#line, end);
      this.#line = end + 1;
      if (line !== '' && line !== '\r') continue;
      yield eventOf(this.#rest.slice(start, this.#line));
      start = this.#line;
    }
    this.#rest = this.#rest.slice(start);
    this.#line -= start;
  }

  /** The text after the last whole event. */
  end(): SseEvent | null {
    const text = this.#rest + this.#decoder.end();
    this.#rest = '';
    this.#line = 0;
    return text === '' ? null : eventOf(text);
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
  if (data === null || !data.startsWith('{')) return null;
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
