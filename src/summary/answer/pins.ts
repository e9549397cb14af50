/**
 * Pins are texts that every head carries word for word. Only the operator's policy defines them: a pattern is matched in user
 * and system messages, never in tool output or the agent's messages.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { LoggedMessage } from '../../conversation/message.js';
import { hasMatch, Matching, problemOfPattern } from '../../conversation/pattern.js';
import { escapeTags } from '../../conversation/tags.js';
import type { Pin } from '../../policy/schema.js';
import type { Steps } from '../../steps.js';
import { plainTextOf } from '../text/sentences.js';

/**
 * Returns a suffix for all tags of a head, or '' if no pin contains one of these tags. Pins are not escaped, so such a pin
 * could begin or end a part of the head. The suffix is a hash of the pins, which no pin can contain.
 */
export function nonceFor(pins: readonly string[]): string {
  if (pins.every((pin) => escapeTags(pin) === pin)) return '';
  return ` ${createHash('sha256').update(JSON.stringify(pins)).digest('hex').slice(0, 16)}`;
}

/** The pins as written in the head, unchanged, each in its own tags. Empty without pins. */
export function pinsBlock(pins: readonly string[]): string {
  if (pins.length === 0) return '';
  const nonce = nonceFor(pins);
  return [
    `<pins${nonce}>`,
    ...pins.map((pin) => `<pin${nonce}>${pin}</pin${nonce}>`),
    `</pins${nonce}>`,
  ].join('\n');
}

/** Indexes of the pins that a text does not contain word for word. */
export function missingPins(pins: readonly string[], text: string): number[] {
  return pins.flatMap((pin, index) => (text.includes(pin) ? [] : [index]));
}

/** Maximum number of texts that one pattern pins (the newest ones), and maximum characters of each. */
export const MOST_MATCHES = 50;
const LONGEST_MATCH = 1_000;

/**
 * The pinned texts, word for word and without duplicates, in the order of `pins`: texts unchanged; a message after its number
 * and role; for a pattern its newest {@link MOST_MATCHES} matches of up to {@link LONGEST_MATCH} characters, oldest first.
 * Missing messages, messages without text and {@link skippedPins} pin no text. Throws `Input.Invalid` if the matching takes too
 * long.
 */
export function* pinnedTexts(
  pins: readonly Pin[],
  messages: Iterable<LoggedMessage>,
  matching = new Matching(),
): Steps<string[]> {
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
  const texts = new Set<string>();
  for (const [index, pin] of pins.entries()) {
    if (typeof pin === 'string') texts.add(pin);
    else if ('seq' in pin) {
      const text = bySeq.get(pin.seq);
      if (text !== undefined) texts.add(text);
    } else if (problemOfPattern(pin.pattern) === null) {
      const path = `policy.pins[${index}].pattern`;
      for (const text of yield* newestMatches(pin.pattern, instructions, path, matching)) texts.add(text);
    }
  }
  return [...texts];
}

/**
 * A pattern that the present checks refuse, in a policy that was stored before these checks existed. The pattern pins no
 * further text.
 */
export interface SkippedPin {
  /** `policy.pins[2].pattern` */
  path: string;
  reason: string;
}

export function skippedPins(pins: readonly Pin[]): SkippedPin[] {
  return pins.flatMap((pin, index) => {
    const problem = typeof pin === 'object' && 'pattern' in pin ? problemOfPattern(pin.pattern) : null;
    if (problem === null) return [];
    return [
      { path: `policy.pins[${index}].pattern`, reason: `The pattern ${problem.problem}. ${problem.hint}` },
    ];
  });
}

/**
 * Whether an earlier pinned text may be a match of this pattern. The text around the match is unknown, so every text may be a
 * match of a pattern with word boundaries, or of a refused pattern.
 */
export function mayHaveMatched(pattern: string, text: string): boolean {
  if (/\\b/i.test(pattern) || problemOfPattern(pattern) !== null) return true;
  // Matches are trimmed.
  return ['', ' ', '\n', '\t'].some((space) => hasMatch(pattern, space + text + space));
}

function originOf({ message: { role, name } }: LoggedMessage): string {
  const isResult = role === 'tool' || role === 'function';
  return isResult && name ? `${role}:${name.slice(0, 80)}` : role;
}

function* newestMatches(
  pattern: string,
  texts: readonly string[],
  path: string,
  matching: Matching,
): Steps<Iterable<string>> {
  const found = new LRUCache<string, true>({ max: MOST_MATCHES });
  for (const text of texts) {
    for (const match of matching.search(text, pattern, path)) {
      yield;
      const pinned = match?.match.trim() ?? '';
      if (pinned === '' || pinned.length > LONGEST_MATCH || match?.isPiece === true) continue;
      found.set(pinned, true);
    }
  }
  return found.rkeys();
}
