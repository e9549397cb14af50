import { chat } from './chat.js';
import { messages } from './messages.js';
import type { Protocol } from './protocol.js';
import { responses } from './responses.js';

/** The interface that a path belongs to; null for every other path. */
export function protocolOf(method: string, path: string): Protocol | null {
  if (method !== 'POST') return null;
  if (path.endsWith('/chat/completions')) return chat;
  if (path.endsWith('/responses')) return responses;
  return path.endsWith('/v1/messages') ? messages : null;
}
