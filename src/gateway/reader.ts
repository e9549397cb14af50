/** Reads an answer of the upstream while its bytes pass on. */
import type { IncomingMessage } from 'node:http';
import type { Transform } from 'node:stream';
import { finished } from 'node:stream/promises';
import { isFields } from '../formats/content.js';
import type { Json } from '../conversation/message.js';
import { decompressor, hasKnownEncoding } from './forward.js';
import type { Answer, Collector, Protocol } from './protocols/protocol.js';
import { EventSplitter, jsonIn } from './sse.js';

/** `stream`: server-sent events. `json`: one value. Null: an error, or nothing that is known here. */
export function kindOf(answer: IncomingMessage): 'stream' | 'json' | null {
  const { statusCode, headers } = answer;
  if (statusCode !== 200 || !hasKnownEncoding(answer)) return null;
  const type = headers['content-type'] ?? '';
  if (/^text\/event-stream\b/i.test(type)) return 'stream';
  return /^application\/json\b/i.test(type) ? 'json' : null;
}

/** Reads a copy of the bytes. It gives up where an answer is larger than it may be, and never fails. */
export class AnswerReader {
  readonly #decompress: Transform | null;
  readonly #splitter: EventSplitter;
  readonly #collector: Collector;
  #json: Buffer[] = [];
  #left: number;
  #isLost = false;

  constructor(
    private readonly answer: IncomingMessage,
    private readonly protocol: Protocol,
    mostBytes: number,
  ) {
    this.#left = mostBytes;
    this.#splitter = new EventSplitter(mostBytes);
    this.#collector = protocol.collector();
    this.#isLost = kindOf(answer) === null;
    this.#decompress = decompressor(answer);
    this.#decompress
      ?.on('data', (bytes: Buffer) => this.#read(bytes))
      .on('error', () => {
        this.#isLost = true;
      });
  }

  take(bytes: Buffer): void {
    if (this.#isLost) return;
    if (this.#decompress) this.#decompress.write(bytes);
    else this.#read(bytes);
  }

  /** Null if the answer could not be read. */
  async end(): Promise<Answer | null> {
    if (this.#isLost) return null;
    if (this.#decompress) await finished(this.#decompress.end()).catch(() => undefined);
    if (this.#isLost) return null;
    if (kindOf(this.answer) === 'stream') return this.#collector.answer();
    const body = parsed(Buffer.concat(this.#json));
    return isFields(body) ? this.protocol.answer(body) : null;
  }

  #read(bytes: Buffer): void {
    this.#left -= bytes.length;
    if (this.#left < 0) {
      this.#isLost = true;
      this.#json = [];
    } else if (kindOf(this.answer) === 'json') this.#json.push(bytes);
    else
      for (const event of this.#splitter.take(bytes)) {
        const data = jsonIn(event);
        if (isFields(data)) this.#collector.take(data);
      }
  }
}

export function parsed(bytes: Buffer): Json {
  try {
    return JSON.parse(bytes.toString('utf8')) as Json;
  } catch {
    return null;
  }
}
