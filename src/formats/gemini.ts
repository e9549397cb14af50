import type { Json } from '../conversation/message.js';
import { fieldsAt, isFields, unitsOf, type Fields } from './content.js';
import { envelopeOf } from './envelope.js';
import { listAt, openLists } from './enveloped.js';
import type { RequestFormat, Unit } from './format.js';
import { chatMessages, read } from './gemini-parts.js';
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
  // A model's turn may hold media, and media of a function stand beside its response; `systemInstruction` is text only.
  refusesMedia: (role) => role === 'system' || role === 'developer',
  requestItems: (items) => items.flatMap(requestContents),
  render,
  violations,
  open(document, layout) {
    if (layout === 'lines' && !Array.isArray(document)) return null;
    if (Array.isArray(document))
      return document.length > 0 && document.every(isContent) ? { items: document } : null;
    const list = isFields(document) ? listAt(document, ['contents']) : null;
    return list && isFields(document) && list.items.every(isContent)
      ? { items: openLists(document, [list]) }
      : null;
  },
};

function pieceOf(item: Json, path: string): Unit {
  const content = envelopeOf(item) ? instructionOf(item) : fieldsAt(item, path);
  return { items: [item], messages: content ? chatMessages(content, path) : [] };
}

/** What the request that was opened says as `systemInstruction`, as an item of its own would. */
function instructionOf(item: Json): Fields | null {
  const request = envelopeOf(item)?.document;
  const instruction = isFields(request) ? read(request, 'systemInstruction') : undefined;
  if (typeof instruction === 'string') return { role: 'system', parts: [{ text: instruction }] };
  if (!isFields(instruction) || !Array.isArray(instruction.parts)) return null;
  return { role: 'system', parts: instruction.parts };
}

function requestContents(item: Json): Fields[] {
  if (!isFields(item)) return [];
  if (!envelopeOf(item)) return [item];
  const content = instructionOf(item);
  return content ? [content] : [];
}

const isContent = (value: Json): value is Fields =>
  isFields(value) &&
  (value.role === 'user' || value.role === 'model' || value.role === 'function' || value.role === 'system') &&
  Array.isArray(value.parts);
