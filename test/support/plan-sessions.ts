/** Sessions on which several policies are compared. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { ChatMessage } from '../../src/conversation/message.js';
import type { PolicyInput } from '../../src/policy/schema.js';

/** The bundled session: 147 messages of a coding agent. */
export const sample = fileURLToPath(new URL('../../examples/debugging-session.jsonl', import.meta.url));

export const sampleMessages: ChatMessage[] = readFileSync(sample, 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as ChatMessage);

export const small: PolicyInput = { contextWindow: 16_000 };

/** Returns rounds of a question and its answer, each of about 60 tokens. */
export function talk(rounds: number): ChatMessage[] {
  return Array.from({ length: rounds }, (_, round): ChatMessage[] => [
    {
      role: 'user',
      content: `Question ${round}: what became of order ORD-${1000 + round}? ${'It was promised for Monday. '.repeat(8)}`,
    },
    {
      role: 'assistant',
      content: `Order ORD-${1000 + round} left depot D-${round}. ${'It is on its way by rail. '.repeat(8)}`,
    },
  ]).flat();
}
