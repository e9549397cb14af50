import type { ChatMessage, ContentPart, Json } from '../conversation/message.js';
import {
  assistantMessage,
  contentOf,
  isFields,
  itemAt,
  placeholder,
  textOr,
  textPart,
  unitsOf,
  type Fields,
} from './content.js';
import { closeItems } from './close.js';
import { envelope, envelopeOf } from './envelope.js';
import type { Format, ItemReader, Unit } from './format.js';

/**
 * Conversations of a ChatGPT export. Each is an element of `conversations.json`: a tree of nodes under `mapping`. An item is a
 * node. The conversation is the branch that ends at `current_node`. Nodes of other branches (repeated answers, edited requests)
 * follow the node at which they branch off, and stand for no message.
 */
export const chatgpt: Format = {
  name: 'chatgpt',
  title: 'ChatGPT exports',
  contextFormat: 'openai-chat',
  normalize(items) {
    const branch = branchOf(items);
    let open: Call | null = null;
    const pieces = items.map((item): Unit => {
      const message = isFields(item) && (branch === null || branch.has(nodeId(item))) ? item.message : null;
      if (!isFields(message)) return { items: [item], messages: [] };
      const read = messageOf(message, nodeId(item as Fields), open);
      if (read.call !== undefined) open = read.call;
      return itemAt(item, [read.message], message.create_time);
    });
    return unitsOf(pieces);
  },
  open(document, layout) {
    if (layout !== 'document' || !isFields(document) || !isFields(document.mapping)) return null;
    const id = textOr(document.conversation_id) || textOr(document.id);
    return { ...(id === '' ? {} : { id }), items: openTree(document, document.mapping) };
  },
  close: closeTree,
};

const nodeId = ({ id }: Fields): string => textOr(id);

/**
 * The envelope keeps the original order of the nodes; the items follow the branch, each with the nodes that branch off from it.
 */
function openTree(document: Fields, mapping: Fields): Json[] {
  const nodes = new Map<string, Fields>();
  for (const [id, node] of Object.entries(mapping))
    if (isFields(node) && nodeId(node) === id) nodes.set(id, node);
  const branch = pathTo(textOr(document.current_node), nodes);
  const onBranch = new Set(branch);
  const items: Json[] = [];
  const seen = new Set<string>();
  const visit = (id: string): void => {
    const left = [id];
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      const node = nodes.get(next);
      if (!node || seen.has(next)) continue;
      seen.add(next);
      items.push(node);
      const children = Array.isArray(node.children)
        ? node.children.filter((child) => typeof child === 'string')
        : [];
      left.push(...children.filter((child) => !onBranch.has(child)).reverse());
    }
  };
  branch.forEach(visit);
  [...nodes.keys()].forEach(visit);
  const rest = Object.entries(mapping).map(([id, node]): [string, Json] => [id, nodes.has(id) ? null : node]);
  return [envelope({ ...document, mapping: Object.fromEntries(rest) }), ...items];
}

/** Holds the text of every node, because the file orders them differently from the conversation. */
async function* closeTree(items: ItemReader): AsyncGenerator<string> {
  const fields = envelopeOf(await items.peek());
  if (!fields || !isFields(fields.mapping)) {
    yield* closeItems(items, {});
    return;
  }
  await items.next();
  const nodes = new Map<string, string>();
  for await (const node of items.rest()) nodes.set(isFields(node) ? nodeId(node) : '', JSON.stringify(node));
  let before = '{';
  for (const [field, value] of Object.entries(fields)) {
    yield `${before}${JSON.stringify(field)}:`;
    if (field === 'mapping') yield* mappingOf(fields.mapping, nodes);
    else yield JSON.stringify(value);
    before = ',';
  }
  yield '}\n';
}

/** Nodes added after the file was opened go to its end. */
function* mappingOf(mapping: Fields, nodes: ReadonlyMap<string, string>): Generator<string> {
  const known = Object.entries(mapping).map(
    ([id, rest]) => [id, nodes.get(id) ?? JSON.stringify(rest)] as const,
  );
  const added = [...nodes].filter(([id]) => !Object.hasOwn(mapping, id));
  let before = '{';
  for (const [id, text] of [...known, ...added]) {
    yield `${before}${JSON.stringify(id)}:${text}`;
    before = ',';
  }
  yield before === '{' ? '{}' : '}';
}

/** Returns the ids from the root to a node; if that node does not exist, to the last node without children. */
function pathTo(current: string, nodes: ReadonlyMap<string, Fields>): string[] {
  const isLeaf = ({ children }: Fields): boolean => !Array.isArray(children) || children.length === 0;
  const leaf = nodes.get(current) ?? [...nodes.values()].findLast(isLeaf);
  const path: string[] = [];
  const seen = new Set<string>();
  for (let node = leaf; node && !seen.has(nodeId(node)); node = nodes.get(textOr(node.parent))) {
    seen.add(nodeId(node));
    path.unshift(nodeId(node));
  }
  return path;
}

/**
 * Returns the ids of the conversation's nodes; null if the items are not the tree of a file, in which case all nodes belong to
 * it.
 */
function branchOf(items: readonly Json[]): Set<string> | null {
  const fields = envelopeOf(items[0]);
  if (!fields) return null;
  const nodes = new Map(
    items
      .slice(1)
      .filter(isFields)
      .map((node) => [nodeId(node), node]),
  );
  return new Set(pathTo(textOr(fields.current_node), nodes));
}

interface Call {
  id: string;
  tool: string;
}

/**
 * `open` is the call that waits for a result before this message. The returned `call` is the one that waits after it (null:
 * none); absent if nothing changes.
 */
function messageOf(
  message: Fields,
  id: string,
  open: Call | null,
): { message: ChatMessage; call?: Call | null } {
  const author = isFields(message.author) ? message.author : {};
  const content = isFields(message.content) ? message.content : {};
  const recipient = textOr(message.recipient, 'all') || 'all';
  const parts = partsOf(content);
  const role = textOr(author.role);
  if (role === 'system') return { message: { role, content: contentOf(parts) } };
  if (role === 'assistant') {
    const thoughts = /^(?:thoughts|reasoning_recap)$/.test(textOr(content.content_type));
    if (thoughts) return { message: assistantMessage([], [], textsOf(parts)) };
    if (recipient === 'all') return { message: assistantMessage(parts), call: null };
    const call = { id, type: 'function', function: { name: recipient, arguments: jsonOr(textsOf(parts)) } };
    return { message: assistantMessage([], [call]), call: { id, tool: recipient } };
  }
  if (role !== 'tool') return { message: { role: 'user', content: contentOf(parts) }, call: null };
  const name = textOr(author.name);
  const result = { role, content: contentOf(parts), ...(name === '' ? {} : { name }) } as const;
  const answers = open !== null && (name === '' || toolOf(open.tool) === toolOf(name));
  return answers ? { message: { ...result, tool_call_id: open.id }, call: null } : { message: result };
}

/** `browser.search` is a function of the tool `browser`. */
const toolOf = (name: string): string | undefined => name.split('.')[0];

const textsOf = (parts: readonly ContentPart[]): string => parts.map(({ text }) => text ?? '').join('\n');

/** Returns arguments as JSON text; code and search queries are not JSON. */
function jsonOr(text: string): string {
  try {
    return typeof JSON.parse(text) === 'object' ? text : JSON.stringify({ input: text });
  } catch {
    return JSON.stringify({ input: text });
  }
}

function partsOf(content: Fields): ContentPart[] {
  const { content_type: type, parts, text, thoughts, result } = content;
  const kind = textOr(type, 'content');
  if (Array.isArray(parts)) return parts.flatMap(partOf);
  if (typeof text === 'string') return text === '' ? [] : [textPart(text)];
  if (Array.isArray(thoughts))
    return thoughts
      .filter(isFields)
      .map((thought) =>
        textPart([textOr(thought.summary), textOr(thought.content)].filter(Boolean).join(': ')),
      );
  if (typeof result === 'string') return [textPart(result)];
  if (typeof content.content === 'string') return [textPart(content.content)];
  const { content_type: _type, ...rest } = content;
  const filled = Object.values(rest).some((value) => value !== null && value !== '');
  return filled ? [placeholder(kind, rest)] : [];
}

function partOf(part: Json): ContentPart[] {
  if (typeof part === 'string') return part === '' ? [] : [textPart(part)];
  if (!isFields(part)) return [];
  if (typeof part.text === 'string') return [textPart(part.text)];
  const kind = textOr(part.content_type, 'part');
  // The image itself is another file of the export.
  if (kind === 'image_asset_pointer') return [textPart(`[image ${textOr(part.asset_pointer)}]`)];
  return [placeholder(kind, part)];
}
