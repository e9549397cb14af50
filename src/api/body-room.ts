/** Memory for the bodies of requests: how many bytes of them may be under way, and how many of those by one tenant. */
import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { PalimpsestError } from '../errors.js';

/** Bodies of the largest size that may be under way at once, and by one tenant. */
const mostLargest = { all: 8, tenant: 3 };

export class BodyRoom {
  private taken = 0;
  private readonly takenBy = new Map<string, number>();

  constructor(private readonly largest: number) {}

  /**
   * Takes room for the body that a request announces until its answer is out. Without a length it may be the largest.
   * Throws `Api.Overloaded`.
   */
  enter(tenant: string, headers: IncomingHttpHeaders, response: ServerResponse): void {
    const bytes = this.announced(headers);
    if (bytes === 0) return;
    const own = this.takenBy.get(tenant) ?? 0;
    const fits = own + bytes <= mostLargest.tenant * this.largest;
    if (!fits || this.taken + bytes > mostLargest.all * this.largest)
      throw full(fits ? 'All callers' : 'This tenant');
    this.taken += bytes;
    this.takenBy.set(tenant, own + bytes);
    response.once('close', () => {
      this.taken -= bytes;
      const left = (this.takenBy.get(tenant) ?? 0) - bytes;
      if (left > 0) this.takenBy.set(tenant, left);
      else this.takenBy.delete(tenant);
    });
  }

  private announced(headers: IncomingHttpHeaders): number {
    if (headers['transfer-encoding'] !== undefined) return this.largest;
    const length = Number(headers['content-length'] ?? 0);
    // What is too long is refused by its length.
    return length <= this.largest ? length : 0;
  }
}

function full(who: string): PalimpsestError {
  return new PalimpsestError('Api.Overloaded', `${who} sent as many megabytes as are taken at once.`, {
    hint: 'Repeat the request a moment later, or send smaller turns.',
  });
}
