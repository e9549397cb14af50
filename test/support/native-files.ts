import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { FileLayout } from '../../src/formats/format.js';
import { parseExact } from '../../src/conversation/json.js';
import type { Json } from '../../src/conversation/message.js';

const folder = process.env.PALIMPSEST_NATIVE_DATA ?? path.resolve('../shared/data/native');

/** A recorded file in the format of another agent or provider. */
export interface NativeFile {
  /** `codex/rollout.jsonl`. */
  file: string;
  layout: FileLayout;
  /** The parsed file; for a file with one JSON value per line, the list of these values. */
  value: Json;
}

/** Returns the paths of the files, relative to their folder. If the folder is missing, returns none and prints a line. */
export function nativeFiles(): string[] {
  if (!existsSync(folder)) {
    process.stderr.write(
      `The folder ${folder} does not exist (PALIMPSEST_NATIVE_DATA): the tests of recorded files do not run.\n`,
    );
    return [];
  }
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
}

/** Returns the path of a file. */
export const nativePath = (file: string): string => path.join(folder, file);

export function readNativeFile(file: string): NativeFile {
  const bytes = readFileSync(nativePath(file));
  const text = (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  if (!/\.jsonl(?:\.gz)?$/.test(file)) return { file, layout: 'document', value: parseExact(text) };
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return { file, layout: 'lines', value: lines.map((line) => parseExact(line)) };
}

/** Returns the text of a file, without white space between values. */
export function fileText(value: Json, layout: FileLayout): string {
  const values = layout === 'lines' && Array.isArray(value) ? value : [value];
  return values.map((each) => `${JSON.stringify(each)}\n`).join('');
}
