/** The bodies of requests that are read here, and their bytes in memory. */
import type { IncomingMessage } from 'node:http';
import { PalimpsestError } from '../errors.js';
import { overloaded } from './failures.js';

export class Bodies {
  #bytes = 0;

  /** Bytes of one body, and of all bodies in progress, at most. */
  constructor(
    private readonly mostOfOne: number,
    private readonly mostOfAll: number,
  ) {}

  /** Reads a body, which counts until the work has ended. Throws `Input.TooLarge`, `Api.Overloaded`. */
  async read(incoming: IncomingMessage, work: (bytes: Buffer) => Promise<void>): Promise<void> {
    if (Number(incoming.headers['content-length'] ?? 0) > this.mostOfOne) throw tooLarge(this.mostOfOne);
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      // A refused client still gets its answer on this connection.
      for await (const chunk of incoming.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
        chunks.push(chunk);
        size += chunk.length;
        this.#bytes += chunk.length;
        if (size > this.mostOfOne) throw tooLarge(this.mostOfOne);
        if (this.#bytes > this.mostOfAll && this.#bytes > size) throw overloaded('The gateway is busy.');
      }
      await work(Buffer.concat(chunks));
    } finally {
      this.#bytes -= size;
    }
  }

  /** Takes the rest of a body that nobody reads: most clients read no answer before they have sent it. A longer one is cut off. */
  discardRest(incoming: IncomingMessage): void {
    if (incoming.complete) return;
    let left = this.mostOfAll;
    incoming.on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) incoming.destroy();
    });
    incoming.resume();
  }
}

const tooLarge = (limit: number): PalimpsestError =>
  new PalimpsestError('Input.TooLarge', `The body has more than ${limit} bytes.`, {
    ...{ path: 'body', hint: 'Raise gateway.bodyLimitBytes.' },
    details: { bodyLimitBytes: limit },
  });
