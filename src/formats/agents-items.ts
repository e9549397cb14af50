/** Converts items of OpenAI's JavaScript Agents SDK, which has its own names for fields, to items of the Responses API. */
import type { Json } from '../conversation/message.js';
import { type Fields, isFields, textOr } from './content.js';

/** Returns the item of the Responses API, which may be the item itself; null if it has no equivalent that is known here. */
export function responsesItem(item: Json): Json | null {
  if (!isFields(item)) return item;
  if (item.type === 'function_call' && 'callId' in item) return call(item);
  if (item.type === 'function_call_result') return result(item);
  if (item.type === 'reasoning' && item.summary === undefined) return reasoning(item);
  if (item.role !== undefined && (item.type === undefined || item.type === 'message')) return message(item);
  return 'callId' in item || 'providerData' in item ? null : item;
}

/** The fields that have a value. */
function present(fields: Record<string, Json | undefined>): Fields {
  const given = Object.entries(fields).filter(
    (field): field is [string, Json] => field[1] !== undefined && field[1] !== null,
  );
  return Object.fromEntries(given);
}

function call({ type, id, callId, name, namespace, arguments: args, status, caller }: Fields): Json | null {
  if (caller !== undefined) return null;
  return present({ type, id, call_id: callId, name, namespace, arguments: args, status });
}

function result({ callId, output, status, caller }: Fields): Json | null {
  const said = outputOf(output);
  if (caller !== undefined || said === null) return null;
  return present({ type: 'function_call_output', call_id: callId, output: said, status });
}

function outputOf(output: Json | undefined): Json | null {
  if (typeof output === 'string') return output;
  if (isFields(output) && output.type === 'text') return textOr(output.text);
  return Array.isArray(output) ? partsOf(output) : null;
}

function reasoning({ type, id, content, providerData }: Fields): Json | null {
  if (!Array.isArray(content)) return null;
  const encrypted = isFields(providerData)
    ? (providerData.encrypted_content ?? providerData.encryptedContent)
    : null;
  const summary = content.filter(isFields).map(({ text }) => ({ type: 'summary_text', text: textOr(text) }));
  return present({ type, id, summary, encrypted_content: encrypted });
}

function message(item: Fields): Json | null {
  const { content, providerData, ...rest } = item;
  const parts = Array.isArray(content) ? partsOf(content) : undefined;
  if (parts === null) return null;
  if (providerData === undefined && parts === undefined) return item;
  return { ...rest, ...present({ content: parts ?? content }) };
}

function partsOf(parts: readonly Json[]): Json[] | null {
  const converted = parts.map((part) => (isFields(part) && isOwn(part) ? partOf(part) : part));
  return converted.every((part) => part !== null) ? converted : null;
}

const ownFields = [
  'providerData',
  'promptCacheBreakpoint',
  'image',
  'imageUrl',
  'file',
  'fileData',
  'fileUrl',
  'fileId',
];

/** Returns whether a part has fields of the SDK, or is of a type that only the SDK has. */
const isOwn = (part: Fields): boolean =>
  ownFields.some((name) => name in part) || part.type === 'audio' || part.type === 'image';

function partOf({ providerData, promptCacheBreakpoint, ...own }: Fields): Json | null {
  const breakpoint = present({ prompt_cache_breakpoint: promptCacheBreakpoint });
  if (own.type === 'output_text') {
    const { annotations } = isFields(providerData) ? providerData : {};
    return { ...own, annotations: annotations ?? [] };
  }
  if (own.type === 'input_image') return { ...image(own), ...breakpoint };
  if (own.type === 'input_file') return { ...file(own), ...breakpoint };
  return own.type === 'audio' || own.type === 'image' ? null : { ...own, ...breakpoint };
}

function image({ image: source, imageUrl, fileId, ...rest }: Fields): Fields {
  const url = typeof source === 'string' ? source : imageUrl;
  const id = isFields(source) ? source.id : fileId;
  return {
    detail: 'auto',
    ...present({ ...rest, image_url: rest.image_url ?? url, file_id: rest.file_id ?? id }),
  };
}

function file({ file: source, fileData, fileUrl, fileId, ...rest }: Fields): Fields {
  const text = typeof source === 'string' ? source.trim() : undefined;
  const [data, url] = text === undefined || !/^https?:/.test(text) ? [text, undefined] : [undefined, text];
  const given: Fields = isFields(source) ? source : {};
  return present({
    file_data: data ?? fileData,
    file_url: url ?? given.url ?? fileUrl,
    file_id: given.id ?? fileId,
    ...present(rest),
  });
}
