/** The stored form of a turn, made from its messages without I/O, so that a thread can make it. */
import { createHash } from 'node:crypto';
import type { FormatName } from '../conversation/format-names.js';
import { type ChatMessage, type Json, sharedText, textOfShared } from '../conversation/message.js';
import { readPlain, splitNative, type LoggedTurn } from '../formats/native.js';
import { assertTurnMessages, type TurnLimits } from '../conversation/turn-limits.js';
import { metaOf, serializeMessage, warningsOf, type MessageWarning } from '../conversation/validate.js';
import { invalid } from '../errors.js';
import { counterFor, type TokenizerName } from '../tokens/counter.js';
import { countMessage } from '../tokens/message.js';

/** A turn as columns: one array for each, in message order. */
export interface SerializedTurn {
  roles: string[];
  calls: (string | null)[];
  answers: (string | null)[];
  empties: boolean[];
  /** When each message was said according to its log; null if the log does not say. */
  times: (string | null)[];
  /** Stored bodies, one per line: JSON never holds a raw line feed. */
  bodies: string;
  /** Hex hash of each body. */
  hashes: string[];
  /** Hash of the turn, over the JSON array of the bodies. */
  sha256: string;
}

export interface PreparedTurn extends Omit<SerializedTurn, 'bodies'> {
  /** The stored bodies as text or in UTF-8. */
  bodies: string | Buffer;
  tokens: number[];
  /** Tokenizer that counted the tokens. */
  tokenizer: TokenizerName;
}

export function serialize({ messages, times }: LoggedTurn): SerializedTurn {
  const stored = messages.map((message) => ({ ...metaOf(message), ...serializeMessage(message) }));
  const whole = createHash('sha256').update('[');
  stored.forEach(({ body }, index) => whole.update(index === 0 ? body : `,${body}`));
  return {
    roles: stored.map(({ role }) => role),
    calls: stored.map(({ calls }) => (calls.length === 0 ? null : JSON.stringify(calls))),
    answers: stored.map(({ answers }) => (answers === null ? null : JSON.stringify(answers))),
    empties: stored.map(({ empty }) => empty),
    times: messages.map((_, index) => times[index] ?? null),
    bodies: stored.map(({ body }) => body).join('\n'),
    hashes: stored.map(({ sha256 }) => sha256),
    sha256: whole.update(']').digest('hex'),
  };
}

/** Messages as they are logged, with warnings about irregularities. */
export interface ReadTurn extends SerializedTurn {
  warnings: MessageWarning[];
}

/** Reads plain JSON. Throws `Input.Invalid` with the path of the first wrong field, `Input.TooLarge`. */
export function readTurn(
  given: readonly Json[],
  format: FormatName,
  limits: TurnLimits,
): ReadTurn & { messages: ChatMessage[] } {
  return turnOf(readPlain(given, format), limits);
}

export function turnOf(logged: LoggedTurn, limits: TurnLimits): ReadTurn & { messages: ChatMessage[] } {
  if (logged.messages.length === 0)
    throw invalid('a turn has at least one message', 'messages', 'Send the messages since the last turn.');
  // One item of another format may stand for several messages.
  assertTurnMessages(logged.messages.length, limits);
  const messages = logged.messages.map((message) => splitNative(message).message);
  return { ...serialize(logged), messages, warnings: warningsOf(messages, 'turn') };
}

/** Reads UTF-8 text that was checked to be exact JSON, and counts its tokens; null if they are counted elsewhere. */
export function readTurnText(
  json: SharedArrayBuffer,
  format: FormatName,
  limits: TurnLimits,
  tokenizer: TokenizerName | null,
): Omit<ReadTurn, 'bodies'> & { bodies: SharedArrayBuffer; tokens: number[] | null } {
  const given = JSON.parse(textOfShared(json)) as Json[];
  const { messages, ...read } = readTurn(given, format, limits);
  const counter = tokenizer === null ? null : counterFor(tokenizer);
  const bodies = sharedText(read.bodies);
  return { ...read, bodies, tokens: counter && messages.map((message) => countMessage(message, counter)) };
}
