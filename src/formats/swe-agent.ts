import { roles, type ChatMessage, type Json, type Role, type ToolCall } from '../conversation/message.js';
import { invalid } from '../errors.js';
import { fieldsAt, isFields, mustBe, stringAt, textOr, unitsOf, type Fields } from './content.js';
import { envelopeOf, listAt, openLists } from './envelope.js';
import type { Format, Opened } from './format.js';
import { readMessage } from './langchain-messages.js';

/**
 * Trajectories of SWE-agent (`*.traj`). `history` contains the model's messages as chat messages with SWE-agent's notes
 * (thought, action, agent, message_type). The trajectory repeats the same content and is kept as metadata.
 */
export const sweAgent: Format = {
  name: 'swe-agent',
  title: 'SWE-agent trajectory',
  contextFormat: 'openai-chat',
  normalize: (items, path) =>
    unitsOf(
      items.map((item, index) => ({
        items: [item],
        messages: envelopeOf(item)
          ? []
          : [messageOf(fieldsAt(item, `${path}[${index}]`), `${path}[${index}]`)],
      })),
    ),
  open(document): Opened | null {
    if (!isFields(document)) return null;
    const history = listAt(document, ['history']);
    const isOwn =
      history !== null &&
      history.items.length > 0 &&
      history.items.every((entry) => isFields(entry) && isEntry(entry));
    if (!isOwn) return null;
    // `environment` names a machine that many runs share; only the file's name distinguishes them.
    return { items: openLists(document, [history]) };
  },
};

/** The program's notes distinguish its history from other lists of messages. */
const isEntry = (entry: Fields): boolean =>
  typeof entry.role === 'string' &&
  ['agent', 'message_type', 'thought', 'is_demo'].some((note) => note in entry);

function messageOf(entry: Fields, path: string): ChatMessage {
  const role = stringAt(entry.role, `${path}.role`);
  if (!roles.some((known) => known === role))
    throw invalid(
      `${path}.role ${JSON.stringify(role)} is not known.`,
      `${path}.role`,
      `Known roles: ${roles.join(', ')}.`,
    );
  // The content is a text or parts, as in LangChain.
  const { content } = readMessage({ type: 'human', content: entry.content ?? '' }, path)!;
  const calls = callsOf(entry.tool_calls, `${path}.tool_calls`);
  const [answered] = Array.isArray(entry.tool_call_ids) ? entry.tool_call_ids : [];
  const id = textOr(entry.tool_call_id) || textOr(answered);
  return {
    role: role as Role,
    content: content ?? '',
    ...(calls.length > 0 && role === 'assistant' ? { tool_calls: calls } : {}),
    ...(role === 'tool' && id !== '' ? { tool_call_id: id } : {}),
  };
}

function callsOf(value: Json | undefined, path: string): ToolCall[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw mustBe('a list', value, path);
  return value.map((entry, index) => {
    const call = fieldsAt(entry, `${path}[${index}]`);
    const at = `${path}[${index}].function`;
    const called = fieldsAt(call.function, at);
    const name = stringAt(called.name, `${at}.name`);
    const input = called.arguments ?? '{}';
    return {
      id: textOr(call.id),
      type: 'function',
      function: {
        name: name || 'unknown_tool',
        arguments: typeof input === 'string' ? input : JSON.stringify(input),
      },
    };
  });
}
