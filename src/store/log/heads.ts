import type { Head } from '../../context/view/view-types.js';
import type { ChatMessage } from '../../conversation/message.js';

export function headMessages(messages: string | null): ChatMessage[] {
  return messages === null ? [] : (JSON.parse(messages) as ChatMessage[]);
}

/** The head as stored: `messages` is a JSON array. */
export function toHead(messages: string | null, tokens: number[], carriedSeq: number | null): Head | null {
  return messages === null ? null : { messages: headMessages(messages), tokens, carriedSeq };
}
