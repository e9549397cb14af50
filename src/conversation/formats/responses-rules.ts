/**
 * What the Responses API refuses in `input`. Sources: its reference
 * (platform.openai.com/docs/api-reference/responses/create) and its answers: "No tool output found for function call",
 * "No tool call found for function call output with call_id", "Item … of type 'reasoning' was provided without its
 * required following item", "Duplicate item found with id", "Invalid value: 'input_text'. Supported values are:
 * 'output_text' and 'refusal'".
 */
import type { Json } from '../message.js';
import { isFields, textOr, type Fields } from './content.js';
import { envelopeOf } from './envelope.js';
import type { Rendered } from './format.js';
import { callIdOf, isBlankMessage, isCall, isOutput } from './responses-items.js';

const inputParts = /^input_(?:text|image|file|audio)$/;
/** "Text, image, or file output of the function tool call." */
const resultParts = /^input_(?:text|image|file)$/;
const outputParts = /^(?:output_text|refusal)$/;

export function responsesViolations({ messages, system }: Rendered): string[] {
  const violations: string[] = [];
  const ids = new Set<string>();
  const open = new Map<string, string>();
  const made = new Set<string>();
  if (system !== undefined && textOr(system).trim() === '') violations.push('instructions are no text');
  messages.forEach((value, index) => {
    const fault = (what: string) => violations.push(`input ${index}: ${what}`);
    if (!isFields(value) || (typeof value.type !== 'string' && typeof value.role !== 'string'))
      return fault(envelopeOf(value) ? 'a file’s metadata' : 'neither type nor role');
    const id = textOr(value.id);
    if (id !== '' && ids.has(id)) fault(`item id ${id} used twice`);
    ids.add(id);
    const call = textOr(callIdOf(value));
    if (isOutput(value)) {
      const type = open.get(call);
      if (type === undefined) fault(`output for ${call} without its call`);
      else if (`${type}_output` !== value.type) fault(`${String(value.type)} answers a ${type}`);
      open.delete(call);
      if (value.type === 'function_call_output' && !isOutputValue(value.output)) fault('no output');
    } else if (isCall(value)) {
      if (made.has(call)) fault(`call id ${call} used twice`);
      if (value.type === 'function_call' && (!textOr(value.name) || typeof value.arguments !== 'string'))
        fault('call without name or arguments');
      made.add(call);
      open.set(call, textOr(value.type));
    } else if (value.type === 'function_call' || value.type === 'custom_tool_call')
      fault('call without call_id');
    else if (value.type === 'reasoning') {
      if (!follows(messages[index + 1])) fault('reasoning that nothing of the assistant follows');
    } else if (value.type === undefined || value.type === 'message') messageFaults(value).forEach(fault);
  });
  for (const call of open.keys()) violations.push(`call ${call} has no output after it`);
  return violations;
}

function isOutputValue(output: Json | undefined): boolean {
  if (!Array.isArray(output)) return typeof output === 'string';
  return output.length > 0 && output.every((part) => isFields(part) && resultParts.test(textOr(part.type)));
}

function follows(next: Json | undefined): boolean {
  if (!isFields(next)) return false;
  if (next.type === undefined || next.type === 'message') return next.role === 'assistant';
  return !isOutput(next) && next.type !== 'mcp_approval_response';
}

function messageFaults({ role, content }: Fields): string[] {
  if (!['user', 'assistant', 'system', 'developer'].includes(textOr(role))) return [`role ${String(role)}`];
  if (isBlankMessage({ role: role!, content: content ?? null })) return ['empty message'];
  if (!Array.isArray(content)) return [];
  const allowed = role === 'assistant' ? outputParts : inputParts;
  return content.flatMap((part) => {
    const type = isFields(part) ? textOr(part.type) : '';
    return allowed.test(type) ? [] : [`a part of type ${type} in a message of ${String(role)}`];
  });
}
