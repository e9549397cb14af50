import type { ContextRequest } from './client.js';
import { invalid } from '../errors.js';

const longestWaitMs = 300_000;

/** Throws `Input.Invalid` naming the field. */
export function checkContextRequest({ budget, waitMs }: Pick<ContextRequest, 'budget' | 'waitMs'>): void {
  checkWhole(budget, 'budget', 1, 100_000_000);
  checkWhole(waitMs, 'waitMs', 0, longestWaitMs);
}

function checkWhole(value: number | undefined, path: string, least: number, most: number): void {
  if (value === undefined || (Number.isSafeInteger(value) && value >= least && value <= most)) return;
  throw invalid(`${path} must be a whole number from ${least} to ${most}`, path);
}
