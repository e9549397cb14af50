import type { ChatMessage } from '../../src/conversation/message.js';
import type { PolicyInput } from '../../src/policy/schema.js';

/** A small window, so that short conversations compact. */
export const smallPolicy: PolicyInput = { contextWindow: 4_000 };

/** Returns a deterministic text of about `tokens` tokens. */
export function words(tokens: number, seed = 1): string {
  const vocabulary = [
    'ledger',
    'invoice',
    'retry',
    'queue',
    'commit',
    'branch',
    'schema',
    'window',
    'budget',
    'digest',
  ];
  return Array.from(
    { length: tokens },
    (_, index) => vocabulary[(index * 7 + seed * 3) % vocabulary.length],
  ).join(' ');
}

/** Returns `count` turns of a user message and an answer. Each message has about `tokens` tokens. */
export function dialogue(count: number, tokens = 100): ChatMessage[][] {
  return Array.from({ length: count }, (_, index) => [
    { role: 'user', content: `Request ${index + 1}: ${words(tokens, index)}` },
    { role: 'assistant', content: `Answer ${index + 1}: ${words(tokens, index + 5)}` },
  ]);
}
