import { invalid } from '../errors.js';
import type { ContextBreakdown } from '../context/view/breakdown.js';
import type { ViewItem } from '../context/view/view.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import type { ContextFormat } from '../conversation/format-names.js';

const longestWaitMs = 300_000;

/** Throws `Input.Invalid` naming the field. */
export function checkContextRequest({ budget, waitMs }: { budget?: number; waitMs?: number }): void {
  checkOptional(budget, 'budget', 1, 100_000_000);
  checkOptional(waitMs, 'waitMs', 0, longestWaitMs);
}

function checkOptional(value: number | undefined, path: string, least: number, most: number): void {
  if (value === undefined || (Number.isSafeInteger(value) && value >= least && value <= most)) return;
  throw invalid(`${path} must be a whole number from ${least} to ${most}`, path);
}

export interface ContextEntry {
  /** Message of the log this entry shows; null for the summary turn, its acknowledgment and synthetic results. */
  seq: number | null;
  source: ViewItem['source'];
  tokens: number;
}

/** `Message`: the messages of its format; chat messages unless it says otherwise. */
export interface SessionContext<Message = ChatMessage> {
  session: string;
  generation: number;
  format: ContextFormat;
  /** What to send to the model: valid for its provider, within `budget`. */
  messages: Message[];
  /** The instructions, in formats whose provider wants them apart from the messages. */
  system?: Json;
  /** One entry for each message as it is logged and counted: for each of `messages` in the format `openai-chat`. */
  entries: ContextEntry[];
  /** Tokens of `messages`, request overhead not included. */
  tokens: number;
  /** What `tokens` stand for. */
  breakdown: ContextBreakdown;
  budget: number;
  window: number;
  /** Changes whenever anything above does. */
  etag: string;
}

export interface ContextShape {
  /** @default the session's own, for logs of agents that of their provider */
  format?: ContextFormat;
  /** Context tokens at most. @default what the session's policy allows */
  budget?: number;
}
