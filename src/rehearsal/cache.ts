/** What the requests of a session cost with a provider that caches the prefix of the last one. */
import { isSame } from '../context/view/breakdown.js';
import type { ViewItem } from '../context/view/view.js';
import type { Prices } from '../policy/schema.js';

/** Tokens of one request, or of all requests of a session. */
export interface CacheUse {
  /** The prefix shared with the request before, read from the cache. */
  read: number;
  /** The rest, written to it. */
  written: number;
}

export interface Charged extends CacheUse {
  /** Messages shared with the request before, from the first one on. */
  prefix: number;
  /** Messages of the request before. */
  before: number;
}

/**
 * Compares every request with the one before, message by message: a message that differs is written anew together with
 * all that follow. The cache is taken to be warm at every request.
 */
export class CacheMeter {
  readonly total: CacheUse = { read: 0, written: 0 };
  requests = 0;
  private previous: readonly ViewItem[] = [];

  /** `overhead`: tokens in front of the context that never change. */
  constructor(private readonly overhead: number) {}

  request(items: readonly ViewItem[]): Charged {
    const first = this.requests === 0;
    const before = this.previous;
    let prefix = 0;
    let read = first ? 0 : this.overhead;
    for (const item of items) {
      const known = before[prefix];
      if (known === undefined || !isSame(known, item)) break;
      read += item.tokens;
      prefix++;
    }
    const size = items.reduce((sum, { tokens }) => sum + tokens, this.overhead);
    const written = size - read;
    this.total.read += read;
    this.total.written += written;
    this.requests++;
    this.previous = items;
    return { read, written, prefix, before: before.length };
  }
}

/** Money for the agent's input, by prices per million tokens. */
export function inputMoney({ read, written }: CacheUse, prices: Prices): number {
  return (read * prices.cachedInput + written * prices.cacheWrite) / 1e6;
}

/** Money for a summarizer's tokens. */
export function summarizerMoney(
  { input, output }: { input: number; output: number },
  prices: Prices,
): number {
  return (input * prices.summarizerInput + output * prices.summarizerOutput) / 1e6;
}
