/** Sources of sessions: files, folders, standard input. */
import { createReadStream, type Dirent } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { invalid } from '../errors.js';
import { type ImportRecord, type ReadOptions, readRecords } from './records.js';

/** A named stream of sessions. */
export interface Source {
  /** Name in reports: the file, `-`, or the database. */
  name: string;
  /** Number of bytes, if it is known in advance. */
  size?: number;
  /** Calls `read` with the number of bytes as they are read. */
  records(options: ReadOptions, read: (bytes: number) => void): AsyncGenerator<ImportRecord>;
}

const transcriptFile = /\.(json|jsonl|ndjson|traj)(\.gz)?$/i;

/**
 * Resolves inputs to sources: files, folders with all transcript files below them (in the order of their paths,
 * without hidden files), and `-` for standard input. Throws `Input.Invalid` for a path that does not exist, and for
 * folders without transcripts.
 */
export async function fileSources(inputs: readonly string[]): Promise<Source[]> {
  const sources: Source[] = [];
  for (const input of inputs) {
    if (input === '-') sources.push({ name: '-', records: (options, read) => fromStdin(options, read) });
    else for (const source of await fromPath(input)) sources.push(source);
  }
  return sources;
}

async function fromPath(input: string): Promise<Source[]> {
  const found = await stat(input).catch((error: NodeJS.ErrnoException) => {
    const why =
      error.code === 'ENOENT' ? 'The file does not exist' : `The file cannot be read (${error.code})`;
    throw invalid(`${why}: ${input}`, input, 'Give files, folders, or - for standard input.');
  });
  if (!found.isDirectory()) return [file(input, sessionName(path.basename(input)), found.size)];
  const sources = await inFolder(input, input);
  if (sources.length > 0) return sources;
  throw invalid(
    `There is no transcript in ${input}`,
    input,
    'The import takes files with the endings .json, .jsonl, .ndjson and .traj, also with .gz.',
  );
}

/** Sessions are named by their path below the folder, so that files of one name in two folders are two sessions. */
async function inFolder(folder: string, top: string): Promise<Source[]> {
  const named = (name: string) => sessionName(path.relative(top, name));
  let entries: Dirent[];
  try {
    entries = await readdir(folder, { withFileTypes: true });
  } catch (error) {
    return [unreadable(folder, named(folder), error as Error)];
  }
  const sources: Source[] = [];
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const name = path.join(folder, entry.name);
    if (entry.name.startsWith('.')) continue;
    if (entry.isDirectory()) for (const source of await inFolder(name, top)) sources.push(source);
    else if (transcriptFile.test(entry.name)) {
      const found = await stat(name).catch((error: Error) => error);
      if (found instanceof Error) sources.push(unreadable(name, named(name), found));
      else if (found.isFile()) sources.push(file(name, named(name), found.size));
    }
  }
  return sources;
}

function unreadable(name: string, id: string, error: Error): Source {
  return {
    name,
    async *records() {
      yield Promise.resolve({
        id,
        line: 1,
        error: invalid(`The file or folder cannot be read: ${error.message}`),
      });
    },
  };
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
        // An unreadable file (rights, a failing disk) does not stop the others.
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

/** Maximum number of entries: about 150 MB if key and value are short texts. */
const most = 1_000_000;

/** A map with text keys that keeps the latest million entries. */
export class Remembered<Value> {
  private readonly entries = new Map<string, Value>();

  get(key: string): Value | undefined {
    return this.entries.get(detached(key));
  }

  set(key: string, value: Value): void {
    this.entries.delete(key);
    this.entries.set(detached(key), value);
    if (this.entries.size > most)
      for (const [oldest] of this.entries) return void this.entries.delete(oldest);
  }

  delete(key: string): void {
    this.entries.delete(key);
  }
}

/** A copy of the text. A slice would keep its whole original in memory. */
export const detached = (text: string): string => Buffer.from(text, 'utf16le').toString('utf16le');
