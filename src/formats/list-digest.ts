/** Digests by which a list of messages is recognized, whatever a framework adds to its messages. */
import { createHash } from 'node:crypto';
import type { Json } from '../conversation/message.js';
import type { Steps } from '../steps.js';
import { type Fields, isFields, textOr } from './content.js';

/**
 * One digest for each beginning of a list: the last is that of the whole list. Two lists have the same digest if their items say
 * the same: ids, reports of usage, cache marks, the form of a text, reasoning, the texts of errors and empty fields do not count, nor does the order of
 * fields and of results.
 */
export function* listDigests(items: readonly Json[]): Steps<string[]> {
  const digests: string[] = [];
  for (const item of items) {
    const before = digests.at(-1) ?? '';
    digests.push(sha256(`${before}${itemDigest(item)}`));
    yield;
  }
  return digests;
}

export function itemDigest(item: Json): string {
  return sha256(JSON.stringify(said(unwrapped(item))) ?? '');
}

/** The id that a framework gave to an item; null if it has none. */
export function itemId(item: Json): string | null {
  const message = messageOf(unwrapped(item));
  return isFields(message) && typeof message.id === 'string' && message.id !== '' ? message.id : null;
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Fields of a message that frameworks and providers fill in after it was made. */
const added = new Set(['id', 'response_metadata', 'usage_metadata', 'createdAt']);

/** Fields of a message or a part for its provider. Marks of a cache move from message to message. */
const forProvider = new Set(['providerOptions', 'providerMetadata', 'cache_control']);

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
  const own = without(without(message, added), forProvider);
  const { content } = own;
  const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  return plain(Array.isArray(parts) ? { ...own, content: saidParts(parts) } : own);
}

const without = (fields: Fields, left: ReadonlySet<string>): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([name]) => !left.has(name)));

/**
 * The AI SDK makes a message in two ways: during a run, and from the message of a chat. Both differ in empty texts, in the order
 * of results and of requests for approval, and in the texts of errors, which a chat does not show. A chat may lack the reasoning.
 */
function saidParts(content: readonly Json[]): Json[] {
  return content
    .map((part) => (isFields(part) ? saidPart(part) : part))
    .filter((part) => !isFields(part) || !isUnsaid(part))
    .map((part): [order: string, Json] => [orderOf(part), part])
    .sort(([one], [other]) => (one === other ? 0 : one < other ? -1 : 1))
    .map(([, part]) => part);
}

function saidPart(part: Fields): Fields {
  const own = without(part, forProvider);
  return isFailedResult(own) ? { ...own, output: null } : own;
}

const isUnsaid = ({ type, text }: Fields): boolean =>
  type === 'reasoning' || (type === 'text' && text === '');

/** Parts that a message has in any order come after the others, by their ids. */
function orderOf(part: Json): string {
  const { type, toolCallId, approvalId } = isFields(part) ? part : {};
  const isLoose =
    typeof type === 'string' && /^tool-(?:result|approval-request|approval-response)$/.test(type);
  return isLoose ? `${type} ${textOr(toolCallId) || textOr(approvalId)}` : '';
}

const isFailedResult = ({ type, output }: Fields): boolean =>
  type === 'tool-result' && isFields(output) && /^error-/.test(textOr(output.type));
/** Without empty values, and with the fields in the order of their names. */
function plain(value: Json): Json {
  if (Array.isArray(value)) return value.map(plain);
  if (!isFields(value)) return value;
  const fields = Object.entries(value)
    .map(([name, inner]): [string, Json] => [name, plain(inner)])
    .filter(([, inner]) => !isEmpty(inner))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(fields);
}

function isEmpty(value: Json): boolean {
  if (value === null) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
