/** Digests by which a list of messages is recognized, whatever a framework adds to its messages. */
import { createHash } from 'node:crypto';
import type { Json } from '../conversation/message.js';
import type { Steps } from '../steps.js';
import { type Fields, isFields, textOr } from './content.js';

/**
 * One digest for each beginning of a list: the last is that of the whole list. Two lists have the same digest if their items say
 * the same: ids, reports of usage, cache marks and empty fields do not count, nor does the order of fields, nor the notation of
 * arguments, nor whether a single text is in a list of parts.
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

/** The fields of LangChain's message, which its stored forms wrap. */
const wrapped = ['data', 'kwargs'] as const;

/** OpenAI's Agents SDK passes an item of the Responses API through as an item of type `unknown`. */
function unwrapped(item: Json): Json {
  return isFields(item) && item.type === 'unknown' && isFields(item.providerData) ? item.providerData : item;
}

function messageOf(item: Json): Json {
  const field = isFields(item) ? wrapped.find((name) => isFields(item[name])) : undefined;
  return field === undefined ? item : (item as Fields)[field]!;
}

function said(item: Json): Json {
  if (!isFields(item)) return item;
  const field = wrapped.find((name) => isFields(item[name]));
  const own = Object.fromEntries(Object.entries(item).filter(([name]) => !added.has(name)));
  return plain(field === undefined ? own : { ...own, [field]: said(own[field]!) });
}

/** Without empty values, and with the fields in the order of their names. */
function plain(value: Json): Json {
  if (Array.isArray(value)) return textAlone(value.map(plain));
  if (!isFields(value)) return value;
  const fields = Object.entries(value)
    // Clients move the mark to their newest message.
    .filter(([name]) => name !== 'cache_control')
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
  if (typeof text !== 'string') return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

function isEmpty(value: Json): boolean {
  if (value === null || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
