/** A thread that counts one large message and ends: `workerData` is {message, tokenizer}, its one answer the tokens. */
import { parentPort, workerData } from 'node:worker_threads';
import type { ChatMessage } from '../conversation/message.js';
import { counterFor, type TokenizerName } from '../tokens/counter.js';
import { countMessage } from '../tokens/message.js';

const { message, tokenizer } = workerData as { message: ChatMessage; tokenizer: TokenizerName };
parentPort?.postMessage(countMessage(message, counterFor(tokenizer)));
