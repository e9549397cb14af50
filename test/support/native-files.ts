import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { FileLayout } from '../../src/formats/format.js';
import { parseExact } from '../../src/conversation/json.js';
import type { Json } from '../../src/conversation/message.js';

const folder = process.env.PALIMPSEST_NATIVE_DATA ?? path.resolve('../shared/data/native');

/** Recorded files in the formats of other agents and providers, if they are available. */
export interface NativeFile {
  /** `codex/rollout.jsonl`. */
  file: string;
  layout: FileLayout;
  /** Of lines: the list of their values. */
  value: Json;
}

/** Empty, with a printed line, if the folder is missing. */
export function nativeFiles(): string[] {
  if (!existsSync(folder)) {
    process.stderr.write(`${folder} is not there (PALIMPSEST_NATIVE_DATA): recorded files did not run.\n`);
    return [];
  }
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
}

/** Where the file lies. */
export const nativePath = (file: string): string => path.join(folder, file);

export function readNativeFile(file: string): NativeFile {
  const bytes = readFileSync(nativePath(file));
  const text = (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  if (!/\.jsonl(?:\.gz)?$/.test(file)) return { file, layout: 'document', value: parseExact(text) };
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return { file, layout: 'lines', value: lines.map((line) => parseExact(line)) };
}

/** The text of a file, without white space between values. */
export function fileText(value: Json, layout: FileLayout): string {
  const values = layout === 'lines' && Array.isArray(value) ? value : [value];
  return values.map((each) => `${JSON.stringify(each)}\n`).join('');
}
