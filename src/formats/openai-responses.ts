import type { Json } from '../conversation/message.js';
import { isFields, textOr, type Fields } from './content.js';
import { listAt, openLists, type List } from './enveloped.js';
import type { Opened, RequestFormat } from './format.js';
import { readItem, unitsOfItems } from './responses-items.js';
import { renderResponses, withCallIds } from './responses-render.js';
import { responsesViolations } from './responses-rules.js';

/** OpenAI Responses: input and output items. Instructions beside them lead, and go back beside them. */
export const openaiResponses: RequestFormat = {
  name: 'openai-responses',
  title: 'OpenAI Responses',
  contextFormat: 'openai-responses',
  normalize: (items, path) =>
    unitsOfItems(items.map((item, index) => ({ item, meaning: readItem(item, `${path}[${index}]`) }))),
  // The output of a function is text, images and files; an assistant's message is text and refusals.
  refusesMedia: (role, { type }) =>
    role === 'tool' || role === 'function' ? type === 'input_audio' : role !== 'user',
  requestItems: withCallIds,
  render: renderResponses,
  violations: responsesViolations,
  open,
};

/** Items in a list; a request (`input`), a response (`output`), or both (`responses_create_params` and `response`). */
function open(document: Json): Opened | null {
  if (Array.isArray(document)) return areItems(document) ? { items: document } : null;
  if (!isFields(document)) return null;
  const { responses_create_params: request, response } = document;
  if (isFields(request) && isFields(response)) {
    const lists = [
      listAt(document, ['responses_create_params', 'input'], true),
      outputOf(document, ['response']),
    ];
    return opened(document, lists, request, textOr(response.id));
  }
  if (document.object === 'response')
    return opened(document, [outputOf(document, [])], document, textOr(document.id));
  const input = listAt(document, ['input'], true);
  const isRequest =
    input && (input.text || areItems(input.items) || typeof document.instructions === 'string');
  return isRequest ? opened(document, [input], document, '') : null;
}

const outputOf = (document: Fields, path: string[]): List | null => listAt(document, [...path, 'output']);

function opened(
  document: Fields,
  lists: (List | null)[],
  { instructions }: Fields,
  id: string,
): Opened | null {
  const found = lists.filter((list) => list !== null);
  if (found.length < lists.length) return null;
  const leading: Fields = typeof instructions === 'string' ? { instructions } : {};
  return { ...(id === '' ? {} : { id }), items: openLists(document, found, leading) };
}

const itemTypes =
  /^(?:message|reasoning|compaction|compaction_trigger|item_reference|additional_tools|program|[a-z_]+_call|[a-z_]+_output|mcp_[a-z_]+)$/;
const partTypes = /^(?:input_(?:text|image|file)|output_text)$/;

/** Whether all are messages or items of the API, and something among them says so: a chat message has no `type`. */
export function areItems(items: readonly Json[]): boolean {
  return items.every((item) => isFields(item) && (isTyped(item) || isUntyped(item))) && items.some(isOwn);
}

/** A message of type `message` is one of Anthropic's where its parts are. */
const isTyped = (item: Fields): boolean =>
  item.type === 'message'
    ? hasRole(item) && !hasParts(item, /^(?!input_|output_|refusal)/)
    : itemTypes.test(textOr(item.type));

const isUntyped = (item: Fields): boolean =>
  item.type === undefined && item.tool_calls === undefined && hasRole(item);

const isOwn = (item: Json): boolean => isFields(item) && (isTyped(item) || hasParts(item, partTypes));

const hasRole = ({ role }: Fields): boolean =>
  ['user', 'assistant', 'system', 'developer'].includes(textOr(role));

const hasParts = ({ content }: Fields, types: RegExp): boolean =>
  Array.isArray(content) && content.some((part) => isFields(part) && types.test(textOr(part.type)));
