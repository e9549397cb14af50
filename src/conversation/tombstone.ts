/** What the log keeps of an erased message: role, position and links, so that every context around it stays valid. */
import { jsonWithin } from './json.js';
import type { ChatMessage, ToolCall } from './message.js';
import { metaOf } from './validate.js';

/** What a tombstone says in place of the message. The day is in UTC. */
function tombstoneText(at: Date): string {
  return `[This message was erased on ${at.toISOString().slice(0, 10)}.]`;
}

/**
 * The message without its content and without every field that the log does not need: a result keeps the id of its call, a
 * legacy result the name of its function, and an assistant message the ids and tool names of its calls with empty arguments,
 * so that calls and results stay pairs. An empty message stays empty.
 */
export function tombstoneOf(message: ChatMessage, at: Date): ChatMessage {
  const { role, name, tool_call_id: callId, tool_calls: calls, function_call: call } = message;
  return {
    role,
    content: metaOf(message).empty ? '' : tombstoneText(at),
    ...(role === 'function' && name !== undefined ? { name } : {}),
    ...(callId === undefined ? {} : { tool_call_id: callId }),
    ...(calls && calls.length > 0 ? { tool_calls: calls.map(withoutArguments) } : {}),
    ...(call ? { function_call: { name: call.name, arguments: '{}' } } : {}),
  };
}

function withoutArguments({ id, type, function: called, custom }: ToolCall): ToolCall {
  const own = { ...(id === undefined ? {} : { id }), ...(type === undefined ? {} : { type }) } as ToolCall;
  if (called) return { ...own, function: { name: called.name, arguments: '{}' } };
  const name = (custom as { name?: unknown } | undefined)?.name;
  return { ...own, custom: { name, input: '' } };
}

/** Shorter texts stand in too many other messages to say where they come from. */
const shortestText = 8;

/**
 * Every text of a value that is long enough to be recognized elsewhere: strings at any depth, also inside strings that are JSON
 * themselves.
 */
export function textsIn(value: unknown): string[] {
  const found = new Set<string>();
  const visit = (one: unknown): void => {
    if (typeof one === 'string') {
      if (one.trim().length >= shortestText) found.add(one.trim());
      const inner = parsed(one);
      if (inner !== undefined) visit(inner);
    } else if (Array.isArray(one)) one.forEach(visit);
    else if (one !== null && typeof one === 'object') Object.values(one).forEach(visit);
  };
  visit(value);
  return [...found];
}

/** The object or list that a text is the JSON of. */
const parsed = (text: string): unknown => (/^\s*[[{]/.test(text) ? jsonWithin(text) : undefined);

/**
 * Whether a value holds a text, also in the name of a field, in a number, or inside JSON within a string. Letter case, Unicode
 * form and the kind of white space make no difference.
 */
export function holdsText(value: unknown, sought: string): boolean {
  const wanted = plain(sought);
  const visit = (one: unknown): boolean => {
    if (typeof one === 'string') {
      if (plain(one).includes(wanted)) return true;
      const inner = parsed(one);
      return inner !== undefined && visit(inner);
    }
    if (typeof one === 'number') return String(one).includes(wanted);
    if (Array.isArray(one)) return one.some(visit);
    if (one === null || typeof one !== 'object') return false;
    return Object.entries(one).some(([field, inner]) => plain(field).includes(wanted) || visit(inner));
  };
  return visit(value);
}

const plain = (text: string): string => text.normalize('NFKC').toLowerCase().replace(/\s+/g, ' ');
