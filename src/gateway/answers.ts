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
import { isFailure, isPassingFailureOfStore } from '../errors.js';
import { itemDigest } from '../formats/list-digest.js';
import type { ReportedUsage } from '../tokens/reported-usage.js';
import type { Protocol } from './protocols/protocol.js';
import { chatMessagesOf, isSameAnswer } from './same-answer.js';

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
  /** Whether the client does not see all of it. */
  isPart: boolean;
  /** Length of what the model said. */
  characters: number;
  usage: ReportedUsage | null;
}

interface Waiting extends Kept {
  key: string;
  /** When the answer was given. */
  at: string;
  timer: NodeJS.Timeout | undefined;
  storing: Promise<void> | null;
  append: Append;
}

export type Append = (turn: Turn) => Promise<unknown>;

/** What `sync` has to know about a list that goes on after an answer. */
export interface Continuing {
  request: Pick<SyncRequest, 'instead' | 'usage' | 'at'>;
  /** To be called when the answer is in the log. */
  stored(): void;
}

/** Characters of the answers that are kept at most; beyond it the oldest are stored at once. */
const mostKept = 64 * 1024 * 1024;

export class Answers {
  readonly #kept = new LRUCache<string, Waiting>({
    maxSize: mostKept,
    sizeCalculation: ({ characters }) => 1_000 + characters,
    dispose: (waiting, _, reason) => {
      clearTimeout(waiting.timer);
      if (reason === 'evict') void this.#store(waiting);
    },
  });
  readonly #storing = new Set<Promise<void>>();
  #closing = false;

  constructor(
    private readonly storeAfterMs: number,
    private readonly failed: (error: unknown, session: string) => void,
  ) {}

  /** Keeps an answer in place of an earlier one to the same list, as of a repeated request. */
  keep(key: string, kept: Kept, append: Append): void {
    this.#storeLater(this.#waiting(key, kept, append));
  }

  /** As `keep`, and stores the answer at once; later, if the store cannot be used now. Never rejects. */
  async storeNow(key: string, kept: Kept, append: Append, now: Append): Promise<void> {
    await this.#store(this.#waiting(key, kept, append), now);
  }

  #waiting(key: string, kept: Kept, append: Append): Waiting {
    const before = this.#kept.peek(key);
    // The conversation has parted, and goes on from another list.
    if (before && (before.items !== kept.items || before.last !== kept.last)) void this.#store(before);
    const waiting: Waiting = {
      ...kept,
      ...{ key, at: new Date().toISOString(), timer: undefined, storing: null, append },
    };
    // Nobody may ask for it.
    waiting.messages.catch(() => undefined);
    this.#kept.set(key, waiting);
    return waiting;
  }

  /** For a list that begins with that of the kept answer and goes on with the answer. */
  async continuing(key: string, list: readonly Json[]): Promise<Continuing | null> {
    const kept = this.#kept.peek(key);
    if (!kept) return null;
    const { items, last, protocol, isPart, usage } = kept;
    if (list.length <= items || itemDigest(list[items - 1] ?? null) !== last) return null;
    const answer = answerFrom(protocol, list, items);
    if (answer.length === 0) return null;
    await kept.storing;
    if (this.#kept.peek(key) !== kept) return null;
    const request = { at: new Date().toISOString(), ...(usage === null ? {} : { usage }) };
    const stored = () => this.#forget(kept);
    const messages = isPart ? await kept.messages.catch(() => null) : null;
    // The client may have changed the answer; then it is the client's.
    if (messages === null || !isSame(protocol, messages, answer)) return { request, stored };
    const instead = { at: items, items: answer.length, messages: messages as Turn['messages'] };
    return { request: { ...request, instead }, stored };
  }

  /** Stores what is kept. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const waiting of this.#kept.values()) void this.#store(waiting);
    await Promise.all(this.#storing);
    this.#kept.clear();
  }

  #storeLater(waiting: Waiting): void {
    waiting.timer = setTimeout(() => void this.#store(waiting), this.storeAfterMs).unref();
  }

  async #store(waiting: Waiting, append = waiting.append): Promise<void> {
    if (waiting.storing) return;
    clearTimeout(waiting.timer);
    const storing = this.#append(waiting, append);
    waiting.storing = storing;
    this.#storing.add(storing);
    await storing;
    this.#storing.delete(storing);
  }

  /** Never rejects. */
  async #append(waiting: Waiting, append: Append): Promise<void> {
    const { session, throughSeq, at, usage } = waiting;
    try {
      const messages = (await waiting.messages) as Turn['messages'];
      await append({
        ...{ session, turnId: `answer:${randomUUID()}`, messages, at, expectedSeq: throughSeq },
        ...(usage === null ? {} : { usage }),
      });
      if (waiting.isPart && this.#isKept(waiting)) return this.#forgetLater(waiting);
    } catch (error) {
      // The session has gone on, with this answer or with another one.
      if (!isFailure(error, 'Store.StaleAppend') && !isFailure(error, 'Store.ListEdited'))
        this.failed(error, session);
      if (isPassingFailureOfStore(error) && this.#isKept(waiting)) {
        waiting.storing = null;
        if (!this.#closing) this.#storeLater(waiting);
        return;
      }
    }
    this.#forget(waiting);
  }

  /** The next request has an answer of which the client does not see all: its whole is still at hand. */
  #forgetLater(waiting: Waiting): void {
    waiting.usage = null;
    waiting.timer = setTimeout(() => this.#forget(waiting), this.storeAfterMs).unref();
  }

  #isKept(waiting: Waiting): boolean {
    return this.#kept.peek(waiting.key) === waiting;
  }

  #forget(waiting: Waiting): void {
    if (this.#isKept(waiting)) this.#kept.delete(waiting.key);
  }
}

/** The items that the model said, from a place of the list on. */
export function answerFrom({ isAnswer }: Protocol, list: readonly Json[], from: number): Json[] {
  const rest = list.slice(from);
  const end = rest.findIndex((item) => !isAnswer(item));
  return end < 0 ? rest : rest.slice(0, end);
}

function isSame(protocol: Protocol, logged: readonly Json[], held: readonly Json[]): boolean {
  const [ours, theirs] = [chatMessagesOf(protocol, logged), chatMessagesOf(protocol, held)];
  return ours !== null && theirs !== null && isSameAnswer(ours, theirs);
}
