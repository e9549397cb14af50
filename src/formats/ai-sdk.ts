import { isBlank, noOutput } from '../context/view/projection.js';
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import { metaOf, textOf } from '../conversation/validate.js';
import { isUiMessage, modelMessages, readMessage, readModel } from './ai-sdk-messages.js';
import {
  argumentsOf,
  type Fields,
  isFields,
  itemAt,
  type Media,
  mediaOf,
  partsOf,
  placeholder,
  textOr,
  unitsOf,
} from './content.js';
import { envelopeOf, listAt, openLists, withoutEnvelope } from './envelope.js';
import type { Opened, Rendered, RequestFormat, ShownUnit } from './format.js';

/**
 * Messages of Vercel's AI SDK: ModelMessages (`generateText`), and the UIMessages that chats store (`useChat`). A context shows
 * UIMessages as ModelMessages.
 */
export const aiSdk: RequestFormat = {
  name: 'ai-sdk',
  title: 'AI SDK messages',
  contextFormat: 'ai-sdk',
  normalize: (items, path) =>
    unitsOf(
      items.map((item, index) => {
        const fields = envelopeOf(item);
        const messages = fields ? instructionsOf(fields) : readMessage(item, `${path}[${index}]`);
        return itemAt(item, messages, timeOf(item));
      }),
    ),
  // Results may contain media (output of type `content`). Only Google's provider sends the media of an assistant's message.
  refusesMedia: (role) => role === 'assistant' || role === 'system' || role === 'developer',
  requestItems: (items, messages) => [...leading(items), ...withCallIds(items, messages)],
  render: renderAiSdk,
  violations: aiSdkViolations,
  open,
};

/** Returns the time of a UIMessage: version 4 has it as a field; later, applications keep it in the metadata. */
function timeOf(item: Json): Json | undefined {
  if (!isFields(item)) return undefined;
  return item.createdAt ?? (isFields(item.metadata) ? item.metadata.createdAt : undefined);
}

const leading = (items: readonly Json[]): Json[] =>
  items.flatMap((item) => instructionsOf(envelopeOf(item) ?? {}) as unknown as Json[]);

/** `system` is next to the messages and goes first. */
function instructionsOf({ system }: Fields): ChatMessage[] {
  return typeof system === 'string' && system.trim() !== '' ? [{ role: 'system', content: system }] : [];
}

/** Accepts a list of messages, alone or under `messages` of a chat or a request. */
function open(document: Json): Opened | null {
  if (Array.isArray(document)) return areMessages(document) ? { items: document } : null;
  if (!isFields(document)) return null;
  const list = listAt(document, ['messages']);
  if (!list || !areMessages(list.items)) return null;
  const id = textOr(document.id) || textOr(document.chatId);
  const system: Fields = typeof document.system === 'string' ? { system: document.system } : {};
  return { ...(id === '' ? {} : { id }), items: openLists(document, [list], system) };
}

/** Returns whether all items can be messages of the AI SDK, and at least one has parts that no other format has. */
function areMessages(items: readonly Json[]): boolean {
  const possible = (item: Json): boolean =>
    isFields(item) && typeof item.role === 'string' && item.tool_calls === undefined;
  return items.every(possible) && items.some((item) => isUi(item) || (isFields(item) && hasOwnParts(item)));
}

const isUi = (item: Json): boolean =>
  isUiMessage(item) &&
  (item.parts as Json[]).every((part) => isFields(part) && typeof part.type === 'string');

const ownTypes = /^(?:tool-call|tool-result|tool-approval-request|tool-approval-response)$/;

function hasOwnParts({ content }: Fields): boolean {
  return Array.isArray(content) && content.some((part) => isFields(part) && isOwnPart(part));
}

function isOwnPart(part: Fields): boolean {
  const type = textOr(part.type);
  if (ownTypes.test(type)) return true;
  if (type === 'image') return part.image !== undefined;
  return type === 'file' && part.data !== undefined && typeof (part.mediaType ?? part.mimeType) === 'string';
}

/** Returns the items of a unit as ModelMessages. Calls and results get the ids that the unit's messages have in the context. */
function withCallIds(items: readonly Json[], messages: readonly ChatMessage[]): Json[] {
  const calls = messages.flatMap(({ tool_calls: made = [] }) => made.map(({ id }) => id)).values();
  const answered = messages
    .filter(({ role }) => role === 'tool')
    .map(({ tool_call_id: id }) => id)
    .values();
  return withoutEnvelope(items)
    .flatMap((item): Json[] => (isUiMessage(item) ? modelMessages(item).filter(saysSomething) : [item]))
    .map((item): Json => {
      if (!isFields(item) || !Array.isArray(item.content)) return item;
      let same = true;
      const content = item.content.map((part): Json => {
        if (!isFields(part)) return part;
        const calling =
          item.role === 'assistant' && part.type === 'tool-call' && part.providerExecuted !== true;
        const answering = item.role === 'tool' && part.type === 'tool-result';
        const id = calling ? calls.next().value : answering ? answered.next().value : undefined;
        if (id === undefined || id === part.toolCallId) return part;
        same = false;
        return { ...part, toolCallId: id };
      });
      return same ? item : { ...item, content };
    });
}

/** A context never shows a step that has only reasoning. */
const saysSomething = (message: Fields): boolean =>
  readModel(message, 'message').some((one) => !metaOf(one).empty);

function renderAiSdk(units: readonly ShownUnit[]): Rendered {
  const converter = new Converter();
  return {
    messages: units.flatMap(({ items, messages }) => {
      for (const message of messages) converter.learn(message);
      return items ?? messages.map((message) => converter.message(message));
    }),
  };
}

class Converter {
  private readonly toolNames = new Map<string, string>();
  private legacyCalls = 0;

  /** Results name their tool; in chat messages only the call does. */
  learn({ tool_calls: calls = [] }: ChatMessage): void {
    for (const call of calls) this.toolNames.set(call.id, nameOf(call));
  }

  message(message: ChatMessage): Json {
    const { role, content } = message;
    if (role === 'tool') return this.result(message, message.tool_call_id ?? '');
    if (role === 'function') return this.result(message, `call_legacy_${this.legacyCalls}`);
    if (role === 'assistant') return { role, content: this.answer(message) };
    if (role !== 'user') return { role: 'system', content: textOf(message) };
    const text = message.name ? `[${message.name}]\n` : '';
    if (typeof content === 'string') return { role, content: text + content };
    const parts = partsOf(content).flatMap(askingPart);
    return { role, content: text === '' ? parts : [{ type: 'text', text: text.trim() }, ...parts] };
  }

  private answer(message: ChatMessage): Json {
    const calls = [...(message.tool_calls ?? []), ...this.legacyCall(message)];
    if (typeof message.content === 'string' && calls.length === 0 && message.content.trim() !== '')
      return message.content;
    return [
      ...answerTexts(message).map((text): Fields => ({ type: 'text', text })),
      ...calls.map((call): Fields => ({
        type: 'tool-call',
        toolCallId: call.id,
        toolName: nameOf(call),
        input: inputOf(call),
      })),
    ];
  }

  private legacyCall({ function_call: call }: ChatMessage): ToolCall[] {
    if (!call) return [];
    this.legacyCalls += 1;
    const id = `call_legacy_${this.legacyCalls}`;
    this.toolNames.set(id, call.name);
    return [{ id, type: 'function', function: call }];
  }

  private result({ content, name }: ChatMessage, id: string): Json {
    const toolName = this.toolNames.get(id) || name || 'tool';
    const parts = partsOf(content);
    const output = parts.every((part) => part.type === 'text')
      ? { type: 'text', value: isBlank(content) ? noOutput : textOf({ role: 'tool', content }) }
      : { type: 'content', value: parts.flatMap(resultPart) };
    return { role: 'tool', content: [{ type: 'tool-result', toolCallId: id, toolName, output }] };
  }
}

const nameOf = ({ function: called, custom }: ToolCall): string =>
  called?.name ?? textOr((custom as Fields).name);

function inputOf({ function: called, custom }: ToolCall): Fields {
  return called ? argumentsOf(called.arguments) : { input: (custom as Fields).input ?? '' };
}

function answerTexts({ content, refusal }: ChatMessage): string[] {
  const texts = partsOf(content).map((part) => {
    if (/thinking|reasoning/.test(part.type)) return '';
    if (part.type === 'refusal') return textOr(part.refusal as Json);
    return part.type === 'text' ? (part.text ?? '') : textOr(placeholder(part.type, part as Json).text);
  });
  return [...texts, textOr(refusal as Json)].filter((text) => text.trim() !== '');
}

function askingPart(part: ContentPart): Fields[] {
  const media = mediaOf(part);
  const sent = media && sentMedia(media);
  if (sent) return [sent];
  const text = part.type === 'text' ? (part.text ?? '') : textOr(placeholder(part.type, part as Json).text);
  return text.trim() === '' ? [] : [{ type: 'text', text }];
}

/** Files identified only by a provider's id cannot be sent to other providers. */
function sentMedia({ kind, mediaType, data, url, name }: Media): Fields | null {
  const source = data ?? url;
  if (!source) return null;
  if (kind === 'image') return { type: 'image', image: source, ...(mediaType ? { mediaType } : {}) };
  const guessed = /\.pdf$/i.test(name ?? url ?? '') ? 'application/pdf' : 'application/octet-stream';
  return { type: 'file', data: source, mediaType: mediaType || guessed, ...(name ? { filename: name } : {}) };
}

/** Sends media with data in the form of versions 5 and later, and an image with a URL by its address. */
function resultPart(part: ContentPart): Fields[] {
  const media = mediaOf(part);
  if (media?.data)
    return [{ type: 'media', data: media.data, mediaType: media.mediaType || 'application/octet-stream' }];
  const text =
    media?.url ??
    (part.type === 'text' ? (part.text ?? '') : textOr(placeholder(part.type, part as Json).text));
  return text.trim() === '' ? [] : [{ type: 'text', text }];
}

/**
 * Lists what makes `generateText` and `streamText` throw: violations of the schema of ModelMessage (`InvalidPromptError`), and
 * calls without a result before the next user or system message (`MissingToolResultsError`,
 * convert-to-language-model-prompt.ts).
 */
function aiSdkViolations({ messages }: Rendered): string[] {
  const violations: string[] = [];
  const made = new Set<string>();
  let open = new Set<string>();
  messages.forEach((value, index) => {
    const fault = (what: string) => violations.push(`message ${index}: ${what}`);
    if (!isFields(value)) return fault('not a message');
    const { role, content } = value;
    if (role !== 'tool') {
      for (const id of open) fault(`call ${id} has no result before it`);
      open = new Set();
    }
    if (role === 'system')
      return typeof content === 'string' && content.trim() ? undefined : fault('empty system message');
    if (typeof content === 'string')
      return content.trim() && role !== 'tool' ? undefined : fault('empty message');
    if (!Array.isArray(content) || content.every(saysNothing)) return fault('empty message');
    for (const part of content) {
      const what = isFields(part) ? partFault(textOr(role), part) : 'a part that is not an object';
      if (what) fault(what);
      if (!isFields(part)) continue;
      const id = textOr(part.toolCallId);
      if (part.type === 'tool-call' && part.providerExecuted !== true) {
        if (made.has(id)) fault(`call id ${id} used twice`);
        made.add(id);
        open.add(id);
      }
      if (role === 'tool' && part.type === 'tool-result' && !open.delete(id))
        fault(`result for ${id} without its call before it`);
    }
  });
  for (const id of open) violations.push(`call ${id} has no result`);
  return violations;
}

const saysNothing = (part: Json): boolean =>
  isFields(part) &&
  (part.type === 'reasoning' || (part.type === 'text' && textOr(part.text, '.').trim() === ''));

const partsOfRole: Record<string, RegExp> = {
  user: /^(?:text|image|file)$/,
  assistant: /^(?:text|file|reasoning|reasoning-file|custom|tool-call|tool-result|tool-approval-request)$/,
  tool: /^(?:tool-result|tool-approval-response)$/,
};

function partFault(role: string, part: Fields): string | null {
  const type = textOr(part.type);
  if (!partsOfRole[role]?.test(type)) return `a part of type ${type} in a message of ${role}`;
  if (/^(?:text|reasoning)$/.test(type)) return typeof part.text === 'string' ? null : `${type} without text`;
  if (type === 'file') return textOr(part.mediaType) ? null : 'file without mediaType';
  if (!/^tool-(?:call|result)$/.test(type)) return null;
  if (!textOr(part.toolCallId) || !textOr(part.toolName)) return `${type} without id or tool`;
  const complete = type === 'tool-call' ? 'input' in part : isFields(part.output);
  return complete ? null : `${type} without ${type === 'tool-call' ? 'input' : 'output'}`;
}
