import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FormatName } from '../conversation/format-names.js';
import { checkPlainJson } from '../conversation/json.js';
import { type ChatMessage, MessagesText, sharedText, textOfShared } from '../conversation/message.js';
import { assertTurnBytes, assertTurnMessages, type TurnLimits } from '../conversation/turn-limits.js';
import { invalid } from '../errors.js';
import { type LoggedTurn, parseBody } from '../formats/native.js';
import { counterFor, textSlices, type TokenCounter, type TokenizerName } from '../tokens/counter.js';
import { countMessage, weightOf } from '../tokens/message.js';
import { type PreparedTurn, readTurn, type ReadTurn, turnOf } from './prepare.js';
import { inThread } from './threads/pool.js';

/** Characters of a stored body from which on byte-pair encoding would hold up the event loop (about 0.1 s a megabyte). */
const largeBody = 256 * 1024;

/** Milliseconds of counting between which everything else has its turn. */
const sliceMs = 15;

/**
 * Tokens of each message; `bodies` are the same messages as stored. Large ones are counted in a thread, by a custom
 * counter, which no other thread has, here in slices. Counting characters takes no time worth a thread.
 */
export async function countAll(
  messages: readonly ChatMessage[],
  bodies: readonly string[],
  tokenizer: TokenizerName,
): Promise<number[]> {
  const counter = counterFor(tokenizer);
  const tokens: number[] = [];
  let since = performance.now();
  for (const [index, message] of messages.entries()) {
    const size = bodies[index]?.length ?? 0;
    tokens.push(size > largeBody ? await countLarge(message, counter, size) : countMessage(message, counter));
    if (performance.now() - since < sliceMs) continue;
    await nextTurn();
    since = performance.now();
  }
  return tokens;
}

function countLarge(message: ChatMessage, counter: TokenCounter, size: number): number | Promise<number> {
  if (counter.name.startsWith('custom:')) return countInSlices(message, counter);
  if (counter.name.startsWith('chars/')) return countMessage(message, counter);
  return inThread('count', [message, counter.name], size);
}

/** The same slices as the counter itself makes, and between two of them everything else has its turn. */
async function countInSlices(message: ChatMessage, counter: TokenCounter): Promise<number> {
  const { fixed, texts } = weightOf(message);
  let tokens = fixed;
  for (const text of texts) {
    for (const slice of textSlices(text)) {
      tokens += counter.count(slice);
      await nextTurn();
    }
  }
  return tokens;
}

/** Bytes of JSON up to which a turn is read on the event loop: some 30 ms at most. */
const shortTurn = 64 * 1024;

/** A turn from whatever it was handed over as: here where it is short, in a thread where it would hold up everything else. */
interface GivenTurn {
  /** In the session's format, as values or as their JSON. */
  messages?: unknown;
  /** Instead of `messages`: what they are logged as. */
  logged?: LoggedTurn;
}

/** A turn that is read and checked, and can be counted with any tokenizer. */
interface TurnToCount {
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
