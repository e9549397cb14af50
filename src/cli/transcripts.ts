import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { parseExact, type Origin } from '../conversation/json.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { checkMessages } from '../conversation/validate.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';

/** One session of an input. */
export interface Transcript {
  /** Its own `id`; else the file's name without ending, with `#line` where the file holds several. */
  id: string;
  messages: ChatMessage[];
}

/** What could not be read: one broken line of a sessions file, or a whole input. */
export interface UnreadableTranscript {
  id: string;
  error: PalimpsestError;
}

export type ReadTranscript = Transcript | UnreadableTranscript;

/**
 * The sessions of one input: a JSON array of OpenAI chat messages, an object with `messages`, JSONL of messages (one
 * session), JSONL of sessions; gzip of these, recognised by content; `-` reads standard input. Never throws: what
 * cannot be read is an entry with its `Input.Invalid`, and a broken line of a sessions file leaves the others alone.
 */
export async function readTranscripts(
  input: string,
  stdin: NodeJS.ReadableStream = process.stdin,
): Promise<ReadTranscript[]> {
  const name =
    input === '-'
      ? 'stdin'
      : path
          .basename(input)
          .replace(/\.gz$/i, '')
          .replace(/\.(jsonl|ndjson|json)$/i, '');
  try {
    return parseTranscripts(decode(input === '-' ? await drain(stdin) : await read(input)), name);
  } catch (error) {
    return [{ id: name, error: asFailure(error, input === '-' ? 'standard input' : input) }];
  }
}

/** The sessions of a text; `name` stands in for ids that are missing. Throws `Input.Invalid` where it is none at all. */
export function parseTranscripts(text: string, name: string): ReadTranscript[] {
  const lines = text.split('\n').map((line, index) => ({ text: line, number: index + 1 }));
  const filled = lines.filter((line) => line.text.trim() !== '');
  if (filled.length === 0) throw invalid('The input is empty.', undefined, accepted);
  if (!isJsonl(filled)) return fromDocument(parseExact(text), name);
  return holdsSessions(filled) ? fromSessionLines(filled, name) : [fromMessageLines(filled, name)];
}

const accepted =
  'Give a JSON array of OpenAI chat messages, an object with `messages`, or one message or session a line (JSONL).';

interface Line {
  text: string;
  /** Counted from 1. */
  number: number;
}

/** One value a line. Where the first line is broken, the others tell whether the text is JSONL or one broken document. */
function isJsonl(lines: readonly Line[]): boolean {
  if (lines.length === 1) return false;
  if (peek(lines[0]?.text ?? '') !== undefined) return true;
  if (peek(lines.map(({ text }) => text).join('\n')) !== undefined) return false;
  const whole = lines.map(({ text }) => peek(text)).filter((value) => isSession(value) || isMessage(value));
  return whole.length * 2 >= lines.length;
}

function holdsSessions(lines: readonly Line[]): boolean {
  for (const { text } of lines) {
    const value = peek(text);
    if (isSession(value)) return true;
    if (isMessage(value)) return false;
  }
  return false;
}

/** The value of one line, undefined where it is no JSON; only to recognise the format. */
function peek(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isSession = (value: unknown): boolean =>
  Array.isArray(value) || (isObject(value) && 'messages' in value);
const isMessage = (value: unknown): boolean => isObject(value) && 'role' in value;

function fromDocument(value: Json, name: string): ReadTranscript[] {
  if (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((entry) => isObject(entry) && 'messages' in entry)
  ) {
    return value.map((entry, index) => fromValue(entry, `${name}#${index + 1}`, `[${index}].`));
  }
  return [fromValue(isMessage(value) && !isSession(value) ? [value] : value, name, '')];
}

function fromSessionLines(lines: readonly Line[], name: string): ReadTranscript[] {
  return lines.map((line) => {
    const fallback = `${name}#${line.number}`;
    try {
      const read = fromValue(parseLine(line), fallback, '');
      return 'error' in read ? { id: read.id, error: atLine(read.error, line.number) } : read;
    } catch (error) {
      return { id: fallback, error: asFailure(error, name) };
    }
  });
}

function fromMessageLines(lines: readonly Line[], name: string): Transcript {
  const values = lines.map((line, index) => parseLine(line, `messages[${index}]`));
  try {
    return { id: name, messages: checkMessages(values) };
  } catch (error) {
    const index = isFailure(error) ? /^messages\[(\d+)\]/.exec(error.path ?? '')?.[1] : undefined;
    const line = index === undefined ? undefined : lines[Number(index)];
    throw isFailure(error) && line ? atLine(error, line.number) : error;
  }
}

function parseLine({ text, number }: Line, valuePath?: string): Json {
  const origin: Origin = { line: number };
  if (valuePath !== undefined) origin.path = valuePath;
  return parseExact(text.endsWith('\r') ? text.slice(0, -1) : text, origin);
}

/** A session as an object with `messages`, or its bare array. */
function fromValue(value: Json, fallbackId: string, prefix: string): ReadTranscript {
  if (Array.isArray(value)) return checked(value, fallbackId, `${prefix}messages`);
  if (!isObject(value))
    return { id: fallbackId, error: invalid('The input holds no messages.', undefined, accepted) };
  const id = typeof value.id === 'string' && value.id !== '' ? value.id : fallbackId;
  return checked(value.messages, id, `${prefix}messages`);
}

function checked(messages: unknown, id: string, valuePath: string): ReadTranscript {
  try {
    const list = checkMessages(messages, valuePath);
    if (list.length === 0) throw invalid(`${valuePath} holds no message.`, valuePath);
    return { id, messages: list };
  } catch (error) {
    return { id, error: asFailure(error, id) };
  }
}

function atLine(error: PalimpsestError, line: number): PalimpsestError {
  if (/^line \d/i.test(error.message)) return error;
  const { path: at, hint, details, cause } = error;
  return new PalimpsestError(error.type, `Line ${line}: ${error.message}`, {
    path: at,
    hint,
    details,
    cause,
  });
}

async function read(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const why: Record<string, string> = {
      ENOENT: 'There is no such file',
      EISDIR: 'This is a folder, not a file',
      EACCES: 'The file may not be read',
    };
    throw invalid(
      `${why[code ?? ''] ?? `The file cannot be read (${code ?? String(error)})`}: ${file}`,
      undefined,
      'Name transcript files, or - for standard input.',
    );
  }
}

async function drain(stream: NodeJS.ReadableStream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
  return Buffer.concat(chunks);
}

/** Bytes → text that keeps every code unit: anything that is not valid UTF-8 is refused. */
function decode(bytes: Buffer): string {
  const plain = bytes[0] === 0x1f && bytes[1] === 0x8b ? unzip(bytes) : bytes;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(plain);
  } catch {
    throw invalid('The text is not valid UTF-8.', undefined, 'Convert it, for instance with iconv.');
  }
}

function unzip(bytes: Buffer): Buffer {
  try {
    return gunzipSync(bytes);
  } catch (error) {
    throw invalid(
      `The gzip data is damaged or cut off: ${error instanceof Error ? error.message : String(error)}.`,
    );
  }
}

function asFailure(error: unknown, where: string): PalimpsestError {
  if (isFailure(error)) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new PalimpsestError('Input.Invalid', `${where} cannot be read: ${message}`, { cause: error });
}
