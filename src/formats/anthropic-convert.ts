/** Converts chat messages to Anthropic's form if a context does not show their original blocks. */
import type { ChatMessage, ContentPart, Json } from '../conversation/message.js';
import {
  argumentsOf,
  mediaOf,
  partsOf,
  placeholder,
  textOr,
  textPart,
  type Fields,
  type Media,
} from './content.js';

export interface Turn {
  role: 'user' | 'assistant';
  content: string | Json[];
  /** The original message, as long as nothing in it had to change. */
  original?: Fields;
}

const isBlank = (text: string): boolean => text.trim() === '';
const textBlock = (text: string): Fields => ({ type: 'text', text });

/** Reasoning is omitted, because a provider accepts only its own thinking blocks. */
export function turnOf(message: ChatMessage): Turn {
  const { role, content, name } = message;
  if (role === 'assistant') return { role, content: assistantBlocks(message) };
  if (role === 'tool' || role === 'function') return { role: 'user', content: [resultBlock(message)] };
  if (role === 'system' || role === 'developer')
    return { role: 'user', content: [textBlock('[system]'), ...blocksOf(partsOf(content))] };
  if (typeof content === 'string') return { role: 'user', content: name ? `[${name}] ${content}` : content };
  return {
    role: 'user',
    content: [...(name ? [textBlock(`[${name}]`)] : []), ...blocksOf(partsOf(content))],
  };
}

/** Returns the system text of a message; only text is allowed there. */
export function systemBlocks({ content }: ChatMessage): Fields[] {
  return partsOf(content).map((part) =>
    textBlock(part.text ?? placeholder(part.type, part as Json).text ?? ''),
  );
}

function assistantBlocks({
  content,
  refusal,
  tool_calls: calls = [],
  function_call: legacy,
}: ChatMessage): Json[] {
  const parts = [...partsOf(content), ...(typeof refusal === 'string' ? [textPart(refusal)] : [])];
  const used = calls.map(({ id, function: called, custom }) => {
    const { name = '', input } = (custom ?? {}) as { name?: string; input?: string };
    return called
      ? toolUse(id, called.name, argumentsOf(called.arguments))
      : toolUse(id, name, { input: input ?? '' });
  });
  return [
    ...parts.filter(({ type }) => !/thinking|reasoning/.test(type)).map(assistantBlock),
    ...used,
    ...(legacy ? [toolUse(legacyId(legacy.name), legacy.name, argumentsOf(legacy.arguments))] : []),
  ];
}

/** The assistant may only send text. */
function assistantBlock(part: ContentPart): Fields {
  const text = part.text ?? (typeof part.refusal === 'string' ? part.refusal : undefined);
  return textBlock(text ?? placeholder(part.type, part as Json).text ?? '');
}

const legacyId = (name: string): string => `function_${name}`;

const toolUse = (id: string, name: string, input: Fields): Fields => ({ type: 'tool_use', id, name, input });

function resultBlock({ role, tool_call_id: id = '', name = '', content }: ChatMessage): Fields {
  const block = { type: 'tool_result', tool_use_id: role === 'function' ? legacyId(name) : id };
  if (typeof content === 'string') return isBlank(content) ? block : { ...block, content };
  const blocks = blocksOf(partsOf(content));
  return blocks.length === 0 ? block : { ...block, content: blocks };
}

/** Converts the parts of a user message or a tool result. */
function blocksOf(parts: readonly ContentPart[]): Fields[] {
  return parts.map(blockOf).filter(({ type, text }) => type !== 'text' || !isBlank(textOr(text)));
}

function blockOf(part: ContentPart): Fields {
  const media = mediaOf(part);
  const block = media && mediaBlock(media);
  return block ?? textBlock(part.text ?? withoutData(part));
}

function withoutData(part: ContentPart): string {
  const media = mediaOf(part);
  if (!media) return placeholder(part.type, part as Json).text ?? '';
  return `[${[media.kind, media.mediaType, media.name ?? media.fileId].filter(Boolean).join(' ')}]`;
}

/** Source: platform.claude.com/docs/en/build-with-claude/vision; other image types are refused. */
const imageTypes = /^image\/(?:jpeg|png|gif|webp)$/;
/** Ids of Anthropic's own Files API. */
const fileIds = /^file_/;

/** Returns null for media that Anthropic does not accept in any form. */
function mediaBlock({ kind, mediaType, data, url, fileId = '' }: Media): Fields | null {
  if (kind === 'audio') return null;
  const type = kind === 'image' ? 'image' : 'document';
  if (fileIds.test(fileId)) return { type, source: { type: 'file', file_id: fileId } };
  if (url !== undefined) return /^https?:/.test(url) ? { type, source: { type: 'url', url } } : null;
  if (data === undefined || data === '') return null;
  if (kind === 'image')
    return imageTypes.test(mediaType)
      ? { type, source: { type: 'base64', media_type: mediaType, data } }
      : null;
  if (mediaType === 'application/pdf')
    return { type, source: { type: 'base64', media_type: mediaType, data } };
  if (!/^text\//.test(mediaType)) return null;
  const text = Buffer.from(data, 'base64').toString('utf8');
  return isBlank(text) ? null : { type, source: { type: 'text', media_type: 'text/plain', data: text } };
}
