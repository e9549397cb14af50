/** Size limits of a turn, which is read, checked, counted and stored as a whole. */
import { PalimpsestError } from '../errors.js';

export interface TurnLimits {
  /** @default 10,000 */
  maxMessages: number;
  /** Bytes of its messages' JSON in UTF-8. @default 33,554,432 (32 MiB) */
  maxBytes: number;
}

export const defaultTurnLimits: TurnLimits = { maxMessages: 10_000, maxBytes: 32 * 1024 * 1024 };

/** Maximum JSON values (objects, lists, texts, numbers, …) of one turn; even short ones take memory. */
export const MOST_VALUES = 1_000_000;

const hint = 'Send the turn in parts: a session may have any number of turns.';

/** Throws `Input.TooLarge`. */
export function assertTurnMessages(messages: number, limits: TurnLimits): void {
  if (messages <= limits.maxMessages) return;
  throw new PalimpsestError(
    'Input.TooLarge',
    `The turn has ${messages} messages; at most ${limits.maxMessages} are allowed.`,
    { path: 'messages', hint, details: { messages, maxMessages: limits.maxMessages } },
  );
}

/** Throws `Input.TooLarge`. */
export function assertTurnBytes(bytes: number, limits: TurnLimits): void {
  if (bytes <= limits.maxBytes) return;
  throw new PalimpsestError(
    'Input.TooLarge',
    `The messages of the turn have ${bytes} bytes of JSON; at most ${limits.maxBytes} are allowed.`,
    { path: 'messages', hint, details: { bytes, maxBytes: limits.maxBytes } },
  );
}

export function tooManyValues(): PalimpsestError {
  return new PalimpsestError('Input.TooLarge', `The body has more than ${MOST_VALUES} JSON values.`, {
    path: 'body',
    hint,
    details: { maxValues: MOST_VALUES },
  });
}
