import type { Json } from '../conversation/message.js';
import { isFields, itemAt, textOr, unitsOf, type Fields } from './content.js';
import { listAt, openLists } from './envelope.js';
import type { Format, Unit } from './format.js';
import { chatMessages, read } from './gemini-parts.js';

/**
 * Sessions of Google's Agent Development Kit; an item is an event. Events with content carry a Gemini content; others (state
 * changes, transfers, parts of an answer that is still streaming) stand for no message.
 */
export const googleAdk: Format = {
  name: 'google-adk',
  title: 'Google ADK sessions',
  contextFormat: 'gemini',
  normalize: (items, path) => unitsOf(items.map((item, index) => pieceOf(item, `${path}[${index}]`))),
  requestItems: (items) => items.map(contentOf).filter((shown) => shown !== null),
  open(document, layout) {
    const list = layout === 'document' && isFields(document) ? listAt(document, ['events']) : null;
    if (!list || !isFields(document) || !list.items.every(isEvent)) return null;
    const id = textOr(document.id);
    return { ...(id === '' ? {} : { id }), items: openLists(document, [list]) };
  },
};

const isEvent = (value: Json): value is Fields => isFields(value) && typeof value.author === 'string';

function pieceOf(item: Json, path: string): Unit {
  const content = contentOf(item);
  const messages = content ? chatMessages(content, `${path}.content`) : [];
  return itemAt(item, messages, isFields(item) ? item.timestamp : undefined);
}

/** Returns the content of an event in the form of a request. If it has no role, its author determines the role. */
function contentOf(item: Json): Fields | null {
  if (!isEvent(item) || item.partial === true || !isFields(item.content)) return null;
  const { role, parts } = item.content;
  if (parts === undefined || parts === null) return null;
  if (typeof role === 'string' && role !== '') return item.content;
  const answers =
    Array.isArray(parts) && parts.some((part) => isFields(part) && isFields(read(part, 'functionResponse')));
  return { ...item.content, role: item.author === 'user' || answers ? 'user' : 'model' };
}
