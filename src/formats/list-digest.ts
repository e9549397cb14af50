/** Digests by which a list of messages is recognized, whatever a framework adds to its messages. */
import { hash } from 'node:crypto';
import { jsonWithin } from '../conversation/json.js';
import type { Json } from '../conversation/message.js';
import type { Steps } from '../steps.js';
import { type Fields, isFields, textOr } from './content.js';

/**
 * Two items have the same digest if they say the same. What frameworks add, move or write in another way does not count: ids,
 * reports of usage, cache marks, defaults, empty fields, reasoning, the texts of errors, the order of fields and of results, the
 * notation of arguments, and whether a single text is in a list of parts.
 */
export function itemDigest(item: Json): string {
  return sha256(JSON.stringify(said(unwrapped(item))) ?? '');
}

/** One digest for each item. */
export function* itemDigests(items: readonly Json[]): Steps<string[]> {
  const digests: string[] = [];
  for (const item of items) {
    digests.push(itemDigest(item));
    yield;
  }
  return digests;
}

/** One digest for each beginning of a list, from the digests of its items: the last is that of the whole list. */
export function* beginningDigests(ofItems: readonly string[]): Steps<string[]> {
  const digests: string[] = [];
  for (const digest of ofItems) {
    digests.push(sha256(`${digests.at(-1) ?? ''}${digest}`));
    yield;
  }
  return digests;
}

/** Number of the system and developer messages with which a list begins. */
export function leadingInstructions(items: readonly Json[]): number {
  const first = items.findIndex((item) => !isInstruction(messageOf(unwrapped(item))));
  return first === -1 ? items.length : first;
}

function isInstruction(message: Json): boolean {
  if (!isFields(message)) return false;
  const kind = textOr(message.role) || textOr(message.type);
  return /^(?:system|developer|SystemMessage(?:Chunk)?)$/.test(kind);
}

/** The id that a framework gave to an item; null if it has none. */
export function itemId(item: Json): string | null {
  const message = messageOf(unwrapped(item));
  return isFields(message) && typeof message.id === 'string' && message.id !== '' ? message.id : null;
}

const sha256 = (text: string): string => hash('sha256', text);

/** Fields of a message that frameworks and providers fill in after it was made. */
const added = new Set(['id', 'response_metadata', 'usage_metadata', 'createdAt']);

/** Fields for the provider, at any depth. Clients move the mark of a cache to their newest message. */
const forProvider = new Set(['providerOptions', 'providerMetadata', 'cache_control']);

/** Values that LangChain, or the Responses API, fills in where a message or an item has none. */
const defaults = new Map<string, readonly Json[]>([
  ['status', ['success', 'completed']],
  ['type', ['message']],
  ['example', [false]],
]);

/** OpenAI's Agents SDK passes an item of the Responses API through as an item of type `unknown`. */
function unwrapped(item: Json): Json {
  return isFields(item) && item.type === 'unknown' && isFields(item.providerData) ? item.providerData : item;
}

/** A message of LangChain without its wrapper. */
function messageOf(item: Json): Json {
  if (!isFields(item)) return item;
  if (isFields(item.data)) return { ...item.data, type: item.type ?? null };
  if (!isFields(item.kwargs) || !Array.isArray(item.id)) return item;
  return { ...item.kwargs, type: item.id.at(-1) ?? null };
}

function said(item: Json): Json {
  const message = messageOf(item);
  if (!isFields(message)) return message;
  const { content_blocks: blocks, ...own } = Object.fromEntries(
    Object.entries(message).filter(
      ([name, value]) => !added.has(name) && !defaults.get(name)?.includes(value),
    ),
  );
  // LangChain.js writes the blocks of some messages under this name.
  const content = own.content ?? blocks ?? null;
  return plain({ ...own, content: Array.isArray(content) ? saidParts(content) : content });
}

/**
 * The AI SDK makes a message in two ways: during a run, and from the message of a chat. Both differ in empty texts, in the order
 * of results and of requests for approval, in the texts of errors and refusals, which a chat does not show, in the input of a
 * call that is not JSON, and in what results tell of their origin. A chat may lack the reasoning.
 */
function saidParts(content: readonly Json[]): Json[] {
  return content
    .map((part) => (isFields(part) ? saidPart(part) : part))
    .filter((part) => !isFields(part) || !isUnsaid(part))
    .map((part): [order: string, Json] => [orderOf(part), part])
    .sort(([one], [other]) => (one === other ? 0 : one < other ? -1 : 1))
    .map(([, part]) => part);
}

const isUnsaid = ({ type, text }: Fields): boolean =>
  type === 'reasoning' || (type === 'text' && text === '');

function saidPart({ providerExecuted: byProvider, ...part }: Fields): Fields {
  const { type, input, output } = part;
  if (type === 'tool-call' && typeof input === 'string') return { ...part, input: null };
  if (type !== 'tool-result') return { ...part, providerExecuted: byProvider ?? null };
  const isFailed = isFields(output) && /^(?:error-|execution-denied$)/.test(textOr(output.type));
  return isFailed ? { ...part, output: null } : part;
}

/** Parts that a message has in any order come after the others, by their ids. */
function orderOf(part: Json): string {
  const { type, toolCallId, approvalId } = isFields(part) ? part : {};
  const isLoose =
    typeof type === 'string' && /^tool-(?:result|approval-request|approval-response)$/.test(type);
  return isLoose ? `${type} ${textOr(toolCallId) || textOr(approvalId)}` : '';
}

/** Without empty values, and with the fields in the order of their names. */
function plain(value: Json): Json {
  if (Array.isArray(value)) return textAlone(value.map(plain));
  if (!isFields(value)) return value;
  const fields = Object.entries(value)
    .filter(([name]) => !forProvider.has(name))
    .map(([name, inner]): [string, Json] => [name, plain(name === 'arguments' ? parsed(inner) : inner)])
    .filter(([, inner]) => !isEmpty(inner))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(fields);
}

/** A single text part is the same as its text. */
function textAlone(parts: Json[]): Json {
  const [part] = parts;
  if (parts.length !== 1 || !isFields(part) || typeof part.text !== 'string') return parts;
  const isText = Object.keys(part).length === 2 && /^(?:input_|output_)?text$/.test(textOr(part.type));
  return isText ? part.text : parts;
}

/** Frameworks parse the arguments of a call, and write them anew. */
function parsed(text: Json): Json {
  const value = typeof text === 'string' ? jsonWithin(text) : text;
  return value === undefined ? text : value;
}

function isEmpty(value: Json): boolean {
  if (value === null || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
