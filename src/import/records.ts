import type { FormatName } from '../conversation/format-names.js';
import { parseExact } from '../conversation/json.js';
import type { Json } from '../conversation/message.js';
import { chatMessages } from '../conversation/validate.js';
import { invalid, isFailure, type PalimpsestError, restated } from '../errors.js';
import { isFields, mustBe } from '../formats/content.js';
import { classifyLine, openDocument, type OpenedDocument } from '../formats/documents.js';
import type { FileLayout } from '../formats/format.js';
import { decodedText, type Piece, piecesOf } from './pieces.js';

/** One session that was read, or the error that prevented it. */
export type ImportRecord = ReadSession | UnreadSession;

export interface ReadSession {
  /** The id of the session in the input, or else {@link place}. */
  id: string;
  /** Name of the input, with `#line` if the input has several sessions. */
  place: string;
  /** Line where the session begins. */
  line: number;
  /** Number of characters that were read for the session, as a measure of its memory. */
  size: number;
  format: FormatName;
  items: Json[];
}

interface UnreadSession {
  id: string;
  line: number;
  error: PalimpsestError;
}

export interface ReadOptions {
  /** Format of the input. @default recognised by content */
  format?: FormatName;
  /** Maximum characters of a session. A larger session is refused. @default 256 million */
  longestSession?: number;
}

export const defaultLongestSession = 256_000_000;

/**
 * Yields the sessions of one input, one after the other. An input with several sessions is never in memory as a whole. Never
 * throws for the content of the bytes: a session that cannot be read becomes a record with its `Input.Invalid`, and the others
 * are read. Rethrows errors of reading the bytes.
 */
export async function* readRecords(
  bytes: AsyncIterable<Buffer>,
  name: string,
  options: ReadOptions = {},
): AsyncGenerator<ImportRecord> {
  const longest = options.longestSession ?? defaultLongestSession;
  let line = 1;
  try {
    const { layout, pieces } = await piecesOf(decodedText(bytes), longest);
    const input = { name, layout, longest, format: options.format };
    for await (const record of layout === 'document' ? documents(pieces, input) : series(pieces, input)) {
      line = record.line;
      yield record;
    }
  } catch (error) {
    if (!isFailure(error)) throw error;
    yield { id: name, line, error: withHint(error) };
  }
}

interface Input {
  name: string;
  layout: 'lines' | 'elements' | 'document';
  longest: number;
  format: FormatName | undefined;
}

async function* documents(pieces: AsyncGenerator<Piece>, input: Input): AsyncGenerator<ImportRecord> {
  for await (const piece of pieces)
    yield opened({ ...read(piece), id: input.name }, 'document', input.format);
}

/** The value of a piece and its position. `lines`: the lines of its items, if they are the items of one session. */
type Read = { id: string; line: number; size: number; lines?: number[] } & (
  { value: Json } | { error: PalimpsestError }
);

/**
 * Reads lines or elements: either each is a session, or all are items of one session. The first recognised piece decides.
 * Earlier pieces wait, because a broken piece invalidates an input that is a single session, but not an input with several
 * sessions.
 */
async function* series(pieces: AsyncGenerator<Piece>, input: Input): AsyncGenerator<ImportRecord> {
  let kind: 'session' | 'item' | null = null;
  let held: Read[] = [];
  let size = 0;
  let number = 0;
  for await (const piece of pieces) {
    number++;
    const id = `${input.name}#${input.layout === 'lines' ? piece.line : number}`;
    const one: Read = { ...read(piece, isPart(kind, input) ? `[${number - 1}]` : undefined), id };
    kind ??= 'value' in one ? (classifyLine(one.value)?.kind ?? null) : null;
    held.push(one);
    if (kind === 'session') {
      for (const session of held) yield opened(session, 'document', input.format);
      held = [];
      continue;
    }
    size += piece.text.length;
    if (size > input.longest) throw tooLong();
    if (kind === 'item') for (const item of held.slice(held.length === number ? 0 : -1)) valueOf(item);
  }
  if (kind === 'session') return;
  const lines = held.map(({ line }) => line);
  const whole = { id: input.name, line: lines[0] ?? 1, lines, size, value: held.map(valueOf) };
  yield opened(whole, input.layout === 'lines' ? 'lines' : 'document', input.format);
}

/** Elements have an index in the list as their path; lines are identified by their number. */
const isPart = (kind: 'session' | 'item' | null, { layout }: Input): boolean =>
  layout === 'elements' && kind !== 'session';

function read(
  piece: Piece,
  path?: string,
): Omit<Read, 'id'> & ({ value: Json } | { error: PalimpsestError }) {
  const place = { line: piece.line, size: piece.text.length };
  try {
    return { ...place, value: parsed(piece, path) };
  } catch (error) {
    if (isFailure(error)) return { ...place, error };
    throw error;
  }
}

function valueOf(one: Read): Json {
  if ('error' in one) throw one.error;
  return one.value;
}

function opened(one: Read, layout: FileLayout, format: FormatName | undefined): ImportRecord {
  const { id, line, size } = one;
  try {
    const value = valueOf(one);
    const found = openedAs(value, layout, format);
    const own = found.id === undefined || found.id === '' ? id : found.id;
    return { id: own, place: id, line, size, format: found.format, items: found.items };
  } catch (error) {
    if (!isFailure(error)) throw error;
    const why = withHint(explained(one, error));
    if (one.lines) return { id: ownId(one) ?? id, ...atItem(why, one.lines, layout === 'lines') };
    return { id: ownId(one) ?? id, line, error: atLine(why, line) };
  }
}

/** A single item of a history is a history with one item. */
function openedAs(value: Json, layout: FileLayout, format: FormatName | undefined): OpenedDocument {
  try {
    return openDocument(value, layout, format);
  } catch (error) {
    if (layout === 'lines' || classifyLine(value)?.kind !== 'item') throw error;
    return openDocument([value], 'lines', format);
  }
}

/** The session's own id, so that reports name refused sessions by it. */
function ownId(one: Read): string | null {
  const id = 'value' in one && isFields(one.value) ? one.value.id : null;
  return typeof id === 'string' && id !== '' ? id : null;
}

/** If the messages are nearly in OpenAI's format, the error about these messages replaces the error about an unknown format. */
function explained(one: Read, error: PalimpsestError): PalimpsestError {
  const value = 'value' in one ? one.value : null;
  const messages = isFields(value) && 'messages' in value ? value.messages : value;
  if (messages !== value && !Array.isArray(messages))
    return mustBe('an array of messages', messages, 'messages', accepted);
  if (!Array.isArray(messages)) return error;
  if (messages.length === 0) return invalid('The session has no message.', 'messages', accepted);
  const likely =
    messages.filter((message) => isFields(message) && 'role' in message).length * 2 >= messages.length;
  if (!likely && messages === value) return error;
  if ((classifyLine(value)?.format ?? 'openai-chat') !== 'openai-chat') return error;
  try {
    chatMessages(messages, 'messages');
    return error;
  } catch (better) {
    return isFailure(better) ? better : error;
  }
}

const accepted = "Give a list of messages, alone or under `messages`, or an agent's file (see --format).";

function parsed({ text, line, column, tooLong: isTooLong }: Piece, path?: string): Json {
  if (isTooLong) throw tooLong(line);
  return parseExact(text.endsWith('\r') ? text.slice(0, -1) : text, {
    line,
    column,
    ...(path ? { path } : {}),
  });
}

function tooLong(line?: number): PalimpsestError {
  return invalid(
    `${line === undefined ? 'The session' : `Line ${line}: the session`} is longer than the import allows.`,
    undefined,
    'Split it, or raise --max-session-mb.',
  );
}

/** Matches the path of an item, and of a field in it. */
const ofItem = /^(?:messages|lines)\[(\d+)\]\.?(.*)$/s;

/**
 * Adds the line to a failure of a session whose items are on these lines. `details.item` or the path identifies the
 * item. If each line is an item, the path becomes relative to the line.
 */
function atItem(
  error: PalimpsestError,
  lines: readonly number[],
  isEachLine: boolean,
): { error: PalimpsestError; line: number } {
  const { path = '', details } = error;
  const [, number, rest = ''] = ofItem.exec(path) ?? [];
  const item = typeof details?.item === 'number' ? details.item : number === undefined ? -1 : Number(number);
  const line = lines[item];
  if (line === undefined || /^line \d/i.test(error.message)) return { error, line: lines[0] ?? 1 };
  const isWhole = rest === '' || !isEachLine;
  const message = isWhole ? error.message : error.message.replaceAll(path, rest);
  return { error: atLine(restated(error, { message, path: isWhole ? path : rest }), line), line };
}

function atLine(error: PalimpsestError, line: number): PalimpsestError {
  if (/^line \d/i.test(error.message)) return error;
  return restated(error, { message: `Line ${line}: ${error.message}` });
}

/** Adds a hint if the error has none. */
function withHint(error: PalimpsestError): PalimpsestError {
  if (error.hint !== undefined) return error;
  return restated(error, {
    hint: 'Correct the session there, and import it again: nothing is stored twice.',
  });
}

/** Adds the name of the file in front, for callers that read several files. */
export function inFile(error: PalimpsestError, file: string): PalimpsestError {
  if (error.message.includes(file)) return error;
  return restated(error, { message: `${file}: ${error.message}` });
}
