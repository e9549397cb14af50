/** The sessions of one input, one after the other: what holds several is never in memory as a whole. */
import { classifyLine, openDocument, openDocumentAs } from '../conversation/formats/documents.js';
import type { FormatName } from '../conversation/formats/format.js';
import { parseExact } from '../conversation/json.js';
import type { Json } from '../conversation/message.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { piecesOf, type Piece } from './pieces.js';
import { decodedText } from './text.js';

/** One session as it was read, or what could not be read. */
export type ImportRecord = ReadSession | UnreadSession;

export interface ReadSession {
  /** Its own id, else the name of its input, with `#line` where that holds several. */
  id: string;
  /** Where it begins. */
  line: number;
  format: FormatName;
  items: Json[];
}

export interface UnreadSession {
  id: string;
  line: number;
  error: PalimpsestError;
}

export interface ReadOptions {
  /** @default recognised by content */
  format?: FormatName;
  /** Characters of one session that are held in memory; a larger one is refused. @default 256 million */
  longestSession?: number;
}

const defaultLongest = 256_000_000;

/**
 * Never throws for what the bytes hold: a session that cannot be read is a record with its `Input.Invalid`, and leaves the
 * others alone. Throws what reading the bytes throws.
 */
export async function* readRecords(
  bytes: AsyncIterable<Buffer>,
  name: string,
  options: ReadOptions = {},
): AsyncGenerator<ImportRecord> {
  const { longestSession = defaultLongest } = options;
  try {
    const { layout, pieces } = await piecesOf(decodedText(bytes), longestSession);
    if (layout === 'document') yield* documents(pieces, name, options);
    else yield* series(pieces, name, layout, { ...options, longestSession });
  } catch (error) {
    if (!isFailure(error)) throw error;
    yield { id: name, line: 1, error };
  }
}

async function* documents(
  pieces: AsyncGenerator<Piece>,
  name: string,
  options: ReadOptions,
): AsyncGenerator<ImportRecord> {
  for await (const piece of pieces)
    yield attempt(name, piece.line, () => opened(parsed(piece), 'document', name, piece.line, options));
}

/** Lines or elements: each a session, or all of them the items of one. The first that can be told decides. */
async function* series(
  pieces: AsyncGenerator<Piece>,
  name: string,
  layout: 'lines' | 'elements',
  options: ReadOptions & { longestSession: number },
): AsyncGenerator<ImportRecord> {
  const items: Json[] = [];
  let size = 0;
  let kind: 'session' | 'item' | null = null;
  let number = 0;
  for await (const piece of pieces) {
    number++;
    const id = `${name}#${layout === 'lines' ? piece.line : number}`;
    let value: Json;
    try {
      value = parsed(piece, kind === 'item' ? `[${number - 1}]` : undefined);
    } catch (error) {
      if (!isFailure(error) || kind === 'item') throw error;
      yield { id, line: piece.line, error };
      continue;
    }
    kind ??= classifyLine(value)?.kind ?? (layout === 'lines' || isHistory(value) ? 'session' : 'item');
    if (kind === 'session') {
      yield attempt(id, piece.line, () => opened(value, 'document', id, piece.line, options));
      continue;
    }
    size += piece.text.length;
    if (size > options.longestSession) throw tooLong();
    items.push(value);
  }
  if (kind !== 'item') return;
  yield attempt(name, 1, () => opened(items, layout === 'lines' ? 'lines' : 'document', name, 1, options));
}

/** An array of arrays of messages. */
const isHistory = (value: Json): boolean => Array.isArray(value);

function attempt(id: string, line: number, read: () => ReadSession): ImportRecord {
  try {
    return read();
  } catch (error) {
    if (isFailure(error)) return { id, line, error: atLine(error, line) };
    throw error;
  }
}

function opened(
  value: Json,
  layout: 'lines' | 'document',
  fallbackId: string,
  line: number,
  { format }: ReadOptions,
): ReadSession {
  const found = format ? openDocumentAs(format, value, layout) : openDocument(value, layout);
  const id = found.id !== undefined && found.id !== '' ? found.id : fallbackId;
  return { id, line, format: found.format, items: found.items };
}

function parsed({ text, line, tooLong: isTooLong }: Piece, path?: string): Json {
  if (isTooLong) throw tooLong(line);
  return parseExact(text.endsWith('\r') ? text.slice(0, -1) : text, { line, ...(path ? { path } : {}) });
}

function tooLong(line?: number): PalimpsestError {
  return invalid(
    `${line === undefined ? 'The session' : `Line ${line}: the session`} is longer than one import takes`,
    undefined,
    'Split it, or raise --max-session-mb.',
  );
}

function atLine(error: PalimpsestError, line: number): PalimpsestError {
  if (/^line \d/i.test(error.message)) return error;
  const { type, path, hint, details, cause } = error;
  return new PalimpsestError(type, `Line ${line}: ${error.message}`, { path, hint, details, cause });
}
