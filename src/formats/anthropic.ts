import type { Json } from '../conversation/message.js';
import { asText } from '../conversation/json.js';
import { chatMessages, withCallIds } from './anthropic-blocks.js';
import { render } from './anthropic-render.js';
import { type Fields, fieldsAt, isFields, textOr, unitsOf } from './content.js';
import { envelopeOf, listAt, openLists } from './envelope.js';
import type { Opened, Rendered, RequestFormat, Unit } from './format.js';

/**
 * Anthropic messages. An item is a message of a request or a response; an item of role `system` holds the request's `system`. A
 * file is a request (`{messages, system?, …}`), a list of messages, or one response.
 */
export const anthropic: RequestFormat = {
  name: 'anthropic',
  title: 'Anthropic messages',
  contextFormat: 'anthropic',
  normalize: (items, path) => unitsOf(items.map((item, index) => pieceOf(item, `${path}[${index}]`))),
  // Results may contain images and documents (platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls).
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

/** Returns the `system` of the opened request. */
function instructionOf(item: Json): Fields | null {
  const request = envelopeOf(item)?.document;
  const system = isFields(request) ? request.system : undefined;
  return isEmptySystem(system) ? null : { role: 'system', content: system! };
}

const isEmptySystem = (system: Json | undefined): boolean =>
  system === undefined || system === null || system === '' || (Array.isArray(system) && system.length === 0);

/** Messages of responses have fields that requests do not accept: id, model, usage, … */
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

/** Returns whether a message has blocks that no other format has. */
function isOfAnthropic({ content }: Fields): boolean {
  return (
    Array.isArray(content) && content.some((block) => isFields(block) && ownBlocks.test(textOr(block.type)))
  );
}

function openRequest(document: Json): Opened | null {
  const list = isFields(document) ? listAt(document, ['messages']) : null;
  if (!list || !isFields(document) || !list.items.every(isMessage)) return null;
  // Newer models also accept system messages among the others (platform.claude.com, "Mid-conversation system messages").
  const calls = list.items.some((message) => 'tool_calls' in message || 'tool_call_id' in message);
  const apart = document.system !== undefined && !calls;
  if (!apart && !list.items.some(isOfAnthropic)) return null;
  return { ...idOf(document), items: openLists(document, [list]) };
}

function idOf({ id }: Fields): { id?: string } {
  return typeof id === 'string' && id !== '' ? { id } : {};
}

type Block = Record<string, Json | undefined>;

const asBlock = (value: Json | undefined): Block =>
  value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {};
const isBlank = (value: Json | undefined): boolean => typeof value !== 'string' || value.trim() === '';

/**
 * Lists what Anthropic's Messages API refuses, judged by the request alone. It shares no code with the renderer. Sources:
 * platform.claude.com/docs/en/api/messages, …/agents-and-tools/tool-use/handle-tool-calls and the API's error messages.
 */
function violations({ messages, system }: Rendered): string[] {
  const found: string[] = [];
  const ids = new Set<string>();
  let expected: string[] = [];
  messages.forEach((value, index) => {
    const fault = (what: string) => found.push(`message ${index}: ${what}`);
    const { role, content } = asBlock(value);
    // "Unexpected role"; system is a separate field.
    if (role !== 'user' && role !== 'assistant') fault(`role ${JSON.stringify(role)}`);
    // "messages: first message must use the "user" role" (still enforced by Bedrock and Vertex).
    if (index === 0 && role !== 'user') fault("the first message is not a user's");
    // "messages: roles must alternate between "user" and "assistant"" (the same).
    if (index > 0 && asBlock(messages[index - 1]).role === role)
      fault(`two messages of role ${asText(role)} in a row`);
    const last = index === messages.length - 1;
    if (typeof content === 'string') {
      // "messages: text content blocks must contain non-whitespace text"
      if (isBlank(content)) fault('empty text');
      if (last && role === 'assistant' && content !== content.trimEnd())
        fault('trailing white space at the end');
      checkAnswers([], expected, fault);
      expected = [];
      return;
    }
    // "all messages must have non-empty content"
    if (!Array.isArray(content) || content.length === 0) return fault('no content');
    const blocks = content.map(asBlock);
    blocks.forEach((block) => checkBlock(block, fault));
    if (role === 'user') {
      // "messages.0: `tool_use` blocks can only be in `assistant` messages"
      for (const { type } of blocks)
        if (/^(?:(?:redacted_)?thinking|tool_use|compaction)$/.test(asText(type)))
          fault(`${asText(type)} in a user's message`);
      checkAnswers(blocks, expected, fault);
      expected = [];
    } else {
      checkAnswers([], expected, fault);
      expected = checkCalls(blocks, ids, fault);
      checkEnd(blocks.at(-1)!, last, fault);
    }
  });
  if (expected.length > 0)
    found.push(`message ${messages.length}: calls ${expected.join(', ')} have no result`);
  checkServerPairs(messages, found);
  checkSystem(system, found);
  const marks = countMarks(system) + countMarks(messages);
  // "A maximum of 4 blocks with cache_control may be provided."
  if (marks > 4) found.push(`${marks} blocks with cache_control`);
  return found;
}

type Fault = (what: string) => void;

function checkBlock(block: Block, fault: Fault): void {
  const { type, text, content, cache_control: mark } = block;
  if (typeof type !== 'string') return fault('a block without type');
  if (type === 'text' && isBlank(text)) fault('empty text');
  // "thinking.cache_control: Extra inputs are not permitted"
  if (/thinking/.test(type) && mark) fault('a cache mark on thinking');
  if (type !== 'tool_result' || !Array.isArray(content)) return;
  for (const inner of content.map(asBlock)) {
    if (typeof inner.type !== 'string') fault('a block without type in a result');
    if (inner.type === 'text' && isBlank(inner.text)) fault('empty text in a result');
  }
}

/** "`tool_use` ids were found without `tool_result` blocks immediately after", "unexpected `tool_use_id` found in `tool_result` blocks". */
function checkAnswers(blocks: readonly Block[], expected: readonly string[], fault: Fault): void {
  const results = blocks.filter(({ type }) => type === 'tool_result');
  const left = [...expected];
  for (const { tool_use_id: id } of results) {
    const at = left.indexOf(asText(id));
    if (at < 0) fault(`result ${asText(id)} without its call right before`);
    else left.splice(at, 1);
  }
  if (left.length > 0) fault(`calls ${left.join(', ')} have no result right after`);
  // "In the user message containing tool results, the tool_result blocks must come first in the content array."
  const firstOther = blocks.findIndex(({ type }) => type !== 'tool_result');
  if (firstOther >= 0 && blocks.slice(firstOther).some(({ type }) => type === 'tool_result'))
    fault('a result after other content');
}

function checkCalls(blocks: readonly Block[], ids: Set<string>, fault: Fault): string[] {
  const calls = blocks.filter(({ type }) => type === 'tool_use');
  for (const { id, name, input } of calls) {
    // "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if (typeof id !== 'string' || !/^[a-zA-Z0-9_-]+$/.test(id)) fault(`call id ${JSON.stringify(id)}`);
    // "`tool_use` ids must be unique"
    else if (ids.has(id)) fault(`call id ${id} used twice`);
    else ids.add(id);
    // "tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    if (typeof name !== 'string' || !/^[a-zA-Z0-9_-]{1,128}$/.test(name))
      fault(`tool name ${JSON.stringify(name)}`);
    // "tool_use.input: Input should be a valid dictionary"
    if (input === null || typeof input !== 'object' || Array.isArray(input))
      fault('input that is not an object');
  }
  // Text after a call is refused as a call without its result, because the turn counts as ended there.
  const first = blocks.findIndex(({ type }) => type === 'tool_use');
  const said = blocks.slice(first).some(({ type }) => type !== 'tool_use' && !/thinking/.test(asText(type)));
  if (first >= 0 && said) fault('content after a call');
  for (const { type } of blocks)
    if (type === 'image' || type === 'document' || type === 'tool_result')
      fault(`${type} in an assistant's message`);
  return calls.map(({ id }) => asText(id));
}

/**
 * "`web_search` tool use with id … was found without a corresponding `web_search_tool_result` block", "Each `…_tool_result`
 * block must have a corresponding `server_tool_use` block before it." An answer may follow the results of the client's own
 * tools.
 */
function checkServerPairs(messages: readonly Json[], found: string[]): void {
  const seen = new Set<string>();
  const waiting = new Map<string, number>();
  messages.map(asBlock).forEach(({ role, content }, index) => {
    const fault = (what: string) => found.push(`message ${index}: ${what}`);
    const blocks = Array.isArray(content) ? content.map(asBlock) : [{ type: 'text' }];
    if (role === 'user' && blocks.some(({ type }) => type !== 'tool_result')) {
      for (const id of waiting.keys()) fault(`call ${id} of the provider has no result before it`);
      waiting.clear();
    }
    for (const { type, id, tool_use_id: answered, caller } of blocks) {
      const { tool_id: program } = asBlock(caller);
      if (program !== undefined && !seen.has(asText(program)))
        fault(`a call by ${asText(program)}, which is not shown`);
      if (/^(?:server|mcp)_tool_use$/.test(asText(type))) {
        if (role === 'user' || seen.has(asText(id)))
          fault(`call ${asText(id)} of the provider in a user's message, or made twice`);
        seen.add(asText(id));
        waiting.set(asText(id), index);
      } else if (
        /._tool_result$/.test(asText(type)) &&
        !(role === 'assistant' && waiting.delete(asText(answered)))
      )
        fault(`${asText(type)} ${asText(answered)} without its call`);
    }
  });
  const last = messages.length - 1;
  // If the last message is the assistant's, every provider call of an earlier message must have its result: that turn has
  // ended.
  if (asBlock(messages[last]).role === 'assistant')
    for (const [id, index] of waiting)
      if (index < last) found.push(`call ${id} of the provider has no result`);
}

function checkEnd(block: Block, last: boolean, fault: Fault): void {
  // "The final block in an assistant message cannot be `thinking`."
  if (/thinking/.test(asText(block.type))) fault('thinking at the end');
  // "messages: final assistant content cannot end with trailing whitespace"
  if (last && typeof block.text === 'string' && block.text !== block.text.trimEnd())
    fault('trailing white space at the end');
}

/** "system: text content blocks must be non-empty"; only text is accepted. */
function checkSystem(system: Json | undefined, found: string[]): void {
  if (system === undefined) return;
  if (typeof system === 'string') {
    if (isBlank(system)) found.push('system: empty text');
  } else if (!Array.isArray(system) || system.length === 0) found.push('system: neither text nor blocks');
  else
    for (const block of system.map(asBlock))
      if (block.type !== 'text' || isBlank(block.text))
        found.push('system: a block that is not text, or an empty one');
}

function countMarks(value: Json | undefined): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, inner) => sum + countMarks(inner), 0);
  const { cache_control: mark, content } = asBlock(value);
  return (mark ? 1 : 0) + (Array.isArray(content) ? countMarks(content) : 0);
}
