import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ChatMessage } from '../conversation/message.js';
import { counterFor, textSlices, type TokenCounter, type TokenizerName } from '../tokens/counter.js';
import { inThread } from './threads/pool.js';
import { countMessage, weightOf } from '../tokens/message.js';

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
