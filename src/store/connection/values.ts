import { invalid } from '../../errors.js';

/**
 * Makes a derived text (summary, exact values, error message) fit for a `text` or `jsonb` column: NUL becomes U+2400,
 * a lone surrogate U+FFFD. Originals do not need this: they are stored as JSON, which escapes both.
 */
export function storable(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8').replaceAll('\0', '\u2400');
}

/** Requires a whole number from `least` to `most` (default: the largest seq). Throws `Input.Invalid` naming `path`. */
export function checkWhole(value: number, path: string, least: number, most = 2 ** 31 - 1): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  throw invalid(`${path} must be a whole number from ${least} to ${most}, not ${String(value)}`, path);
}
