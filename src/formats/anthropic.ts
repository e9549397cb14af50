import type { Json } from '../conversation/message.js';
import { chatMessages, withCallIds } from './anthropic-blocks.js';
import { render } from './anthropic-render.js';
import { violations } from './anthropic-rules.js';
import { fieldsAt, isFields, textOr, unitsOf, type Fields } from './content.js';
import { envelopeOf } from './envelope.js';
import { listAt, openLists } from './enveloped.js';
import type { Opened, RequestFormat, Unit } from './format.js';

/**
 * Anthropic messages. An item is a message as a request or a response has it; one of role `system` stands for the
 * request's `system`. A file is a request (`{messages, system?, …}`), a list of messages, or one response.
 */
export const anthropic: RequestFormat = {
  name: 'anthropic',
  title: 'Anthropic messages',
  contextFormat: 'anthropic',
  normalize: (items, path) => unitsOf(items.map((item, index) => pieceOf(item, `${path}[${index}]`))),
  // Results hold images and documents (platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls).
  refusesMedia: (role) => role === 'assistant' || role === 'system' || role === 'developer',
  requestItems: (items, messages) => withCallIds(items.flatMap(requestMessages), messages),
  render,
  violations,
  open(document, layout) {
    if (layout === 'lines' && !Array.isArray(document)) return null;
    if (isResponse(document)) return { ...idOf(document), items: [document] };
    if (!Array.isArray(document)) return openRequest(document);
    const [first] = document;
    const alone = document.length === 1 && isResponse(first); // a response by itself is a file of its own
    return !alone && document.every(isMessage) && document.some(isOfAnthropic) ? { items: document } : null;
  },
  isFile: isResponse,
};

function pieceOf(item: Json, path: string): Unit {
  const message = envelopeOf(item) ? instructionOf(item) : fieldsAt(item, path);
  return { items: [item], messages: message ? chatMessages(message, path) : [] };
}

/** The `system` of the request that was opened. */
function instructionOf(item: Json): Fields | null {
  const request = envelopeOf(item)?.document;
  const system = isFields(request) ? request.system : undefined;
  return isEmptySystem(system) ? null : { role: 'system', content: system! };
}

const isEmptySystem = (system: Json | undefined): boolean =>
  system === undefined || system === null || system === '' || (Array.isArray(system) && system.length === 0);

/** Messages of responses carry what requests do not take: id, model, usage, … */
function requestMessages(item: Json): Fields[] {
  if (!isFields(item)) return [];
  if (envelopeOf(item)) return [instructionOf(item) ?? []].flat();
  const { role, content } = item;
  return [Object.keys(item).length === 2 ? item : { role: role!, content: content! }];
}

function isMessage(value: Json): value is Fields {
  return (
    isFields(value) &&
    (value.role === 'user' || value.role === 'assistant' || value.role === 'system') &&
    (typeof value.content === 'string' || Array.isArray(value.content))
  );
}

function isResponse(value: Json | undefined): value is Fields {
  return isFields(value) && value.type === 'message' && isMessage(value) && Array.isArray(value.content);
}

const ownBlocks =
  /^(?:thinking|redacted_thinking|tool_use|tool_result|server_tool_use|compaction|document|image)$/;

/** Whether a message has blocks that no other format has. */
function isOfAnthropic({ content }: Fields): boolean {
  return (
    Array.isArray(content) && content.some((block) => isFields(block) && ownBlocks.test(textOr(block.type)))
  );
}

function openRequest(document: Json): Opened | null {
  const list = isFields(document) ? listAt(document, ['messages']) : null;
  if (!list || !isFields(document) || !list.items.every(isMessage)) return null;
  // Newer models take system messages among the others as well (platform.claude.com, "Mid-conversation system messages").
  const calls = list.items.some((message) => 'tool_calls' in message || 'tool_call_id' in message);
  const apart = document.system !== undefined && !calls;
  if (!apart && !list.items.some(isOfAnthropic)) return null;
  return { ...idOf(document), items: openLists(document, [list]) };
}

function idOf({ id }: Fields): { id?: string } {
  return typeof id === 'string' && id !== '' ? { id } : {};
}
