/**
 * Messages of another provider in a session of this one. Most would be read without a complaint, for every format allows
 * fields that it does not know; what they say would then be missing in the context, and their calls would lose their results.
 */
import { invalid } from '../errors.js';
import type { Json } from '../conversation/message.js';
import { isFields, type Fields } from './content.js';
import type { FormatName } from '../conversation/format-names.js';

interface Look {
  format: FormatName;
  /** Where it shows. */
  field: string;
}

/** Messages with a role; LangChain reads them all, and Cline's are Anthropic's with fields of its own. */
const strict = new Set<FormatName>(['openai-chat', 'anthropic', 'openai-responses', 'gemini', 'ai-sdk']);

/** Records of agents, each with a `type` or an `author` where a message has its role. */
const logs = new Set<FormatName>(['claude-code', 'codex', 'gemini-cli', 'google-adk']);

/** Throws `Input.Invalid` naming the format that the message seems to be in. */
export function refuseForeign(items: readonly Json[], format: FormatName, path: string): void {
  if (!strict.has(format) && !logs.has(format)) return;
  items.forEach((item, index) => {
    if (!isFields(item) || typeof item.role !== 'string') return;
    const look = strict.has(format) ? lookOf(item, format) : lookOfRecord(item);
    if (look === null || look.format === format) return;
    const at = `${path}[${index}]`;
    throw invalid(
      `${at} is a message as ${look.format} has it, not ${format}.`,
      `${at}.${look.field}`,
      `A session keeps the format of its first turn: convert the message, or begin a session in the format ${look.format}.`,
    );
  });
}

/** Calls as OpenAI has them go first: gateways leave blocks of other providers beside them. */
function lookOf(message: Fields, format: FormatName): Look | null {
  const { content, parts } = message;
  const isUntyped = message.type === undefined;
  if (isUntyped && Array.isArray(message.tool_calls) && message.tool_calls.length > 0)
    return { format: 'openai-chat', field: 'tool_calls' };
  if (isUntyped && typeof message.tool_call_id === 'string')
    return { format: 'openai-chat', field: 'tool_call_id' };
  if (content === undefined && Array.isArray(parts) && parts.every(isFields) && parts.length > 0)
    return { format: parts.every((part) => part.type === undefined) ? 'gemini' : 'ai-sdk', field: 'parts' };
  if (format === 'gemini' && parts === undefined && content !== undefined && content !== null)
    return { format: lookOfParts(content)?.format ?? 'openai-chat', field: 'content' };
  return lookOfParts(content);
}

function lookOfParts(content: Json | undefined): Look | null {
  if (!Array.isArray(content)) return null;
  for (const [index, part] of content.entries()) {
    const type = isFields(part) ? part.type : undefined;
    const field = `content[${index}].type`;
    if (type === 'tool_use' || type === 'tool_result') return { format: 'anthropic', field };
    if (type === 'tool-call' || type === 'tool-result') return { format: 'ai-sdk', field };
  }
  return null;
}

function lookOfRecord(record: Fields): Look | null {
  if (record.type !== undefined || record.content === undefined) return null;
  return { format: lookOfParts(record.content)?.format ?? 'openai-chat', field: 'role' };
}
