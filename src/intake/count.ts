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

/** Length of a stored body from which byte-pair encoding would block the event loop (about 0.1 s per megabyte). */
const largeBody = 256 * 1024;

/** Milliseconds of counting after which other work may run. */
const sliceMs = 15;

/**
 * Counts the tokens of each message; `bodies` are the same messages as stored. Large messages are counted in a
 * thread, or here in slices by a custom counter, which threads do not have. Counting characters is too fast to need a
 * thread.
 */
export async function countAll(
  messages: readonly ChatMessage[],
  bodies: readonly string[],
  tokenizer: TokenizerName,
  tenant: string,
): Promise<number[]> {
  const counter = counterFor(tokenizer);
  const tokens: number[] = [];
  let since = performance.now();
  for (const [index, message] of messages.entries()) {
    const size = bodies[index]?.length ?? 0;
    tokens.push(
      size > largeBody ? await countLarge(message, counter, size, tenant) : countMessage(message, counter),
    );
    if (performance.now() - since < sliceMs) continue;
    await nextTurn();
    since = performance.now();
  }
  return tokens;
}

function countLarge(
  message: ChatMessage,
  counter: TokenCounter,
  size: number,
  tenant: string,
): number | Promise<number> {
  if (counter.name.startsWith('custom:')) return countInSlices(message, counter);
  if (counter.name.startsWith('chars/')) return countMessage(message, counter);
  return inThread('count', [message, counter.name], size, { tenant });
}

/** Counts in the same slices as the counter itself, and lets other work run between them. */
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

/** Bytes of JSON up to which a turn is read on the event loop, which takes at most about 30 ms. */
const shortTurn = 64 * 1024;

/** A submitted turn. A short turn is read on the event loop, a long turn in a thread. */
interface GivenTurn {
  /** Tenants take turns at the threads. @default work of no tenant */
  tenant?: string;
  /** Messages in the session's format, as values or as JSON. */
  messages?: unknown;
  /** The messages as they are logged, in place of `messages`. */
  logged?: LoggedTurn;
}

/** A turn that was read and checked, and can be counted with any tokenizer. */
interface TurnToCount {
  counted(tokenizer: TokenizerName): Promise<PreparedTurn & Pick<ReadTurn, 'warnings'>>;
}

/**
 * Throws `Input.Invalid` with the path of the first wrong field, or `Input.TooLarge`. A long turn is read in a thread, so for
 * such a turn `counted` may throw these errors instead.
 */
export function turnToCount(
  { tenant = '', messages: given, logged }: GivenTurn,
  format: FormatName,
  limits: TurnLimits,
): TurnToCount {
  if (logged) return countedHere(turnOf(logged, limits), tenant);
  if (given instanceof MessagesText) {
    assertTurnMessages(given.count, limits);
    assertTurnBytes(given.bytes.byteLength, limits);
    return countedInThread(given.bytes, format, limits, tenant);
  }
  if (!Array.isArray(given)) throw invalid('messages must be an array of messages', 'messages');
  assertTurnMessages(given.length, limits);
  checkPlainJson(given, 'messages');
  const json = JSON.stringify(given);
  const bytes = Buffer.byteLength(json);
  assertTurnBytes(bytes, limits);
  if (bytes > shortTurn) return countedInThread(sharedText(json), format, limits, tenant);
  return countedHere(readTurn(given, format, limits), tenant);
}

function countedHere({ messages, ...read }: ReturnType<typeof turnOf>, tenant: string): TurnToCount {
  return {
    counted: async (tokenizer) => {
      const tokens = await countAll(messages, read.bodies.split('\n'), tokenizer, tenant);
      return { ...read, tokens, tokenizer };
    },
  };
}

function countedInThread(
  json: SharedArrayBuffer,
  format: FormatName,
  limits: TurnLimits,
  tenant: string,
): TurnToCount {
  return {
    counted: async (tokenizer) => {
      const counter = tokenizer.startsWith('custom:') ? null : tokenizer;
      const size = json.byteLength;
      const { bodies, tokens, ...read } = await inThread(
        'readTurnText',
        [json, format, limits, counter],
        size,
        { tenant },
      );
      return {
        ...read,
        bodies: Buffer.from(bodies),
        tokens: tokens ?? (await countBodies(textOfShared(bodies), tokenizer, tenant)),
        tokenizer,
      };
    },
  };
}

/** Counts with a counter that threads do not have. Holds one message at a time as values. */
async function countBodies(bodies: string, tokenizer: TokenizerName, tenant: string): Promise<number[]> {
  const tokens: number[] = [];
  for (const body of bodies.split('\n'))
    tokens.push(...(await countAll([parseBody(body).message], [body], tokenizer, tenant)));
  return tokens;
}
