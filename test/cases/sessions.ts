/** Random sessions for properties: every order of roles, parallel, pending and repeated calls, results without a call. */
import fc from 'fast-check';
import type { ChatMessage } from '../../src/conversation/message.js';

const id = fc.constantFrom('a', 'b', 'c');
const text = fc.oneof(
  fc.constantFrom('', ' ', 'ok', '🥐 naïve 名前', 'line\nline'),
  fc.integer({ min: 1, max: 900 }).map((length) => `text ${length} `.repeat(Math.ceil(length / 4))),
);

const message: fc.Arbitrary<ChatMessage> = fc.oneof(
  text.map((content): ChatMessage => ({ role: 'user', content })),
  text.map((content): ChatMessage => ({ role: 'assistant', content })),
  fc.tuple(text, fc.array(id, { minLength: 1, maxLength: 3 })).map(([content, ids]): ChatMessage => ({
    role: 'assistant',
    content,
    tool_calls: ids.map((call) => ({
      id: call,
      type: 'function',
      function: { name: 'bake', arguments: '{}' },
    })),
  })),
  fc.tuple(text, id).map(([content, call]): ChatMessage => ({ role: 'tool', tool_call_id: call, content })),
  text.map((content): ChatMessage => ({ role: 'system', content })),
);

/** Turns, each of one message or more. */
export const sessions: fc.Arbitrary<ChatMessage[][]> = fc.array(
  fc.array(message, { minLength: 1, maxLength: 6 }),
  {
    minLength: 1,
    maxLength: 12,
  },
);
