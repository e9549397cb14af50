/** TypeScript types of the messages of every format; the types of the providers' SDKs fit them without a cast. */
import type { Json } from '../conversation/message.js';

/**
 * A message or an item in the session's format, typed as its SDK types it. Instances of classes, such as LangChain's messages,
 * are refused: pass their serialized form.
 */
export interface SentMessage {
  readonly role?: string | null;
  readonly type?: string | null;
  readonly toJSON?: never;
}

/** A message of a context in a format other than `openai-chat`, if the caller names no type of an SDK. */
export type NativeMessage = { [field: string]: Json };

/** The instructions of a context, for providers that take them separately from the messages. */
export type AnthropicSystem =
  string | { type: 'text'; text: string; cache_control?: { type: 'ephemeral'; ttl?: '5m' | '1h' } | null }[];
export interface GeminiSystem {
  parts: { text: string }[];
}
