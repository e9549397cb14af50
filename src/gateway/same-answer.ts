import type { ChatMessage, Json } from '../conversation/message.js';
import { textOf } from '../conversation/validate.js';
import { formatOf } from '../formats/index.js';
import type { Protocol } from './protocols/protocol.js';
import { isRecoveryTool } from './protocols/tools.js';

/**
 * Whether a client holds an answer that the log has, whatever form it gives to the answer: white space, fields and reasoning do
 * not count. `logged` may have calls of recovery tools and their results, which the client did not see.
 */
export function isSameAnswer(logged: readonly ChatMessage[], held: readonly ChatMessage[]): boolean {
  const hidden = hiddenCalls(logged, held);
  const said = logged.filter(({ tool_call_id: answered }) => answered === undefined || !hidden.has(answered));
  if (![...said, ...held].every(({ role }) => role === 'assistant')) return false;
  const isSame = (messages: readonly ChatMessage[]) => gistOf(messages, hidden) === gistOf(held);
  // Only a stream has what the model said before a recovery call.
  return isSame(said) || (hidden.size > 0 && isSame(said.slice(-1)));
}

/** Number of the messages with which a log begins that are one answer, with the results of its recovery calls. */
export function lengthOfAnswer(logged: readonly ChatMessage[], held: readonly ChatMessage[]): number {
  const hidden = hiddenCalls(logged, held);
  const end = logged.findIndex(
    ({ role, tool_call_id: answered }) => role !== 'assistant' && !hidden.has(answered ?? ''),
  );
  return end < 0 ? logged.length : end;
}

/** The calls of recovery tools that the client does not hold. */
function hiddenCalls(logged: readonly ChatMessage[], held: readonly ChatMessage[]): Set<string> {
  const callsOf = (messages: readonly ChatMessage[]) => messages.flatMap(({ tool_calls: made = [] }) => made);
  const shown = new Set(callsOf(held).map(({ id }) => id));
  const ours = callsOf(logged).filter((call) => isRecoveryTool(call.function?.name ?? ''));
  return new Set(ours.flatMap(({ id }) => (shown.has(id) ? [] : [id])));
}

function gistOf(messages: readonly ChatMessage[], hidden: ReadonlySet<string> = new Set()): string {
  const text = messages.map((message) => textOf(message)).join('');
  const calls = messages.flatMap(({ tool_calls: made = [] }) => made.map(({ id }) => id));
  return JSON.stringify([text.replaceAll(/\s+/g, ''), calls.filter((id) => !hidden.has(id))]);
}

/** The items as chat messages; null if they are none of the interface. */
export function chatMessagesOf({ format }: Protocol, items: readonly Json[]): ChatMessage[] | null {
  try {
    return formatOf(format)
      .normalize(items, 'messages')
      .flatMap(({ messages }) => messages);
  } catch {
    return null;
  }
}
