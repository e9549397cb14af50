import { refusesChatMedia } from '../context/view/moved-media.js';
import { instantIn } from '../conversation/instant.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { chatMessages } from '../conversation/validate.js';
import { validateView } from '../context/view/validity.js';
import { isFields, itemAt, textOr, unitsOf, type Fields } from './content.js';
import { envelopeOf, listAt, openLists } from './envelope.js';
import type { Opened, RequestFormat } from './format.js';

/** OpenAI chat completions, the form in which every log is stored. */
export const openaiChat: RequestFormat = {
  name: 'openai-chat',
  title: 'OpenAI chat completions',
  contextFormat: 'openai-chat',
  normalize(items, path) {
    const isMetadata = items.map((item) => envelopeOf(item) !== null);
    const checked = chatMessages(
      items.map((item, index) => (isMetadata[index] ? { role: 'assistant' } : item)),
      path,
    );
    return unitsOf(
      checked.map((message, index) =>
        itemAt(items[index]!, isMetadata[index] ? [] : [message], timeIn(message)),
      ),
    );
  },
  refusesMedia: refusesChatMedia,
  render: (units) => ({ messages: units.flatMap(({ messages }) => messages as unknown as Json[]) }),
  violations: ({ messages }) => validateView(messages as unknown as ChatMessage[]),
  open,
};

/** Providers have no field for the time. Platforms that add such a field use one of these names. */
function timeIn({ at, timestamp, created_at: created, createdAt }: ChatMessage): Json | undefined {
  return (at ?? timestamp ?? created ?? createdAt) as Json | undefined;
}

/** Returns the time that a chat message has, in ISO 8601 UTC. */
export function timeOf(message: ChatMessage): string | undefined {
  return instantIn(timeIn(message)) ?? undefined;
}

/**
 * Accepts a list of messages, alone or under `messages` of a request or a record. Tried last, because other formats look
 * similar.
 */
function open(document: Json): Opened | null {
  if (Array.isArray(document)) return areMessages(document) ? { items: document } : null;
  if (!isFields(document)) return null;
  const list = listAt(document, ['messages']);
  if (!list || !areMessages(list.items)) return null;
  const id = textOr(document.id) || textOr(document.session_id);
  return { ...(id === '' ? {} : { id }), items: openLists(document, [list]) };
}

const areMessages = (items: readonly Json[]): items is Fields[] =>
  items.length > 0 && items.every((item) => isFields(item) && typeof item.role === 'string');
