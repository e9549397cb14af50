/** Messages that call tools, and their results. */
import type { ChatMessage } from '../../src/conversation/message.js';

/** Returns an assistant message with one call for each pair, without arguments. */
export function calls(...named: [id: string, name: string][]): ChatMessage {
  const tool_calls = named.map(([id, name]) => ({
    id,
    type: 'function',
    function: { name, arguments: '{}' },
  }));
  return { role: 'assistant', content: null, tool_calls };
}

export const result = (id: string, content: ChatMessage['content']): ChatMessage => ({
  role: 'tool',
  tool_call_id: id,
  content,
});

export const user = (content: string): ChatMessage => ({ role: 'user', content });
