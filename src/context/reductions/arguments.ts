/** Truncation of call arguments: what a tool was once given in full, and is done with, need not be sent again with every request. */
import type { ChatMessage, ToolCall } from '../../conversation/message.js';
import { isJson, mapStrings, startOf } from './excerpt.js';
import type { Reduce } from '../../policy/reduce-schema.js';

export type ArgumentTruncation = NonNullable<Reduce['arguments']>;

/** The message with the long arguments of the listed tools truncated; null where there is nothing to truncate. */
export function withTruncatedArguments(
  message: ChatMessage,
  truncation: ArgumentTruncation,
): ChatMessage | null {
  const { tool_calls: calls, function_call: legacy } = message;
  const shorterCalls = calls?.map((call) => truncatedCall(call, truncation));
  const shorterLegacy = legacy && {
    ...legacy,
    arguments: shorter(legacy.name, legacy.arguments, truncation),
  };
  const changed =
    shorterCalls?.some((call, number) => call !== calls?.[number]) ||
    shorterLegacy?.arguments !== legacy?.arguments;
  if (!changed) return null;
  return {
    ...message,
    ...(shorterCalls && { tool_calls: shorterCalls }),
    ...(shorterLegacy && { function_call: shorterLegacy }),
  };
}

function truncatedCall(call: ToolCall, truncation: ArgumentTruncation): ToolCall {
  if (!call.function) return call;
  const { name, arguments: given } = call.function;
  const truncated = shorter(name, given, truncation);
  return truncated === given ? call : { ...call, function: { ...call.function, arguments: truncated } };
}

function shorter(tool: string, json: string, truncation: ArgumentTruncation): string {
  return truncation.tools.includes(tool) ? truncateArguments(json, truncation) : json;
}

/**
 * Arguments in which every string value longer than `longerThan` characters is cut to its first `prefix` characters and `text`. What is no
 * JSON becomes `{"truncated": "…"}`, so that the result is valid JSON wherever anything was cut.
 * @internal Tests give it arguments of every shape.
 */
export function truncateArguments(
  json: string,
  { longerThan, prefix, text }: Pick<ArgumentTruncation, 'longerThan' | 'prefix' | 'text'>,
): string {
  if (json.length <= longerThan) return json;
  const cut = (value: string) => startOf(value, prefix) + text;
  if (!isJson(json)) return JSON.stringify({ truncated: cut(json) });
  return mapStrings(json, longerThan, (literal) => {
    const value = JSON.parse(literal) as string;
    return value.length > longerThan ? JSON.stringify(cut(value)) : literal;
  });
}
