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
  readonly #isStream: boolean;
  #json: Buffer[] = [];
  #left: number;
  #isLost = false;
  /** Tells that the decompressor has taken the last bytes, or takes no more. */
  #taken: () => void = () => undefined;

  constructor(
    head: IncomingMessage,
    private readonly protocol: Protocol,
    mostBytes: number,
  ) {
    this.#left = mostBytes;
    this.#splitter = new EventSplitter(mostBytes);
    this.#collector = protocol.collector();
    this.#isLost = kindOf(head) === null;
    this.#isStream = kindOf(head) === 'stream';
    this.#decompress = decompressor(head);
    this.#decompress
      ?.on('data', (bytes: Buffer) => this.#read(bytes))
      .on('error', () => {
        this.#isLost = true;
        this.#taken();
      });
  }

  /** Resolves when the bytes are read. */
  async take(bytes: Buffer): Promise<void> {
    if (this.#isLost) return;
    const decompress = this.#decompress;
    if (decompress === null) return this.#read(bytes);
    await new Promise<void>((resolve) => {
      this.#taken = resolve;
      decompress.write(bytes, () => resolve());
    });
  }

  /** The answer, as far as it was read; null if it cannot be read yet. */
  answer(): Answer | null {
    // A value that is cut off is seldom worth an attempt.
    return this.#isStream || /\}\s*$/.test(this.#json.at(-1)?.toString('latin1') ?? '')
      ? this.#answer()
      : null;
  }

  /** The whole answer; null if it could not be read. */
  async end(): Promise<Answer | null> {
    if (this.#decompress && !this.#isLost) await finished(this.#decompress.end()).catch(() => undefined);
    return this.#answer();
  }

  #answer(): Answer | null {
    if (this.#isLost) return null;
    if (this.#isStream) return this.#collector.answer();
    const body = parsed(Buffer.concat(this.#json));
    return isFields(body) ? this.protocol.answer(body) : null;
  }

  #read(bytes: Buffer): void {
    this.#left -= bytes.length;
    if (this.#left < 0) {
      this.#isLost = true;
      this.#json = [];
    } else if (!this.#isStream) this.#json.push(bytes);
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
