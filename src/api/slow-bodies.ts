import type { IncomingMessage } from 'node:http';

interface Arriving {
  request: IncomingMessage;
  /** Bytes of its connection at the last look; null before the first, which comes early for it. */
  seen: number | null;
}

/** Gives up bodies that arrive more slowly than a minimum, long before the time of a whole request is over. */
export class SlowBodies {
  readonly #arriving = new Set<Arriving>();
  readonly #timer: NodeJS.Timeout;

  constructor(
    { bytesPerSecond, everyMs }: { bytesPerSecond: number; everyMs: number },
    giveUp: (request: IncomingMessage) => void,
  ) {
    const least = (bytesPerSecond * everyMs) / 1000;
    this.#timer = setInterval(() => {
      for (const one of this.#arriving) {
        const { bytesRead } = one.request.socket;
        if (one.seen !== null && bytesRead - one.seen < least) {
          this.#arriving.delete(one);
          giveUp(one.request);
        } else one.seen = bytesRead;
      }
    }, everyMs).unref();
  }

  /** Nothing for a request whose body is here already, or that has none. */
  watch(request: IncomingMessage): void {
    const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
    if (request.complete || (encoding === undefined && (length === undefined || length === '0'))) return;
    const one: Arriving = { request, seen: null };
    this.#arriving.add(one);
    const done = () => this.#arriving.delete(one);
    request.once('end', done).once('close', done);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
