/**
 * Renders a message for a summarizer: as data, labelled with its origin, with delimiters that the content cannot forge. The
 * text depends on the message alone, so that offsets into it stay valid.
 */
import { type ChatMessage, type ContentPart, isMedia, type LoggedMessage, type ToolCall } from './message.js';
import { escapeTags } from './tags.js';

/** Part of the key of every digest. Raise it whenever {@link renderMessage} renders a message differently. */
export const RENDER_VERSION = 4;

/** A rendered message in its parts; the message is `open + content + close`. */
export interface Rendered {
  open: string;
  content: string;
  close: string;
}

/**
 * `<message seq="17" origin="tool:read_file" call="call_9">…</message>`. Origins: `system`, `developer`, `user`,
 * `assistant`, `tool:<name>` (`tool` if the result does not name its tool), `function:<name>`.
 */
export function renderMessage(logged: LoggedMessage): string {
  const { open, content, close } = renderParts(logged);
  return open + content + close;
}

/** `toolName` is the name of the tool, for a result that does not have it. It changes only the label. */
export function renderParts({ seq, message }: LoggedMessage, toolName?: string): Rendered {
  return {
    open: openingTag(seq, message, toolName),
    content: [
      labelled('reasoning', reasoningOf(message)),
      contentOf(message, seq),
      labelled('refusal', stringOf(message['refusal'])),
      ...callsOf(message),
    ]
      .filter((piece) => piece !== '')
      .join('\n'),
    close: '</message>',
  };
}

/** The opening tag of a message; `part` names the part that follows, for example `characters 1-4000 of 9100`. */
export function openingTag(seq: number, message: ChatMessage, toolName?: string, part?: string): string {
  const isResult = message.role === 'tool' || message.role === 'function';
  const name = message.name ?? (isResult ? toolName : undefined);
  const attributes: [string, string | undefined][] = [
    ['seq', String(seq)],
    ['origin', isResult && name ? `${message.role}:${name}` : message.role],
    ['name', isResult ? undefined : name],
    ['call', message.tool_call_id && shortId(message.tool_call_id)],
    ['part', part],
  ];
  const shown = attributes.map(([key, value]) => (value ? ` ${key}="${attribute(value)}"` : ''));
  return `<message${shown.join('')}>`;
}

/** Maximum length of a name or id in a label; OpenAI allows 64 characters for a name and 40 for an id. */
const LONGEST_ATTRIBUTE = 80;

function attribute(value: string): string {
  const clipped = value.length <= LONGEST_ATTRIBUTE ? value : `${value.slice(0, LONGEST_ATTRIBUTE)}…`;
  return clipped
    .replace(/[<>"&\uFF1C\uFE64\u2039]/g, '_')
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .replace(/\p{Cs}/gu, '\uFFFD');
}

/** Shortens a call id, which only links a result to its call: a full generated id would cost about 20 tokens twice. */
function shortId(id: string): string {
  return id.length <= 12 ? id : `…${id.slice(-6)}`;
}

function contentOf({ content }: ChatMessage, seq: number): string {
  if (content === null || content === undefined) return '';
  if (typeof content === 'string') return escapeTags(content);
  return content.map((part, index) => partOf(part, seq, index + 1)).join('\n');
}

function partOf(part: ContentPart, seq: number, number: number): string {
  if (typeof part.text === 'string') return escapeTags(part.text);
  if (part.type === 'refusal') return labelled('refusal', stringOf(part['refusal']));
  if (isMedia(part)) return mediaPlaceholder(part, seq, number);
  return escapeTags(JSON.stringify(part, withoutData));
}

/** Replaces media, which a summarizer never gets; `ref` is the place of the original in the archive. */
function mediaPlaceholder(part: ContentPart, seq: number, number: number): string {
  const details = ['filename', 'file_id', 'detail', 'format', 'media_type', 'url'].flatMap((key) => {
    const value = find(part, key, 2);
    return value !== undefined && !value.startsWith('data:') ? [` ${key}="${attribute(value)}"`] : [];
  });
  return `<media type="${attribute(part.type)}" ref="message ${seq} part ${number}"${details.join('')}/>`;
}

function find(value: unknown, key: string, depth: number): string | undefined {
  if (typeof value !== 'object' || value === null || depth < 0) return undefined;
  const fields = value as Record<string, unknown>;
  const found = fields[key];
  if (typeof found === 'string' && found !== '') return found;
  for (const inner of Object.values(fields)) {
    const deeper = find(inner, key, depth - 1);
    if (deeper !== undefined) return deeper;
  }
  return undefined;
}

/** Replaces encoded bytes in a part of an unknown type, which a summarizer would read as text. */
function withoutData(_key: string, value: unknown): unknown {
  const isData = typeof value === 'string' && value.length > 512 && /^[^\s]{512}/.test(value);
  return isData ? `[${value.length} characters of data]` : value;
}

function reasoningOf(message: ChatMessage): string {
  return stringOf(message['reasoning_content']) || stringOf(message['reasoning']);
}

function stringOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function labelled(label: string, text: string): string {
  return text === '' ? '' : `[${label}] ${escapeTags(text)}`;
}

function callsOf({ tool_calls, function_call }: ChatMessage): string[] {
  const calls = (tool_calls ?? []).map((call) => callTag(nameOf(call), call.id, argumentsOf(call)));
  return function_call ? [...calls, callTag(function_call.name, undefined, function_call.arguments)] : calls;
}

function callTag(name: string, id: string | undefined, args: string): string {
  return `<call name="${attribute(name)}"${id ? ` id="${attribute(shortId(id))}"` : ''}>${escapeTags(args)}</call>`;
}

/** The name of a call; custom calls (`{type: 'custom', custom: {name, input}}`) have it under their type. */
export function nameOf(call: ToolCall): string {
  return call.function?.name ?? find(call, 'name', 1) ?? call.type;
}

/** The arguments of a call as recorded; for a custom call, the JSON of the value under its type. */
export function argumentsOf(call: ToolCall): string {
  if (call.function) return call.function.arguments;
  return JSON.stringify(call[call.type] ?? call);
}
