/**
 * The caller that the running code works for. It is set where a request enters and read where shared resources are
 * assigned. It follows the request through every await, so that no function in between has to pass it on.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { PalimpsestError } from '../../errors.js';

/**
 * `hot`: work of a few milliseconds that an agent waits for between two model calls. `heavy`: work that reads or
 * writes whole sessions, such as search and replay. Heavy work takes at most half of the connections, and a fifth of
 * a tenant's connections.
 */
export type Lane = 'hot' | 'heavy';

export interface Caller {
  tenant: string;
  lane: Lane;
  /** Aborted with a `CallerGone` when the caller no longer waits. Absent: the work is always finished. */
  signal?: AbortSignal;
  /**
   * Counts for the tenant, until the answer is sent, the largest number of bytes that one of the calls names. Throws
   * `Tenant.LimitReached` or `Api.Overloaded`. Absent: memory is not shared with other tenants.
   */
  hold?: (bytes: number) => void;
}

/** The caller no longer waits for the answer. */
export class CallerGone extends Error {
  constructor() {
    super('the caller has gone');
    this.name = 'CallerGone';
  }
}

const callers = new AsyncLocalStorage<Caller>();

/** Undefined in a worker, in the library and on the command line, where a process serves one owner. */
export function currentCaller(): Caller | undefined {
  return callers.getStore();
}

export function asCaller<T>(caller: Caller, work: () => T): T {
  return callers.run(caller, work);
}

/** Runs work that several callers share. No caller can abort it, and it counts against no tenant's share. */
export function asNobody<T>(work: () => T): T {
  return callers.exit(work);
}

/** A request for a place. */
export interface Wanted extends Partial<Caller> {
  /** A session whose calls run one after the other. Its waiting writers hold no connection. */
  session?: { tenant: string; session: string };
}

interface PlacesOptions {
  /** Name of the limit, and what it counts, for error messages. @default the connections of a pool */
  limit?: { name: string; counts: string };
  /** Number of places. */
  most: number;
  /** Share of the places that one tenant may hold; callers without a tenant may hold all places. @default 1 */
  tenantShare?: number;
  /** Maximum milliseconds that a caller waits. */
  waitMs: number;
}

const connections = { name: 'databaseConnections', counts: 'connections to PostgreSQL' };

interface Waiting {
  wanted: Wanted;
  go(): void;
}

/**
 * Shares of heavy work in all places and in a tenant's places. On two cores, with 60 concurrent searches, another
 * tenant's requests took 2.4 s (p99) with half of the tenant's places and 0.4 s with a fifth; a third fewer searches
 * were answered.
 */
const heavyShare = { all: 0.5, tenant: 0.2 };

/**
 * Assigns scarce resources of a process, such as the connections of a pool, in a fair order. A pool alone favours the callers
 * with the most requests: sixty searches of one tenant, or two agents that repeat an append to a locked session, would leave
 * nothing for others. Here a tenant holds at most its share. Heavy work holds at most half of all places and a fifth of each
 * share. The last tenth goes to tenants that hold nothing. Waiting tenants get places alternately, each in the order of its own
 * calls.
 */
export class Places {
  readonly #limit: { name: string; counts: string };
  readonly #most: number;
  readonly #tenantMost: number;
  readonly #waitMs: number;
  readonly #held = new Map<string, { all: number; heavy: number }>();
  readonly #writing = new Set<string>();
  /** Queues by tenant, in the order in which they get the next places. */
  readonly #queues = new Map<string, Waiting[]>();
  #all = 0;
  #heavy = 0;

  constructor({ limit = connections, most, tenantShare = 1, waitMs }: PlacesOptions) {
    this.#limit = limit;
    this.#most = most;
    this.#tenantMost = Math.max(1, Math.floor(most * tenantShare));
    this.#waitMs = waitMs;
  }

  get held(): number {
    return this.#all;
  }

  get waiting(): number {
    return [...this.#queues.values()].reduce((sum, queue) => sum + queue.length, 0);
  }

  /**
   * Takes a place and returns the function that gives it back. Throws `Tenant.LimitReached`, `Store.Busy` or
   * `Store.Unavailable` if no place became free in time, and `CallerGone`.
   */
  async take(wanted: Wanted): Promise<() => void> {
    wanted.signal?.throwIfAborted();
    if (this.#obstacle(wanted) !== null) await this.#wait(wanted);
    else this.#hold(wanted);
    return () => this.#release(wanted);
  }

  /** Resolves when the place is held. */
  #wait(wanted: Wanted): Promise<void> {
    const { tenant = '', signal } = wanted;
    const queue = this.#queues.get(tenant) ?? [];
    this.#queues.set(tenant, queue);
    return new Promise<void>((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', gone);
        queue.splice(queue.indexOf(waiting), 1);
        if (queue.length === 0) this.#queues.delete(tenant);
      };
      const gone = () => {
        leave();
        reject(signal?.reason as Error);
      };
      const timer = setTimeout(() => {
        const refusal = this.#refusal(wanted);
        leave();
        reject(refusal);
      }, this.#waitMs);
      const go = () => {
        leave();
        this.#hold(wanted);
        resolve();
      };
      const waiting: Waiting = { wanted, go };
      queue.push(waiting);
      signal?.addEventListener('abort', gone, { once: true });
    });
  }

  #hold({ tenant, lane, session }: Wanted): void {
    this.#count(tenant, lane, 1);
    if (session) this.#writing.add(keyOf(session));
  }

  #release({ tenant, lane, session }: Wanted): void {
    this.#count(tenant, lane, -1);
    if (session) this.#writing.delete(keyOf(session));
    for (let next = this.#next(); next; next = this.#next()) next.go();
  }

  #count(tenant: string | undefined, lane: Wanted['lane'], change: 1 | -1): void {
    const heavy = lane === 'heavy' ? change : 0;
    this.#all += change;
    this.#heavy += heavy;
    if (tenant === undefined) return;
    const held = this.#held.get(tenant) ?? { all: 0, heavy: 0 };
    const now = { all: held.all + change, heavy: held.heavy + heavy };
    if (now.all === 0) this.#held.delete(tenant);
    else this.#held.set(tenant, now);
  }

  #next(): Waiting | undefined {
    if (this.#all >= this.#most) return undefined;
    for (const [tenant, queue] of this.#queues) {
      const found = queue.find(({ wanted }) => this.#obstacle(wanted) === null);
      if (!found) continue;
      // From now on, the other tenants come before this one.
      this.#queues.delete(tenant);
      this.#queues.set(tenant, queue);
      return found;
    }
    return undefined;
  }

  /** The reason why this call must wait; null if it need not wait. */
  #obstacle({ tenant, lane, session }: Wanted): 'session' | 'tenant' | 'all' | null {
    if (session && this.#writing.has(keyOf(session))) return 'session';
    const own = tenant === undefined ? undefined : (this.#held.get(tenant) ?? { all: 0, heavy: 0 });
    const heavyOf = (places: number, share: number) => Math.max(1, Math.floor(places * share));
    if (own && own.all >= this.#tenantMost) return 'tenant';
    if (own && lane === 'heavy' && own.heavy >= heavyOf(this.#tenantMost, heavyShare.tenant)) return 'tenant';
    const reserved = own && own.all > 0 && this.#most >= 4 ? Math.max(1, Math.floor(this.#most / 10)) : 0;
    if (this.#all >= this.#most - reserved) return reserved > 0 && this.#all < this.#most ? 'tenant' : 'all';
    return lane === 'heavy' && this.#heavy >= heavyOf(this.#most, heavyShare.all) ? 'all' : null;
  }

  #refusal(wanted: Wanted): PalimpsestError {
    const within = `within ${this.#waitMs} ms`;
    switch (this.#obstacle(wanted)) {
      case 'session':
        return new PalimpsestError(
          'Store.Busy',
          `session ${wanted.session?.session} did not become free ${within}: other calls are using it`,
          { hint: 'Nothing was stored. Repeat the call.' },
        );
      case 'tenant':
        return new PalimpsestError(
          'Tenant.LimitReached',
          `The tenant's share of the ${this.#limit.counts} did not become free ${within}.`,
          {
            hint: 'Repeat the call with fewer concurrent calls.',
            details: { limit: this.#limit.name, most: this.#tenantMost },
          },
        );
      case 'all':
      case null:
        return new PalimpsestError(
          'Store.Unavailable',
          `None of the ${this.#most} ${this.#limit.counts} became free ${within}.`,
          { hint: 'Repeat the call. If this happens often, run more processes.' },
        );
    }
  }
}

/** No id contains NUL, so the key is unambiguous. */
const keyOf = ({ tenant, session }: { tenant: string; session: string }): string => `${tenant}\0${session}`;
