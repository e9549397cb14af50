/**
 * Checks whether an OpenAI-compatible endpoint accepts a list of messages. It shares no code with the projection that builds
 * contexts, so that it can test that projection.
 */
import { roles, type ChatMessage } from '../../conversation/message.js';

/** Describes each violation with the index of its message; the list is empty for valid messages. */
export function validateView(messages: readonly ChatMessage[]): string[] {
  return [...linkViolations(messages), ...partViolations(messages)];
}

const mediaTypes =
  /^(?:image|image_url|image_file|input_image|input_audio|audio|video|video_url|file|input_file|document|media)$/;

/**
 * Media that the API refuses: "Image URLs are only allowed for messages with role 'user', but this message with role
 * 'tool' contains an image URL." Audio and files are allowed in user messages only, and a file needs its data or an id
 * (platform.openai.com/docs/api-reference/chat/create#chat-create-messages).
 */
function partViolations(messages: readonly ChatMessage[]): string[] {
  return messages.flatMap(({ role, content }, index) => {
    if (!Array.isArray(content)) return [];
    return content.flatMap(({ type, file, source }) => {
      if (!mediaTypes.test(type) || hasPlainText(source)) return [];
      if (role !== 'user') return [`message ${index}: a part of type ${type} in a message of role ${role}`];
      if (type === 'image_file') return [`message ${index}: a part of type image_file`];
      const remote = type === 'file' && typeof file === 'object' && file !== null && 'file_url' in file;
      return remote ? [`message ${index}: a file by its address`] : [];
    });
  });
}

/** Anthropic's documents may contain plain text. */
const hasPlainText = (source: unknown): boolean =>
  typeof source === 'object' && source !== null && 'type' in source && source.type === 'text';

/**
 * Violations between messages: calls without results, orphans, empty messages. Applies to views before media have moved.
 * @internal Tests check every cut and view with it.
 */
export function linkViolations(messages: readonly ChatMessage[]): string[] {
  const violations: string[] = [];
  const seenIds = new Set<string>();
  /** Ids that the current block of results still has to answer. */
  let expected = new Set<string>();
  let expectedFunction: string | null = null;

  const closeBlock = (index: number) => {
    for (const id of expected)
      violations.push(`message ${index}: call ${id} has no result directly after it`);
    if (expectedFunction !== null)
      violations.push(`message ${index}: function_call ${expectedFunction} has no result directly after it`);
    expected = new Set();
    expectedFunction = null;
  };

  messages.forEach((message, index) => {
    const fault = (what: string) => violations.push(`message ${index}: ${what}`);
    if (!roles.includes(message.role)) fault(`unknown role ${String(message.role)}`);

    if (message.role === 'tool') {
      const id = message.tool_call_id;
      if (typeof id !== 'string' || id === '') fault('tool result without tool_call_id');
      else if (!expected.delete(id)) fault(`orphan tool result ${id}`);
    } else if (message.role === 'function') {
      if (!message.name) fault('function result without name');
      if (expectedFunction === null || message.name !== expectedFunction)
        fault(`orphan function result ${message.name ?? ''}`);
      expectedFunction = null;
    } else {
      closeBlock(index);
    }

    const calls = message.tool_calls;
    if (calls !== undefined && (!Array.isArray(calls) || calls.length === 0))
      fault('tool_calls is not a filled list');
    for (const field of ['function_call', 'name', 'tool_call_id'] as const) {
      if (message[field] === null) fault(`${field} is null`);
    }
    if (message.role === 'assistant') {
      if (calls?.length && message.function_call) fault('both tool_calls and function_call');
      for (const call of calls ?? []) {
        if (typeof call.id !== 'string' || call.id === '') fault('call without id');
        if (!call.function?.name && !call.custom) fault('call without function name');
        if (call.type !== 'function' && call.type !== 'custom') fault('call without type');
        if (seenIds.has(call.id)) fault(`call id ${call.id} used twice`);
        seenIds.add(call.id);
        expected.add(call.id);
      }
      expectedFunction = message.function_call?.name ?? null;
    } else if (calls !== undefined || message.function_call !== undefined) {
      fault(`calls on role ${message.role}`);
    }
    const callsSomething = Boolean(calls?.length) || Boolean(message.function_call);
    if (showsNothing(message) && !(message.role === 'assistant' && callsSomething))
      fault(`empty ${message.role} message`);
  });
  closeBlock(messages.length);
  return violations;
}

function showsNothing({ content, refusal, audio }: ChatMessage): boolean {
  if (audio) return false;
  if (typeof refusal === 'string' && refusal.trim() !== '') return false;
  if (typeof content === 'string') return content.trim().length === 0;
  if (!Array.isArray(content)) return true;
  return !content.some((part) => part.type !== 'text' || Boolean(part.text?.trim()));
}
