import { once } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import type { ChatMessage } from '../conversation/message.js';
import { counterFor, type TokenCounter, type TokenizerName } from '../tokens/counter.js';
import { textSlices } from '../tokens/custom-counter.js';
import { countMessage, weightOf } from '../tokens/message.js';

/** Characters of a stored body from which on byte-pair encoding would hold up the event loop (about 0.1 s a megabyte). */
const largeBody = 256 * 1024;

/**
 * Tokens of each message; `bodies` are the same messages as stored. Large ones are counted in threads of their own, by
 * a custom counter, which no other thread has, here in slices. Counting characters takes no time worth a thread.
 */
export async function countAll(
  messages: readonly ChatMessage[],
  bodies: readonly string[],
  tokenizer: TokenizerName,
): Promise<number[]> {
  const counter = counterFor(tokenizer);
  const tokens: number[] = [];
  for (const [index, message] of messages.entries()) {
    const large = (bodies[index]?.length ?? 0) > largeBody;
    tokens.push(large ? await countLarge(message, counter) : countMessage(message, counter));
  }
  return tokens;
}

function countLarge(message: ChatMessage, counter: TokenCounter): number | Promise<number> {
  if (counter.name.startsWith('custom:')) return countInSlices(message, counter);
  if (counter.name.startsWith('chars/')) return countMessage(message, counter);
  return countInThread(message, counter.name);
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

async function countInThread(message: ChatMessage, tokenizer: TokenizerName): Promise<number> {
  const thread = startThread({ message, tokenizer });
  const [tokens] = (await once(thread, 'message')) as [number];
  return tokens;
}

/** Compiled, the thread's file runs as it is; from source, the thread loads tsx first, which it does not inherit. */
function startThread(workerData: { message: ChatMessage; tokenizer: TokenizerName }): Worker {
  if (import.meta.url.endsWith('.js')) {
    return new Worker(new URL('./count-thread.js', import.meta.url), { workerData });
  }
  const source = JSON.stringify(new URL('./count-thread.ts', import.meta.url).href);
  const loader = JSON.stringify(import.meta.resolve('tsx/esm/api'));
  const script = `import(${loader}).then(({ register }) => { register(); return import(${source}); })`;
  return new Worker(script, { eval: true, workerData });
}
