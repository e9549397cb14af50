/** The list of messages that a caller holds, with the digests that recognize it. */
import type { SyncOrText } from '../contract/sync.js';
import { checkPlainJson } from '../conversation/json.js';
import { type Json, MessagesText, textOfShared } from '../conversation/message.js';
import { invalid } from '../errors.js';
import { beginningDigests, itemDigests } from '../formats/list-digest.js';
import { inSlices, type Steps } from '../steps.js';
import { currentCaller } from '../store/connection/places.js';

export interface Held {
  items: readonly Json[];
  /** The digest of each item, and of each beginning. */
  ofItems: readonly string[];
  ofBeginnings: readonly string[];
}

export interface List {
  held: Held;
  /** What the log has for the list: its items, with others in place of some. */
  items: readonly Json[];
  ofItems: readonly string[];
  /** Items `at` to `at + held` of the caller are `at` to `at + logged` of the log. */
  instead: { at: number; held: number; logged: number };
}

export async function readList({
  messages,
  instead,
}: Pick<SyncOrText, 'messages' | 'instead'>): Promise<List> {
  const held = await heldOf(itemsOf(messages, 'messages'));
  const { items, ofItems } = held;
  if (instead === undefined)
    return { held, items, ofItems, instead: { at: items.length, held: 0, logged: 0 } };
  const end = instead.at + instead.items;
  if (end > items.length)
    throw invalid(
      `instead names items ${instead.at} to ${end - 1}, but messages has ${items.length}`,
      'instead.items',
      'Count the items of `messages` from 0.',
    );
  const others = itemsOf(instead.messages, 'instead.messages');
  const replaced = <T>(list: readonly T[], by: readonly T[]) => [
    ...list.slice(0, instead.at),
    ...by,
    ...list.slice(end),
  ];
  return {
    held,
    items: replaced(items, others),
    ofItems: replaced(ofItems, await worked(itemDigests(others))),
    instead: { at: instead.at, held: instead.items, logged: others.length },
  };
}

export async function heldOf(items: readonly Json[]): Promise<Held> {
  const ofItems = await worked(itemDigests(items));
  return { items, ofItems, ofBeginnings: await worked(beginningDigests(ofItems)) };
}

const worked = <Result>(steps: Steps<Result>): Promise<Result> => inSlices(steps, currentCaller()?.signal);

function itemsOf(messages: unknown, path: string): readonly Json[] {
  const given: unknown =
    messages instanceof MessagesText ? JSON.parse(textOfShared(messages.bytes)) : messages;
  if (!Array.isArray(given)) throw invalid(`${path} must be an array of messages`, path);
  if (given === messages) checkPlainJson(given, path);
  return given as readonly Json[];
}

/** Number of the caller's items that the first `items` of the log stand for. */
export function heldItems({ instead: { at, held, logged } }: List, items: number): number {
  if (items <= at) return items;
  return items < at + logged ? at : items - logged + held;
}

/** Number of the log's items that the first `items` of the caller stand for; null if that is within the others. */
export function loggedItems({ instead: { at, held, logged } }: List, items: number): number | null {
  if (items <= at) return items;
  return items < at + held ? null : items - held + logged;
}
