import type { Pool } from 'pg';
import type { SessionIds } from '../contract/ids.js';
import type { FormatName } from '../conversation/format-names.js';
import { cutTurns } from '../conversation/groups.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { defaultTurnLimits } from '../conversation/turn-limits.js';
import { nativeField, serializeMessage } from '../conversation/validate.js';
import { isFailure, PalimpsestError } from '../errors.js';
import { withoutEnvelope } from '../formats/envelope.js';
import { type LoggedTurn, splitNative } from '../formats/native.js';
import { closeImported, importedTurnId, largeNewest, type LargeNewest } from '../store/append/imported.js';
import type { TurnInput } from '../store/append/turn-input.js';
import { appendTurn, appendTurns } from '../store/append/turns.js';
import { readHashes, readMessages } from '../store/log/messages.js';
import type { ImportOptions } from './report.js';

interface Stored {
  status: 'stored' | 'extended' | 'present';
  added: number;
  /** Set if the newest user message is larger than the budget, so that no context can be made of the session. */
  newestUser?: LargeNewest;
}

type ReadMessages = LoggedTurn & { format: FormatName };

/**
 * Stores one session in the log, from its first missing message on. Throws `Input.Invalid` if the stored session has other
 * messages.
 */
export async function storeSession(
  pool: Pool,
  ids: SessionIds,
  read: ReadMessages,
  options: ImportOptions,
): Promise<Stored> {
  let before: number | undefined;
  let added = 0;
  for (;;) {
    const stored = await readHashes(pool, ids);
    before ??= stored.length;
    const messages = await missingFrom(pool, ids, stored, read.messages);
    const missing = Math.max(0, messages.length - stored.length);
    if (options.dryRun) return { added: missing, status: statusOf(missing, before) };
    try {
      const rest = { ...read, messages };
      for await (const count of appendRest(pool, ids, rest, stored.length, options)) added += count;
      if (!options.keepOpen) await closeImported(pool, ids);
      const newestUser = added > 0 ? await largeNewest(pool, ids) : null;
      return { added, status: statusOf(added, before), ...(newestUser ? { newestUser } : {}) };
    } catch (error) {
      // Another writer appended to the session meanwhile, so compare again.
      if (!isFailure(error, 'Store.StaleAppend')) throw error;
    }
  }
}

function statusOf(added: number, before: number): Stored['status'] {
  if (added === 0) return 'present';
  return before === 0 ? 'stored' : 'extended';
}

/** Limits on the turns stored in one transaction, which must be short. */
const turnsAtOnce = 50;
const charactersAtOnce = 2_000_000;

/**
 * Appends the session in the turns in which its platform would have appended it. Yields the number of new messages
 * after each step.
 */
async function* appendRest(
  pool: Pool,
  ids: SessionIds,
  read: ReadMessages,
  stored: number,
  options: ImportOptions,
): AsyncGenerator<number> {
  for (const turns of batches(turnsOf(ids, read, stored, options))) {
    options.signal?.throwIfAborted();
    if (await appendTurns(pool, turns)) {
      yield turns.reduce((sum, { logged }) => sum + logged.messages.length, 0);
      continue;
    }
    for (const turn of turns) {
      const { repeated } = await appendTurn(pool, turn);
      if (!repeated) yield turn.logged.messages.length;
    }
  }
}

type ImportTurn = TurnInput & { logged: LoggedTurn; size: number };

function* turnsOf(
  ids: SessionIds,
  { messages, times, format }: ReadMessages,
  stored: number,
  { policy, deployment }: ImportOptions,
): Generator<ImportTurn> {
  for (const { start, logged, hashes, size } of partsOf(messages, stored)) {
    yield {
      ...ids,
      turnId: importedTurnId(start + 1, hashes),
      logged: { messages: logged, times: times.slice(start, start + logged.length) },
      size,
      format,
      expectedSeq: start,
      imported: true,
      // An existing session keeps its policy.
      ...(policy === undefined || start > 0 ? {} : { policy }),
      ...(deployment === undefined ? {} : { deployment }),
    };
  }
}

interface Part {
  start: number;
  logged: ChatMessage[];
  /** Hashes of the messages. */
  hashes: string[];
  /** Code units of the stored bodies. */
  size: number;
}

/** The messages that are not stored yet, cut into turns within the limits on turns. */
function* partsOf(messages: readonly ChatMessage[], stored: number): Generator<Part> {
  const { maxMessages, maxBytes } = defaultTurnLimits;
  for (const { from, to } of cutTurns(messages)) {
    let part: Part = { start: Math.max(from, stored), logged: [], hashes: [], size: 0 };
    for (let index = part.start; index < to; index++) {
      const message = messages[index]!;
      const { body, sha256 } = serializeMessage(message);
      const isFull = part.logged.length === maxMessages || part.size + body.length > maxBytes;
      if (isFull && part.logged.length > 0) {
        yield part;
        part = { start: index, logged: [], hashes: [], size: 0 };
      }
      part.logged.push(message);
      part.hashes.push(sha256);
      part.size += body.length;
    }
    if (part.logged.length > 0) yield part;
  }
}

function* batches(turns: Iterable<ImportTurn>): Generator<[ImportTurn, ...ImportTurn[]]> {
  let batch: ImportTurn[] = [];
  let size = 0;
  for (const turn of turns) {
    const [first, ...rest] = batch;
    if (first && (batch.length >= turnsAtOnce || size + turn.size > charactersAtOnce)) {
      yield [first, ...rest];
      [batch, size] = [[], 0];
    }
    batch.push(turn);
    size += turn.size;
  }
  const [first, ...rest] = batch;
  if (first) yield [first, ...rest];
}

/**
 * Returns the messages in the form in which they continue the stored messages. An agent's log that has grown since differs from
 * the stored log in its envelope, which stays as stored, and in entries without a message: at the end of the old log they were
 * stored with the last message, and now they belong before the next message.
 * Throws `Input.Invalid` if anything else differs.
 */
async function missingFrom(
  pool: Pool,
  ids: SessionIds,
  stored: readonly string[],
  messages: readonly ChatMessage[],
): Promise<readonly ChatMessage[]> {
  const common = Math.min(stored.length, messages.length);
  const isSame = (index: number): boolean => serializeMessage(messages[index]!).sha256 === stored[index];
  if (Array.from({ length: common }, (_, index) => index).every(isSame)) return messages;
  const log = await readMessages(pool, ids, 1, stored.length);
  for (let index = 0; index < common; index++)
    if (textOf(log[index]!.message) !== textOf(splitNative(messages[index]!).message))
      throw differs(ids, index);
  const known = log.flatMap(({ native }) => withoutEnvelope(native?.items ?? []));
  const read = itemsOf(messages.slice(0, common));
  const different = known
    .slice(0, read.length)
    .findIndex((item, index) => textOf(item) !== textOf(read[index]));
  if (different >= 0) throw differs(ids, common - 1);
  return continued(messages, stored.length, read.slice(known.length));
}

const textOf = (value: unknown): string => JSON.stringify(value);

const itemsOf = (messages: readonly ChatMessage[]): Json[] =>
  messages.flatMap((message) => withoutEnvelope(splitNative(message).native?.items ?? []));

/** Adds the entries that the log lacks to the first new message, in front of its own items. */
function continued(messages: readonly ChatMessage[], from: number, entries: readonly Json[]): ChatMessage[] {
  return messages.map((message, index) => {
    const { message: plain, native } = splitNative(message);
    if (index !== from || !native || entries.length === 0) return message;
    return { ...plain, [nativeField]: { ...native, items: [...entries, ...native.items] } };
  });
}

/** Whether a session was refused because its id has other messages. */
export function isTaken(error: unknown): boolean {
  return isFailure(error, 'Input.Invalid') && error.details?.differsAt !== undefined;
}

function differs({ session }: SessionIds, index: number): PalimpsestError {
  return new PalimpsestError(
    'Input.Invalid',
    `Session ${session} is stored with a different message ${index + 1}.`,
    {
      path: `messages[${index}]`,
      hint: 'Import it under another id: --prefix adds a prefix to all ids.',
      details: { differsAt: index + 1 },
    },
  );
}
