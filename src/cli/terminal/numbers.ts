/** Reads and prints numbers, durations and times. */
import { invalid } from '../../errors.js';

export interface Range {
  least?: number;
  most?: number;
}

/** Parses a whole number of an option, `12000` or `12,000`. Throws `Input.Invalid`, which names the option and its range. */
export function wholeNumber(
  text: string,
  option: string,
  { least = 0, most = 2 ** 31 - 1 }: Range = {},
): number {
  const digits = text.trim().replaceAll(/[,_](?=\d{3}(\D|$))/g, '');
  const value = /^\d+$/.test(digits) ? Number(digits) : NaN;
  if (value >= least && value <= most) return value;
  const range = most === 2 ** 31 - 1 ? `of at least ${least}` : `from ${least} to ${most}`;
  throw invalid(`${option} must be a whole number ${range}, not ${JSON.stringify(text)}.`, option);
}

export function positive(text: string, option: string): number {
  const value = /^\d*\.?\d+$/.test(text.trim()) ? Number(text) : NaN;
  if (value > 0 && Number.isFinite(value)) return value;
  throw invalid(`${option} must be a number above 0, not ${JSON.stringify(text)}.`, option);
}

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Returns the milliseconds of `30`, `30s`, `500ms`, `5m`, `2h`, `7d`; a bare number means seconds. */
export function duration(text: string, option: string): number {
  const [, number, unit = 's'] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text.trim()) ?? [];
  if (number !== undefined) return Math.round(Number(number) * units[unit as keyof typeof units]);
  throw invalid(
    `${option} must be a duration, not ${JSON.stringify(text)}.`,
    option,
    'Give seconds, or a number with ms, s, m, h or d: 30, 500ms, 5m.',
  );
}

/** Returns a time, or a duration before now, in ISO 8601: `2026-01-31`, `2026-01-31T12:00Z`, `30d`. */
export const moment = (text: string, option: string): string => timeFromNow(text, option, 'before');

/** Returns a time, or a duration after now, as `moment` does. */
export const deadline = (text: string, option: string): string => timeFromNow(text, option, 'after');

function timeFromNow(text: string, option: string, side: 'before' | 'after'): string {
  if (/^\d+(?:\.\d+)?(ms|s|m|h|d)$/.test(text.trim())) {
    const ms = duration(text, option);
    return new Date(Date.now() + (side === 'after' ? ms : -ms)).toISOString();
  }
  const at = /^\d{4}-\d\d-\d\d/.test(text) ? new Date(text) : new Date(NaN);
  if (!Number.isNaN(at.getTime())) return at.toISOString();
  throw invalid(
    `${option} must be a time, not ${JSON.stringify(text)}.`,
    option,
    `Give a date (2026-01-31), a time (2026-01-31T12:00Z), or a duration ${side} now (30d, 12h).`,
  );
}

export function oneOf<T extends string>(text: string, option: string, choices: readonly T[]): T {
  const found = choices.find((choice) => choice === text);
  if (found !== undefined) return found;
  throw invalid(`${option} must be one of ${choices.join(', ')}, not ${JSON.stringify(text)}.`, option);
}

/** `45 s`, `12 min`, `3 h`, `5 d`. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

export const ago = (iso: string, now = Date.now()): string => span(now - Date.parse(iso));

export const percent = (part: number, whole: number): string =>
  whole <= 0 ? '–' : `${((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0)} %`;

/** Prints money in the currency of the policies' prices; a policy may name no currency. */
export function money(amount: number | null, currency?: string | null): string {
  if (amount === null) return '–';
  return `${amount.toFixed(amount !== 0 && Math.abs(amount) < 1 ? 4 : 2)}${currency ? ` ${currency}` : ''}`;
}

export const count = (n: number): string => n.toLocaleString('en-US');
export const plural = (n: number, noun: string): string => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;

export const seconds = (ms: number): string =>
  ms < 10000 ? `${(ms / 1000).toFixed(2)} s` : `${(ms / 1000).toFixed(0)} s`;
