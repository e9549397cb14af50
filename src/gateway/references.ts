/**
 * Items of the Responses API that a client names by their ids (`item_reference`) instead of repeating them. The provider has what it
 * said; the log needs the items themselves.
 */
import { LRUCache } from 'lru-cache';
import type { Json } from '../conversation/message.js';
import { isFailure } from '../errors.js';
import { isFields } from '../formats/content.js';
import { appendedItems } from '../formats/native.js';
import { isReference } from '../formats/responses-items.js';
import type { GatewayClient } from './settings.js';

/** Characters of the items that are at hand; others are read from the log again. */
const mostAtHand = 64 * 1024 * 1024;
/** An erased item leaves the memory within this time. */
const atHandForMs = 3_600_000;
const pageOfLog = { limit: 1_000, maxCharacters: 8_000_000 };
/** Another gateway may store an answer within this time. */
const missingForMs = 60_000;

export class References {
  readonly #items = new LRUCache<string, { item: Json; characters: number }>({
    maxSize: mostAtHand,
    sizeCalculation: ({ characters }) => characters,
    ttl: atHandForMs,
  });
  readonly #missing = new LRUCache<string, true>({ max: 100_000, ttl: missingForMs });
  /** Ends once the answers of a conversation that are under way are noted. */
  readonly #noting = new Map<string, Promise<void>>();

  /** Notes an answer. The client may have its part before calls of recovery tools have their results. */
  answered(key: string, answer: Promise<readonly Json[]>): void {
    const noting = Promise.all([answer, this.#noting.get(key)])
      .then(([items]) => this.#note(key, items))
      .catch(() => undefined)
      .finally(() => {
        if (this.#noting.get(key) === noting) this.#noting.delete(key);
      });
    this.#noting.set(key, noting);
  }

  /** The list with the items in place of their references, as far as they passed here or are in the log that `read` returns. */
  async resolved(key: string, list: Json[], read: () => Promise<Json[]>): Promise<Json[]> {
    const named = list.flatMap((item) => referenceIn(item) ?? []);
    if (named.length === 0) return list;
    await this.#noting.get(key);
    const isUnknown = (id: string): boolean => {
      const place = placeOf(key, id);
      return !this.#items.has(place) && !this.#missing.has(place);
    };
    const items = named.some(isUnknown) ? await read() : [];
    this.#note(key, items);
    const logged = new Map(identified(items));
    return list.map((item) => {
      const id = referenceIn(item);
      if (id === null) return item;
      const found = this.#items.get(placeOf(key, id))?.item ?? logged.get(id);
      if (found === undefined) this.#missing.set(placeOf(key, id), true);
      return found ?? item;
    });
  }

  #note(key: string, items: readonly Json[]): void {
    for (const [id, item] of identified(items))
      this.#items.set(placeOf(key, id), { item, characters: JSON.stringify(item).length });
  }
}

/** The items in the log of the session, or of the fork that continues it, that a reference can name. */
export async function namedInLog(session: string, client: GatewayClient): Promise<Json[]> {
  const inUse = await sessionInUse(session, client);
  const items: Json[] = [];
  for (let fromSeq = inUse === null ? null : 1; inUse !== null && fromSeq !== null;) {
    const page: Awaited<ReturnType<GatewayClient['expand']>> = await client.expand({
      ...{ session: inUse, fromSeq },
      ...pageOfLog,
    });
    items.push(...identified(appendedItems(page.messages)).map(([, item]) => item));
    fromSeq = page.nextSeq;
  }
  return items;
}

/** The items that a reference can name, with their ids. */
function identified(items: readonly Json[]): [id: string, item: Json][] {
  return items.flatMap((item) => {
    const id = referenceIn(item) === null ? idOf(item) : null;
    return id === null ? [] : [[id, item]];
  });
}

/** The session, or the fork that continues it; null if there is none yet. */
async function sessionInUse(session: string, client: GatewayClient): Promise<string | null> {
  try {
    return (await client.syncSizes({ session, messages: [] })).session;
  } catch (error) {
    if (isFailure(error, 'Store.SessionNotFound')) return null;
    throw error;
  }
}

const idOf = (item: Json): string | null => (isFields(item) && typeof item.id === 'string' ? item.id : null);

/** The id of the item that a reference names; null for every other item. */
const referenceIn = (item: Json): string | null => (isFields(item) && isReference(item) ? idOf(item) : null);

const placeOf = (key: string, id: string): string => `${key} ${id}`;
