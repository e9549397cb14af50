import type { Json } from '../message.js';
import { fieldsAt, isFields, unitsOf, type Fields } from './content.js';
import { envelope, envelopeOf } from './envelope.js';
import type { RequestFormat, Unit } from './format.js';
import { chatMessages, read, withCallIds } from './gemini-parts.js';
import { render } from './gemini-render.js';
import { violations } from './gemini-rules.js';

/**
 * Gemini contents. An item is a content as a request or a candidate has it; one of role `system` stands for
 * `systemInstruction`. A file is a request (`{contents, systemInstruction?, …}`) or a list of contents.
 */
export const gemini: RequestFormat = {
  name: 'gemini',
  title: 'Gemini contents',
  contextFormat: 'gemini',
  normalize: (items, path) => unitsOf(items.map((item, index) => pieceOf(item, `${path}[${index}]`))),
  requestItems: (items, messages) => withCallIds(items.flatMap(requestContents), messages),
  render,
  violations,
  open(document, layout) {
    if (layout !== 'document') return null;
    if (Array.isArray(document))
      return document.length > 0 && document.every(isContent) ? { items: document } : null;
    if (!isFields(document) || !Array.isArray(document.contents) || !document.contents.every(isContent))
      return null;
    return { items: [envelope({ ...document, contents: [] }), ...document.contents] };
  },
  close(items) {
    const fields = envelopeOf(items[0]);
    return fields ? { ...fields, contents: items.slice(1) } : [...items];
  },
};

function pieceOf(item: Json, path: string): Unit {
  const fields = envelopeOf(item);
  const content = fields ? instructionOf(fields) : fieldsAt(item, path);
  return { items: [item], messages: content ? chatMessages(content, path) : [] };
}

/** What a request says as `systemInstruction`, as an item of its own would. */
function instructionOf(request: Fields): Fields | null {
  const instruction = read(request, 'systemInstruction');
  if (typeof instruction === 'string') return { role: 'system', parts: [{ text: instruction }] };
  if (!isFields(instruction) || !Array.isArray(instruction.parts)) return null;
  return { role: 'system', parts: instruction.parts };
}

function requestContents(item: Json): Fields[] {
  if (!isFields(item)) return [];
  const fields = envelopeOf(item);
  const content = fields ? instructionOf(fields) : item;
  return content ? [content] : [];
}

const isContent = (value: Json): value is Fields =>
  isFields(value) &&
  (value.role === 'user' || value.role === 'model' || value.role === 'function' || value.role === 'system') &&
  Array.isArray(value.parts);
