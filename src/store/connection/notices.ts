/**
 * Notices between the processes of a deployment: the transaction that changes a session's row tells those that wait for the
 * session. All share one channel, and a notice names its session by a hash.
 */
import { createHash, randomUUID } from 'node:crypto';
import { type SQL, sql } from 'drizzle-orm';
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { Client } from './pool.js';
import { read } from './transaction.js';

const channel = 'palimpsest';

/** The session in a notice. No id contains NUL, so the hash is of one session. */
export function noticeKey({ tenant, session }: SessionIds): string {
  return createHash('sha256').update(`${tenant}\0${session}`).digest('hex').slice(0, 32);
}

/**
 * An expression that tells of a change, when the transaction commits, whoever waits for the session. Transactions that notify
 * commit one after another, so appends do not.
 */
export function noticeOf(ids: SessionIds): SQL {
  return sql`pg_notify(${channel}, ${noticeKey(ids)})`;
}

/** `noticeOf` for a statement whose parameter at `place` is the `noticeKey`. */
export const noticeAt = (place: number): string => `pg_notify('${channel}', $${place})`;

/** Milliseconds after the last subscription ends until the connection is closed. */
const defaultUnusedMs = 30_000;

/** Milliseconds within which PostgreSQL must answer, and a notice must arrive. */
const defaultAnswerMs = 5_000;

/** Milliseconds until the next attempt: after the first failure, and after many. */
const retryMs = { first: 1_000, longest: 5 * 60_000 };

interface NoticesOptions {
  /** Connection string for LISTEN. */
  url: string;
  /** Sends the notice that shows whether notices arrive. */
  pool: Pool;
  /** @default 30,000 */
  unusedMs?: number;
  /** @default 5,000 */
  answerMs?: number;
}

/**
 * Hears the notices of all processes on one connection, which exists only while somebody subscribes. Behind a pooler in
 * transaction mode, LISTEN succeeds and nothing arrives. A first notice, sent over another connection, shows this, and the
 * connection is closed again; whoever subscribes must also look from time to time.
 */
export class Notices {
  readonly #subscribed = new Map<string, Set<() => void>>();
  #client: Client | null = null;
  #opening: Promise<void> | null = null;
  #isListening = false;
  #failures = 0;
  /** Closes the unused connection, or opens the next one. */
  #timer: NodeJS.Timeout | null = null;
  #closed = false;
  /** The first notice of a new connection. */
  #proof: { key: string; resolve: () => void; reject: (error: Error) => void } | null = null;

  constructor(private readonly options: NoticesOptions) {}

  /** Notices arrive now. */
  get isListening(): boolean {
    return this.#isListening;
  }

  /**
   * Calls `wake` at every notice of the session, and whenever one may have been missed, until the returned function is called.
   */
  subscribe(ids: SessionIds, wake: () => void): () => void {
    const key = noticeKey(ids);
    const wakes = this.#subscribed.get(key) ?? new Set();
    this.#subscribed.set(key, wakes.add(wake));
    this.#open();
    return () => {
      if (!wakes.delete(wake) || wakes.size > 0) return;
      this.#subscribed.delete(key);
      if (this.#subscribed.size === 0) this.#rest();
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#drop();
    await this.#opening;
  }

  #open(): void {
    if (this.#isListening) {
      this.#client?.ref();
      this.#after(0, null);
    } else if (!this.#closed && this.#opening === null && this.#timer === null)
      this.#opening = this.#listen()
        .catch(() => this.#failed())
        .finally(() => (this.#opening = null));
  }

  /** An unused connection neither stays for long nor keeps the process running. */
  #rest(): void {
    if (!this.#isListening) return;
    this.#client?.unref();
    this.#after(this.options.unusedMs ?? defaultUnusedMs, () => this.#drop());
  }

  async #listen(): Promise<void> {
    const { url, pool, answerMs = defaultAnswerMs } = this.options;
    const client = new Client({
      ...{ connectionString: url, application_name: 'palimpsest notices', keepAlive: true },
      ...{ connectionTimeoutMillis: answerMs, query_timeout: answerMs },
    });
    this.#client = client;
    const lost = () => {
      if (this.#client === client && this.#isListening) this.#failed();
    };
    client.on('error', lost);
    client.on('end', lost);
    client.on('notification', ({ payload = '' }) => this.#hear(payload));
    await client.connect();
    await client.query(`listen ${channel}`);
    await this.#prove(pool, answerMs);
    if (this.#client !== client) return;
    this.#isListening = true;
    this.#failures = 0;
    this.#wakeAll();
    if (this.#subscribed.size === 0) this.#rest();
  }

  /** Throws if a notice that another connection sends does not arrive. */
  async #prove(pool: Pool, answerMs: number): Promise<void> {
    const key = randomUUID();
    const { promise, resolve, reject } = withResolvers();
    const timer = setTimeout(() => reject(new Error('no notice arrives')), answerMs);
    this.#proof = { key, resolve, reject };
    try {
      await Promise.all([promise, read(pool, 'shared', 'select pg_notify($1, $2)', [channel, key])]);
    } finally {
      clearTimeout(timer);
      this.#proof = null;
    }
  }

  #hear(key: string): void {
    if (key === this.#proof?.key) this.#proof.resolve();
    for (const wake of this.#subscribed.get(key) ?? []) wake();
  }

  #wakeAll(): void {
    for (const wakes of this.#subscribed.values()) for (const wake of wakes) wake();
  }

  #failed(): void {
    const wait = Math.min(retryMs.longest, retryMs.first * 2 ** this.#failures++);
    this.#drop();
    if (this.#closed) return;
    this.#after(wait, () => {
      if (this.#subscribed.size > 0) this.#open();
    });
    this.#wakeAll();
  }

  #drop(): void {
    const client = this.#client;
    const isOpen = this.#isListening;
    this.#client = null;
    this.#isListening = false;
    this.#after(0, null);
    this.#proof?.reject(new Error('the connection is closed'));
    if (isOpen) client?.end().catch(() => undefined);
    // A login that is ended in pg's way neither succeeds nor fails.
    else client?.connection.stream.destroy();
  }

  #after(ms: number, work: (() => void) | null): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    if (work === null) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      work();
    }, ms);
    this.#timer.unref();
  }
}

function withResolvers(): { promise: Promise<void>; resolve: () => void; reject: (error: Error) => void } {
  let [resolve, reject] = [(): void => undefined, (_: Error): void => undefined];
  const promise = new Promise<void>((yes, no) => ([resolve, reject] = [yes, no]));
  return { promise, resolve, reject };
}
