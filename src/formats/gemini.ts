import type { Json } from '../conversation/message.js';
import { asText } from '../conversation/json.js';
import { type Fields, fieldsAt, isFields, unitsOf } from './content.js';
import { envelopeOf, listAt, openLists } from './envelope.js';
import type { Rendered, RequestFormat, Unit } from './format.js';
import { chatMessages, read } from './gemini-parts.js';
import { render } from './gemini-render.js';

/**
 * Gemini contents. An item is a content of a request or a candidate; an item of role `system` holds `systemInstruction`. A file
 * is a request (`{contents, systemInstruction?, …}`) or a list of contents.
 */
export const gemini: RequestFormat = {
  name: 'gemini',
  title: 'Gemini contents',
  contextFormat: 'gemini',
  normalize: (items, path) => unitsOf(items.map((item, index) => pieceOf(item, `${path}[${index}]`))),
  // A model's turn may contain media, and media of a function are next to its response; `systemInstruction` is text only.
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

/** Returns the `systemInstruction` of the opened request as an item. */
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

type Part = Record<string, Json | undefined>;

const asPart = (value: Json | undefined): Part =>
  value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {};
const callOf = (part: Part): Json | undefined => part.functionCall ?? part.function_call;
const responseOf = (part: Part): Json | undefined => part.functionResponse ?? part.function_response;
const identity = (value: Json | undefined): string => {
  const { id, name } = asPart(value);
  return `${asText(name)} ${id ? asText(id) : '-'}`;
};

/**
 * Lists what Gemini's generateContent refuses, judged by the request alone. It shares no code with the renderer. Sources:
 * ai.google.dev/api/caching#Content, ai.google.dev/gemini-api/docs/function-calling and the API's error messages.
 */
function violations({ messages, system }: Rendered): string[] {
  const found: string[] = [];
  let expected: string[] = [];
  let before = '';
  messages.forEach((value, index) => {
    const fault = (what: string) => found.push(`content ${index}: ${what}`);
    const { role, parts } = asPart(value);
    // "Please use a valid role: user, model."; `function` is its older name for responses.
    if (role !== 'user' && role !== 'model' && role !== 'function') fault(`role ${JSON.stringify(role)}`);
    const speaker = role === 'model' ? 'model' : 'user';
    // "Please ensure that the first content is from the user" (multiturn requests begin with a user's turn).
    if (index === 0 && speaker !== 'user') fault("the first content is not a user's");
    // "Please ensure that multiturn requests alternate between user and model."
    if (speaker === before) fault(`two contents of ${speaker} in a row`);
    before = speaker;
    // "contents.parts must not be empty."
    if (!Array.isArray(parts) || parts.length === 0) return fault('no parts');
    const read = parts.map(asPart);
    read.forEach((part) => checkPart(part, speaker, fault));
    checkResponses(read, expected, fault);
    expected = read.flatMap((part) => (callOf(part) === undefined ? [] : [identity(callOf(part))]));
  });
  if (expected.length > 0) found.push(`content ${messages.length}: no responses for ${expected.join(', ')}`);
  checkSystem(system, found);
  return found;
}

type Fault = (what: string) => void;
const aside = new Set([
  'thought',
  'thoughtSignature',
  'thought_signature',
  'videoMetadata',
  'video_metadata',
]);

function checkPart(part: Part, speaker: string, fault: Fault): void {
  const fields = Object.entries(part).filter(([name, value]) => !aside.has(name) && value !== null);
  const signed = part.thoughtSignature !== undefined || part.thought_signature !== undefined;
  // "parts[0].data: required oneof field 'data' must have one initialized field"
  if (fields.length === 0 || (part.text === '' && !signed)) fault('a part without data');
  for (const link of [callOf(part), responseOf(part)]) {
    if (link === undefined) continue;
    const { name, args, response } = asPart(link);
    // ai.google.dev/api/caching#FunctionCall
    if (typeof name !== 'string' || !/^[a-zA-Z0-9_:.-]{1,128}$/.test(name))
      fault(`name ${JSON.stringify(name)}`);
    for (const struct of [args, response])
      if (struct !== undefined && struct !== null && (typeof struct !== 'object' || Array.isArray(struct)))
        fault('arguments or response that are not an object');
  }
  if (speaker === 'user' && callOf(part) !== undefined) fault('a call by the user');
  if (speaker === 'model' && responseOf(part) !== undefined) fault('a response by the model');
}

/**
 * "Please ensure that the number of function response parts is equal to the number of function call parts of the function
 * call turn.", "… that function response turn comes immediately after a function call turn."
 */
function checkResponses(parts: readonly Part[], expected: readonly string[], fault: Fault): void {
  const responses = parts.flatMap((part) =>
    responseOf(part) === undefined ? [] : [identity(responseOf(part))],
  );
  if (responses.length !== expected.length)
    fault(`${responses.length} responses to ${expected.length} calls of the turn before`);
  else if ([...responses].sort().join() !== [...expected].sort().join())
    fault(`responses ${responses.join(', ')} to calls ${expected.join(', ')}`);
}

/** "Developer instruction … text only" (ai.google.dev/api/generate-content, systemInstruction). */
function checkSystem(system: Json | undefined, found: string[]): void {
  if (system === undefined) return;
  const { parts } = asPart(system);
  if (!Array.isArray(parts) || parts.length === 0) return void found.push('system: no parts');
  for (const part of parts.map(asPart))
    if (typeof part.text !== 'string' || part.text.trim() === '')
      found.push('system: a part that is not text, or an empty one');
}
