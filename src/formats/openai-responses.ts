import type { Json } from '../conversation/message.js';
import { asText } from '../conversation/json.js';
import { type Fields, isFields, textOr } from './content.js';
import { envelopeOf, type List, listAt, openLists } from './envelope.js';
import type { Opened, Rendered, RequestFormat } from './format.js';
import {
  callIdOf,
  isBlankMessage,
  isCall,
  isOutput,
  readItem,
  shellCallIds,
  unitsOfItems,
  withCallId,
} from './responses-items.js';
import { renderResponses, withCallIds } from './responses-render.js';

/** OpenAI Responses: input and output items. The separate instructions go first and are written back separately. */
export const openaiResponses: RequestFormat = {
  name: 'openai-responses',
  title: 'OpenAI Responses',
  contextFormat: 'openai-responses',
  normalize(items, path) {
    const shells = shellCallIds(items);
    const answering = (item: Json): Json => {
      if (!isFields(item) || item.type !== 'local_shell_call_output') return item;
      const call = shells.get(asText(callIdOf(item)));
      return call === undefined ? item : withCallId(item, call);
    };
    return unitsOfItems(
      items.map((item, index) => ({ item, meaning: readItem(answering(item), `${path}[${index}]`) })),
    );
  },
  // A function's output may contain text, images and files; an assistant's message only text and refusals.
  refusesMedia: (role, { type }) =>
    role === 'tool' || role === 'function' ? type === 'input_audio' : role !== 'user',
  requestItems: withCallIds,
  render: renderResponses,
  violations: responsesViolations,
  open,
};

/** Accepts items in a list, a request (`input`), a response (`output`), or both (`responses_create_params` and `response`). */
function open(document: Json): Opened | null {
  if (Array.isArray(document)) return areItems(document) ? { items: document } : null;
  if (!isFields(document)) return null;
  const { responses_create_params: request, response } = document;
  if (isFields(request) && isFields(response)) {
    const lists = [
      listAt(document, ['responses_create_params', 'input'], true),
      outputOf(document, ['response']),
    ];
    return opened(document, lists, request, textOr(response.id));
  }
  if (document.object === 'response')
    return opened(document, [outputOf(document, [])], document, textOr(document.id));
  const input = listAt(document, ['input'], true);
  const isRequest =
    input && (input.text || areItems(input.items) || typeof document.instructions === 'string');
  return isRequest ? opened(document, [input], document, '') : null;
}

const outputOf = (document: Fields, path: string[]): List | null => listAt(document, [...path, 'output']);

function opened(
  document: Fields,
  lists: (List | null)[],
  { instructions }: Fields,
  id: string,
): Opened | null {
  const found = lists.filter((list) => list !== null);
  if (found.length < lists.length) return null;
  const leading: Fields = typeof instructions === 'string' ? { instructions } : {};
  return { ...(id === '' ? {} : { id }), items: openLists(document, found, leading) };
}

const itemTypes =
  /^(?:message|reasoning|compaction|compaction_trigger|item_reference|additional_tools|program|[a-z_]+_call|[a-z_]+_output|mcp_[a-z_]+)$/;
const partTypes = /^(?:input_(?:text|image|file)|output_text)$/;

/**
 * Returns whether all values are messages or items of the API, and at least one cannot be a chat message: it has a `type`, or
 * parts that only this API has.
 */
export function areItems(items: readonly Json[]): boolean {
  return items.every((item) => isFields(item) && (isTyped(item) || isUntyped(item))) && items.some(isOwn);
}

/** A message of type `message` is Anthropic's if its parts are. */
const isTyped = (item: Fields): boolean =>
  item.type === 'message'
    ? hasRole(item) && !hasParts(item, /^(?!input_|output_|refusal)/)
    : itemTypes.test(textOr(item.type));

const isUntyped = (item: Fields): boolean =>
  item.type === undefined && item.tool_calls === undefined && hasRole(item);

const isOwn = (item: Json): boolean => isFields(item) && (isTyped(item) || hasParts(item, partTypes));

const hasRole = ({ role }: Fields): boolean =>
  ['user', 'assistant', 'system', 'developer'].includes(textOr(role));

const hasParts = ({ content }: Fields, types: RegExp): boolean =>
  Array.isArray(content) && content.some((part) => isFields(part) && types.test(textOr(part.type)));

const inputParts = /^input_(?:text|image|file|audio)$/;
/** "Text, image, or file output of the function tool call." */
const resultParts = /^input_(?:text|image|file)$/;
const outputParts = /^(?:output_text|refusal)$/;

/**
 * Lists what the Responses API refuses in `input`. Sources: its reference
 * (platform.openai.com/docs/api-reference/responses/create) and its error messages: "No tool output found for function call",
 * "No tool call found for function call output with call_id", "Item … of type 'reasoning' was provided without its required
 * following item", "Duplicate item found with id", "Invalid value: 'input_text'. Supported values are: 'output_text' and
 * 'refusal'".
 */
function responsesViolations({ messages, system }: Rendered): string[] {
  const found: string[] = [];
  if (system !== undefined && textOr(system).trim() === '') found.push('instructions are not text');
  const links = new Links();
  const ids = new Set<string>();
  messages.forEach((value, index) => {
    const fault = (what: string) => found.push(`input ${index}: ${what}`);
    if (!isFields(value) || ![value.type, value.role, value.id].some((name) => typeof name === 'string'))
      return fault(envelopeOf(value) ? 'a file’s metadata' : 'neither type nor role');
    const id = textOr(value.id);
    if (id !== '' && ids.has(id)) fault(`item id ${id} used twice`);
    ids.add(id);
    if (isOutput(value)) links.close(value, fault);
    else if (isCall(value)) links.open(value, fault);
    else itemFaults(value, messages[index + 1], ids).forEach(fault);
  });
  return [...found, ...links.left()];
}

type Fault = (what: string) => void;

class Links {
  private readonly made = new Set<string>();
  private readonly waiting = new Map<string, string>();

  open(item: Fields, fault: Fault): void {
    const call = textOr(callIdOf(item));
    if (this.made.has(call)) fault(`call id ${call} used twice`);
    if (item.type === 'function_call' && (!textOr(item.name) || typeof item.arguments !== 'string'))
      fault('call without name or arguments');
    this.checkProgram(item, fault);
    this.made.add(call);
    this.waiting.set(call, textOr(item.type));
  }

  close(item: Fields, fault: Fault): void {
    const call = textOr(callIdOf(item));
    const type = this.waiting.get(call);
    if (type === undefined) fault(`output for ${call} without its call`);
    else if (`${type}_output` !== item.type && `${type.replace(/_call$/, '')}_output` !== item.type)
      fault(`${asText(item.type)} answers a ${type}`);
    this.checkProgram(item, fault);
    this.waiting.delete(call);
    if (item.type === 'function_call_output' && !isOutputValue(item.output)) fault('no output');
    if (item.type === 'program_output' && typeof item.result !== 'string') fault('no result');
  }

  /** Calls made by a program, and their outputs, must fall within its run. */
  private checkProgram({ caller }: Fields, fault: Fault): void {
    if (!isFields(caller) || caller.type !== 'program') return;
    if (this.waiting.get(textOr(caller.caller_id)) !== 'program')
      fault(`called by the program ${asText(caller.caller_id)}, which does not run`);
  }

  /** The API continues a program that has no output. */
  left(): string[] {
    const calls = [...this.waiting].filter(([, type]) => type !== 'program');
    return calls.map(([call]) => `call ${call} has no output after it`);
  }
}

/** Returns the faults of an item that is neither call nor output. */
function itemFaults(item: Fields, next: Json | undefined, ids: ReadonlySet<string>): string[] {
  const { type } = item;
  if (type === 'function_call' || type === 'custom_tool_call') return ['call without call_id'];
  if (type === 'reasoning') return follows(next) ? [] : ['reasoning that nothing of the assistant follows'];
  if (item.role !== undefined && (type === undefined || type === 'message')) return messageFaults(item);
  // "Compacts the current context. Must be the final input item."
  if (type === 'compaction_trigger')
    return next === undefined ? [] : ['a compaction trigger before other items'];
  if (type === 'mcp_approval_response' && !ids.has(textOr(item.approval_request_id)))
    return ['an approval without its request'];
  return [];
}

function isOutputValue(output: Json | undefined): boolean {
  if (!Array.isArray(output)) return typeof output === 'string';
  return output.length > 0 && output.every((part) => isFields(part) && resultParts.test(textOr(part.type)));
}

function follows(next: Json | undefined): boolean {
  if (!isFields(next)) return false;
  if (next.role !== undefined && (next.type === undefined || next.type === 'message'))
    return next.role === 'assistant';
  return !isOutput(next) && next.type !== 'mcp_approval_response' && next.type !== 'additional_tools';
}

function messageFaults({ role, content }: Fields): string[] {
  if (!['user', 'assistant', 'system', 'developer'].includes(textOr(role))) return [`role ${asText(role)}`];
  if (isBlankMessage({ role: role!, content: content ?? null })) return ['empty message'];
  if (!Array.isArray(content)) return [];
  const allowed = role === 'assistant' ? outputParts : inputParts;
  return content.flatMap((part) => {
    const type = isFields(part) ? textOr(part.type) : '';
    return allowed.test(type) ? [] : [`a part of type ${type} in a message of ${asText(role)}`];
  });
}
