/** Jobs that threads do for the event loop. All are pure; input and output are cloned or moved. */
import { isUtf8 } from 'node:buffer';
import { parseExact } from '../../conversation/json.js';
import { type ChatMessage, type Json, sharedText } from '../../conversation/message.js';
import { MOST_VALUES, tooManyValues } from '../../conversation/turn-limits.js';
import { invalid, PalimpsestError } from '../../errors.js';
import { readTurnText } from '../prepare.js';
import { counterFor, type TokenizerName } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';

/** A body without its `messages`, and the messages as text in UTF-8; null if there are none. */
interface ReadBody {
  rest: Json;
  messages: { bytes: SharedArrayBuffer; count: number } | null;
}

/** Longest JSON of a body without the messages of a turn, in code units, and maximum number of its values. */
const longestRest = 1024 * 1024;
const mostRestValues = 20_000;

/** Throws `Input.Invalid` or `Input.TooLarge`. */
function readBody(bytes: Uint8Array): ReadBody {
  if (!isUtf8(bytes)) throw invalid('The body is not UTF-8.', 'body', 'Send JSON in UTF-8.');
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
  const body = parseExact(text, { mostValues: MOST_VALUES, tooMany: tooManyValues });
  const isTurn = typeof body === 'object' && body !== null && !Array.isArray(body);
  const { messages, ...others } = isTurn ? body : { messages: undefined };
  const rest = isTurn ? others : body;
  if (JSON.stringify(rest).length > longestRest) throw restTooLarge('characters', longestRest);
  if (hasMoreValues(rest, mostRestValues)) throw restTooLarge('JSON values', mostRestValues);
  if (Array.isArray(messages))
    return { rest, messages: { bytes: sharedText(JSON.stringify(messages)), count: messages.length } };
  if (messages === undefined) return { rest, messages: null };
  // `messages` is not a list; the check of the body reports this.
  return { rest: { ...others, messages: null }, messages: null };
}

function restTooLarge(what: 'characters' | 'JSON values', most: number): PalimpsestError {
  return new PalimpsestError(
    'Input.TooLarge',
    `The body without its messages has more than ${most} ${what}.`,
    {
      path: 'body',
      hint: 'Shorten its other fields, such as the policy.',
      details: what === 'characters' ? { maxCharacters: most } : { maxValues: most },
    },
  );
}

function hasMoreValues(json: Json, most: number): boolean {
  let found = 1;
  for (const open = [json]; open.length > 0 && found <= most;) {
    const value = open.pop();
    if (typeof value !== 'object' || value === null) continue;
    const inner = Object.values(value);
    found += inner.length;
    if (found <= most) open.push(...inner);
  }
  return found > most;
}

function count(message: ChatMessage, tokenizer: TokenizerName): number {
  return countMessage(message, counterFor(tokenizer));
}

export const jobs = { readBody, readTurnText, count };
export type Jobs = typeof jobs;
