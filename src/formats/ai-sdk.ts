import type { ChatMessage, Json } from '../conversation/message.js';
import { isUiMessage, readMessage } from './ai-sdk-messages.js';
import { aiSdkViolations, renderAiSdk, withCallIds } from './ai-sdk-render.js';
import { isFields, itemAt, textOr, unitsOf, type Fields } from './content.js';
import { envelopeOf } from './envelope.js';
import { listAt, openLists } from './enveloped.js';
import type { Opened, RequestFormat } from './format.js';

/**
 * Messages of Vercel's AI SDK: ModelMessages (`generateText`), and the UIMessages that chats keep (`useChat`), which a
 * context shows as ModelMessages.
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
  // Results may hold media (output of type `content`); those of an assistant's message reach no provider but Google's.
  refusesMedia: (role) => role === 'assistant' || role === 'system' || role === 'developer',
  requestItems: (items, messages) => [...leading(items), ...withCallIds(items, messages)],
  render: renderAiSdk,
  violations: aiSdkViolations,
  open,
};

/** Of a UIMessage: beside it in version 4, among its metadata since, where applications keep it. */
function timeOf(item: Json): Json | undefined {
  if (!isFields(item)) return undefined;
  return item.createdAt ?? (isFields(item.metadata) ? item.metadata.createdAt : undefined);
}

const leading = (items: readonly Json[]): Json[] =>
  items.flatMap((item) => instructionsOf(envelopeOf(item) ?? {}) as unknown as Json[]);

/** `system` beside the messages leads them. */
function instructionsOf({ system }: Fields): ChatMessage[] {
  return typeof system === 'string' && system.trim() !== '' ? [{ role: 'system', content: system }] : [];
}

/** A list of messages, alone or under `messages` of a chat or a request. */
function open(document: Json): Opened | null {
  if (Array.isArray(document)) return areMessages(document) ? { items: document } : null;
  if (!isFields(document)) return null;
  const list = listAt(document, ['messages']);
  if (!list || !areMessages(list.items)) return null;
  const id = textOr(document.id) || textOr(document.chatId);
  const system: Fields = typeof document.system === 'string' ? { system: document.system } : {};
  return { ...(id === '' ? {} : { id }), items: openLists(document, [list], system) };
}

/** Whether some message has parts that no other format has, and all could stand beside it. */
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
