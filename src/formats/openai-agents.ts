import { invalid } from '../errors.js';
import type { Json } from '../conversation/message.js';
import { responsesItem } from './agents-items.js';
import { fieldsAt, isFields, textOr, type Fields } from './content.js';
import { envelopeOf, listAt, openLists } from './envelope.js';
import type { Format, Opened } from './format.js';
import { readItem, unitsOfItems, type Meaning } from './responses-items.js';
import { renderResponses, withCallIds } from './responses-render.js';

/**
 * Run states of the OpenAI Agents SDK (Python `RunState.to_json`, JavaScript `RunState.toString`): the original input, then the
 * generated items, each of which wraps a raw item of the Responses API. Requests for approval repeat a call and stand for no
 * message.
 */
export const openaiAgents: Format = {
  name: 'openai-agents',
  title: 'OpenAI Agents run state',
  contextFormat: 'openai-responses',
  normalize: (items, path) =>
    unitsOfItems(items.map((item, index) => ({ item, meaning: meaningOf(item, `${path}[${index}]`) }))),
  requestItems(items, messages) {
    const requested = items.flatMap((item) => rawOf(item) ?? []).map(responsesItem);
    return requested.every((item) => item !== null)
      ? withCallIds(requested, messages)
      : renderResponses([{ items: null, messages: [...messages] }]).messages;
  },
  open,
};

const rawField = (item: Fields): string | null =>
  'raw_item' in item ? 'raw_item' : 'rawItem' in item ? 'rawItem' : null;

/** Returns the item of the API, or null for other values. */
function rawOf(value: Json): Json | null {
  if (!isFields(value) || envelopeOf(value) || value.type === 'tool_approval_item') return null;
  const field = rawField(value);
  const raw = field === null ? value : value[field]!;
  // The SDK passes on items of the API that it does not know.
  return isFields(raw) && raw.type === 'unknown' && isFields(raw.providerData) ? raw.providerData : raw;
}

function meaningOf(value: Json, path: string): Meaning {
  const item = fieldsAt(value, path);
  const raw = rawOf(item);
  const field = rawField(item);
  return raw === null ? null : readItem(raw, field === null ? path : `${path}.${field}`);
}

const lists = [
  ['original_input', 'generated_items'],
  ['originalInput', 'generatedItems'],
] as const;

function open(document: Json): Opened | null {
  if (!isFields(document)) return null;
  for (const [asked, generated] of lists) {
    const input = listAt(document, [asked], true);
    const items = listAt(document, [generated]);
    if (!input || !items) continue;
    if (input.items.length + items.items.length === 0)
      throw invalid(
        `The run state has no messages: ${asked} and ${generated} are empty.`,
        asked,
        'A run that has not started has nothing to import.',
      );
    const id = textOr(document.conversation_id) || textOr(document.conversationId);
    return { ...(id === '' ? {} : { id }), items: openLists(document, [input, items]) };
  }
  return null;
}
