import type { Json } from '../conversation/message.js';
import { isFields, textOr, unitsOf } from './content.js';
import { envelopeOf, withoutEnvelope } from './envelope.js';
import { listAt, openLists } from './enveloped.js';
import type { Opened, RequestFormat } from './format.js';
import { readMessage, unwrap } from './langchain-messages.js';
import { langchainViolations, renderLangchain, withCallIds } from './langchain-render.js';

/**
 * LangChain messages, in each form that LangChain writes. A context keeps the form of the session; one of a session in
 * another format has plain dictionaries, for `convert_to_messages` (Python) or `coerceMessageLikeToMessage` (JavaScript).
 * A RemoveMessage is kept and not acted upon: the log only grows.
 */
export const langchain: RequestFormat = {
  name: 'langchain',
  title: 'LangChain messages',
  contextFormat: 'langchain',
  normalize: (items, path) =>
    unitsOf(
      items.map((item, index) => {
        const message = envelopeOf(item) ? null : readMessage(item, `${path}[${index}]`);
        return { items: [item], messages: message ? [message] : [] };
      }),
    ),
  // LangChain takes media in every message, its providers do not: all of them take those of a HumanMessage.
  refusesMedia: (role) => role !== 'user',
  requestItems(items, messages) {
    const own = withoutEnvelope(items).filter((item) => unwrap(item, '')?.type !== 'remove');
    return withCallIds(own, messages) ?? renderLangchain([{ items: null, messages: [...messages] }]).messages;
  },
  render: renderLangchain,
  violations: langchainViolations,
  open,
};

/** A list of messages, alone or under `messages` (a state, a request) or `values.messages` (a thread of LangGraph). */
function open(document: Json): Opened | null {
  if (Array.isArray(document)) return areMessages(document) ? { items: document } : null;
  if (!isFields(document)) return null;
  const list = listAt(document, ['messages']) ?? listAt(document, ['values', 'messages']);
  if (!list || !areMessages(list.items)) return null;
  const id = textOr(document.thread_id) || textOr(document.id);
  return { ...(id === '' ? {} : { id }), items: openLists(document, [list]) };
}

/** Chat messages have a role and no type of message. */
function areMessages(items: readonly Json[]): boolean {
  return (
    items.length > 0 && items.every((item) => isFields(item) && typeof item.type === 'string' && isOwn(item))
  );
}

function isOwn(item: Json): boolean {
  const unwrapped = unwrap(item, '');
  return unwrapped !== null && (unwrapped.type === 'remove' || 'content' in unwrapped.fields);
}
