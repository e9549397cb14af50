import type { ServerResponse } from 'node:http';
import { PalimpsestError } from '../errors.js';

/** The requests in work, and the end that waits for them. */
export class InFlight {
  private requests = 0;
  private drained: (() => void) | undefined;
  private over = false;

  get ending(): boolean {
    return this.over;
  }

  /** Counts until the answer is out or its caller has gone. Throws `Api.Overloaded`. */
  enter(response: ServerResponse): void {
    if (this.over) {
      response.setHeader('connection', 'close');
      throw new PalimpsestError('Api.Overloaded', 'This API is ending.', {
        hint: 'Repeat the request: another instance takes it.',
      });
    }
    this.requests++;
    response.once('close', () => {
      this.requests--;
      if (this.over && this.requests === 0) this.drained?.();
    });
  }

  /** Lets nothing more in; resolves when nothing is in work any more, or the time is over. */
  async end(graceMs: number): Promise<void> {
    this.over = true;
    if (this.requests === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.drained = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
