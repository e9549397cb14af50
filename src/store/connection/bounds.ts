import { invalid } from '../../errors.js';

/** Refuses what is no whole number from `least` to `most` (the largest seq where left out). Throws `Input.Invalid` naming `path`. */
export function checkWhole(value: number, path: string, least: number, most = 2 ** 31 - 1): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  throw invalid(`${path} must be a whole number from ${least} to ${most}, not ${String(value)}`, path);
}
