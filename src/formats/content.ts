/** Helpers shared by the adapters: fields of items of unknown shape, parts of canonical messages, and their media. */
import { isBlank, noOutput } from '../context/view/projection.js';
import { instantIn } from '../conversation/instant.js';
import { jsonWithin } from '../conversation/json.js';
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import { invalid } from '../errors.js';
import type { Unit } from './format.js';

export type Fields = { [field: string]: Json };

export function isFields(value: Json | undefined): value is Fields {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

function kindOf(value: Json | undefined): string {
  if (value === undefined) return 'missing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** Returns the failure for a field of the wrong type. */
export function mustBe(expected: string, value: Json | undefined, path: string, hint?: string) {
  return invalid(`${path} must be ${expected}, but is ${kindOf(value)}.`, path, hint);
}

export function fieldsAt(value: Json | undefined, path: string): Fields {
  if (isFields(value)) return value;
  throw mustBe('an object', value, path);
}

export function stringAt(value: Json | undefined, path: string): string {
  if (typeof value === 'string') return value;
  throw mustBe('a string', value, path);
}

export const textOr = (value: Json | undefined, otherwise = ''): string =>
  typeof value === 'string' ? value : otherwise;

/** Returns parts as the content of a message: a single text as a string, no parts as ''. */
export function contentOf(parts: readonly ContentPart[]): string | ContentPart[] {
  const [first] = parts;
  if (first === undefined) return '';
  if (parts.length === 1 && first.type === 'text' && typeof first.text === 'string') return first.text;
  return [...parts];
}

/** Builds an assistant's message: its content is null if it only makes calls, and its reasoning is added if there is any. */
export function assistantMessage(
  parts: readonly ContentPart[],
  calls: readonly ToolCall[] = [],
  reasoning = '',
): ChatMessage {
  return {
    role: 'assistant',
    content: parts.length === 0 && calls.length > 0 ? null : contentOf(parts),
    ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: [...calls] }),
  };
}

export function toolCall(id: string, name: string, input: Json | undefined): ToolCall {
  return { id, type: 'function', function: { name, arguments: JSON.stringify(input ?? {}) } };
}

/** Returns arguments as the object that other providers require; other text goes under `input`. */
export function argumentsOf(text: string): Fields {
  const value = text.trim() === '' ? {} : jsonWithin(text);
  return isFields(value) ? value : { input: value === undefined ? text : value };
}

export const textPart = (text: string): ContentPart => ({ type: 'text', text });

/** Returns a text for content that no chat message can hold: its kind and its readable parts. Encoded data is omitted. */
export function placeholder(kind: string, value: Json): ContentPart {
  const readable = JSON.stringify(value, (key, inner: Json) => {
    if (key === 'type' && inner === kind) return undefined;
    const encoded = typeof inner === 'string' && inner.length > 256 && !/\s/.test(inner.slice(0, 256));
    return encoded ? `(${inner.length} characters of data)` : inner;
  });
  return textPart(readable === '{}' ? `[${kind}]` : `[${kind}] ${readable}`);
}

/** Media of a message, wherever its data is stored. */
export interface Media {
  kind: 'image' | 'audio' | 'file';
  /** '' if unknown. */
  mediaType: string;
  /** Base64. */
  data?: string;
  url?: string;
  fileId?: string;
  name?: string;
}

export function mediaKind(mediaType: string): Media['kind'] {
  return mediaType.startsWith('image/') ? 'image' : mediaType.startsWith('audio/') ? 'audio' : 'file';
}

/** Returns media in the form of chat messages, which is also how its tokens are counted. */
export function mediaPart({ kind, mediaType, data, url, fileId, name }: Media): ContentPart {
  const address = data === undefined ? url : `data:${mediaType};base64,${data}`;
  if (kind === 'image' && address !== undefined) return { type: 'image_url', image_url: { url: address } };
  if (kind === 'image') return { type: 'image_file', image_file: { file_id: fileId ?? '' } };
  const format = /^audio\/(?:x-)?(wav|mp3|mpeg)$/.exec(mediaType)?.[1];
  if (format && data !== undefined)
    return { type: 'input_audio', input_audio: { data, format: format === 'mpeg' ? 'mp3' : format } };
  const file = {
    ...(name ? { filename: name } : {}),
    ...(data !== undefined ? { file_data: address } : url !== undefined ? { file_url: url } : {}),
    ...(fileId === undefined ? {} : { file_id: fileId }),
  };
  return { type: 'file', file };
}

const dataUrl = /^data:([^;,]{0,100})(?:;[^,]{0,200})?;base64,/i;

function located(address: string): Pick<Media, 'mediaType' | 'data' | 'url'> {
  const header = dataUrl.exec(address.slice(0, 400));
  if (!header) return { mediaType: '', url: address };
  return { mediaType: (header[1] ?? '').toLowerCase(), data: address.slice(header[0].length) };
}

/** The inverse of {@link mediaPart}; returns null for a part without media that could be sent elsewhere. */
export function mediaOf(part: ContentPart): Media | null {
  const { type, image_url: image, image_file: stored, input_audio: audio, file } = part as Fields;
  if (type === 'image_url') {
    const address = typeof image === 'string' ? image : isFields(image) ? textOr(image.url) : '';
    return address === '' ? null : { kind: 'image', ...located(address) };
  }
  if (type === 'image_file' && isFields(stored))
    return { kind: 'image', mediaType: '', fileId: textOr(stored.file_id) };
  if (type === 'input_audio' && isFields(audio))
    return { kind: 'audio', mediaType: `audio/${textOr(audio.format)}`, data: textOr(audio.data) };
  if (type !== 'file' || !isFields(file)) return null;
  const address = textOr(file.file_data) || textOr(file.file_url);
  return {
    kind: 'file',
    mediaType: '',
    ...(address === '' ? {} : located(address)),
    ...(file.file_id === undefined ? {} : { fileId: textOr(file.file_id) }),
    ...(file.filename === undefined ? {} : { name: textOr(file.filename) }),
  };
}

/** Returns content as parts; null and '' have none. */
export function partsOf(content: ChatMessage['content']): ContentPart[] {
  if (content === null || content === undefined || content === '') return [];
  return typeof content === 'string' ? [textPart(content)] : content;
}

/** Returns a unit of one item whose messages all have the item's time. */
export function itemAt(item: Json, messages: ChatMessage[], time: Json | undefined): Unit {
  const at = instantIn(time);
  return { items: [item], messages, ...(at === null ? {} : { times: messages.map(() => at) }) };
}

/**
 * Groups pieces into units. A piece without messages joins the unit before it, or the first unit if it comes first. A history
 * without messages becomes one unit with an empty message, which no context shows.
 */
export function unitsOf(pieces: readonly Unit[]): Unit[] {
  const units: Unit[] = [];
  let leading: Json[] = [];
  for (const { items, messages, times } of pieces) {
    const last = units.at(-1);
    if (messages.length > 0) {
      units.push({ items: [...leading, ...items], messages, ...(times ? { times } : {}) });
      leading = [];
    } else if (last) last.items.push(...items);
    else leading.push(...items);
  }
  if (leading.length > 0) units.push({ items: leading, messages: [{ role: 'assistant', content: '' }] });
  return units;
}

/**
 * Finds the pieces that produced these messages, in order; returns null if no such selection exists. Ids may differ. For logs
 * in which a later entry may rewind or rewrite an earlier one: a unit does not contain that later entry, so only the unit's
 * messages show which of its own entries still count.
 */
export function piecesFor<Piece extends { messages: ChatMessage[] }>(
  pieces: readonly Piece[],
  messages: readonly ChatMessage[],
): Piece[] | null {
  const found: Piece[] = [];
  let next = 0;
  for (const piece of pieces) {
    const { length } = piece.messages;
    if (length === 0 || outlineOf(piece.messages) !== outlineOf(messages.slice(next, next + length)))
      continue;
    found.push(piece);
    next += length;
  }
  return next === messages.length ? found : null;
}

function outlineOf(messages: readonly ChatMessage[]): string {
  return JSON.stringify(
    messages.map(({ role, content, tool_calls: calls = [] }) => [
      role,
      role === 'tool' && isBlank(content) ? noOutput : content,
      calls.map(({ function: called }) => called),
    ]),
  );
}
