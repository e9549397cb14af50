/** Converts Anthropic's content blocks to parts of chat messages (platform.claude.com/docs/en/api/messages). */
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import {
  assistantMessage,
  contentOf,
  fieldsAt,
  isFields,
  mediaKind,
  mediaPart,
  mustBe,
  placeholder,
  stringAt,
  textOr,
  textPart,
  toolCall,
  type Fields,
} from './content.js';

const roles = 'Roles: user, assistant; a leading item of role system stands for the top-level `system`.';

/** Converts one Anthropic message. Tool results come first, as separate messages. */
export function chatMessages(message: Fields, path: string): ChatMessage[] {
  const role = stringAt(message.role, `${path}.role`);
  if (role !== 'assistant' && role !== 'user' && role !== 'system')
    throw mustBe('user, assistant or system', role, `${path}.role`, roles);
  const content = message.content;
  if (typeof content !== 'string' && !Array.isArray(content))
    throw mustBe('a string or an array of content blocks', content, `${path}.content`);
  const blocks: [Fields, string][] =
    typeof content === 'string'
      ? [[{ type: 'text', text: content }, `${path}.content`]]
      : content.map((block, index) => blockAt(block, `${path}.content[${index}]`));
  if (role === 'assistant') return [ofAssistant(blocks)];
  if (role === 'user') return ofUser(blocks);
  return [{ role, content: contentOf(blocks.flatMap(([block, at]) => partsOf(block, at))) }];
}

const hiddenThinking = '[redacted thinking]';

function blockAt(value: Json, path: string): [Fields, string] {
  const block = fieldsAt(value, path);
  stringAt(block.type, `${path}.type`);
  return [block, path];
}

function ofAssistant(blocks: readonly [Fields, string][]): ChatMessage {
  const parts: ContentPart[] = [];
  const calls: ToolCall[] = [];
  const thoughts: string[] = [];
  for (const [block, path] of blocks) {
    // Models may hide the text of their thinking; the block still shows that they thought.
    if (block.type === 'thinking') thoughts.push(textOr(block.thinking) || hiddenThinking);
    else if (block.type === 'redacted_thinking') thoughts.push(hiddenThinking);
    else if (block.type === 'tool_use') calls.push(callOf(block, path));
    else parts.push(...partsOf(block, path));
  }
  return assistantMessage(parts, calls, thoughts.join('\n\n'));
}

function callOf({ id, name, input }: Fields, path: string): ToolCall {
  if (input !== undefined && !isFields(input)) throw mustBe('an object', input, `${path}.input`);
  return toolCall(stringAt(id, `${path}.id`), nameAt(name, `${path}.name`), input);
}

function nameAt(name: Json | undefined, path: string): string {
  if (name === '') throw mustBe('the name of a tool', name, path);
  return stringAt(name, path);
}

function ofUser(blocks: readonly [Fields, string][]): ChatMessage[] {
  const results: ChatMessage[] = [];
  const parts: ContentPart[] = [];
  for (const [block, path] of blocks) {
    if (block.type === 'tool_result') results.push(resultOf(block, path));
    else parts.push(...partsOf(block, path));
  }
  if (results.length > 0 && parts.length === 0) return results;
  return [...results, { role: 'user', content: contentOf(parts) }];
}

function resultOf({ tool_use_id: id, content }: Fields, path: string): ChatMessage {
  return {
    role: 'tool',
    tool_call_id: stringAt(id, `${path}.tool_use_id`),
    content: contentOf(partsIn(content, `${path}.content`)),
  };
}

/** Returns the parts of a nested content: a string, blocks, or nothing. A block without a type becomes readable text. */
function partsIn(content: Json | undefined, path: string): ContentPart[] {
  if (content === undefined || content === null || content === '') return [];
  if (typeof content === 'string') return [textPart(content)];
  if (!Array.isArray(content)) throw mustBe('a string or an array of content blocks', content, path);
  return content.flatMap((block, index) => {
    if (!isFields(block)) throw mustBe('an object', block, `${path}[${index}]`);
    // Agents such as Cline store their own records among the blocks; these have no type.
    return block.type === undefined ? [placeholder('record', block)] : partsOf(block, `${path}[${index}]`);
  });
}

/** Converts a block of any type except thinking, calls, and results of client tools. */
function partsOf(block: Fields, path: string): ContentPart[] {
  const { type, text, source, content } = block;
  const kind = stringAt(type, `${path}.type`);
  if (kind === 'text') return [textPart(stringAt(text, `${path}.text`))];
  if ((kind === 'image' || kind === 'document') && isFields(source)) return ofSource(block, source, path);
  // The provider's own summary of everything before it (context editing, beta compact-2026-01-12).
  if (kind === 'compaction')
    return typeof content === 'string' ? [textPart(`[compaction] ${content}`)] : [placeholder(kind, block)];
  if (kind === 'search_result') {
    const heading = textPart(`[search_result] ${textOr(block.title)} ${textOr(source)}`.trimEnd());
    return [heading, ...partsIn(content, `${path}.content`)];
  }
  if (kind === 'file' && typeof content === 'string')
    return [textPart(`[file ${textOr(block.path)}]\n${content}`)];
  return [placeholder(kind, block)];
}

/** Converts an image or a document by the location of its data. A document may also contain text or blocks. */
function ofSource({ type, title }: Fields, source: Fields, path: string): ContentPart[] {
  const mediaType = textOr(source.media_type);
  const name = textOr(title);
  if (source.type === 'text') return [textPart(textOr(source.data))];
  if (source.type === 'content') return partsIn(source.content, `${path}.source.content`);
  const kind = type === 'image' ? 'image' : mediaKind(mediaType);
  const media = { kind, mediaType: mediaType || (kind === 'image' ? 'image/*' : ''), name };
  if (source.type === 'base64')
    return [mediaPart({ ...media, data: stringAt(source.data, `${path}.source.data`) })];
  if (source.type === 'url')
    return [mediaPart({ ...media, url: stringAt(source.url, `${path}.source.url`) })];
  if (source.type === 'file')
    return [mediaPart({ ...media, fileId: stringAt(source.file_id, `${path}.source.file_id`) })];
  return [placeholder(textOr(type), source)];
}

/**
 * Returns the messages with the call ids of the context, which are unique. Calls and results follow the order in which
 * `chatMessages` reads them. A block that already has its id stays unchanged.
 */
export function withCallIds(messages: readonly Fields[], shown: readonly ChatMessage[]): Fields[] {
  const calls = shown.flatMap(({ tool_calls: made = [] }) => made.map(({ id }) => id)).values();
  const answers = shown.flatMap(({ role, tool_call_id: id }) => (role === 'tool' ? [id ?? ''] : [])).values();
  return messages.map((message) => {
    const { role, content } = message;
    if (!Array.isArray(content)) return message;
    const renamed = content.map((block) => {
      if (!isFields(block)) return block;
      if (role === 'assistant' && block.type === 'tool_use')
        return withField(block, 'id', calls.next().value);
      if (role === 'user' && block.type === 'tool_result')
        return withField(block, 'tool_use_id', answers.next().value);
      return block;
    });
    return renamed.every((block, index) => block === content[index])
      ? message
      : { ...message, content: renamed };
  });
}

function withField(block: Fields, field: string, id: string | undefined): Fields {
  return id === undefined || block[field] === id ? block : { ...block, [field]: id };
}
