/** Finds what a list and a log have in common: the list is a log, a context, or a part of one, and what came since. */
import type { ContextShape } from '../contract/context.js';
import { noResult } from '../context/view/projection.js';
import { orSmallest } from '../contract/smallest-context.js';
import type { Json } from '../conversation/message.js';
import type { ShownUnit } from '../formats/format.js';
import { contextFormatOf, formatOf } from '../formats/index.js';
import { itemDigest, itemId, leadingInstructions } from '../formats/list-digest.js';
import { listHeads } from '../store/compactions/generations.js';
import { type Query, reading } from '../store/connection/transaction.js';
import { logUnits } from '../store/reading/units.js';
import type { SessionRow } from '../store/sessions/session-row.js';
import type { Connections } from './connections.js';
import { readContextOf } from './context.js';
import type { List } from './held-list.js';

/** Number of messages at the end of the log among which the beginning of a list is looked for. */
const mostInPart = 2_000;

/** The first items of the list stand for the log through `throughSeq`. */
export interface Common {
  items: number;
  throughSeq: number;
}

export interface Compared {
  common: Common;
  /** The list has the whole log. */
  complete: boolean;
  /**
   * For a list that has not: what it has in common with the log by what its items say. That is the same as `common`, or a later
   * place in the list, if its first items, up to `instructions`, are other instructions; it is an earlier place in the log, if the
   * list begins with a message that the log has under its id.
   */
  reached: Common;
  instructions: number;
  /** Digests of items that contexts of the session have in place of messages of the log. */
  ours: ReadonlySet<string>;
}

export const nothing: Common = { items: 0, throughSeq: 0 };

export const wholeList = (common: Common): Compared => ({
  ...{ common, complete: true, reached: common },
  ...{ instructions: 0, ours: new Set<string>() },
});

/** `known`: the longest beginning of the list that is noted. */
export async function compare(
  connections: Connections,
  row: SessionRow,
  list: List,
  known: Common | null,
  shape: ContextShape,
): Promise<Compared> {
  const lastSeq = row.nextSeq - 1;
  if (list.items.length === 0) return wholeList({ items: 0, throughSeq: lastSeq });
  const query = reading(connections.pool, row);
  const common = await alongLog(query, row, list, known ?? nothing);
  const instructions = leadingInstructions(list.items);
  if (common.throughSeq >= lastSeq) {
    const next = list.items[common.items];
    if (next === undefined || !JSON.stringify(next).includes(noResult)) return wholeList(common);
    // A context has results that nobody sent after the last call of the log.
    const shown = await shownPart(connections, row, list, instructions, shape);
    const isLonger = shown.common?.throughSeq === lastSeq && shown.common.items > common.items;
    return wholeList(isLonger ? shown.common! : common);
  }
  const areOthers = common.items < instructions;
  let reached = common;
  /** Whether the list goes on to the end of the log from there. */
  const follow = async (from: Common): Promise<boolean> => {
    const place = await alongLog(query, row, list, from);
    if (place.items > reached.items) reached = place;
    return place.throughSeq >= lastSeq;
  };
  /** Whether the items from there on are the newest part of the log, which is all that some frameworks send. */
  const skip = async (from: number): Promise<boolean> => {
    const place = await newestPart(query, row, list, from);
    if (place) reached = place;
    return place !== null;
  };
  const found = (ours: readonly string[] = []): Compared =>
    areOthers ? { common, complete: false, reached, instructions, ours: new Set(ours) } : wholeList(reached);

  if (areOthers && (await follow({ items: instructions, throughSeq: row.systemThroughSeq }))) return found();
  const begin = known === null ? reached : await alongLog(query, row, list, nothing);
  if (begin.items <= instructions && (await skip(instructions))) return found();
  const shown = await shownPart(connections, row, list, instructions, shape);
  if (shown.common && (await follow(shown.common))) return found(shown.ours);
  const head = await headPart(connections, row, list, instructions);
  if (head.common && ((await follow(head.common)) || (await skip(head.common.items))))
    return found([...shown.ours, ...head.ours]);
  const named = head.common === null ? await namedPart(query, row, list, instructions) : null;
  if (named && named.throughSeq >= lastSeq) {
    reached = named;
    return found([...shown.ours, ...head.ours]);
  }
  const parted = named && named.throughSeq > reached.throughSeq ? named : reached;
  const ours = new Set([...shown.ours, ...head.ours].filter((digest) => !head.carried.has(digest)));
  return {
    ...{ common: areOthers ? common : parted, complete: false, reached },
    ...{ instructions: areOthers ? instructions : 0, ours },
  };
}

/** Goes on in the log after a known beginning, item by item, for as long as list and log agree. */
async function alongLog(
  query: Query,
  row: SessionRow,
  { items, ofItems }: List,
  known: Common,
): Promise<Common> {
  let common = known;
  for await (const unit of logUnits(query, row, known.throughSeq + 1, row.nextSeq - 1)) {
    const end = common.items + unit.items.length;
    const same =
      end <= items.length &&
      unit.items.every((item, index) => itemDigest(item) === ofItems[common.items + index]);
    if (!same) return common;
    common = { items: end, throughSeq: unit.throughSeq };
  }
  return common;
}

/** Items of the log, as a list is compared with them. */
interface Part {
  ofItems: string[];
  ids: (string | null)[];
}

async function readPart(query: Query, row: SessionRow, fromSeq: number): Promise<Part> {
  const part: Part = { ofItems: [], ids: [] };
  for await (const { items } of logUnits(query, row, fromSeq, row.nextSeq - 1)) {
    part.ofItems.push(...items.map(itemDigest));
    part.ids.push(...items.map(itemId));
  }
  return part;
}

const isOther = (ours: string | null | undefined, theirs: string | null | undefined): boolean =>
  typeof ours === 'string' && typeof theirs === 'string' && ours !== theirs;

/** The items from `from` on that are the end of the log. Two items must agree, or one with the same id. */
async function newestPart(
  query: Query,
  row: SessionRow,
  { items, ofItems }: List,
  from: number,
): Promise<Common | null> {
  const rest = items.length - from;
  const fromSeq = Math.max(1, row.nextSeq - Math.min(mostInPart, 2 * rest));
  const newest = rest > 0 ? await readPart(query, row, fromSeq) : { ofItems: [], ids: [] };
  const held = items.slice(from, from + newest.ofItems.length);
  const ids = held.map(itemId);
  for (let count = held.length; count > 0; count--) {
    const begin = newest.ofItems.length - count;
    if (count < 2 && (ids[0] === null || newest.ids[begin] === null)) continue;
    let same = 0;
    while (
      same < count &&
      ofItems[from + same] === newest.ofItems[begin + same] &&
      !isOther(ids[same], newest.ids[begin + same])
    )
      same++;
    if (same === count) return { items: from + count, throughSeq: row.nextSeq - 1 };
  }
  return null;
}

/**
 * The items from `from` on that the log has from the message on that has the id of the first of them, which may say something else.
 * Null if there is no such message.
 */
async function namedPart(query: Query, row: SessionRow, list: List, from: number): Promise<Common | null> {
  const [id = null] = list.items.slice(from, from + 1).map(itemId);
  if (id === null) return null;
  let throughSeq = 0;
  for await (const unit of logUnits(query, row, 1, row.nextSeq - 1)) {
    const [first] = unit.items.map(itemId);
    if (first === id) return alongLog(query, row, list, { items: from, throughSeq });
    ({ throughSeq } = unit);
  }
  return null;
}

/** The beginning that the present context has too, and what the context has in place of messages. */
async function shownPart(
  connections: Connections,
  row: SessionRow,
  { ofItems }: List,
  instructions: number,
  shape: ContextShape,
): Promise<{ common: Common | null; ours: string[] }> {
  const { context, units, session } = await orSmallest((smallest) =>
    readContextOf(connections, row, { ...shape, ...smallest }),
  );
  const messages = context.messages as unknown as Json[];
  const digests = messages.map(itemDigest);
  const originals = new Set(units.flatMap(({ items }) => items ?? []));
  const ours = digests.filter((_, index) => !originals.has(messages[index]!));
  const seqs = seqsBefore(messages, units, session.nextSeq - 1);
  const begin = leadingInstructions(messages);
  let count = 0;
  while (begin + count < digests.length && digests[begin + count] === ofItems[instructions + count]) count++;
  // A context shows no empty message: one that shows nothing else stands for the whole log all the same.
  const least = begin === digests.length ? 0 : 1;
  for (; count >= least; count--) {
    const throughSeq = seqs[begin + count];
    if (typeof throughSeq === 'number') return { common: { items: instructions + count, throughSeq }, ours };
  }
  return { common: null, ours };
}

/**
 * For each message of a context, the last message of the log that the messages before it stand for; at the end, that of all of
 * them. Null before a message that is not the first of a unit of the log, or whose unit does not follow all units before it.
 */
function seqsBefore(
  messages: readonly Json[],
  units: readonly ShownUnit[],
  lastSeq: number,
): (number | null)[] {
  const first = new Map(units.map((unit, index) => [(unit.items ?? unit.messages)[0] as unknown, index]));
  const highest = units.map(() => 0);
  units.forEach(({ seq = 0 }, index) => (highest[index] = Math.max(seq, highest[index - 1] ?? 0)));
  const lowest = units.map(({ seq }) => seq ?? Infinity);
  for (let index = units.length - 2; index >= 0; index--)
    lowest[index] = Math.min(lowest[index]!, lowest[index + 1]!);
  const before = messages.map((message) => {
    const index = first.get(message);
    const seq = index === undefined ? undefined : units[index]?.seq;
    if (index === undefined || seq === undefined || seq !== lowest[index]) return null;
    return (highest[index - 1] ?? 0) < seq ? seq - 1 : null;
  });
  return [...before, lastSeq];
}

/** The summary of any generation with which the list begins, and the digests of the summaries. */
async function headPart(
  { pool }: Connections,
  row: SessionRow,
  { ofItems }: List,
  instructions: number,
): Promise<{ common: Common | null; ours: string[]; carried: Set<string> }> {
  const format = contextFormatOf(formatOf(row.format).contextFormat);
  const ours: string[] = [];
  const carried = new Set<string>();
  let common: Common | null = null;
  for (const { messages, carriedSeq, throughSeq } of await listHeads(pool, row)) {
    const digests = format.render([{ items: null, messages }]).messages.map(itemDigest);
    ours.push(...digests);
    if (carriedSeq !== null && digests.length === messages.length) carried.add(digests.at(-1)!);
    let count = 0;
    while (count < digests.length && digests[count] === ofItems[instructions + count]) count++;
    if (count > 0 && throughSeq > (common?.throughSeq ?? 0))
      common = { items: instructions + count, throughSeq };
  }
  return { common, ours, carried };
}

/**
 * Indexes of the items from a place on that the log does not have after it. Two neighbours are those of the log if they have the
 * same order there, and one item is if it has the same id, also in another order: of runs at the same time, each has its own.
 */
export async function missingItems(
  { pool }: Connections,
  row: SessionRow,
  { items, ofItems }: List,
  { items: from, throughSeq }: Common,
): Promise<number[]> {
  const log = await readPart(reading(pool, row), row, throughSeq + 1);
  const ids = items.map(itemId);
  const places = new Places(log);
  const missing: number[] = [];
  const isThere = (index: number, place: number): boolean =>
    ofItems[index] !== undefined &&
    ofItems[index] === log.ofItems[place] &&
    !isOther(ids[index], log.ids[place]);
  let next = 0;
  for (let index = from; index < items.length;) {
    const place = places.find(ofItems[index]!, ids[index]!, ofItems[index + 1], next);
    if (place === null || !isThere(index, place)) {
      if (!places.have(ofItems[index]!, ids[index]!)) missing.push(index);
      index++;
      continue;
    }
    for (next = place; isThere(index, next); next++) index++;
  }
  return missing;
}

/** Places of a log, by an item and the id or the item after it. */
class Places {
  readonly #places = new Map<string, number[]>();

  constructor({ ofItems, ids }: Part) {
    ofItems.forEach((digest, place) => {
      if (ids[place] !== null) this.#note(`${digest} id ${ids[place]}`, place);
      if (ofItems[place + 1] !== undefined) this.#note(`${digest} ${ofItems[place + 1]}`, place);
    });
  }

  #note(key: string, place: number): void {
    const places = this.#places.get(key);
    if (places) places.push(place);
    else this.#places.set(key, [place]);
  }

  have(digest: string, id: string | null): boolean {
    return id !== null && this.#places.has(`${digest} id ${id}`);
  }

  /** The first of them from `from` on. */
  find(digest: string, id: string | null, after: string | undefined, from: number): number | null {
    const keys = [...(id === null ? [] : [`${digest} id ${id}`]), `${digest} ${after}`];
    const found = keys.flatMap((key) => firstFrom(this.#places.get(key) ?? [], from) ?? []);
    return found.length === 0 ? null : Math.min(...found);
  }
}

function firstFrom(ascending: readonly number[], from: number): number | undefined {
  let low = 0;
  for (let high = ascending.length; low < high;) {
    const middle = (low + high) >> 1;
    if (ascending[middle]! < from) low = middle + 1;
    else high = middle;
  }
  return ascending[low];
}
