import type { ChatMessage } from '../../conversation/message.js';
import type { PolicyInput } from '../../policy/schema.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { Conversation } from './conversation.js';
import type { Generation } from './generation.js';
import type { Summarizer } from './asker.js';
import type { NothingToDo, Plan } from '../plan/plan-types.js';

export { Conversation, type ConversationOptions } from './conversation.js';
export { type Generation } from './generation.js';
export { type Summarizer } from './asker.js';
export type { CompactionReason, NothingToDo, Plan } from '../plan/plan-types.js';

/**
 * Compacts an array of messages without a database, for agent frameworks that keep the history themselves.
 * @example
 * const plan = await planCompaction(messages, { policy: { contextWindow: 32_000 } });
 * if (!('nothing' in plan)) history = (await applyCompaction(messages, plan, { policy, summarize })).messages;
 */
export interface CompactionOptions {
  policy?: PolicyInput;
  /** Replaces the policy's tokenizer. */
  counter?: TokenCounter;
  /** Plans a compaction at any size. */
  force?: boolean;
}

export interface CompactedHistory {
  /** The messages to send to the model from now on. Keep the originals: they cannot be recovered from these messages. */
  messages: ChatMessage[];
  tokens: number;
  generation: Generation;
}

/** Plans the cut and the chunks to read; the plan has references and sizes only. Throws `Input.Invalid`. */
export async function planCompaction(
  messages: readonly ChatMessage[],
  { force = false, ...options }: CompactionOptions = {},
): Promise<Plan | NothingToDo> {
  return conversationOf(messages, options).plan({ force });
}

/**
 * Carries out a plan made from the same messages with the same options. Without `summarize` the extractive summarizer is
 * used. Throws a typed failure if the result is refused; `messages` are never changed.
 */
export async function applyCompaction(
  messages: readonly ChatMessage[],
  plan: Plan,
  { force = false, summarize = null, ...options }: CompactionOptions & { summarize?: Summarizer | null } = {},
): Promise<CompactedHistory> {
  const conversation = conversationOf(messages, options);
  const generation = await conversation.carryOut(plan, summarize, force);
  const { messages: history, tokens } = conversation.context();
  return { messages: history, tokens, generation };
}

function conversationOf(
  messages: readonly ChatMessage[],
  options: Pick<CompactionOptions, 'policy' | 'counter'>,
): Conversation {
  const conversation = new Conversation(options);
  // `append` refuses anything but an array.
  if (!Array.isArray(messages) || messages.length > 0) conversation.append(messages);
  return conversation;
}
