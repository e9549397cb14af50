/**
 * Converts the items of OpenAI's Responses API to chat messages
 * (platform.openai.com/docs/api-reference/responses/create#responses-create-input).
 */
import { invalid } from '../errors.js';
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
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

/** The content that an item adds to its assistant's message. */
interface Spoken {
  parts: ContentPart[];
  calls: ToolCall[];
  reasoning: string;
}

/** The meaning of an item: a whole message, a part of the assistant's message, or null if the item has no meaning in a chat. */
export type Meaning = { message: ChatMessage } | { spoken: Spoken } | null;

const spoken = (said: Partial<Spoken>): Meaning => ({
  spoken: { parts: [], calls: [], reasoning: '', ...said },
});

const roles = ['user', 'assistant', 'system', 'developer'] as const;
type ItemRole = (typeof roles)[number];

/** Reads one item. Throws `Input.Invalid` if it is not an item of the API. */
export function readItem(value: Json | undefined, path: string): Meaning {
  const item = fieldsAt(value, path);
  const document = envelopeOf(item);
  if (document) return instructionsOf(document);
  if (isReference(item)) return spoken({ parts: [placeholder('item_reference', { id: item.id! })] });
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
  if (isOutput(item)) return { message: readOutput(type, item, path) };
  if (isCall(item) || type === 'function_call' || type === 'custom_tool_call')
    return spoken({ calls: [readCall(type, item, path)] });
  return readOther(type, item);
}

/** Reads items that a client does not answer. */
function readOther(type: string, item: Fields): Meaning {
  const told = contentOf([placeholder(type, item)]);
  if (type === 'mcp_approval_response') return { message: { role: 'user', content: told } };
  if (type === 'additional_tools') return { message: { role: 'developer', content: told } };
  // Asks the API to compact; it is not part of the conversation.
  if (type === 'compaction_trigger') return null;
  if (type === 'image_generation_call' && typeof item.result === 'string' && item.result !== '') {
    const { result: data, ...rest } = item;
    const image = mediaPart({ kind: 'image', mediaType: imageType(data), data });
    return spoken({ parts: [placeholder(type, rest), image] });
  }
  return spoken({ parts: [placeholder(type, item)] });
}

const imageType = (base64: string): string =>
  base64.startsWith('/9j/') ? 'image/jpeg' : base64.startsWith('UklGR') ? 'image/webp' : 'image/png';

/** Returns whether an item is a reference to another item. Besides a message, it is the only item that may omit its type. */
export const isReference = ({ id, type, role }: Fields): boolean => {
  const isUntyped = (type === undefined || type === null) && role === undefined;
  return (type === 'item_reference' || isUntyped) && typeof id === 'string' && id !== '';
};

/** The separate `instructions` go first in the conversation. */
function instructionsOf({ instructions }: Fields): Meaning {
  if (typeof instructions !== 'string' || instructions.trim() === '') return null;
  return { message: { role: 'system', content: instructions } };
}

/**
 * Returns the call id of an item. Agents' own logs spell the field `callId`; a local shell's output has the call's id as `id`.
 * Null counts as absent.
 */
export function callIdOf(item: Fields): Json | undefined {
  const own = item.type === 'local_shell_call_output' ? item.id : undefined;
  return item.call_id ?? item.callId ?? own ?? undefined;
}

/**
 * Returns the ids of local shell calls by their own ids: OpenAI's type for the output has nothing but `id`, which some clients fill
 * with that of the item.
 */
export function shellCallIds(items: readonly Json[]): Map<string, string> {
  return new Map(
    items.flatMap((item): [string, string][] => {
      if (!isFields(item) || item.type !== 'local_shell_call') return [];
      const { id, call_id: call } = item;
      return typeof id === 'string' && typeof call === 'string' ? [[id, call]] : [];
    }),
  );
}

/** The item with another call id, in the field in which it has one. */
export function withCallId(item: Fields, id: string): Fields {
  const isInId = item.type === 'local_shell_call_output' && (item.call_id ?? item.callId ?? null) === null;
  return { ...item, [isInId ? 'id' : 'call_id']: id };
}

/**
 * Returns whether the item is the result of a call of any type: `function_call_output`, `program_output`, `tool_search_output`,
 * … The results of OpenAI's own tools have no call id and are not answers of a client.
 */
export function isOutput(item: Fields): boolean {
  const type = textOr(item.type);
  if (type === 'function_call_result') return true;
  return /_call_output$/.test(type) || (/_output$/.test(type) && callIdOf(item) !== undefined);
}

/** Returns whether an output item must answer this call. Hosted tools answer their own calls, which have no call id. */
export function isCall(item: Fields): boolean {
  return typeof item.type === 'string' && !isOutput(item) && callIdOf(item) !== undefined;
}

/**
 * Returns whether an output of this type answers a call of that type: `program_output` a `program`, `tool_search_output` a
 * `tool_search_call`.
 */
export function answersType(output: string, call: string): boolean {
  return output === `${call}_output` || output === `${call.replace(/_call$/, '')}_output`;
}

/** Returns the call id of the program that makes this call or receives its output (programmatic tool calling). */
export function programOf({ caller }: Fields): string | null {
  return isFields(caller) && caller.type === 'program' ? textOr(caller.caller_id) : null;
}

/** Returns whether a message has neither text nor images; the API refuses such a message. */
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

/** Reads the content of a message or an output: text, or parts. */
function readParts(content: Json | undefined, path: string): ContentPart[] {
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

/** Returns the model's reasoning: in full if the provider shows it, otherwise the summary. */
function reasoningOf({ content, summary, rawContent }: Fields): string {
  const textsOf = (list: Json | undefined): string[] =>
    Array.isArray(list) ? list.map((part) => (isFields(part) ? textOr(part.text) : textOr(part))) : [];
  const thought = [content, rawContent].flatMap(textsOf).filter((text) => text !== '');
  return (thought.length > 0 ? thought : textsOf(summary)).filter((text) => text !== '').join('\n\n');
}

/** Fields that identify a call rather than describe it. */
const framing = new Set([
  ...['type', 'id', 'call_id', 'callId', 'status', 'name', 'namespace', 'caller', 'providerData'],
]);

function readCall(type: string, item: Fields, path: string): ToolCall {
  const given = callIdOf(item);
  const id = given === undefined ? '' : stringAt(given, `${path}.call_id`);
  if (type === 'function_call') {
    // A call that was cut off before its arguments is recorded with null.
    const args = stringAt(item.arguments ?? '{}', `${path}.arguments`);
    return { id, type: 'function', function: { name: nameAt(item, path), arguments: args } };
  }
  if (type === 'custom_tool_call') {
    const called = { name: nameAt(item, path), input: stringAt(item.input ?? '', `${path}.input`) };
    return { id, type: 'custom', custom: called };
  }
  const input = Object.fromEntries(Object.entries(item).filter(([field]) => !framing.has(field)));
  const name = type.replace(/_call$/, '');
  return { id, type: 'function', function: { name, arguments: JSON.stringify(input) } };
}

function nameAt(item: Fields, path: string): string {
  const name = stringAt(item.name, `${path}.name`);
  if (name !== '') return name;
  throw invalid(`${path}.name must not be empty.`, `${path}.name`, 'Every call must name its tool.');
}

function readOutput(type: string, item: Fields, path: string): ChatMessage {
  const id = callIdOf(item);
  return {
    role: 'tool',
    ...(id === undefined ? {} : { tool_call_id: stringAt(id, `${path}.call_id`) }),
    content: outputOf(resultOf(type, item), `${path}.output`),
  };
}

/**
 * Returns the content of an output: `output`, a program's `result`, or its other fields (the tools that were found, a status).
 */
function resultOf(type: string, item: Fields): Json | undefined {
  const said = item.output ?? item.result;
  if ((said !== undefined && said !== null) || /^(?:function|custom_tool)_call_/.test(type)) return said;
  const rest = Object.entries(item).filter(
    ([field, value]) => (field === 'status' || !framing.has(field)) && field !== 'output' && value !== null,
  );
  return rest.length === 0 ? undefined : JSON.stringify(Object.fromEntries(rest));
}

function outputOf(output: Json | undefined, path: string): string | ContentPart[] {
  if (typeof output === 'string') return output;
  if (output === undefined || output === null) return '';
  if (Array.isArray(output) && output.every((part) => isFields(part) && typeof part.type === 'string'))
    return contentOf(readParts(output, path));
  if (isFields(output) && typeof output.type === 'string') return contentOf(readParts([output], path));
  return JSON.stringify(output);
}

/** An item of a history with its meaning. */
export interface ReadItem {
  item: Json;
  meaning: Meaning;
  /** Its time in ISO 8601, if the log has one. */
  at?: string | null;
}

/**
 * Groups the items into units. Consecutive items of the assistant (reasoning, text, calls) form one message; items without a
 * meaning do not interrupt it. Reasoning that nothing follows becomes a separate message, which no context shows because the
 * API refuses it.
 */
export function unitsOfItems(items: readonly ReadItem[]): Unit[] {
  const units: Unit[] = [];
  let run: ReadItem[] = [];
  for (const read of items) {
    if (read.meaning && 'message' in read.meaning) {
      units.push(...spokenUnits(run), {
        items: [read.item],
        messages: [read.meaning.message],
        ...timesOf(read),
      });
      run = [];
    } else run.push(read);
  }
  return unitsOf([...units, ...spokenUnits(run)]);
}

const timesOf = (read: ReadItem | undefined): Pick<Unit, 'times'> => (read?.at ? { times: [read.at] } : {});

function spokenUnits(run: readonly ReadItem[]): Unit[] {
  const last = run.findLastIndex(({ meaning }) => saysSomething(meaning));
  return [run.slice(0, last + 1), run.slice(last + 1)]
    .filter((part) => part.length > 0)
    .map((part) => {
      const begun = part.find(({ meaning }) => meaning !== null && 'spoken' in meaning);
      return {
        items: part.map(({ item }) => item),
        messages: spokenMessage(part),
        ...timesOf(begun),
      };
    });
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
