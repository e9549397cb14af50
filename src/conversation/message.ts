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

/** One OpenAI chat-completions message: as the platform sent it, or what its own format means. Fields beyond the known ones are kept. */
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
  /** Tokens of this message in a request, framing included, by the session's tokenizer. */
  tokens: number;
  /** When it was said, ISO 8601 in UTC; absent where neither its turn nor its log told. */
  at?: string;
  /** What came in, on the first message of each unit of a session in another format than `openai-chat`. */
  native?: Native;
}

/** A unit of another format: its items as they came, and how many messages of the log, from this one on, they mean. */
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

/** What grouping and cutting need to know of a message: sizes and links, no text. Stored beside each body. */
export interface MessageMeta {
  seq: number;
  role: Role;
  tokens: number;
  /** Calls of an assistant message, in order; empty otherwise. */
  calls: CallLink[];
  /** For role `tool`: its `tool_call_id`; for role `function`: its `name`; null when absent or for other roles. */
  answers: string | null;
  /** No text, no media, no calls: never shown in a context. */
  empty: boolean;
  /** Unix milliseconds of its append. */
  at: number;
}

/** Whether a content part carries media: its data is never text. A document may carry plain text (Anthropic) instead. */
export function isMedia(part: ContentPart): boolean {
  return /image|audio|video|file|document|media/i.test(part.type) && documentText(part) === null;
}

/** The text of a document that carries it as such; null for all other parts. */
export function documentText(part: ContentPart): string | null {
  const { type, data } = fieldsOf(part.source);
  return type === 'text' && typeof data === 'string' ? data : null;
}

/** The fields of a value that is an object, none of any other. */
export function fieldsOf(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' ? { ...value } : {};
}

/**
 * Messages of a turn as JSON text in UTF-8, checked to be exact: too many or too long to be held as values where others
 * wait. Threads share the bytes, so that nobody copies them.
 */
export class MessagesText {
  constructor(
    readonly bytes: SharedArrayBuffer,
    /** Of the list. */
    readonly count: number,
  ) {}
}

/** A text in UTF-8 in memory that threads share. It must hold whole surrogate pairs only, as `JSON.stringify` writes them. */
export function sharedText(text: string): SharedArrayBuffer {
  const shared = new SharedArrayBuffer(Buffer.byteLength(text));
  Buffer.from(shared).write(text, 'utf8');
  return shared;
}

export function textOfShared(shared: SharedArrayBuffer): string {
  return Buffer.from(shared).toString('utf8');
}
