/**
 * Answers of the model that are not in the log yet. The next request of the session has its answer, and `sync` stores it. An answer
 * that no request repeats is stored after a while. What the client does not see of an answer, calls of recovery tools and their
 * results, is stored with it.
 */
import { randomUUID } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { SyncRequest } from '../contract/sync.js';
import type { Turn } from '../contract/turns.js';
import type { Json } from '../conversation/message.js';
import { textOf } from '../conversation/validate.js';
import { isFailure } from '../errors.js';
import { formatOf } from '../formats/index.js';
import { itemDigest } from '../formats/list-digest.js';
import type { UsageReport } from '../tokens/reported-usage.js';
import type { Protocol } from './protocols/protocol.js';

/** An answer to a list. */
export interface Kept {
  /** Session with the list. */
  session: string;
  protocol: Protocol;
  /** Number of items of the list, and what the last of them says. */
  items: number;
  last: string;
  /** Last message of the log that the list stands for. */
  throughSeq: number;
  /** What the log gets. */
  messages: Promise<Json[]>;
  /** What the client sees of it. */
  shown: Json[];
  /** Whether the client does not see all of it. */
  isPart: boolean;
  usage: UsageReport | null;
}

interface Waiting extends Kept {
  /** When the answer was given. */
  at: string;
  timer: NodeJS.Timeout;
  /** It is in the log, or on its way there. */
  stored: boolean;
  append: Append;
}

type Append = (turn: Turn) => Promise<unknown>;

/** What `sync` has to know about a list that goes on after an answer. */
export type Continuing = Pick<SyncRequest, 'instead' | 'usage' | 'at'>;

/** Characters of the answers that are kept at most; beyond it the oldest are stored at once. */
const mostKept = 64 * 1024 * 1024;

export class Answers {
  readonly #kept = new LRUCache<string, Waiting>({
    maxSize: mostKept,
    sizeCalculation: ({ shown }) => 1_000 + JSON.stringify(shown).length,
    dispose: (waiting, _, reason) => {
      clearTimeout(waiting.timer);
      if (reason === 'evict') void this.#store(waiting);
    },
  });

  constructor(
    private readonly storeAfterMs: number,
    private readonly failed: (error: unknown) => void,
  ) {}

  keep(key: string, kept: Kept, append: Append): void {
    const waiting: Waiting = {
      ...kept,
      ...{ at: new Date().toISOString(), stored: false, append },
      timer: setTimeout(() => void this.#store(waiting), this.storeAfterMs).unref(),
    };
    // Nobody may ask for it.
    waiting.messages.catch(() => undefined);
    this.#kept.set(key, waiting);
  }

  /** For a list that begins with that of the kept answer and goes on with the answer. */
  async continuing(key: string, list: readonly Json[]): Promise<Continuing | null> {
    const kept = this.#kept.peek(key);
    if (!kept) return null;
    const { items, last, protocol, shown, isPart, stored, usage } = kept;
    if (list.length <= items || itemDigest(list[items - 1] ?? null) !== last) return null;
    const rest = list.slice(items);
    const end = rest.findIndex((item) => !protocol.isAnswer(item));
    const answer = end < 0 ? rest : rest.slice(0, end);
    if (answer.length === 0) return null;
    const now = { at: new Date().toISOString(), ...(usage === null || stored ? {} : { usage }) };
    if (!isPart && !stored) return now;
    // The client may have changed the answer; then it is the client's.
    const gist = gistOf(protocol, answer);
    if (gist === null || gist !== gistOf(protocol, shown)) return now;
    const messages = (await kept.messages.catch(() => null)) as Turn['messages'] | null;
    if (messages === null) return now;
    return { ...now, instead: { at: items, items: answer.length, messages } };
  }

  /** The answer is in the log. */
  forget(key: string): void {
    this.#kept.delete(key);
  }

  /** Stores what is kept. */
  async close(): Promise<void> {
    await Promise.all([...this.#kept.values()].map((waiting) => this.#store(waiting)));
    this.#kept.clear();
  }

  async #store(waiting: Waiting): Promise<void> {
    if (waiting.stored) return;
    clearTimeout(waiting.timer);
    waiting.stored = true;
    const { session, throughSeq, at, usage, append } = waiting;
    try {
      const messages = (await waiting.messages) as Turn['messages'];
      await append({
        ...{ session, turnId: `answer:${randomUUID()}`, messages, at, expectedSeq: throughSeq },
        ...(usage === null ? {} : { usage }),
      });
    } catch (error) {
      waiting.stored = false;
      // The session has gone on, with this answer or with another one.
      if (!isFailure(error, 'Store.StaleAppend')) this.failed(error);
    }
  }
}

/** What items say, whatever form a client gives them: their text without white space, and the calls. Null if it is unknown. */
function gistOf({ format }: Protocol, items: readonly Json[]): string | null {
  try {
    const messages = formatOf(format)
      .normalize(items, 'messages')
      .flatMap((unit) => unit.messages);
    const text = messages.map((message) => textOf(message)).join('');
    const calls = messages.flatMap((message) => (message.tool_calls ?? []).map(({ id }) => id));
    return JSON.stringify([text.replaceAll(/\s+/g, ''), calls]);
  } catch {
    return null;
  }
}
