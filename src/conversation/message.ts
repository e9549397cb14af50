import type { FormatName } from './format-names.js';

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export const roles = ['system', 'developer', 'user', 'assistant', 'tool', 'function'] as const;
export type Role = (typeof roles)[number];

export interface ToolCall {
  id: string;
  type: string;
  function?: { name: string; arguments: string };
  [extra: string]: unknown;
}

export type ContentPart = { type: string; text?: string; [extra: string]: unknown };

/** An OpenAI chat-completions message, as sent by the platform or converted from another format. Unknown fields are kept. */
export interface ChatMessage {
  role: Role;
  content?: string | ContentPart[] | null;
  name?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  function_call?: { name: string; arguments: string };
  [extra: string]: unknown;
}

/** A message of the log. `seq` counts from 1 within its session. */
export interface LoggedMessage {
  seq: number;
  message: ChatMessage;
  /** Tokens of this message in a request, including framing, by the session's tokenizer. */
  tokens: number;
  /** Time of the message, ISO 8601 in UTC; absent if neither its turn nor its log has one. */
  at?: string;
  /** The original items of the unit that begins with this message; absent if they are this message alone. */
  native?: Native;
  /** The message was erased, and a tombstone stands in its place: when, the hash of what was received, and the reason given. */
  erased?: { at: string; sha256: string; reason?: string };
}

/**
 * The original items of a unit, and the number of log messages that they stand for, counted from the message that has this
 * field.
 */
export interface Native {
  format: FormatName;
  items: Json[];
  messages: number;
}

/** A call made by an assistant message. `id` is null for the legacy `function_call` and for calls recorded without one. */
export interface CallLink {
  id: string | null;
  name: string;
}

/** Sizes and links of a message, without text, for grouping and cutting. Stored with each body. */
export interface MessageMeta {
  seq: number;
  role: Role;
  tokens: number;
  /** Calls of an assistant message, in order; empty otherwise. */
  calls: CallLink[];
  /** For role `tool`: its `tool_call_id`; for role `function`: its `name`; null if it is absent, and for other roles. */
  answers: string | null;
  /** Whether it has no text, media or calls; such a message is never shown in a context. */
  empty: boolean;
  /** Unix milliseconds of its append. */
  at: number;
}

/** Whether a content part is media. A document of Anthropic that consists of plain text is not: see {@link documentText}. */
export function isMedia(part: ContentPart): boolean {
  return /image|audio|video|file|document|media/i.test(part.type) && documentText(part) === null;
}

/** The plain text of a document; null for all other parts. */
export function documentText(part: ContentPart): string | null {
  const { type, data } = fieldsOf(part.source);
  return type === 'text' && typeof data === 'string' ? data : null;
}

/** The fields of an object; none for other values. */
export function fieldsOf(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' ? { ...value } : {};
}

/**
 * Messages of a turn as JSON text in UTF-8, checked to be exact. Used for turns that are too large to be parsed in the main
 * thread. Threads share the bytes without copying them.
 */
export class MessagesText {
  constructor(
    readonly bytes: SharedArrayBuffer,
    /** Number of messages. */
    readonly count: number,
  ) {}
}

/** A text in UTF-8 in shared memory. Its surrogate pairs must be complete, as `JSON.stringify` writes them. */
export function sharedText(text: string): SharedArrayBuffer {
  const shared = new SharedArrayBuffer(Buffer.byteLength(text));
  Buffer.from(shared).write(text, 'utf8');
  return shared;
}

export function textOfShared(shared: SharedArrayBuffer): string {
  return Buffer.from(shared).toString('utf8');
}
