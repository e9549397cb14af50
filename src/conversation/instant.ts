/** Instants as ISO 8601 in UTC, to the millisecond: `2023-05-07T13:04:05.000Z`. */
import { invalid } from '../errors.js';
import type { Json } from './message.js';

const form = /^(\d{4})-(\d\d)-(\d\d)[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$/i;

/** Clocks of other machines may be ahead by this much; a time further ahead is wrong. */
const MOST_AHEAD_MS = 24 * 3_600_000;

/** Larger numbers are milliseconds: as seconds they would be after the year 5000. */
const MOST_SECONDS = 1e11;

/**
 * Reads the time of a turn as its platform gives it. Throws `Input.Invalid` with `path` if the value is not an instant with a
 * zone, or is before 1970 or more than a day ahead.
 */
export function readInstant(value: unknown, path = 'at', now = Date.now()): string {
  const [zone] = typeof value === 'string' ? (form.exec(value)?.slice(4) ?? []) : [];
  const ms = typeof value === 'string' && zone !== undefined ? msOf(value) : null;
  if (ms === null)
    throw invalid(`${path} must be an ISO 8601 instant with its zone.`, path, 'e.g. 2023-05-07T13:04:05Z');
  if (ms < 0) throw invalid(`${path} is before 1970.`, path, 'Omit it if the time is unknown.');
  if (ms > now + MOST_AHEAD_MS)
    throw invalid(`${path} is more than a day ahead.`, path, 'Check the clock of its source.');
  return new Date(ms).toISOString();
}

/**
 * Reads the time of a message in a log: ISO 8601 (without a zone: in UTC), or seconds or milliseconds since 1970. Null for
 * other values, and for instants that `readInstant` refuses.
 */
export function instantIn(value: Json | undefined, now = Date.now()): string | null {
  const ms = typeof value === 'string' ? msOf(value) : typeof value === 'number' ? epoch(value) : null;
  return ms === null || ms < 0 || ms > now + MOST_AHEAD_MS ? null : new Date(Math.round(ms)).toISOString();
}

function epoch(value: number): number | null {
  if (!Number.isFinite(value)) return null;
  return value > MOST_SECONDS ? value : value * 1_000;
}

function msOf(text: string): number | null {
  const [, year, month, day, zone] = form.exec(text) ?? [];
  if (year === undefined) return null;
  // `Date` turns a day that does not exist, such as 30 February, into a day of the next month.
  const isDay = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day))).getUTCDate() === Number(day);
  const ms = Date.parse(zone === undefined ? `${text}Z` : text);
  return isDay && !Number.isNaN(ms) ? ms : null;
}
