/**
 * What the items of OpenAI's Responses API mean as chat messages
 * (platform.openai.com/docs/api-reference/responses/create#responses-create-input).
 */
import { invalid } from '../../errors.js';
import type { ChatMessage, ContentPart, Json, ToolCall } from '../message.js';
import {
  assistantMessage,
  contentOf,
  fieldsAt,
  isFields,
  mediaPart,
  mustBe,
  placeholder,
  stringAt,
  textOr,
  textPart,
  unitsOf,
  type Fields,
} from './content.js';
import { envelopeOf } from './envelope.js';
import type { Unit } from './format.js';

/** What an item adds to the assistant's message that it is part of. */
export interface Spoken {
  parts: ContentPart[];
  calls: ToolCall[];
  reasoning: string;
}

/** A message by itself, a piece of the assistant's, or (null) nothing that a chat says. */
export type Meaning = { message: ChatMessage } | { spoken: Spoken } | null;

const spoken = (said: Partial<Spoken>): Meaning => ({
  spoken: { parts: [], calls: [], reasoning: '', ...said },
});

const roles = ['user', 'assistant', 'system', 'developer'] as const;
type ItemRole = (typeof roles)[number];

/** Reads one item. Throws `Input.Invalid` where it is no item of the API. */
export function readItem(value: Json | undefined, path: string): Meaning {
  const item = fieldsAt(value, path);
  const document = envelopeOf(item);
  if (document) return instructionsOf(document);
  if (item.type === undefined && item.role === undefined)
    throw mustBe(
      'a string',
      item.type,
      `${path}.type`,
      'e.g. "message", "function_call" or "function_call_output"',
    );
  const type = item.type === undefined ? 'message' : stringAt(item.type, `${path}.type`);
  if (type === 'message') return readMessage(item, path);
  if (type === 'reasoning') return spoken({ reasoning: reasoningOf(item) });
  if (type === 'function_call_result' || isOutput(item)) return { message: readOutput(item, path) };
  if (callIdOf(item) !== undefined || type === 'function_call' || type === 'custom_tool_call')
    return spoken({ calls: [readCall(type, item, path)] });
  if (type === 'mcp_approval_response')
    return { message: { role: 'user', content: contentOf([placeholder(type, item)]) } };
  return spoken({ parts: [placeholder(type, item)] });
}

/** `instructions` beside the input lead the conversation. */
function instructionsOf({ instructions }: Fields): Meaning {
  if (typeof instructions !== 'string' || instructions.trim() === '') return null;
  return { message: { role: 'system', content: instructions } };
}

/** Agents' own logs spell it `callId`. Null and missing are the same: recorded without one. */
export function callIdOf(item: Fields): Json | undefined {
  return item.call_id ?? item.callId ?? undefined;
}

export function isOutput(item: Fields): boolean {
  return /_output$/.test(textOr(item.type)) && ('call_id' in item || 'output' in item);
}

/** A call that the client answers with an output item. Hosted tools answer themselves and have no call id. */
export function isCall(item: Fields): boolean {
  return /_call$/.test(textOr(item.type)) && callIdOf(item) !== undefined;
}

/** A message without a word or a picture, which the API refuses. */
export function isBlankMessage({ type, role, content }: Fields): boolean {
  if (typeof role !== 'string' || (type !== undefined && type !== 'message')) return false;
  if (typeof content === 'string') return content.trim() === '';
  const says = (part: Json): boolean => isFields(part) && textOr(part.text, '.').trim() !== '';
  return !Array.isArray(content) || !content.some(says);
}

function readMessage(item: Fields, path: string): Meaning {
  const role = stringAt(item.role, `${path}.role`);
  if (!roles.some((known) => known === role))
    throw invalid(
      `${path}.role ${JSON.stringify(role)} is not known.`,
      `${path}.role`,
      `Known roles: ${roles.join(', ')}.`,
    );
  const parts = readParts(item.content, `${path}.content`);
  if (role === 'assistant') return spoken({ parts });
  return { message: { role: role as ItemRole, content: contentOf(parts) } };
}

/** Content of a message or an output: text, or parts. */
export function readParts(content: Json | undefined, path: string): ContentPart[] {
  if (content === undefined || content === null) return [];
  if (typeof content === 'string') return content === '' ? [] : [textPart(content)];
  if (!Array.isArray(content)) throw mustBe('a string or an array of parts', content, path);
  return content.map((part, index) => readPart(fieldsAt(part, `${path}[${index}]`), `${path}[${index}]`));
}

function readPart(part: Fields, path: string): ContentPart {
  const type = stringAt(part.type, `${path}.type`);
  if (/^(?:input_|output_|summary_|reasoning_)?text$/.test(type))
    return textPart(stringAt(part.text, `${path}.text`));
  if (type === 'refusal') return { type, refusal: stringAt(part.refusal, `${path}.refusal`) };
  if (type === 'input_image' || type === 'computer_screenshot') return readImage(type, part);
  if (type === 'input_file') return readFile(part);
  if (type === 'input_audio' && isFields(part.input_audio)) return { type, input_audio: part.input_audio };
  return placeholder(type, part);
}

function readImage(type: string, part: Fields): ContentPart {
  const url = textOr(part.image_url) || textOr(part.image);
  if (url !== '') {
    const detail = typeof part.detail === 'string' ? { detail: part.detail } : {};
    return { type: 'image_url', image_url: { url, ...detail } };
  }
  const fileId = textOr(part.file_id);
  return fileId === '' ? placeholder(type, part) : mediaPart({ kind: 'image', mediaType: '', fileId });
}

function readFile(part: Fields): ContentPart {
  const known = ['filename', 'file_data', 'file_url', 'file_id'].filter(
    (field) => typeof part[field] === 'string',
  );
  if (known.length === 0) return placeholder('input_file', part);
  return { type: 'file', file: Object.fromEntries(known.map((field) => [field, part[field]])) };
}

/** What a model thought: in full where the provider shows it, else the summary. */
function reasoningOf({ content, summary, rawContent }: Fields): string {
  const textsOf = (list: Json | undefined): string[] =>
    Array.isArray(list) ? list.map((part) => (isFields(part) ? textOr(part.text) : textOr(part))) : [];
  const thought = [content, rawContent].flatMap(textsOf).filter((text) => text !== '');
  return (thought.length > 0 ? thought : textsOf(summary)).filter((text) => text !== '').join('\n\n');
}

/** Fields of a call that say which call it is, not what it does. */
const framing = new Set(['type', 'id', 'call_id', 'callId', 'status', 'name', 'namespace', 'providerData']);

function readCall(type: string, item: Fields, path: string): ToolCall {
  const given = callIdOf(item);
  const id = given === undefined ? '' : stringAt(given, `${path}.call_id`);
  if (type === 'function_call') {
    const called = { name: nameAt(item, path), arguments: stringAt(item.arguments, `${path}.arguments`) };
    return { id, type: 'function', function: called };
  }
  if (type === 'custom_tool_call') {
    const called = { name: nameAt(item, path), input: stringAt(item.input, `${path}.input`) };
    return { id, type: 'custom', custom: called };
  }
  const input = Object.fromEntries(Object.entries(item).filter(([field]) => !framing.has(field)));
  const name = type.replace(/_call$/, '');
  return { id, type: 'function', function: { name, arguments: JSON.stringify(input) } };
}

function nameAt(item: Fields, path: string): string {
  const name = stringAt(item.name, `${path}.name`);
  if (name !== '') return name;
  throw invalid(`${path}.name must not be empty.`, `${path}.name`, 'Every call names the tool it calls.');
}

function readOutput(item: Fields, path: string): ChatMessage {
  const id = callIdOf(item);
  return {
    role: 'tool',
    ...(id === undefined ? {} : { tool_call_id: stringAt(id, `${path}.call_id`) }),
    content: outputOf(item.output, `${path}.output`),
  };
}

function outputOf(output: Json | undefined, path: string): string | ContentPart[] {
  if (typeof output === 'string') return output;
  if (output === undefined || output === null) return '';
  if (Array.isArray(output) && output.every((part) => isFields(part) && typeof part.type === 'string'))
    return contentOf(readParts(output, path));
  if (isFields(output) && typeof output.type === 'string') return contentOf(readParts([output], path));
  return JSON.stringify(output);
}

/** One item of a history with what it means. */
export interface ReadItem {
  item: Json;
  meaning: Meaning;
}

/**
 * The items as units. What the assistant says in a row (reasoning, text, calls) is one message; items that mean nothing do
 * not interrupt it. Reasoning that nothing follows is a message of its own, which no context shows: the API refuses it.
 */
export function unitsOfItems(items: readonly ReadItem[]): Unit[] {
  const units: Unit[] = [];
  let run: ReadItem[] = [];
  for (const read of items) {
    if (read.meaning && 'message' in read.meaning) {
      units.push(...spokenUnits(run), { items: [read.item], messages: [read.meaning.message] });
      run = [];
    } else run.push(read);
  }
  return unitsOf([...units, ...spokenUnits(run)]);
}

function spokenUnits(run: readonly ReadItem[]): Unit[] {
  const last = run.findLastIndex(({ meaning }) => saysSomething(meaning));
  return [run.slice(0, last + 1), run.slice(last + 1)]
    .filter((part) => part.length > 0)
    .map((part) => ({ items: part.map(({ item }) => item), messages: spokenMessage(part) }));
}

function saysSomething(meaning: Meaning): boolean {
  return meaning !== null && 'spoken' in meaning && !isThought(meaning.spoken);
}

const isThought = ({ parts, calls }: Spoken): boolean =>
  calls.length === 0 && parts.every(({ type, text }) => type === 'text' && text?.trim() === '');

function spokenMessage(run: readonly ReadItem[]): ChatMessage[] {
  const said = run.flatMap(({ meaning }) => (meaning && 'spoken' in meaning ? [meaning.spoken] : []));
  if (said.length === 0) return [];
  const reasoning = said.map((one) => one.reasoning).filter((text) => text !== '');
  return [
    assistantMessage(
      said.flatMap(({ parts }) => parts),
      said.flatMap(({ calls }) => calls),
      reasoning.join('\n\n'),
    ),
  ];
}
