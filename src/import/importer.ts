import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import type { FormatName } from '../conversation/format-names.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { readNative, splitNative, type LoggedTurn } from '../formats/native.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { readHashes } from '../store/log/messages.js';
import { encodeIdPart } from '../contract/ids.js';
import { isTaken, storeSession } from './store-session.js';
import type { ImportRecord, ReadSession } from './records.js';
import { detached, Remembered, type Source } from './sources.js';
import type { ImportOptions, ImportReport, ImportTotals } from './report.js';

/** Maximum characters of the sessions in progress, unless a single session is larger. */
const mostInWork = 64_000_000;

/**
 * Imports every session of every source, and holds at most `concurrency` sessions in memory. Malformed sessions are
 * reported and skipped. An unavailable database ends the import (`Store.Unavailable`); if it is repeated, the same import continues from
 * there.
 */
export async function importSessions(
  pool: Pool,
  sources: Iterable<Source>,
  options: ImportOptions,
): Promise<ImportTotals> {
  const { concurrency = 4, onRead = () => undefined, onReport } = options;
  const totals = { stored: 0, extended: 0, present: 0, duplicate: 0, refused: 0, messages: 0, added: 0 };
  const seen: Seen = new Remembered();
  const busy: Busy = new Map();
  const known: Known = { seen, busy, places: new Remembered() };
  const running = new Set<Promise<void>>();
  let inWork = 0;
  let failure: { error: unknown } | undefined;
  const start = (source: string, record: ImportRecord): void => {
    const size = 'size' in record ? record.size : 0;
    inWork += size;
    const task = importOne(pool, record, known, options)
      .then((one) => {
        totals[one.status]++;
        totals.messages += one.messages;
        totals.added += one.added;
        return onReport?.({ source, line: record.line, ...one });
      })
      .catch((error: unknown) => void (failure ??= { error }))
      .finally(() => {
        inWork -= size;
        running.delete(task);
      });
    running.add(task);
  };
  try {
    for (const source of sources) {
      for await (const record of source.records(options, onRead)) {
        const size = 'size' in record ? record.size : 0;
        while (running.size >= concurrency || (running.size > 0 && inWork + size > mostInWork))
          await Promise.race(running);
        options.signal?.throwIfAborted();
        if (failure !== undefined) throw failure.error;
        start(source.name, record);
      }
    }
  } finally {
    // Started work ends before the caller closes the pool.
    await Promise.all(running);
  }
  if (failure !== undefined) throw failure.error;
  return totals;
}

type Outcome = Omit<ImportReport, 'source' | 'line'>;

async function importOne(
  pool: Pool,
  record: ImportRecord,
  known: Known,
  options: ImportOptions,
): Promise<Outcome> {
  const session = detached(`${options.prefix ?? ''}${record.id}`);
  try {
    if ('error' in record) throw record.error;
    encodeIdPart(session, 'session');
    return await importUnderFreeId(pool, session, record, known, options);
  } catch (error) {
    if (!isFailure(error) || error.type === 'Store.Unavailable') throw error;
    const { type, message, path, hint } = error;
    const format = 'error' in record ? null : record.format;
    return {
      session,
      status: 'refused',
      format,
      messages: 0,
      added: 0,
      error: { type, message, path, hint },
    };
  }
}

/**
 * Agents and providers write one id into several files: a session and its compacted copy, or answers to the same
 * request. Of the sessions that this run reads, the first keeps the id; the ids of the others, if they have other messages, get their place
 * appended. Ids of chat messages are the caller's own: different content under the same id is refused, also if an
 * earlier run stored the first content.
 */
async function importUnderFreeId(
  pool: Pool,
  session: string,
  record: ReadSession,
  known: Known,
  options: ImportOptions,
): Promise<Outcome> {
  const place = `${record.place}:${record.line}`;
  const first = known.places.get(session);
  if (first === undefined) known.places.set(session, place);
  try {
    return await importNew(pool, session, record, known, options);
  } catch (error) {
    if (!isTaken(error) || record.format === 'openai-chat' || record.id === record.place) throw error;
    const other = withPlace(session, record.place);
    const ids = { tenant: options.tenant, session: other };
    const isOther = first !== undefined && first !== place;
    if (!isOther && (await readHashes(pool, ids)).length === 0) throw error;
    return importNew(pool, other, record, known, options);
  }
}

/** `ses_1~run/basic.compaction`, or with a hash of the place if the place is too long for an id. */
function withPlace(session: string, place: string): string {
  const readable = detached(`${session}~${place}`);
  try {
    encodeIdPart(readable, 'session');
    return readable;
  } catch (error) {
    if (!isFailure(error)) throw error;
    return `${session}~${createHash('sha256').update(place).digest('hex').slice(0, 8)}`;
  }
}

/**
 * Maps a hash of all messages to the id of the session that holds them, or to a promise of the id; null if it was
 * refused.
 */
type Seen = Remembered<string | Promise<string | null>>;

/** Maps a session id to a promise that settles when no write under the id is running. */
type Busy = Map<string, Promise<void>>;

interface Known {
  seen: Seen;
  busy: Busy;
  /** Maps a session id to the place where this run read it first. */
  places: Remembered<string>;
}

/** Stores a session, unless its messages are already stored under another id. */
async function importNew(
  pool: Pool,
  session: string,
  record: ReadSession,
  { seen, busy }: Known,
  options: ImportOptions,
): Promise<Outcome> {
  const { format, items } = record;
  const { messages, times } = asMessages(items, format);
  if (messages.length === 0) throw invalid('The session has no message.', 'messages');
  const outcome = { session, format, messages: messages.length };
  const content = contentOf(messages);
  for (let earlier = seen.get(content); earlier && !options.keepDuplicates; earlier = seen.get(content)) {
    const holder = await earlier;
    if (holder === session) break;
    if (holder === null) continue;
    return { ...outcome, added: 0, status: 'duplicate', duplicateOf: holder };
  }
  const ids = { tenant: options.tenant, session };
  // Writes of one id run one after the other, so that its first content stays.
  const storing = (busy.get(session) ?? Promise.resolve()).then(() =>
    storeSession(pool, ids, { messages, times, format }, options),
  );
  const done: Promise<void> = storing.then(
    () => undefined,
    () => undefined,
  );
  busy.set(session, done);
  void done.then(() => busy.get(session) === done && busy.delete(session));
  const holder = storing.then(
    () => {
      seen.set(content, session);
      return session;
    },
    () => {
      seen.delete(content);
      return null;
    },
  );
  seen.set(content, holder);
  return { ...outcome, ...(await storing) };
}

/** Returns a hash that is equal for equal messages, even if their files differ otherwise. */
function contentOf(messages: readonly ChatMessage[]): string {
  const hash = createHash('sha256');
  for (const message of messages) hash.update(`${JSON.stringify(splitNative(message).message)}\n`);
  return hash.digest('base64').slice(0, 24);
}

function asMessages(items: Json[], format: FormatName): LoggedTurn {
  try {
    return readNative(items, format);
  } catch (error) {
    if (isFailure(error)) throw error;
    // An unexpected shape of one session must not stop the others.
    const { message } = error as Error;
    throw new PalimpsestError('Input.Invalid', `This cannot be read as ${format}: ${message}`, {
      path: 'messages',
      cause: error,
    });
  }
}
