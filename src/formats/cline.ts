import type { Json } from '../conversation/message.js';
import { chatMessages, withCallIds } from './anthropic-blocks.js';
import { fieldsAt, isFields, itemAt, placeholder, textOr, unitsOf, type Fields } from './content.js';
import { envelopeOf, listAt, openLists } from './envelope.js';
import type { Format, Unit } from './format.js';

/**
 * Sessions of Cline: Anthropic messages with added times and metrics, Cline's own blocks (`file`, and records without a type in
 * tool results), and the system prompt as a field of the file.
 */
export const cline: Format = {
  name: 'cline',
  title: 'Cline sessions',
  contextFormat: 'anthropic',
  normalize: (items, path) => unitsOf(items.map((item, index) => pieceOf(item, `${path}[${index}]`))),
  requestItems: (items, messages) =>
    withCallIds(
      items.map(messageOf).filter((shown) => shown !== null),
      messages,
    ),
  open(document, layout) {
    if (layout !== 'document') return null;
    if (Array.isArray(document))
      return document.every(isMessage) && document.some(({ ts }) => typeof ts === 'number')
        ? { items: document }
        : null;
    const list = isFields(document) && 'system_prompt' in document ? listAt(document, ['messages']) : null;
    if (!list || !isFields(document) || !list.items.every(isMessage)) return null;
    const id = textOr(document.sessionId);
    return { ...(id === '' ? {} : { id }), items: openLists(document, [list]) };
  },
};

const isMessage = (value: Json): value is Fields =>
  isFields(value) &&
  (value.role === 'user' || value.role === 'assistant') &&
  (typeof value.content === 'string' || Array.isArray(value.content));

/** Returns the system prompt, a field of the file. */
function instructionOf(item: Json): Fields | null {
  const file = envelopeOf(item)?.document;
  const prompt = isFields(file) ? textOr(file.system_prompt) : '';
  return prompt === '' ? null : { role: 'system', content: prompt };
}

function pieceOf(item: Json, path: string): Unit {
  const message = envelopeOf(item) ? instructionOf(item) : fieldsAt(item, path);
  return itemAt(item, message ? chatMessages(message, path) : [], isFields(item) ? item.ts : undefined);
}

function messageOf(item: Json): Fields | null {
  if (!isMessage(item)) return instructionOf(item);
  const { role, content } = item;
  return { role: role!, content: Array.isArray(content) ? content.map(blockOf) : content! };
}

const blockFields: Record<string, readonly string[]> = {
  text: ['text'],
  image: ['source'],
  document: ['source', 'title', 'context', 'citations'],
  thinking: ['thinking', 'signature'],
  redacted_thinking: ['data'],
  tool_use: ['id', 'name', 'input'],
  tool_result: ['tool_use_id', 'content', 'is_error'],
};

/** Returns a block with the fields that the API accepts; Cline's own blocks become text. */
function blockOf(block: Json): Json {
  if (!isFields(block)) return { type: 'text', text: JSON.stringify(block) };
  const { type, path, content } = block;
  const known = blockFields[textOr(type)];
  if (!known && type === 'file' && typeof content === 'string')
    return { type: 'text', text: `[file ${textOr(path)}]\n${content}` };
  if (!known) return { type: 'text', text: placeholder(textOr(type) || 'record', block).text ?? '' };
  const kept = ['type', ...known, 'cache_control'].filter((field) => block[field] !== undefined);
  const fields = Object.fromEntries(kept.map((field) => [field, block[field]!]));
  return type === 'tool_result' && Array.isArray(content)
    ? { ...fields, content: content.map(blockOf) }
    : fields;
}
