/**
 * Pins: texts that every head carries word for word. Only the operator's policy makes them, never a message: a pattern
 * is matched in what users and the system said, never in a tool's output or the agent's own words.
 */
import { createHash } from 'node:crypto';
import type { LoggedMessage } from '../../conversation/message.js';
import { hasMatch, Matching, problemOfPattern } from '../../conversation/pattern.js';
import { escapeTags } from '../../conversation/tags.js';
import type { Pin } from '../../policy/schema.js';
import type { Steps } from '../../steps.js';
import { plainTextOf } from '../text/sentences.js';

/**
 * What all tags of a head bear where a pin, which stands there untouched, spells one of them: a hash of the pins, which no
 * text can hold of itself, so that none ends or opens a part of the head. '' where no pin does.
 */
export function nonceFor(pins: readonly string[]): string {
  if (pins.every((pin) => escapeTags(pin) === pin)) return '';
  return ` ${createHash('sha256').update(JSON.stringify(pins)).digest('hex').slice(0, 16)}`;
}

/** The pins as they stand in the head, each between its own tags, untouched. Empty without pins. */
export function pinsBlock(pins: readonly string[]): string {
  if (pins.length === 0) return '';
  const nonce = nonceFor(pins);
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

/** Most texts that one pattern pins, the newest, and characters of each; a pattern that matches everything stays bounded. */
export const MOST_MATCHES = 50;
const LONGEST_MATCH = 1_000;

/**
 * What the pins say, word for word, each once, in the order of `pins`: texts as they are; a message with its number and
 * role before it; for a pattern its newest {@link MOST_MATCHES} matches of up to {@link LONGEST_MATCH} characters, oldest
 * first. Messages that are not given, or hold no text, pin nothing, nor do {@link skippedPins}. Throws `Input.Invalid` where
 * the matching takes too long.
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

/** A pattern of a policy that was stored before it was checked as it is now: it pins nothing more. */
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
 * Whether a text that was pinned earlier may be a match of this pattern. What stood around it is not known any more, so a
 * pattern that looks at words' edges keeps what it could have found, and so does one that cannot be matched any more.
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
  const found = new Map<string, true>();
  for (const text of texts) {
    for (const match of matching.search(text, pattern, path)) {
      yield;
      const pinned = match?.match.trim() ?? '';
      if (pinned === '' || pinned.length > LONGEST_MATCH || match?.isPiece === true) continue;
      found.delete(pinned);
      found.set(pinned, true);
      const [oldest] = found.keys();
      if (found.size > MOST_MATCHES && oldest !== undefined) found.delete(oldest);
    }
  }
  return found.keys();
}
