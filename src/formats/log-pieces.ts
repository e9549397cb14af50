/**
 * Logs that correct themselves: what an entry says depends on those behind it (rewound, written again), which a unit by
 * itself does not hold. Its messages tell which of its entries count.
 */
import type { ChatMessage } from '../conversation/message.js';
import { isBlank, noOutput } from '../context/view/projection.js';

/** The pieces that mean these messages, in order; null where none of them do. Ids may differ. */
export function piecesFor<Piece extends { messages: ChatMessage[] }>(
  pieces: readonly Piece[],
  messages: readonly ChatMessage[],
): Piece[] | null {
  const found: Piece[] = [];
  let next = 0;
  for (const piece of pieces) {
    const { length } = piece.messages;
    if (length === 0 || outlineOf(piece.messages) !== outlineOf(messages.slice(next, next + length)))
      continue;
    found.push(piece);
    next += length;
  }
  return next === messages.length ? found : null;
}

function outlineOf(messages: readonly ChatMessage[]): string {
  return JSON.stringify(
    messages.map(({ role, content, tool_calls: calls = [] }) => [
      role,
      role === 'tool' && isBlank(content) ? noOutput : content,
      calls.map(({ function: called }) => called),
    ]),
  );
}
