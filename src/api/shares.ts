/** How much of a process its tenants hold, each kind of thing by itself. */
import { PalimpsestError } from '../errors.js';

export type LimitName = 'requests' | 'bodyBytes' | 'waits' | 'connections';

const held: Record<LimitName, string> = {
  requests: 'requests in work',
  bodyBytes: 'bytes of bodies in work',
  waits: 'requests that wait for compactions',
  connections: 'connections',
};

export interface ShareLimits {
  /** Of all tenants together. */
  most: number;
  /** Of one tenant. */
  tenantMost: number;
}

/**
 * One kind of thing. A tenant holds at most its share, and the last tenth of all goes to tenants that hold little: several
 * that ask for everything leave something to the next.
 */
export class Share {
  readonly #most: number;
  readonly #tenantMost: number;
  readonly #held = new Map<string, number>();
  #all = 0;

  constructor(
    private readonly limit: LimitName,
    { most, tenantMost }: ShareLimits,
  ) {
    this.#most = most;
    this.#tenantMost = Math.min(tenantMost, most);
  }

  get all(): number {
    return this.#all;
  }

  /** Answers what gives it back, once. Throws `Tenant.LimitReached` or `Api.Overloaded`. */
  take(tenant: string, amount = 1): () => void {
    const own = this.#held.get(tenant) ?? 0;
    this.#check(own, amount);
    this.#count(tenant, amount);
    let given = false;
    return () => {
      if (!given) this.#count(tenant, -amount);
      given = true;
    };
  }

  /** A tenant that holds nothing gets whatever it asks for, where there is room: no body is too large to be alone. */
  #check(own: number, amount: number): void {
    const all = this.#all + amount;
    if (own === 0 && (all <= this.#most || this.#all === 0)) return;
    if (own === 0)
      throw new PalimpsestError('Api.Overloaded', `The API has ${this.#all} ${held[this.limit]} already.`, {
        hint: 'Repeat the request a moment later.',
        details: { limit: this.limit, most: this.#most },
      });
    const shared = this.#tenantMost < this.#most;
    const scarce = shared && all > this.#most - Math.floor(this.#most / 10);
    if (own + amount <= this.#tenantMost && all <= this.#most && !(scarce && own >= this.#tenantMost / 10))
      return;
    throw new PalimpsestError(
      'Tenant.LimitReached',
      `The tenant has ${own} ${held[this.limit]}, as many as it may have now.`,
      {
        hint: 'Repeat the request a moment later, with fewer at once.',
        details: { limit: this.limit, most: this.#tenantMost },
      },
    );
  }

  #count(tenant: string, change: number): void {
    this.#all += change;
    const now = (this.#held.get(tenant) ?? 0) + change;
    if (now === 0) this.#held.delete(tenant);
    else this.#held.set(tenant, now);
  }
}
