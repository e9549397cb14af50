import type { Pool } from 'pg';
import { asNobody } from '../store/connection/places.js';
import type { Notices } from '../store/connection/notices.js';
import { type SessionStand, standOf } from '../store/sessions/sessions.js';
import { sessionWorkflowId } from '../temporal/names.js';
import type { SessionIds } from '../contract/ids.js';
import type { SessionWorkflows } from '../temporal/session-workflows.js';
import { FewAtOnce } from './few-at-once.js';

/** A session at one time. */
export interface Look {
  /** The status of the session's workflow, perhaps from before the row was read; null if it is not known. */
  live: Awaited<ReturnType<SessionWorkflows['status']>> | null;
  /** Null if there is no such session. */
  row: SessionStand | null;
}

interface Waiter {
  wantsLive: boolean;
  see(look: Look): void;
  /** The row has changed since the last look. */
  seeRow(row: Look['row']): void;
  fail(error: unknown): void;
}

interface Watched {
  ids: SessionIds;
  waiters: Set<Waiter>;
  pauses: Iterator<number, never>;
  timer: NodeJS.Timeout | null;
  unsubscribe: () => void;
}

export interface WaitOptions {
  /** @default no limit */
  withinMs?: number;
  /** Waits for the first look even beyond the timeout. @default false */
  atLeastOnce?: boolean;
  /** Looks at the row alone, not at the workflow. @default false */
  rowOnly?: boolean;
  signal?: AbortSignal;
}

/** Concurrent looks at all sessions together. Each look queries the workflow through Temporal, and a worker must answer. */
const looksAtOnce = 8;

/** Concurrent reads of rows after notices, which must not wait for looks. */
const readsAtOnce = 4;

/** Milliseconds between looks at most: without notices, and with them. */
const longestPauseMs = { polling: 1_000, listening: 5_000 };

/**
 * Looks at sessions for waiting callers: when a notice says that the row has changed, and from time to time, because notices may
 * not arrive, and only the workflow knows some ends of its work. One look answers all waiters of a session, the number of
 * concurrent looks is limited, and looks stop when no caller waits.
 */
export class SessionWatch {
  readonly #watched = new Map<string, Watched>();
  readonly #looks = new FewAtOnce<Watched>(looksAtOnce, (watched) => this.#look(watched));
  readonly #reads = new FewAtOnce<Watched>(readsAtOnce, (watched) => this.#read(watched));

  constructor(
    private readonly pool: Pool,
    private readonly workflows: Pick<SessionWorkflows, 'status'>,
    private readonly notices: Pick<Notices, 'subscribe' | 'isListening'>,
  ) {}

  /**
   * Resolves with the first look that `done` accepts, or after the timeout with the last look, or null if there was none. Throws
   * the failure of a look, and `CallerGone`.
   */
  until(
    ids: SessionIds,
    done: (look: Look) => boolean,
    { withinMs, atLeastOnce = false, rowOnly = false, signal }: WaitOptions,
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
      const timeUp = () => {
        late = true;
        if (last !== null || !atLeastOnce) end(false);
      };
      const timer = withinMs === undefined ? undefined : setTimeout(timeUp, withinMs);
      const waiter: Waiter = {
        wantsLive: !rowOnly,
        see: (look) => {
          last = look;
          if (done(look)) end(true);
          else if (late) end(false);
        },
        // What the workflow had done before the wait began is in its last status. What it did since shows in the row.
        seeRow: (row) => {
          const look = { live: last?.live ?? null, row };
          if (rowOnly || last !== null) waiter.see(look);
          else if (done(look)) {
            last = look;
            end(true);
          }
        },
        fail: (error) => (leave(), reject(error)),
      };
      signal?.addEventListener('abort', gone, { once: true });
      asNobody(() => this.#join(ids, waiter));
    });
  }

  #join(ids: SessionIds, waiter: Waiter): void {
    const key = sessionWorkflowId(ids);
    const watched = this.#watched.get(key) ?? this.#begin(key, ids);
    watched.waiters.add(waiter);
    watched.pauses = this.#pauses();
    this.#soon(watched);
  }

  #begin(key: string, ids: SessionIds): Watched {
    const unsubscribe = this.notices.subscribe(ids, () => this.#reads.add(watched));
    const watched = { ids, waiters: new Set<Waiter>(), pauses: this.#pauses(), timer: null, unsubscribe };
    this.#watched.set(key, watched);
    return watched;
  }

  #leave(ids: SessionIds, waiter: Waiter): void {
    const key = sessionWorkflowId(ids);
    const watched = this.#watched.get(key);
    if (!watched?.waiters.delete(waiter) || watched.waiters.size > 0) return;
    watched.unsubscribe();
    if (watched.timer) clearTimeout(watched.timer);
    this.#looks.delete(watched);
    this.#reads.delete(watched);
    this.#watched.delete(key);
  }

  #soon(watched: Watched): void {
    if (watched.timer) clearTimeout(watched.timer);
    watched.timer = null;
    this.#looks.add(watched);
  }

  /** Milliseconds between looks: short at first, because a compaction takes seconds, and longer later. */
  *#pauses(): Generator<number, never> {
    for (let pause = 10; ; pause *= 1.5)
      yield Math.min(pause, this.notices.isListening ? longestPauseMs.listening : longestPauseMs.polling);
  }

  /** Never rejects. */
  async #look(watched: Watched): Promise<void> {
    const { ids } = watched;
    const waiters = [...watched.waiters];
    try {
      const live = waiters.some(({ wantsLive }) => wantsLive) ? await this.workflows.status(ids) : null;
      const row = await standOf(this.pool, ids);
      for (const waiter of waiters) waiter.see({ live, row });
    } catch (error) {
      for (const waiter of waiters) waiter.fail(error);
    }
    if (watched.waiters.size === 0 || this.#looks.has(watched)) return;
    if (watched.timer) clearTimeout(watched.timer);
    watched.timer = setTimeout(() => this.#soon(watched), watched.pauses.next().value);
  }

  /** Whoever goes on waiting after a change of the row gets a look soon. Never rejects. */
  async #read(watched: Watched): Promise<void> {
    const waiters = [...watched.waiters];
    try {
      const row = await standOf(this.pool, watched.ids);
      for (const waiter of waiters) waiter.seeRow(row);
    } catch (error) {
      for (const waiter of waiters) waiter.fail(error);
    }
    if (![...watched.waiters].some(({ wantsLive }) => wantsLive)) return;
    watched.pauses = this.#pauses();
    this.#soon(watched);
  }
}
