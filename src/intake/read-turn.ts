import type { FormatName } from '../conversation/format-names.js';
import { MessagesText, sharedText, textOfShared } from '../conversation/message.js';
import { parseBody, type LoggedTurn } from '../formats/native.js';
import { checkPlainJson } from '../conversation/json.js';
import { assertTurnBytes, assertTurnMessages, type TurnLimits } from '../conversation/turn-limits.js';
import { invalid } from '../errors.js';
import { inThread } from './threads/pool.js';
import type { TokenizerName } from '../tokens/counter.js';
import { countAll } from './count.js';
import { readTurn, turnOf, type PreparedTurn, type ReadTurn } from './prepare.js';

/** Bytes of JSON up to which a turn is read on the event loop: some 30 ms at most. */
const shortTurn = 64 * 1024;

/** A turn from whatever it was handed over as: here where it is short, in a thread where it would hold up everything else. */
export interface GivenTurn {
  /** In the session's format, as values or as their JSON. */
  messages?: unknown;
  /** Instead of `messages`: what they are logged as. */
  logged?: LoggedTurn;
}

/** A turn that is read and checked, and can be counted with any tokenizer. */
export interface TurnToCount {
  counted(tokenizer: TokenizerName): Promise<PreparedTurn & Pick<ReadTurn, 'warnings'>>;
}

/** Throws `Input.Invalid` with the path of the first offending field, `Input.TooLarge`; so may counting, for a long turn. */
export function turnToCount(
  { messages: given, logged }: GivenTurn,
  format: FormatName,
  limits: TurnLimits,
): TurnToCount {
  if (logged) return countedHere(turnOf(logged, limits));
  if (given instanceof MessagesText) {
    assertTurnMessages(given.count, limits);
    assertTurnBytes(given.bytes.byteLength, limits);
    return countedInThread(given.bytes, format, limits);
  }
  if (!Array.isArray(given)) throw invalid('messages must be an array of messages', 'messages');
  assertTurnMessages(given.length, limits);
  checkPlainJson(given, 'messages');
  const json = JSON.stringify(given);
  const bytes = Buffer.byteLength(json);
  assertTurnBytes(bytes, limits);
  if (bytes > shortTurn) return countedInThread(sharedText(json), format, limits);
  return countedHere(readTurn(given, format, limits));
}

function countedHere({ messages, ...read }: ReturnType<typeof turnOf>): TurnToCount {
  return {
    counted: async (tokenizer) => {
      const tokens = await countAll(messages, read.bodies.split('\n'), tokenizer);
      return { ...read, tokens, tokenizer };
    },
  };
}

function countedInThread(json: SharedArrayBuffer, format: FormatName, limits: TurnLimits): TurnToCount {
  return {
    counted: async (tokenizer) => {
      const counter = tokenizer.startsWith('custom:') ? null : tokenizer;
      const size = json.byteLength;
      const { bodies, tokens, ...read } = await inThread(
        'readTurnText',
        [json, format, limits, counter],
        size,
      );
      return {
        ...read,
        bodies: Buffer.from(bodies),
        tokens: tokens ?? (await countBodies(textOfShared(bodies), tokenizer)),
        tokenizer,
      };
    },
  };
}

/** Counted by a counter that no thread has. One message at a time is held as values. */
async function countBodies(bodies: string, tokenizer: TokenizerName): Promise<number[]> {
  const tokens: number[] = [];
  for (const body of bodies.split('\n'))
    tokens.push(...(await countAll([parseBody(body).message], [body], tokenizer)));
  return tokens;
}
