/**
 * Pins: texts that every head carries word for word. Only the operator's policy makes them, never a message: a pattern
 * is matched in what users and the system said, never in a tool's output or the agent's own words.
 */
import { createHash } from 'node:crypto';
import type { LoggedMessage } from '../conversation/message.js';
import { matchesIn } from '../conversation/pattern.js';
import { escapeTags } from '../conversation/render.js';
import type { Pin } from '../policy/schema.js';
import { plainTextOf } from './atoms.js';

/**
 * The pins as they stand in the head, each between its own tags, untouched. Empty without pins. Where a pin spells one
 * of our tags, all tags of the block bear a hash of the pins, which no text can hold of itself: none ends its tag early.
 */
export function pinsBlock(pins: readonly string[]): string {
  if (pins.length === 0) return '';
  const isForged = pins.some((pin) => escapeTags(pin) !== pin);
  const nonce = isForged
    ? ` ${createHash('sha256').update(JSON.stringify(pins)).digest('hex').slice(0, 16)}`
    : '';
  return [
    `<pins${nonce}>`,
    ...pins.map((pin) => `<pin${nonce}>${pin}</pin${nonce}>`),
    `</pins${nonce}>`,
  ].join('\n');
}

/** Indexes of the pins that a text does not hold word for word. */
export function missingPins(pins: readonly string[], text: string): number[] {
  return pins.flatMap((pin, index) => (text.includes(pin) ? [] : [index]));
}

export function pinTexts(pins: readonly Pin[]): string[] {
  return pins.flatMap((pin) => (typeof pin === 'string' ? [pin] : []));
}

/** Most texts that one pattern pins, the newest, and characters of each; a pattern that matches everything stays bounded. */
export const MOST_MATCHES = 50;
export const LONGEST_MATCH = 1_000;

/**
 * What the pins say, word for word, each once, in the order of `pins`: texts as they are; a message with its number and
 * role before it; for a pattern its newest {@link MOST_MATCHES} matches of up to {@link LONGEST_MATCH} characters, oldest
 * first. Messages that are not given, or hold no text, pin nothing. Throws `Input.Invalid` for a pattern that could
 * take forever.
 */
export function pinnedTexts(pins: readonly Pin[], messages: Iterable<LoggedMessage>): string[] {
  const isMatched = pins.some((pin) => typeof pin === 'object' && 'pattern' in pin);
  const wanted = new Set(pins.flatMap((pin) => (typeof pin === 'object' && 'seq' in pin ? [pin.seq] : [])));
  const bySeq = new Map<number, string>();
  const instructions: string[] = [];
  if (wanted.size > 0 || isMatched) {
    for (const logged of messages) {
      const text = plainTextOf(logged.message);
      if (text.trim() === '') continue;
      if (wanted.has(logged.seq))
        bySeq.set(logged.seq, `[message ${logged.seq}, ${originOf(logged)}] ${text}`);
      if (isMatched && ['user', 'system', 'developer'].includes(logged.message.role)) instructions.push(text);
    }
  }
  const texts = pins.flatMap((pin, index) => {
    if (typeof pin === 'string') return [pin];
    if ('seq' in pin) return bySeq.get(pin.seq) ?? [];
    return newestMatches(pin.pattern, instructions, `policy.pins[${index}].pattern`);
  });
  return [...new Set(texts)];
}

/**
 * Whether a text that was pinned earlier may be a match of this pattern. What stood around it is not known any more, so a
 * pattern that looks around keeps what it could have found.
 */
export function mayHaveMatched(pattern: string, text: string): boolean {
  if (/\(\?<?[=!]|\\b/i.test(pattern)) return true;
  const expression = new RegExp(pattern, 'mu');
  // Matches are trimmed.
  return ['', ' ', '\n', '\t'].some((space) => expression.test(space + text + space));
}

function originOf({ message: { role, name } }: LoggedMessage): string {
  const isResult = role === 'tool' || role === 'function';
  return isResult && name ? `${role}:${name.slice(0, 80)}` : role;
}

function newestMatches(pattern: string, texts: readonly string[], path: string): string[] {
  const found = new Map<string, true>();
  for (const text of texts) {
    for (const { match, isPiece } of matchesIn(text, pattern, path)) {
      const pinned = match.trim();
      if (pinned === '' || pinned.length > LONGEST_MATCH || isPiece) continue;
      found.delete(pinned);
      found.set(pinned, true);
      const [oldest] = found.keys();
      if (found.size > MOST_MATCHES && oldest !== undefined) found.delete(oldest);
    }
  }
  return [...found.keys()];
}
