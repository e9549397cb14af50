import type { Pool } from 'pg';
import { asNobody } from '../store/connection/places.js';
import { generationOf } from '../store/sessions/sessions.js';
import { sessionWorkflowId } from '../temporal/names.js';
import type { SessionIds } from '../contract/ids.js';
import type { SessionWorkflows } from '../temporal/session-workflows.js';

export interface Look {
  live: Awaited<ReturnType<SessionWorkflows['status']>>;
  /** Null where no waiter asked for it. */
  generation: number | null;
}

interface Waiter {
  wantsGeneration: boolean;
  see(look: Look): void;
  fail(error: unknown): void;
}

interface Watched {
  ids: SessionIds;
  /** Those that the next look is for; it must begin after they came. */
  waiters: Set<Waiter>;
  pauses: Iterator<number, never>;
  timer: NodeJS.Timeout | null;
  /** A look goes on; `again`: some came after it began. */
  state: 'still' | 'looking' | 'again';
}

export interface WaitOptions {
  withinMs: number;
  /** Every look tells the generation as well. @default false */
  generation?: boolean;
  /** Waits for the first look also beyond its time. @default false */
  atLeastOnce?: boolean;
  signal?: AbortSignal;
}

/** Milliseconds between looks: soon at first, a compaction takes seconds; those that wait for longer can wait for that too. */
function* pauses(): Generator<number, never> {
  for (let pause = 10; ; pause = Math.min(1_000, pause * 1.5)) yield pause;
}

/** Looks at once, at all sessions together: each asks Temporal, which asks a worker. */
const looksAtOnce = 8;

/**
 * Looks at sessions for those who wait: one look serves every waiter of a session, few looks go at once, and nobody looks
 * where nobody waits any more.
 */
export class SessionWatch {
  readonly #watched = new Map<string, Watched>();
  /** Sessions whose time has come, in that order. */
  readonly #due = new Set<Watched>();
  #looking = 0;

  constructor(
    private readonly pool: Pool,
    private readonly workflows: Pick<SessionWorkflows, 'status'>,
  ) {}

  /**
   * The first look that `done` accepts; the last one, or null, where none did in time. Throws what a look failed with, and
   * `CallerGone`.
   */
  until(
    ids: SessionIds,
    done: (look: Look) => boolean,
    { withinMs, generation = false, atLeastOnce = false, signal }: WaitOptions,
  ): Promise<{ done: boolean; look: Look | null }> {
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      let last: Look | null = null;
      let late = false;
      const leave = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', gone);
        this.#leave(ids, waiter);
      };
      const gone = () => (leave(), reject(signal?.reason as Error));
      const end = (isDone: boolean) => (leave(), resolve({ done: isDone, look: last }));
      const timer = setTimeout(() => {
        late = true;
        if (last !== null || !atLeastOnce) end(false);
      }, withinMs);
      const waiter: Waiter = {
        wantsGeneration: generation,
        see: (look) => {
          last = look;
          if (done(look)) end(true);
          else if (late) end(false);
        },
        fail: (error) => (leave(), reject(error)),
      };
      signal?.addEventListener('abort', gone, { once: true });
      asNobody(() => this.#join(ids, waiter));
    });
  }

  #join(ids: SessionIds, waiter: Waiter): void {
    const key = sessionWorkflowId(ids);
    const watched = this.#watched.get(key) ?? newlyWatched(ids);
    this.#watched.set(key, watched);
    watched.waiters.add(waiter);
    watched.pauses = pauses();
    this.#soon(watched);
  }

  #leave(ids: SessionIds, waiter: Waiter): void {
    const key = sessionWorkflowId(ids);
    const watched = this.#watched.get(key);
    if (!watched?.waiters.delete(waiter) || watched.waiters.size > 0) return;
    if (watched.timer) clearTimeout(watched.timer);
    this.#due.delete(watched);
    this.#watched.delete(key);
  }

  #soon(watched: Watched): void {
    if (watched.timer) clearTimeout(watched.timer);
    watched.timer = null;
    if (watched.state !== 'still') {
      watched.state = 'again';
      return;
    }
    this.#due.add(watched);
    this.#next();
  }

  #next(): void {
    for (const watched of this.#due) {
      if (this.#looking >= looksAtOnce) return;
      this.#due.delete(watched);
      this.#looking++;
      watched.state = 'looking';
      void this.#look(watched, [...watched.waiters]).finally(() => {
        this.#looking--;
        this.#next();
      });
    }
  }

  /** Never rejects. */
  async #look(watched: Watched, waiters: readonly Waiter[]): Promise<void> {
    const { ids } = watched;
    try {
      const live = await this.workflows.status(ids);
      const asked = waiters.some(({ wantsGeneration }) => wantsGeneration);
      const generation = asked ? await generationOf(this.pool, ids) : null;
      for (const waiter of waiters) waiter.see({ live, generation });
    } catch (error) {
      for (const waiter of waiters) waiter.fail(error);
    }
    const again = watched.state === 'again';
    watched.state = 'still';
    if (watched.waiters.size === 0) return;
    if (again) this.#soon(watched);
    else watched.timer = setTimeout(() => this.#soon(watched), watched.pauses.next().value);
  }
}

function newlyWatched(ids: SessionIds): Watched {
  return { ids, waiters: new Set(), pauses: pauses(), timer: null, state: 'still' };
}
