/** Converts LangChain's messages, in their serialised forms, to chat messages. */
import { invalid } from '../errors.js';
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import {
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

/**
 * `plain`: `{type: 'human', content}` (`model_dump`, `convert_to_messages`); `data`: `{type, data}` (`messages_to_dict`,
 * `messages_from_dict`); `constructor`: `{lc: 1, type: 'constructor', id: […, 'HumanMessage'], kwargs}` (`dumpd`, `load`).
 */
export type Form = 'plain' | 'data' | 'constructor';

const types = ['human', 'ai', 'system', 'tool', 'function', 'chat', 'remove'] as const;
export type MessageType = (typeof types)[number];

export interface Unwrapped {
  form: Form;
  type: MessageType;
  fields: Fields;
  /** Path of `fields`. */
  path: string;
}

const otherNames: Record<string, MessageType> = {
  user: 'human',
  assistant: 'ai',
  developer: 'system',
  generic: 'chat',
};

function typeNamed(name: string): MessageType | undefined {
  const lower = name.replace(/Message(?:Chunk)?$/, '').toLowerCase();
  return types.find((type) => type === lower) ?? otherNames[lower];
}

/** Returns null if the value is not a LangChain message. */
export function unwrap(value: Json, path: string): Unwrapped | null {
  if (!isFields(value)) return null;
  if (value.type === 'constructor' && Array.isArray(value.id) && isFields(value.kwargs)) {
    const type = typeNamed(textOr(value.id.at(-1)));
    return type ? { form: 'constructor', type, fields: value.kwargs, path: `${path}.kwargs` } : null;
  }
  const type = typeNamed(textOr(value.type) || textOr(value.role));
  if (!type) return null;
  if (typeof value.type === 'string' && isFields(value.data))
    return { form: 'data', type, fields: value.data, path: `${path}.data` };
  return { form: 'plain', type, fields: value, path };
}

/** Returns the same message with other fields, in its original form. */
export function rewrap(value: Json, { form }: Unwrapped, fields: Fields): Json {
  if (form === 'plain') return fields;
  return { ...(value as Fields), [form === 'data' ? 'data' : 'kwargs']: fields };
}

const classes: Partial<Record<MessageType, string>> = {
  human: 'HumanMessage',
  ai: 'AIMessage',
  system: 'SystemMessage',
  tool: 'ToolMessage',
  function: 'FunctionMessage',
};

export function wrap(form: Form, type: MessageType, fields: Fields): Json {
  if (form === 'plain') return { type, ...fields };
  if (form === 'data') return { type, data: { ...fields, type } };
  const id = ['langchain', 'schema', 'messages', classes[type] ?? 'HumanMessage'];
  return { lc: 1, type: 'constructor', id, kwargs: { ...fields, type } };
}

/** Content of a message. LangChain.js writes the blocks that a message was made of under a name that it does not read. */
const contentIn = ({ content, content_blocks: blocks }: Fields): Json | undefined => content ?? blocks;

/** Converts a message; returns null for a message that only removes other messages. */
export function readMessage(value: Json, path: string): ChatMessage | null {
  const unwrapped = unwrap(fieldsAt(value, path), path);
  if (!unwrapped) {
    const { type, role } = value as Fields;
    const known = `Known types: ${types.join(', ')}.`;
    const named = type ?? role;
    if (typeof named !== 'string') throw mustBe('a string', named, `${path}.type`, known);
    throw invalid(`${path}.type ${JSON.stringify(named)} is not known.`, `${path}.type`, known);
  }
  const { type, fields } = unwrapped;
  if (type === 'remove') return null;
  if (type === 'ai') return readAnswer(fields, unwrapped.path);
  const content = contentOf(readContent(contentIn(fields), `${unwrapped.path}.content`).parts);
  const name = typeof fields.name === 'string' && fields.name !== '' ? { name: fields.name } : {};
  if (type === 'tool') {
    const id = fields.tool_call_id ?? undefined;
    const answered = id === undefined ? {} : { tool_call_id: stringAt(id, `${unwrapped.path}.tool_call_id`) };
    return { role: 'tool', ...answered, ...name, content };
  }
  if (type === 'function') return { role: 'function', ...name, content };
  if (type === 'system') return { role: isDeveloper(fields) ? 'developer' : 'system', ...name, content };
  if (type === 'human') return { role: 'user', ...name, content };
  const role = textOr(fields.role);
  if (/^(?:assistant|system|user)$/.test(role))
    return { role: role as ChatMessage['role'], ...name, content };
  return { role: 'user', ...(role === '' ? name : { name: role }), content };
}

const isDeveloper = ({ role, additional_kwargs: more }: Fields): boolean =>
  role === 'developer' || (isFields(more) && more.__openai_role__ === 'developer');

/** The content of a LangChain message, with the calls and the reasoning that a chat message stores in other fields. */
interface Content {
  parts: ContentPart[];
  calls: ToolCall[];
  thoughts: string[];
}

function readContent(content: Json | undefined, path: string): Content {
  const read: Content = { parts: [], calls: [], thoughts: [] };
  if (content === undefined || content === null || content === '') return read;
  if (typeof content === 'string') return { ...read, parts: [textPart(content)] };
  if (!Array.isArray(content)) throw mustBe('a string or a list of blocks', content, path);
  content.forEach((block, index) => readBlock(block, `${path}[${index}]`, read));
  return read;
}

/** Parts of a streamed call, which its message repeats completely. */
const fragments = /^(?:input_json_delta|tool_call_chunk|invalid_tool_call)$/;

function readBlock(value: Json, path: string, { parts, calls, thoughts }: Content): void {
  if (typeof value === 'string') return void parts.push(textPart(value));
  const block = fieldsAt(value, path);
  const type = stringAt(block.type, `${path}.type`);
  if (/^(?:input_|output_)?text$/.test(type))
    return void parts.push(textPart(stringAt(block.text, `${path}.text`)));
  if (/^(?:redacted_)?thinking$|^reasoning/.test(type)) return void thoughts.push(thoughtOf(block));
  if (type === 'tool_use' || type === 'tool_call' || type === 'function_call') {
    if (typeof block.name === 'string' && block.name !== '')
      calls.push(
        readCall(
          textOr(block.call_id) || textOr(block.id),
          block.name,
          block.input ?? block.args ?? block.arguments,
        ),
      );
    return;
  }
  if (!fragments.test(type)) parts.push(mediaBlock(type, block) ?? placeholder(type, block));
}

function thoughtOf(block: Fields): string {
  const summary = Array.isArray(block.summary) ? block.summary : [];
  const texts = summary.map((part) => (isFields(part) ? textOr(part.text) : textOr(part)));
  return textOr(block.thinking) || textOr(block.reasoning) || textOr(block.text) || texts.join('\n\n');
}

/** Converts a media block of OpenAI, Anthropic or LangChain (both versions of its own blocks). Returns null for any other block. */
function mediaBlock(type: string, block: Fields): ContentPart | null {
  if (type === 'image_url' || type === 'input_audio' || (type === 'file' && isFields(block.file)))
    return type === 'image_url' && typeof block.image_url === 'string'
      ? { type, image_url: { url: block.image_url } }
      : (block as ContentPart);
  if (!/^(?:image|audio|file|video|document|media)$/.test(type)) return null;
  const source = isFields(block.source) ? block.source : block;
  const mediaType = textOr(block.mime_type) || textOr(block.mimeType) || textOr(source.media_type);
  const kind = type === 'image' ? 'image' : mediaKind(mediaType);
  const known = {
    kind,
    mediaType: mediaType || (type === 'image' ? 'image/png' : ''),
    name: textOr(block.filename),
  };
  const data = textOr(source.data) || textOr(block.base64);
  const url = textOr(source.url);
  const fileId = textOr(block.file_id) || (block.source_type === 'id' ? textOr(block.id) : '');
  if (data !== '') return mediaPart({ ...known, data });
  if (url !== '') return mediaPart({ ...known, url });
  return fileId === '' ? null : mediaPart({ ...known, fileId });
}

function readAnswer(fields: Fields, path: string): ChatMessage {
  const { parts, calls: inBlocks, thoughts } = readContent(contentIn(fields), `${path}.content`);
  const more = isFields(fields.additional_kwargs) ? fields.additional_kwargs : {};
  const made = [...callsAt(fields, 'tool_calls', path), ...callsAt(fields, 'invalid_tool_calls', path)];
  const calls = made.length > 0 ? made : providerCalls(more).length > 0 ? providerCalls(more) : inBlocks;
  const legacy = isFields(more.function_call) ? more.function_call : null;
  const thought = [...thoughts, textOr(more.reasoning_content)].filter((text) => text !== '').join('\n\n');
  const isLegacy = calls.length === 0 && legacy !== null && textOr(legacy.name) !== '';
  return {
    role: 'assistant',
    content: parts.length === 0 && (calls.length > 0 || isLegacy) ? null : contentOf(parts),
    ...(typeof fields.name === 'string' && fields.name !== '' ? { name: fields.name } : {}),
    ...(thought === '' ? {} : { reasoning_content: thought }),
    ...(textOr(more.refusal) === '' ? {} : { refusal: textOr(more.refusal) }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...(isLegacy
      ? { function_call: { name: textOr(legacy.name), arguments: textOr(legacy.arguments) } }
      : {}),
  };
}

function callsAt(fields: Fields, field: 'tool_calls' | 'invalid_tool_calls', path: string): ToolCall[] {
  const calls = fields[field] ?? [];
  if (!Array.isArray(calls)) throw mustBe('a list', calls, `${path}.${field}`);
  return calls.map((value, index) => {
    const at = `${path}.${field}[${index}]`;
    const call = fieldsAt(value, at);
    const id = call.id === undefined || call.id === null ? '' : stringAt(call.id, `${at}.id`);
    // OpenAI's spelling, which `convert_to_messages` also accepts.
    if (isFields(call.function)) return providerCall(call, call.function);
    const name = field === 'tool_calls' ? stringAt(call.name, `${at}.name`) : textOr(call.name);
    if (field === 'tool_calls' && name === '')
      throw invalid(`${at}.name must not be empty.`, `${at}.name`, 'Every call must name its tool.');
    return readCall(id, name === '' ? 'unknown_tool' : name, call.args);
  });
}

/** Arguments given as text stay as the model wrote them. */
function readCall(id: string, name: string, args: Json | undefined): ToolCall {
  if (typeof args !== 'string') return toolCall(id, name, args);
  return { id, type: 'function', function: { name, arguments: args } };
}

function providerCalls({ tool_calls: calls }: Fields): ToolCall[] {
  if (!Array.isArray(calls)) return [];
  return calls.flatMap((call) =>
    isFields(call) && isFields(call.function) && textOr(call.function.name) !== ''
      ? [providerCall(call, call.function)]
      : [],
  );
}

function providerCall(call: Fields, called: Fields): ToolCall {
  return readCall(textOr(call.id), textOr(called.name), textOr(called.arguments));
}
