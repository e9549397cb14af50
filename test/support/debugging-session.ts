import { readFileSync } from 'node:fs';
import type { ChatMessage } from '../../src/conversation/message.js';

/** The recorded session of the examples. */
export const recorded: ChatMessage[] = readFileSync(
  new URL('../../examples/debugging-session.jsonl', import.meta.url),
  'utf8',
)
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as ChatMessage);

/** Returns a summary that depends only on the words of the material, not on nonces. */
export const summaryOf = (material: string): string => {
  const found = [...new Set(material.match(/[\w./-]*[\d_/][\w./-]*/g) ?? [])].filter((word) =>
    /^[\w./-]{5,30}$/.test(word),
  );
  const items = found.filter((word) => !/^\d{12}$/.test(word)).slice(0, 12);
  return ['## Current state', `- ${found.length} names were read.`, ...items.map((item) => `- ${item}`)].join(
    '\n',
  );
};

/** Splits messages into turns: each user message with the messages that follow it. */
export function turnsOf(messages: readonly ChatMessage[]): ChatMessage[][] {
  const turns: ChatMessage[][] = [];
  for (const message of messages) {
    if (message.role === 'user' || turns.length === 0) turns.push([message]);
    else turns.at(-1)!.push(message);
  }
  return turns;
}
