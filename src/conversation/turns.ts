import type { ChatMessage } from './message.js';

/** Messages that an agent platform appends together. Indexes count from 0, `to` is exclusive. */
export interface TranscriptTurn {
  from: number;
  to: number;
}

/**
 * A transcript as its platform would have appended it: a new turn at each user message after something else, and at
 * each assistant message; tool results belong to the turn of their calls, leading system messages to the first turn.
 */
export function cutTurns(messages: readonly ChatMessage[]): TranscriptTurn[] {
  const first = messages.findIndex(({ role }) => role !== 'system' && role !== 'developer');
  const starts = [0];
  for (let index = first + 1; first >= 0 && index < messages.length; index++) {
    const role = messages[index]?.role;
    if (role === 'assistant' || (role === 'user' && messages[index - 1]?.role !== 'user')) starts.push(index);
  }
  return starts.map((from, turn) => ({ from, to: starts[turn + 1] ?? messages.length }));
}
