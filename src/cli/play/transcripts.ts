import path from 'node:path';
import type { ChatMessage } from '../../conversation/message.js';
import { readNative, splitNative } from '../../formats/native.js';
import { isFailure, PalimpsestError } from '../../errors.js';
import { type ImportRecord, inFile, readRecords } from '../../import/records.js';
import { fileSources, type Source } from '../../import/sources.js';
import { exitCodes } from '../command/exit-codes.js';

/** One session of an input. */
export interface Transcript {
  /** Its own `id`, or the file's name without extension, with `#line` if the file contains several sessions. */
  id: string;
  /** Its messages as chat messages, whatever the original format. */
  messages: ChatMessage[];
  /** The time of each message in ISO 8601, or null if the file has none. */
  times?: readonly (string | null)[];
}

/** A broken session of a file, or an unreadable input. */
export interface UnreadableTranscript {
  id: string;
  error: PalimpsestError;
}

/** The exit code if none of the sessions that were named can be read. */
export const codeOfUnreadable = (unreadable: readonly UnreadableTranscript[]): number =>
  unreadable.every(({ error }) => isFailure(error, 'Input.Invalid')) ? exitCodes.usage : exitCodes.failed;

export type ReadTranscript = Transcript | UnreadableTranscript;

/**
 * Reads the sessions of one input as `import` does: a file in any known format, a folder, or `-` for standard input; gzip is
 * detected by content. Never throws: unreadable content becomes an entry with an `Input.Invalid` that names the file, and other
 * sessions are unaffected.
 */
export async function readTranscripts(
  input: string,
  stdin: NodeJS.ReadableStream = process.stdin,
): Promise<ReadTranscript[]> {
  try {
    const sources = input === '-' ? [standardInput(stdin)] : await fileSources([input]);
    const reads: ReadTranscript[] = [];
    for (const source of sources)
      for await (const record of source.records({}, () => undefined))
        reads.push(transcriptOf(record, source.name));
    return reads;
  } catch (error) {
    return [{ id: nameOf(input), error: asFailure(error, input) }];
  }
}

const nameOf = (input: string): string =>
  path
    .basename(input)
    .replace(/\.gz$/i, '')
    .replace(/\.(jsonl|ndjson|json|traj)$/i, '');

function standardInput(stdin: NodeJS.ReadableStream): Source {
  return { name: 'standard input', records: (options) => readRecords(bytesOf(stdin), 'stdin', options) };
}

async function* bytesOf(stream: NodeJS.ReadableStream): AsyncGenerator<Buffer> {
  for await (const chunk of stream) yield typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
}

function transcriptOf(record: ImportRecord, file: string): ReadTranscript {
  const { id } = record;
  if ('error' in record) return { id, error: inFile(record.error, file) };
  try {
    const { messages, times } = readNative(record.items, record.format);
    const isDated = times.some((time) => time !== null);
    return {
      id,
      messages: messages.map((logged) => splitNative(logged).message),
      ...(isDated ? { times } : {}),
    };
  } catch (error) {
    return { id, error: asFailure(error, file) };
  }
}

function asFailure(error: unknown, file: string): PalimpsestError {
  if (isFailure(error)) return inFile(error, file);
  const message = error instanceof Error ? error.message : String(error);
  return new PalimpsestError('Input.Invalid', `${file} cannot be read: ${message}`, {
    path: 'messages',
    hint: 'Check the file with `palimpsest import --dry-run --format …`, or omit it.',
    cause: error,
  });
}
