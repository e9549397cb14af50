/** Finds what is new in a list that a caller holds, stores it once, and answers the context. */
import { isDeepStrictEqual } from 'node:util';
import type { ContextShape } from '../contract/context.js';
import { continuationId } from '../contract/continuation.js';
import type { SessionIds } from '../contract/ids.js';
import type { Synced, SyncOrText } from '../contract/sync.js';
import { afterOthers, inTurn } from '../contention.js';
import { readInstant } from '../conversation/instant.js';
import type { Json } from '../conversation/message.js';
import { isFailure, PalimpsestError, restated } from '../errors.js';
import { appendedItems } from '../formats/native.js';
import { limitsOf } from '../limits/limits.js';
import { policyOf } from '../policy/layers.js';
import { turnToCount } from '../intake/count.js';
import {
  type Branch,
  branchesOf,
  type KnownList,
  longestKnown,
  noteLists,
} from '../store/append/known-lists.js';
import type { SeenPlace } from '../store/append/turn-input.js';
import { checkUsage } from '../store/append/learnt.js';
import { lastSeen } from '../store/append/seen-sessions.js';
import { formatOfTurn } from '../store/append/turns.js';
import { fork, goOnIn } from '../store/compactions/fork.js';
import { reading } from '../store/connection/transaction.js';
import { factsOf, type SessionRow } from '../store/sessions/session-row.js';
import { findSession } from '../store/sessions/sessions.js';
import { store, type StoredTurn } from './append.js';
import { type Common, compare, type Compared, missingItems, nothing, wholeList } from './common-part.js';
import type { Connections } from './connections.js';
import { type FoundContext, readContextOf } from './context.js';
import { type Held, heldItems, heldOf, type List, loggedItems, readList } from './held-list.js';

/** Number of names that a new fork may find taken. */
const mostNames = 20;

/** Items that one turn takes: a turn has a limit, and an item may be several messages. */
const mostInTurn = 2_500;

/** Branches that know equally much of a list, of which so many are compared with it. */
const mostBranches = 4;

type Request = Omit<SyncOrText, 'messages' | 'instead'>;

/** The session in which the rest of a list is stored. */
interface Target {
  ids: SessionIds;
  lastSeq: number;
  isNew: boolean;
}

/** Where a list is stored, what the log there has of it, and what it does not have. */
interface Place {
  target: Target;
  common: Common;
  parts: readonly ListPart[];
}

/** How far list and log are the same, and the end of the log. */
type Edited = NonNullable<Synced['edited']>;

interface Found extends Place {
  edited: Edited | null;
  /** Whether it is noted what the list stands for. */
  isKnown: boolean;
  after?: SeenPlace;
  /** Whether the context was the list, before it grew. */
  wasShown?: boolean;
}

/** A branch, and what its log and a list have in common. */
interface ComparedBranch {
  ids: SessionIds;
  row: SessionRow;
  compared: Compared;
}

const lastSeqOf = ({ nextSeq }: SessionRow): number => nextSeq - 1;

/** The answer, and its JSON in pieces. */
interface SyncedInPieces {
  synced: Synced;
  pieces: string[];
}

/** An answer with the sizes of the context; it may lack the messages if `unchanged`. */
export type SyncedSizes = Omit<Synced, 'context'> & {
  context: Pick<Synced['context'], 'tokens' | 'budget' | 'window'> &
    Partial<Pick<Synced['context'], 'messages'>>;
};

export async function sync(
  connections: Connections,
  ids: SessionIds,
  asked: SyncOrText,
): Promise<SyncedInPieces> {
  return storing(connections, ids, asked, (kept) => answered(connections, kept));
}

/** As `sync`. A list that only grows, in a session that was never compacted, is not read back. */
export async function syncSizes(
  connections: Connections,
  ids: SessionIds,
  asked: SyncOrText,
): Promise<SyncedSizes> {
  return storing(
    connections,
    ids,
    asked,
    async (kept) => (await grown(connections, kept)) ?? (await answered(connections, kept)).synced,
  );
}

async function storing<Answer>(
  connections: Connections,
  ids: SessionIds,
  { messages, instead, ...request }: SyncOrText,
  answer: (kept: Kept) => Promise<Answer>,
): Promise<Answer> {
  // A call with nothing to store reports the same mistakes.
  checkUsage(request.usage);
  if (request.at !== undefined) readInstant(request.at);
  const list = await readList({ messages, instead });
  return afterOthers(ids.session, isOvertaken, async (attempt) =>
    answer(await kept(connections, ids, list, request, attempt === 1)),
  );
}

/** Another call has stored, moved or erased something; `Store.TurnConflict`: the same list with other ids. */
const isOvertaken = (error: unknown): boolean =>
  isFailure(error, 'Store.StaleAppend') ||
  isFailure(error, 'Store.TurnConflict') ||
  isFailure(error, 'Store.StaleGeneration');

/** A list that is stored. */
interface Kept {
  list: List;
  found: Found;
  stored: StoredTurn | null;
  shape: ContextShape;
}

async function kept(
  connections: Connections,
  origin: SessionIds,
  list: List,
  request: Request,
  isFirst: boolean,
): Promise<Kept> {
  const shape = request.budget === undefined ? {} : { budget: request.budget };
  const place = async () => {
    const seen = isFirst ? seenPlace(connections, origin, list, request) : null;
    const found = seen ?? (await placeOf(connections, origin, list, request, shape));
    return { found, stored: await storeParts(connections, origin, found, list, request) };
  };
  const kept = await (list.items.length === 0
    ? place()
    : inTurn(connections.pool, JSON.stringify([origin.tenant, origin.session]), place));
  return { ...kept, list, shape };
}

async function answered(connections: Connections, kept: Kept): Promise<SyncedInPieces> {
  const { list, found, stored } = kept;
  const { ids } = found.target;
  const { context, pieces, ...read } = await readContextOf(connections, ids, kept.shape);
  const isNoted = stored !== null || found.isKnown;
  const through = isNoted ? null : throughSeqOf(kept);
  const unchanged = await noteHeld(connections, { context, ...read }, list.held, through);
  if (unchanged && read.whole !== null) noteShown(connections, ids, list, read.session);
  const answer = { ...(await aboutStored(kept)), unchanged };
  const before = `${JSON.stringify(answer).slice(0, -1)},"context":`;
  return { synced: { ...answer, context }, pieces: [before, ...pieces, '}'] };
}

// The list may be known since another writer stored it, which came after the session was read.
const throughSeqOf = ({ stored, found: { target, common } }: Kept): number =>
  stored?.stored.throughSeq ?? Math.max(target.lastSeq, common.throughSeq);

async function aboutStored(kept: Kept): Promise<Omit<Synced, 'context' | 'unchanged'>> {
  const { list, found, stored } = kept;
  const { target, common, edited } = found;
  return {
    ...{ session: target.ids.session, known: heldItems(list, common.items) },
    stored: stored && { ...stored.stored, signalled: await stored.signalled },
    ...{ edited, throughSeq: throughSeqOf(kept) },
  };
}

/** Notes that the context has the messages of the list, for `grown`. */
function noteShown({ pool }: Connections, ids: SessionIds, { held }: List, row: SessionRow): void {
  const seen = lastSeen(pool, ids);
  const isOfList = seen?.list?.digest === held.ofBeginnings.at(-1) && seen?.row.nextSeq === row.nextSeq;
  if (isOfList) seen.list!.shown = true;
}

/**
 * The sizes of a context that has the messages of its list: it had them before the list grew, nothing else has changed since, and
 * there is room for the new ones. Null if the context must be read.
 */
async function grown({ pool }: Connections, kept: Kept): Promise<SyncedSizes | null> {
  const { found, list, shape } = kept;
  if (!found.wasShown) return null;
  const seen = lastSeen(pool, found.target.ids);
  if (seen?.list?.digest !== list.held.ofBeginnings.at(-1)) return null;
  const { row } = seen!;
  const { budget, window } = limitsOf(policyOf(row.policy), factsOf(row));
  const context = { tokens: row.liveTokens, budget: shape.budget ?? budget, window };
  if (row.generation > 0 || context.tokens > context.budget) return null;
  seen!.list!.shown = true;
  return { ...(await aboutStored(kept)), unchanged: true, context };
}

/**
 * The place of a list that this process wrote last, and that has grown since. Null if something else must be looked at. If another
 * process has changed the session, the append fails with `Store.StaleAppend`.
 */
function seenPlace(
  { pool }: Connections,
  ids: SessionIds,
  list: List,
  { expectedSession = ids.session, format }: Request,
): Found | null {
  const seen = lastSeen(pool, ids);
  if (seen?.list === undefined || seen.row.continuedIn !== null) return null;
  const { row, version } = seen;
  // Limits are checked in a transaction, which looks at everything.
  if (row.policy.limits !== undefined) return null;
  const { items, digest } = seen.list;
  const isLonger = items < list.items.length && list.held.ofBeginnings[items - 1] === digest;
  if (!isLonger || list.instead.held > 0 || expectedSession !== ids.session) return null;
  if (format !== undefined && format !== row.format) return null;
  const common = { items, throughSeq: row.nextSeq - 1 };
  const parts = partsOf(list, common);
  if (parts.length > 1) return null;
  const target = {
    ids: { ...ids, incarnation: row.incarnation },
    lastSeq: common.throughSeq,
    isNew: false,
  };
  const after = { version, longer: list.held.ofBeginnings.slice(items) };
  const wasShown = seen.list.shown === true;
  return { target, common, parts, edited: null, isKnown: false, after, wasShown };
}

async function placeOf(
  connections: Connections,
  origin: SessionIds,
  list: List,
  { expectedSession, onEdit = 'refuse', format }: Request,
  shape: ContextShape,
): Promise<Found> {
  // Most sessions have no fork that continues them: the list is looked for at the same time.
  const [[ids, row], found] = await Promise.all([
    sessionInUse(connections, origin),
    knownPart(connections, origin, list),
  ]);
  if (expectedSession !== undefined && expectedSession !== ids.session)
    throw wentOn(ids.session, expectedSession);
  formatOfTurn({ session: origin.session, format }, row);
  const known = ids === origin ? found : await knownPart(connections, ids, list);
  const compared = row ? await compare(connections, row, list, known, shape) : wholeList(nothing);
  const { common } = compared;
  const lastSeq = row ? row.nextSeq - 1 : 0;
  const edited = compared.complete ? null : { commonSeq: common.throughSeq, lastSeq };
  if (edited && onEdit === 'refuse') {
    const branches = await branchesOf(connections.pool, origin, list.held.ofBeginnings);
    const branch = await branchWith(connections, branches, ids, list, shape);
    const nearer = branch && branch.compared.common.items > common.items ? branch : undefined;
    throw listEdited(ids.session, list, { ...edited, common, nearer });
  }
  const about = { edited, isKnown: known?.items === list.items.length };
  if (row && edited && onEdit === 'fork') {
    return { ...(await elsewhere(connections, origin, { ids, row, compared }, list, shape)), ...about };
  }
  const parts =
    row && edited
      ? await partsOfEdited(connections, row, list, compared, { onEdit, edited })
      : partsOf(list, common);
  const target = { ids: { ...ids, ...(row && { incarnation: row.incarnation }) }, lastSeq, isNew: !row };
  return { target, common, parts, ...about };
}

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

async function knownPart({ pool }: Connections, ids: SessionIds, list: List): Promise<Common | null> {
  const found = await longestKnown(pool, ids, list.held.ofBeginnings);
  const items = found && loggedItems(list, found.items);
  return items === null ? null : { items, throughSeq: found!.throughSeq };
}

/**
 * Moves the session to the branch that the list is of, or else to a new fork, of the branch that has most of the list: the same list
 * again makes no other one. A list that cannot be stored moves nothing.
 */
async function elsewhere(
  connections: Connections,
  origin: SessionIds,
  inUse: ComparedBranch,
  list: List,
  shape: ContextShape,
): Promise<Place> {
  const branches = await branchesOf(connections.pool, origin, list.held.ofBeginnings);
  const branch = await branchWith(connections, branches, inUse.ids, list, shape);
  const [more, itemsInUse] = [branch?.compared.common.items ?? -1, inUse.compared.common.items];
  const isNearer =
    branch !== null && (more > itemsInUse || (branch.compared.complete && more === itemsInUse));
  const { ids: of, row, compared } = isNearer ? branch : inUse;
  const { common, complete } = compared;
  const edited = { commonSeq: common.throughSeq, lastSeq: lastSeqOf(row) };
  const parts = complete
    ? partsOf(list, common)
    : await partsOfEdited(connections, row, list, compared, { onEdit: 'fork', edited });
  await checkParts(connections, row, list, parts);
  if (isNearer) {
    const from = { from: inUse.ids, expectedSeq: lastSeqOf(inUse.row) };
    await goOnIn(connections.pool, origin, { ...from, to: of.session });
  }
  const newest = branches.at(-1)?.session ?? of.session;
  const ids = complete ? of : await continued(connections, origin, { from: of, newest }, edited);
  return { target: { ids, lastSeq: common.throughSeq, isNew: false }, common, parts };
}

/**
 * The branch whose whole log the list has, other than the session in use; if there is none, the one that knows most of the list.
 * Its log may be longer than what it knows: an answer of the model that was appended by itself.
 */
async function branchWith(
  connections: Connections,
  branches: readonly Branch[],
  { tenant, session: inUse }: SessionIds,
  list: List,
  shape: ContextShape,
): Promise<ComparedBranch | null> {
  const others = branches
    .flatMap(({ session, items, isWhole }) =>
      items === null || session === inUse ? [] : [{ session, items, isWhole }],
    )
    .sort((one, other) => other.items - one.items);
  const most = others.filter(({ items }) => items === others[0]?.items).slice(-mostBranches);
  const whole = others.find(({ isWhole }) => isWhole);
  let best: ComparedBranch | null = null;
  for (const { session } of new Set([...(whole ? [whole] : []), ...most])) {
    const ids = { tenant, session };
    const [row, known] = await Promise.all([
      findSession(connections.pool, ids),
      knownPart(connections, ids, list),
    ]);
    if (!row) continue;
    const compared = await compare(connections, row, list, known, shape);
    const { common, complete } = compared;
    const isBetter =
      best === null ||
      (complete === best.compared.complete ? common.items > best.compared.common.items : complete);
    if (isBetter) best = { ids: { ...ids, incarnation: row.incarnation }, row, compared };
  }
  return best;
}

function listEdited(
  session: string,
  list: List,
  { commonSeq, lastSeq, common, nearer }: Edited & { common: Common; nearer?: ComparedBranch | undefined },
  hint = "Send the whole list, or say with onEdit what an edited list means: 'fork' or 'append'. Or read the context with sync of an empty list, and send it with your new messages.",
): PalimpsestError {
  return new PalimpsestError(
    'Store.ListEdited',
    `the list and session ${session} are the same through message ${commonSeq}, but the session has ${lastSeq} messages`,
    {
      path: 'messages',
      hint,
      details: {
        ...{ session, known: heldItems(list, common.items), commonSeq, lastSeq },
        ...(nearer && {
          branch: nearer.ids.session,
          branchKnown: heldItems(list, nearer.compared.common.items),
          branchCommonSeq: nearer.compared.common.throughSeq,
          branchLastSeq: lastSeqOf(nearer.row),
        }),
      },
    },
  );
}

/** Items that one turn stores, by their indexes, and the list that ends with them. */
interface ListPart extends Omit<KnownList, 'throughSeq'> {
  indexes: readonly number[];
}

/** The items after the common ones, in turns of a size that can be stored. */
function partsOf({ held, items, instead }: List, common: Common): ListPart[] {
  const parts: ListPart[] = [];
  // Within the others there is no beginning of the caller's list.
  const most = instead.held === 0 ? mostInTurn : items.length;
  for (let from = common.items; from < items.length; from += most) {
    const end = Math.min(from + most, items.length);
    const count = end === items.length ? held.items.length : end;
    parts.push({ indexes: range(from, end), items: count, digest: held.ofBeginnings[count - 1]! });
  }
  return parts;
}

const range = (from: number, end: number): number[] =>
  Array.from({ length: end - from }, (_, index) => from + index);

/** The items of an edited list to store. Nothing that Palimpsest put in place of messages may be among them. */
async function partsOfEdited(
  connections: Connections,
  row: SessionRow,
  list: List,
  { common, reached, instructions, ours }: Compared,
  { onEdit, edited }: { onEdit: Request['onEdit']; edited: Edited },
): Promise<ListPart[]> {
  const { held, items, ofItems } = list;
  const isFork = onEdit === 'fork';
  const indexes = isFork
    ? range(common.items, items.length)
    : [
        ...range(Math.min(common.items, instructions), instructions),
        ...(await missingItems(connections, row, list, reached)),
      ];
  if (indexes.some((index) => ours.has(ofItems[index]!)))
    throw listEdited(
      row.session,
      list,
      { ...edited, common },
      'After the part that both have, the list has a summary or shortened messages of a context: send the messages of a context as they were answered, and what came since.',
    );
  if (isFork) return partsOf(list, common);
  return [{ indexes, items: held.items.length, digest: held.ofBeginnings.at(-1)! }];
}

function wentOn(session: string, expected: string): PalimpsestError {
  return new PalimpsestError(
    'Store.ListEdited',
    `the list is of session ${expected}, which goes on in session ${session}`,
    { path: 'expectedSession', hint: 'Read the context again with an empty list, and add to it.' },
  );
}

/** Reads what a fork would get: a list that cannot be stored makes none. */
async function checkParts(
  { turnLimits }: Connections,
  { tenant, format, tokenizer }: SessionRow,
  list: List,
  parts: readonly ListPart[],
): Promise<void> {
  for (const { indexes } of parts) {
    const messages = indexes.map((index) => list.items[index]!);
    try {
      await turnToCount({ tenant, messages }, format, turnLimits).counted(tokenizer);
    } catch (error) {
      throw inList(error, list, indexes);
    }
  }
}

/** Makes the fork in which the session goes on. Its id follows that of the newest branch. A repeated call finds it. */
async function continued(
  { pool }: Connections,
  origin: SessionIds,
  { from, newest }: { from: SessionIds; newest: string },
  { commonSeq: throughSeq, lastSeq: expectedSeq }: { commonSeq: number; lastSeq: number },
): Promise<SessionIds> {
  for (let step = 1; ; step++) {
    const to = continuationId(origin.session, newest, step);
    try {
      await fork(pool, from, { throughSeq, to, continues: origin.session, expectedSeq });
      return { tenant: origin.tenant, session: to };
    } catch (error) {
      // The platform has a session of this name.
      if (!isFailure(error, 'Input.Invalid') || error.path !== 'to' || step === mostNames) throw error;
    }
  }
}

/** Appends parts of a list, each together with the list that ends with it, so that no interruption comes between. */
async function storeParts(
  connections: Connections,
  origin: SessionIds,
  { target: { ids, lastSeq, isNew }, parts, after }: Found,
  list: List,
  { at, format, policy, usage }: Request,
): Promise<StoredTurn | null> {
  let stored: StoredTurn | null = null;
  for (const { indexes, digest, items } of parts) {
    if (indexes.length === 0) continue;
    const expectedSeq: number = stored?.stored.throughSeq ?? lastSeq;
    const messages = indexes.map((index) => list.items[index]!);
    const turn = {
      ...{ turnId: `sync:${digest}:${expectedSeq}`, messages, expectedSeq },
      ...(at === undefined ? {} : { at }),
      ...(format === undefined ? {} : { format }),
      ...(policy === undefined || !isNew || stored ? {} : { policy }),
      ...(usage === undefined || stored ? {} : { usage }),
    };
    const next: StoredTurn = await store(connections, ids, turn, {
      ...{ digest, items, origin: origin.session },
      ...(after === undefined ? {} : { after }),
    }).catch((error: unknown) => {
      throw inList(error, list, indexes);
    });
    const fromSeq: number = stored?.stored.fromSeq ?? next.stored.fromSeq;
    stored = { ...next, stored: { ...next.stored, fromSeq } };
  }
  return stored;
}

/** A failure of a turn, with the path of its message in the caller's list. */
function inList(error: unknown, { instead }: List, indexes: readonly number[]): unknown {
  if (!isFailure(error, 'Input.Invalid')) return error;
  const [own = '', number] = /^messages\[(\d+)\]/.exec(error.path ?? '') ?? [];
  const index = indexes[Number(number)];
  if (index === undefined) return error;
  const isOther = index >= instead.at && index < instead.at + instead.logged;
  const path = isOther
    ? `instead.messages[${index - instead.at}]`
    : `messages[${index < instead.at ? index : index - instead.logged + instead.held}]`;
  return restated(error, {
    message: error.message.replace(own, path),
    path: error.path!.replace(own, path),
  });
}

/**
 * Frameworks put the answered context in place of their list: it is known from now on, and so is the list, if it stands for the
 * log through `throughSeq`. Returns whether the list can be sent in place of the context: both say the same, or the list is the
 * log, of which the context has every message.
 */
async function noteHeld(
  { pool }: Connections,
  { context, whole, session }: Omit<FoundContext, 'pieces' | 'units'>,
  held: Held,
  throughSeq: number | null,
): Promise<boolean> {
  const lists: KnownList[] = [];
  const noteList = ({ items, ofBeginnings }: Held, through: number) => {
    const digest = ofBeginnings.at(-1);
    if (digest !== undefined) lists.push({ digest, items: items.length, throughSeq: through });
  };
  if (throughSeq !== null) noteList(held, throughSeq);
  const messages = context.messages as unknown as Json[];
  // Seen faster than the same digest.
  const shown = isDeepStrictEqual(messages, held.items) ? held : await heldOf(messages);
  const isShown = saySame(shown, held);
  if (!isShown) noteList(shown, session.nextSeq - 1);
  if (lists.length > 0) await noteLists(reading(pool, session), session, lists);
  if (isShown) return true;
  // A log of an agent is in no provider's format, and instructions that go separately are not to stay in the list.
  const isRequest = context.format === session.format && context.system === undefined;
  return isRequest && whole !== null && saySame(await heldOf(appendedItems(whole)), held);
}

const saySame = (one: Held, other: Held): boolean => one.ofBeginnings.at(-1) === other.ofBeginnings.at(-1);
