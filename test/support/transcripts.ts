import { createReadStream } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

/** Folder of recorded sessions, if the environment names one. */
const folder = process.env.PALIMPSEST_TRANSCRIPTS;

/** For `describe.skipIf`: returns true, and prints a line, if there are no recorded sessions. */
export function skipWithoutTranscripts(): boolean {
  if (folder === undefined)
    process.stderr.write('PALIMPSEST_TRANSCRIPTS is not set: the tests of recorded sessions do not run.\n');
  return folder === undefined;
}

export interface RecordedLine {
  /** One session as JSON. */
  line: string;
  /** Number of the line in its file, from 1. */
  number: number;
  file: string;
  /** Whether the session is malformed on purpose: orphan results, reused ids, empty turns. */
  dirty: boolean;
}

/** Yields recorded sessions, each as one line of JSON: all of them, or one in `every`. */
export async function* readTranscripts(every = 1): AsyncGenerator<RecordedLine> {
  if (folder === undefined) return;
  let sessions = 0;
  for (const kind of ['sessions', 'dirty', 'cc-by-nc']) {
    const files = await readdir(path.join(folder, kind)).catch(() => []);
    for (const file of files.filter((name) => /\.jsonl(\.gz)?$/.test(name) && !name.startsWith('qa-'))) {
      const raw = createReadStream(path.join(folder, kind, file));
      const input = file.endsWith('.gz') ? raw.pipe(createGunzip()) : raw;
      let number = 0;
      for await (const line of createInterface({ input, crlfDelay: Infinity })) {
        number++;
        if (line !== '' && sessions++ % every === 0)
          yield { line, number, file: `${kind}/${file}`, dirty: kind === 'dirty' };
      }
    }
  }
}

/** Returns the `o200k_tokens` of each session by id, without framing, names and images. */
export async function recordedTokens(): Promise<Map<string, number>> {
  if (folder === undefined) return new Map();
  const lines = (await readFile(path.join(folder, 'index.jsonl'), 'utf8'))
    .split('\n')
    .filter((line) => line !== '');
  const entries = lines.map((line) => JSON.parse(line) as { id: string; o200k_tokens: number });
  return new Map(entries.map(({ id, o200k_tokens }) => [id, o200k_tokens]));
}
