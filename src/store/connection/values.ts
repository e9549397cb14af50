import { invalid } from '../../errors.js';

/** Longest id in UTF-8 bytes: three of them must fit into one index entry (2,704 bytes). */
const maxIdBytes = 512;

const wellFormed = `Any Unicode text of 1 to ${maxIdBytes} bytes without NUL will do, for instance a UUID.`;

/** Refuses an id that Postgres would refuse or change. Throws `Input.Invalid` naming `path`. */
export function checkId(id: string, path: string): void {
  if (typeof id !== 'string' || id === '')
    throw invalid(`${path} must be a non-empty string`, path, wellFormed);
  if (id.includes('\0')) throw invalid(`${path} holds a NUL character`, path, wellFormed);
  const bytes = Buffer.from(id, 'utf8');
  if (bytes.toString('utf8') !== id)
    throw invalid(`${path} holds half of a surrogate pair`, path, wellFormed);
  if (bytes.length > maxIdBytes)
    throw invalid(`${path} has ${bytes.length} bytes, more than ${maxIdBytes}`, path, wellFormed);
}

/**
 * A derived text (summary, exact values, error message) as a `text` or `jsonb` column can hold it: NUL becomes U+2400, half
 * of a surrogate pair U+FFFD. Originals never come here: they are stored as JSON, which escapes both.
 */
export function storable(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8').replaceAll('\0', '\u2400');
}

/** Refuses what is no whole number from `least` to `most` (the largest seq where left out). Throws `Input.Invalid` naming `path`. */
export function checkWhole(value: number, path: string, least: number, most = 2 ** 31 - 1): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  throw invalid(`${path} must be a whole number from ${least} to ${most}, not ${String(value)}`, path);
}
