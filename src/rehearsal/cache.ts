/** Computes what the requests of a session cost if the provider caches the prefix of the previous request. */
import { isSame } from '../context/view/breakdown.js';
import type { ViewItem } from '../context/view/view.js';
import type { Prices } from '../policy/schema.js';

/** Tokens of one request, or of all requests of a session. */
export interface CacheUse {
  /** The prefix shared with the previous request, read from the cache. */
  read: number;
  /** The rest, written to the cache. */
  written: number;
}

export interface Charged extends CacheUse {
  /** Leading messages shared with the previous request. */
  prefix: number;
  /** Messages of the previous request. */
  before: number;
}

/**
 * Compares every request with the previous one, message by message: the first message that differs and all that follow are
 * written again. The cache is assumed to be warm at every request.
 */
export class CacheMeter {
  readonly total: CacheUse = { read: 0, written: 0 };
  requests = 0;
  private previous: readonly ViewItem[] = [];

  /** `overhead`: constant tokens before the context. */
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

/** Cost of the agent's input, by prices per million tokens. */
export function inputMoney({ read, written }: CacheUse, prices: Prices): number {
  return (read * prices.cachedInput + written * prices.cacheWrite) / 1e6;
}

/** Cost of a summarizer's tokens. */
export function summarizerMoney(
  { input, output }: { input: number; output: number },
  prices: Prices,
): number {
  return (input * prices.summarizerInput + output * prices.summarizerOutput) / 1e6;
}
