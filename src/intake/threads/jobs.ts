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

/** Longest JSON of a turn without its messages, in code units. */
const longestRest = 1024 * 1024;

/** Throws `Input.Invalid`, `Input.TooLarge`. */
function readBody(bytes: Uint8Array): ReadBody {
  if (!isUtf8(bytes)) throw invalid('The body is not UTF-8.', 'body', 'Send JSON in UTF-8.');
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
  const body = parseExact(text, { mostValues: MOST_VALUES, tooMany: tooManyValues });
  const isTurn = typeof body === 'object' && body !== null && !Array.isArray(body);
  const { messages, ...others } = isTurn ? body : { messages: undefined };
  const rest = isTurn ? others : body;
  if (JSON.stringify(rest).length > longestRest) throw restTooLarge();
  if (Array.isArray(messages))
    return { rest, messages: { bytes: sharedText(JSON.stringify(messages)), count: messages.length } };
  if (messages === undefined) return { rest, messages: null };
  // Not a list: the check of the body reports this.
  return { rest: { ...others, messages: null }, messages: null };
}

function restTooLarge(): PalimpsestError {
  return new PalimpsestError(
    'Input.TooLarge',
    `The body without its messages has more than ${longestRest} characters.`,
    {
      path: 'body',
      hint: 'Shorten the policy or the usage report.',
      details: { maxCharacters: longestRest },
    },
  );
}

function count(message: ChatMessage, tokenizer: TokenizerName): number {
  return countMessage(message, counterFor(tokenizer));
}

export const jobs = { readBody, readTurnText, count };
export type Jobs = typeof jobs;
