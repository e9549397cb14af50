/** Where old sessions come from: files, folders, standard input, rows of another database. */
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import pg from 'pg';
import Cursor from 'pg-cursor';
import { openDocument, openDocumentAs } from '../conversation/formats/documents.js';
import { parseExact } from '../conversation/json.js';
import type { Json } from '../conversation/message.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { readRecords, type ImportRecord, type ReadOptions } from './records.js';

/** A named stream of sessions. */
export interface Source {
  /** The file, `-`, or the database, as reports name it. */
  name: string;
  /** Bytes, where they are known beforehand. */
  size?: number;
  /** `read` is told of bytes as they are read. */
  records(options: ReadOptions, read: (bytes: number) => void): AsyncGenerator<ImportRecord>;
}

const transcriptFile = /\.(json|jsonl|ndjson|traj)(\.gz)?$/i;

/**
 * Files as they are named; folders with every transcript file below them, in order of their paths; `-`: standard input.
 * Throws `Input.Invalid` for a path that is not there, and for folders that hold nothing.
 */
export async function fileSources(inputs: readonly string[]): Promise<Source[]> {
  const sources: Source[] = [];
  for (const input of inputs) {
    if (input === '-') sources.push({ name: '-', records: (options, read) => fromStdin(options, read) });
    else sources.push(...(await fromPath(input)));
  }
  return sources;
}

async function fromPath(input: string): Promise<Source[]> {
  const found = await stat(input).catch((error: NodeJS.ErrnoException) => {
    const why = error.code === 'ENOENT' ? 'There is no such file' : `It cannot be read (${error.code})`;
    throw invalid(`${why}: ${input}`, undefined, 'Name files, folders, or - for standard input.');
  });
  if (!found.isDirectory()) return [file(input, sessionName(path.basename(input)), found.size)];
  const names = (await readdir(input, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile() && transcriptFile.test(entry.name) && !entry.name.startsWith('.'))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
  if (names.length === 0)
    throw invalid(
      `No transcript lies in ${input}`,
      undefined,
      'Files are taken by their ending: .json, .jsonl, .ndjson, .traj, also with .gz.',
    );
  // The place below the folder, so that files of one name in two folders are two sessions.
  return Promise.all(
    names.map(async (name) => file(name, sessionName(path.relative(input, name)), (await stat(name)).size)),
  );
}

const sessionName = (name: string): string =>
  name
    .replace(/\.gz$/i, '')
    .replace(/\.(jsonl|ndjson|json|traj)$/i, '')
    .split(path.sep)
    .join('/');

function file(name: string, id: string, size: number): Source {
  return {
    name,
    size,
    async *records(options, read) {
      try {
        yield* readRecords(counted(createReadStream(name, { highWaterMark: 1 << 18 }), read), id, options);
      } catch (error) {
        // One that cannot be read (rights, a failing disk) does not stop the others.
        if (typeof (error as NodeJS.ErrnoException).code !== 'string') throw error;
        yield { id, line: 1, error: invalid(`The file cannot be read: ${(error as Error).message}`) };
      }
    },
  };
}

function fromStdin(options: ReadOptions, read: (bytes: number) => void): AsyncGenerator<ImportRecord> {
  return readRecords(counted(process.stdin as AsyncIterable<Buffer>, read), 'stdin', options);
}

async function* counted(bytes: AsyncIterable<Buffer>, read: (bytes: number) => void): AsyncGenerator<Buffer> {
  for await (const chunk of bytes) {
    read(chunk.length);
    yield chunk;
  }
}

const rowsAtOnce = 50;

/**
 * The rows of a query, a few at a time: a session a row (columns `id` or `session_id`, and `messages`: json, jsonb or text), or
 * a message a row (`message` instead), rows of one session together and in order.
 */
export function querySource(databaseUrl: string, query: string): Source {
  return {
    name: 'query',
    async *records(options, read) {
      const client = new pg.Client({ connectionString: databaseUrl, types: textOnly });
      try {
        await client.connect();
        const cursor = client.query(new Cursor<Row>(query));
        yield* fromRows(cursor, options, read);
      } catch (error) {
        if (isFailure(error)) throw error;
        const { message } = error as Error;
        throw new PalimpsestError('Input.Invalid', `The query cannot be read: ${message}`, {
          path: 'query',
          hint: 'It must answer the columns id and messages, or id and message.',
          cause: error,
        });
      } finally {
        await client.end().catch(() => undefined);
      }
    },
  };
}

/** json and jsonb stay text, so that nothing of it is lost on the way. */
const textOnly = { getTypeParser: () => (value: unknown) => value } as unknown as pg.CustomTypesConfig;

type Row = Record<string, string | null>;

async function* fromRows(
  cursor: Cursor<Row>,
  options: ReadOptions,
  read: (bytes: number) => void,
): AsyncGenerator<ImportRecord> {
  let gathered: { id: string; line: number; messages: string[] } | null = null;
  let line = 0;
  for (let rows = await cursor.read(rowsAtOnce); rows.length > 0; rows = await cursor.read(rowsAtOnce)) {
    for (const row of rows) {
      line++;
      const id = row['id'] ?? row['session_id'] ?? null;
      const body = row['messages'] ?? row['message'] ?? null;
      if (!('id' in row || 'session_id' in row) || !('messages' in row || 'message' in row))
        throw invalid(
          `The query answers the columns ${Object.keys(row).join(', ')}`,
          'query',
          'It must answer id and messages (a session a row), or id and message (a message a row, ordered).',
        );
      read(body?.length ?? 0);
      if (id === null || body === null) {
        yield {
          id: id ?? `row ${line}`,
          line,
          error: invalid(`Row ${line}: ${id === null ? 'id' : 'messages'} is null.`),
        };
      } else if ('messages' in row) yield fromText(id, line, body, options);
      else if (gathered?.id === id) gathered.messages.push(body);
      else {
        if (gathered) yield fromText(gathered.id, gathered.line, `[${gathered.messages.join(',')}]`, options);
        gathered = { id, line, messages: [body] };
      }
    }
  }
  if (gathered) yield fromText(gathered.id, gathered.line, `[${gathered.messages.join(',')}]`, options);
}

/** The id of the row is the session's, whatever the document calls itself. */
function fromText(id: string, line: number, text: string, { format }: ReadOptions): ImportRecord {
  try {
    const value: Json = parseExact(text);
    const found = format ? openDocumentAs(format, value, 'document') : openDocument(value, 'document');
    return { id, line, format: found.format, items: found.items };
  } catch (error) {
    if (!isFailure(error)) throw error;
    const { message, type, path: at, hint } = error;
    return { id, line, error: new PalimpsestError(type, `Row ${line}: ${message}`, { path: at, hint }) };
  }
}
