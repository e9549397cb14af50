import type { Pool } from 'pg';
import { asNobody } from '../store/connection/places.js';
import { generationOf } from '../store/sessions/sessions.js';
import { sessionWorkflowId } from '../temporal/names.js';
import type { SessionIds } from '../contract/ids.js';
import type { SessionWorkflows } from '../temporal/session-workflows.js';

/** The status of a session's workflow at one time, and the session's generation. */
export interface Look {
  live: Awaited<ReturnType<SessionWorkflows['status']>>;
  /** Null if no waiter requested it. */
  generation: number | null;
}

interface Waiter {
  wantsGeneration: boolean;
  see(look: Look): void;
  fail(error: unknown): void;
}

interface Watched {
  ids: SessionIds;
  /** The waiters of the next look, which must begin after they joined. */
  waiters: Set<Waiter>;
  pauses: Iterator<number, never>;
  timer: NodeJS.Timeout | null;
  /** `again`: some waiters joined after the present look began. */
  state: 'still' | 'looking' | 'again';
}

export interface WaitOptions {
  withinMs: number;
  /** Every look also reads the generation. @default false */
  generation?: boolean;
  /** Waits for the first look even beyond the timeout. @default false */
  atLeastOnce?: boolean;
  signal?: AbortSignal;
}

/** Milliseconds between looks: short at first, because a compaction takes seconds, and longer later. */
function* pauses(): Generator<number, never> {
  for (let pause = 10; ; pause = Math.min(1_000, pause * 1.5)) yield pause;
}

/** Concurrent looks at all sessions together. Each look queries the workflow through Temporal, and a worker must answer. */
const looksAtOnce = 8;

/**
 * Looks at sessions for waiting callers. One look answers all waiters of a session, the number of concurrent looks is
 * limited, and looks stop when no caller waits.
 */
export class SessionWatch {
  readonly #watched = new Map<string, Watched>();
  /** Sessions that are due for a look, in order. */
  readonly #due = new Set<Watched>();
  #looking = 0;

  constructor(
    private readonly pool: Pool,
    private readonly workflows: Pick<SessionWorkflows, 'status'>,
  ) {}

  /**
   * Resolves with the first look that `done` accepts, or after the timeout with the last look, or null if there was none. Throws
   * the failure of a look, and `CallerGone`.
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
