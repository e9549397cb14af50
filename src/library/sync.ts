/** Finds what is new in a list that a caller holds, stores it once, and answers the context. */
import { continuationId } from '../contract/continuation.js';
import type { SessionIds } from '../contract/ids.js';
import type { SessionContext } from '../contract/context.js';
import type { Synced, SyncOrText } from '../contract/sync.js';
import { type Json, MessagesText, textOfShared } from '../conversation/message.js';
import { checkPlainJson } from '../conversation/json.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { itemDigest, itemId, listDigests } from '../formats/list-digest.js';
import { inSlices } from '../steps.js';
import { longestKnown, noteList } from '../store/append/known-lists.js';
import { logUnits } from '../store/reading/units.js';
import { fork } from '../store/compactions/fork.js';
import { currentCaller } from '../store/connection/places.js';
import { type Query, reading } from '../store/connection/transaction.js';
import type { SessionRow } from '../store/sessions/session-row.js';
import { findSession } from '../store/sessions/sessions.js';
import { store } from './append.js';
import type { Connections } from './connections.js';
import { readContextOf } from './context.js';

/** Number of times that other writers of the session may come first. */
const attempts = 5;

/** Number of messages at the end of the log among which the beginning of a list is looked for. */
const mostInPart = 2_000;

type Request = Omit<SyncOrText, 'messages' | 'instead'>;

/** The list that a caller holds, with a digest for each of its beginnings. */
interface Held {
  items: readonly Json[];
  digests: readonly string[];
}

interface List {
  held: Held;
  /** What the log has for the list: its items, with others in place of some. */
  items: readonly Json[];
  /** Items `at` to `at + held` of the caller are `at` to `at + logged` of the log. */
  instead: { at: number; held: number; logged: number };
}

/** Where a list and a log agree: the first items of the list stand for the log through `throughSeq`. */
interface Common {
  items: number;
  throughSeq: number;
}

/** The answer, and its JSON in pieces. */
interface SyncedInPieces {
  synced: Synced;
  pieces: string[];
}

export async function sync(
  connections: Connections,
  ids: SessionIds,
  { messages, instead, ...request }: SyncOrText,
): Promise<SyncedInPieces> {
  const list = withOthers(await heldList(messages), instead);
  for (let attempt = 1; ; attempt++) {
    try {
      return await synchronized(connections, ids, list, request);
    } catch (error) {
      if (!isFailure(error, 'Store.StaleAppend') || attempt === attempts) throw error;
    }
  }
}

async function heldList(messages: unknown): Promise<Held> {
  const items = itemsOf(messages, 'messages');
  return { items, digests: await inSlices(listDigests(items), currentCaller()?.signal) };
}

function itemsOf(messages: unknown, path: string): readonly Json[] {
  const given: unknown =
    messages instanceof MessagesText ? JSON.parse(textOfShared(messages.bytes)) : messages;
  if (!Array.isArray(given)) throw invalid(`${path} must be an array of messages`, path);
  if (given === messages) checkPlainJson(given, path);
  return given as readonly Json[];
}

function withOthers(held: Held, instead: SyncOrText['instead']): List {
  const { items } = held;
  if (instead === undefined) return { held, items, instead: { at: items.length, held: 0, logged: 0 } };
  const end = instead.at + instead.items;
  if (end > items.length)
    throw invalid(
      `instead names items ${instead.at} to ${end - 1}, but messages has ${items.length}`,
      'instead.items',
      'Count the items of `messages` from 0.',
    );
  const others = itemsOf(instead.messages, 'instead.messages');
  return {
    held,
    items: [...items.slice(0, instead.at), ...others, ...items.slice(end)],
    instead: { at: instead.at, held: instead.items, logged: others.length },
  };
}

async function synchronized(
  connections: Connections,
  origin: SessionIds,
  list: List,
  request: Request,
): Promise<SyncedInPieces> {
  // Most sessions have no fork that continues them: the list is looked for at the same time.
  const [[ids, row], found] = await Promise.all([
    sessionInUse(connections, origin),
    knownPart(connections, origin, list),
  ]);
  if (request.expectedSession !== undefined && request.expectedSession !== ids.session)
    throw wentOn(ids.session, request.expectedSession);
  const lastSeq = row ? row.nextSeq - 1 : 0;
  const known = ids === origin ? found : await knownPart(connections, ids, list);
  const { common, complete } = row ? await compared(connections, row, list, known) : nothing;
  const edited = complete ? null : { commonSeq: common.throughSeq, lastSeq };
  if (edited && request.onEdit !== 'append' && request.onEdit !== 'fork')
    throw listEdited(ids.session, { ...edited, known: knownOf(list, common.items) });
  const target =
    edited && request.onEdit === 'fork'
      ? { ids: await continued(connections, origin, ids, edited), lastSeq: common.throughSeq, isNew: false }
      : { ids, lastSeq, isNew: row === null };
  const turn = await storeRest(connections, { origin, ...target }, list, common, request);
  const shape = request.budget === undefined ? {} : { budget: request.budget };
  const { session, context, pieces } = await readContextOf(connections, target.ids, shape);
  const unchanged = await noteContext(connections, session, context, list.held);
  const stored = turn && { ...turn.stored, signalled: await turn.signalled };
  const answer = {
    ...{ session: target.ids.session, known: knownOf(list, common.items), stored, edited },
    // The list may be known since another writer stored it, which came after the session was read.
    ...{ throughSeq: stored?.throughSeq ?? Math.max(target.lastSeq, common.throughSeq), unchanged },
  };
  const before = `${JSON.stringify(answer).slice(0, -1)},"context":`;
  return { synced: { ...answer, context }, pieces: [before, ...pieces, '}'] };
}

/** Number of the caller's items that the first items of the log stand for. */
function knownOf({ instead: { at, held, logged } }: List, items: number): number {
  if (items <= at) return items;
  return items < at + logged ? at : items - logged + held;
}

const nothing = { common: { items: 0, throughSeq: 0 }, complete: true };

/** The session of this id, or the fork that continues it. */
async function sessionInUse(
  { pool }: Connections,
  ids: SessionIds,
): Promise<[ids: SessionIds, row: SessionRow | null]> {
  const row = await findSession(pool, ids);
  if (!row?.continuedIn) return [ids, row];
  const continuing = { tenant: ids.tenant, session: row.continuedIn };
  return [continuing, await findSession(pool, continuing)];
}

/** `complete`: the list has the whole log. */
async function compared(
  { pool }: Connections,
  row: SessionRow,
  list: List,
  known: Common | null,
): Promise<{ common: Common; complete: boolean }> {
  if (list.items.length === 0) return { common: { items: 0, throughSeq: row.nextSeq - 1 }, complete: true };
  const query = reading(pool, row);
  const along = await alongLog(query, row, list, known ?? nothing.common);
  if (along.complete || along.common.items > 0) return along;
  const newest = await newestPart(query, row, list);
  return newest ? { common: newest, complete: true } : along;
}

async function knownPart(
  { pool }: Connections,
  ids: SessionIds,
  { held: { digests }, instead: { at, held, logged } }: List,
): Promise<Common | null> {
  const found = await longestKnown(pool, ids, digests);
  if (!found || found.items <= at) return found;
  return found.items < at + held ? null : { ...found, items: found.items - held + logged };
}

/** Goes on in the log after a known beginning, item by item, for as long as list and log agree. */
async function alongLog(
  query: Query,
  row: SessionRow,
  { items }: List,
  known: Common,
): Promise<{ common: Common; complete: boolean }> {
  let common = known;
  for await (const unit of logUnits(query, row, known.throughSeq + 1, row.nextSeq - 1)) {
    const end = common.items + unit.items.length;
    const same = unit.items.every(
      (item, index) => end <= items.length && itemDigest(item) === itemDigest(items[common.items + index]!),
    );
    if (!same) return { common, complete: false };
    common = { items: end, throughSeq: unit.throughSeq };
  }
  return { common, complete: true };
}

/**
 * The beginning of a list that is the end of the log: frameworks send the newest messages only. Two items must agree, or one
 * with the same id.
 */
async function newestPart(query: Query, row: SessionRow, { items }: List): Promise<Common | null> {
  const newest: Json[] = [];
  const from = Math.max(1, row.nextSeq - Math.min(mostInPart, 2 * items.length));
  for await (const unit of logUnits(query, row, from, row.nextSeq - 1)) newest.push(...unit.items);
  const digests = newest.map(itemDigest);
  for (let count = Math.min(items.length, newest.length); count > 0; count--) {
    const part = items.slice(0, count);
    const end = newest.slice(-count);
    if (count < 2 && (itemId(part[0]!) === null || itemId(end[0]!) === null)) continue;
    const hasOtherId = part.some((item, index) => isOther(itemId(item), itemId(end[index]!)));
    if (!hasOtherId && part.every((item, index) => itemDigest(item) === digests.at(index - count)))
      return { items: count, throughSeq: row.nextSeq - 1 };
  }
  return null;
}

const isOther = (ours: string | null, theirs: string | null): boolean =>
  ours !== null && theirs !== null && ours !== theirs;

function listEdited(
  session: string,
  { commonSeq, lastSeq, known }: { commonSeq: number; lastSeq: number; known: number },
): PalimpsestError {
  return new PalimpsestError(
    'Store.ListEdited',
    `the list and session ${session} are the same through message ${commonSeq}, but the session has ${lastSeq} messages`,
    {
      path: 'messages',
      hint: "Send the whole list, or say with onEdit what an edited list means: 'fork' or 'append'.",
      details: { session, known, commonSeq, lastSeq },
    },
  );
}

function wentOn(session: string, expected: string): PalimpsestError {
  return new PalimpsestError(
    'Store.ListEdited',
    `the list is of session ${expected}, which goes on in session ${session}`,
    { path: 'expectedSession', hint: 'Read the context again with an empty list, and add to it.' },
  );
}

/** Makes the fork in which the session goes on; a repeated call finds it. */
async function continued(
  { pool }: Connections,
  origin: SessionIds,
  from: SessionIds,
  { commonSeq: throughSeq, lastSeq: expectedSeq }: { commonSeq: number; lastSeq: number },
): Promise<SessionIds> {
  for (let step = 1; ; step++) {
    const to = continuationId(origin.session, from.session, step);
    try {
      await fork(pool, from, { throughSeq, to, continues: origin.session, expectedSeq });
      return { tenant: origin.tenant, session: to };
    } catch (error) {
      // The platform has a session of this name.
      if (!isFailure(error, 'Input.Invalid') || error.path !== 'to' || step === attempts) throw error;
    }
  }
}

/** Appends the items that the log does not have, together with the list, so that no interruption comes between. */
async function storeRest(
  connections: Connections,
  { origin, ids, lastSeq, isNew }: { origin: SessionIds; ids: SessionIds; lastSeq: number; isNew: boolean },
  { items, held }: List,
  common: Common,
  { at, format, policy, usage }: Request,
): Promise<Awaited<ReturnType<typeof store>> | null> {
  const digest = held.digests.at(-1);
  if (digest === undefined) return null;
  const list = { digest, items: held.items.length, origin: origin.session };
  const messages = items.slice(common.items);
  if (messages.length === 0) {
    await noteList(reading(connections.pool, ids), ids, list, lastSeq);
    return null;
  }
  const turn = {
    ...{ turnId: `sync:${digest}:${lastSeq}`, messages, expectedSeq: lastSeq },
    ...(at === undefined ? {} : { at }),
    ...(format === undefined ? {} : { format }),
    ...(policy === undefined || !isNew ? {} : { policy }),
    ...(usage === undefined ? {} : { usage }),
  };
  return store(connections, ids, turn, list);
}

/**
 * Frameworks put the answered context in place of their list: it is known from now on. Returns whether it says the same as the
 * list.
 */
async function noteContext(
  { pool }: Connections,
  session: SessionRow,
  { messages }: SessionContext,
  held: Held,
): Promise<boolean> {
  if (areSame(messages, held.items)) return true;
  const { digests } = await heldList(messages);
  const digest = digests.at(-1);
  if (digest === held.digests.at(-1)) return true;
  if (digest !== undefined)
    await noteList(reading(pool, session), session, { digest, items: messages.length }, session.nextSeq - 1);
  return false;
}

/** Whether two lists have the same text, which is faster to see than the same digest. */
function areSame(messages: readonly unknown[], items: readonly Json[]): boolean {
  if (messages.length !== items.length) return false;
  return messages.every((message, index) => JSON.stringify(message) === JSON.stringify(items[index]));
}
