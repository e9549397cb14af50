import { isBlank, noOutput } from '../context/view/projection.js';
import type { ChatMessage, Json, ToolCall } from '../conversation/message.js';
import { argumentsOf, type Fields, isFields, partsOf, textOr, unitsOf } from './content.js';
import { envelopeOf, listAt, openLists, withoutEnvelope } from './envelope.js';
import type { Opened, Rendered, RequestFormat, ShownUnit } from './format.js';
import { type Form, readMessage, rewrap, unwrap, wrap } from './langchain-messages.js';

/**
 * LangChain messages in every form that LangChain writes. A context keeps the form of the session. A context of a session in
 * another format has plain dictionaries, for `convert_to_messages` (Python) or `coerceMessageLikeToMessage` (JavaScript). A
 * RemoveMessage is stored but not applied, because the log is append-only.
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
  // LangChain accepts media in every message, but its providers do not; all of them accept media in a HumanMessage.
  refusesMedia: (role) => role !== 'user',
  requestItems(items, messages) {
    const own = withoutEnvelope(items)
      .filter((item) => unwrap(item, '')?.type !== 'remove')
      .map(readable);
    return withCallIds(own, messages) ?? renderLangchain([{ items: null, messages: [...messages] }]).messages;
  },
  render: renderLangchain,
  violations: langchainViolations,
  open,
};

/** Accepts a list of messages, alone or under `messages` (a state, a request) or `values.messages` (a thread of LangGraph). */
function open(document: Json): Opened | null {
  if (Array.isArray(document)) return areMessages(document) ? { items: document } : null;
  if (!isFields(document)) return null;
  const list = listAt(document, ['messages']) ?? listAt(document, ['values', 'messages']);
  if (!list || !areMessages(list.items)) return null;
  const id = textOr(document.thread_id) || textOr(document.id);
  return { ...(id === '' ? {} : { id }), items: openLists(document, [list]) };
}

/** Returns whether all items are messages of LangChain. They must have a type: chat messages have only a role. */
function areMessages(items: readonly Json[]): boolean {
  return (
    items.length > 0 && items.every((item) => isFields(item) && typeof item.type === 'string' && isOwn(item))
  );
}

function isOwn(item: Json): boolean {
  const unwrapped = unwrap(item, '');
  return unwrapped !== null && (unwrapped.type === 'remove' || 'content' in unwrapped.fields);
}

function readable(item: Json): Json {
  const unwrapped = unwrap(item, '');
  if (!unwrapped || unwrapped.fields.content !== undefined) return item;
  const { content_blocks: blocks, ...fields } = unwrapped.fields;
  return blocks === undefined ? item : rewrap(item, unwrapped, { ...fields, content: blocks });
}

/** Returns the items of a unit with the call ids that its messages have in the context, or null if the ids cannot be mapped. */
export function withCallIds(items: readonly Json[], [message]: readonly ChatMessage[]): Json[] | null {
  return items.reduce<Json[] | null>((renamed, item) => {
    const unwrapped = unwrap(item, '');
    if (!renamed || !unwrapped || unwrapped.type === 'remove') return renamed;
    const before = readMessage(item, '');
    const ids = new Map(
      (before?.tool_calls ?? []).map(({ id }, index) => [id, message?.tool_calls?.[index]?.id]),
    );
    if (before?.role === 'tool') ids.set(before.tool_call_id ?? '', message?.tool_call_id);
    if ([...ids].every(([id, now]) => id === now)) return [...renamed, item];
    if (ids.size < (before?.tool_calls ?? []).length || ids.has('')) return null;
    return [...renamed, rewrap(item, unwrapped, renamedFields(unwrapped.fields, ids))];
  }, []);
}

function renamedFields(fields: Fields, ids: ReadonlyMap<string, string | undefined>): Fields {
  const now = (id: Json | undefined): Json => (typeof id === 'string' ? (ids.get(id) ?? id) : (id ?? null));
  const calls = (list: Json | undefined): Json | undefined =>
    Array.isArray(list)
      ? list.map((call) => (isFields(call) && 'id' in call ? { ...call, id: now(call.id) } : call))
      : list;
  const renamed = Object.entries(fields).map(([field, value]): [string, Json] => {
    if (field === 'tool_call_id') return [field, now(value)];
    if (/^(?:content|tool_calls|invalid_tool_calls)$/.test(field)) return [field, calls(value)!];
    if (field === 'additional_kwargs' && isFields(value) && value.tool_calls)
      return [field, { ...value, tool_calls: calls(value.tool_calls)! }];
    return [field, value];
  });
  return Object.fromEntries(renamed);
}

/** Converted messages take the form of the session's messages, or `plain` if there are none. */
export function renderLangchain(units: readonly ShownUnit[]): Rendered {
  const original = units.flatMap(({ items }) => items ?? []).map((item) => unwrap(item, ''))[0];
  const converter = new Converter(original?.form ?? 'plain');
  return {
    messages: units.flatMap(({ items, messages }) => items ?? messages.map((one) => converter.message(one))),
  };
}

class Converter {
  constructor(private readonly form: Form) {}

  message(message: ChatMessage): Json {
    const { role, name } = message;
    const named: Fields = name ? { name } : {};
    if (role === 'assistant') return wrap(this.form, 'ai', { ...answerOf(message), ...named });
    const content = shownContent(message.content);
    if (role === 'user') return wrap(this.form, 'human', { content, ...named });
    if (role === 'system' || role === 'developer') {
      const developer: Fields =
        role === 'developer' ? { additional_kwargs: { __openai_role__: 'developer' } } : {};
      return wrap(this.form, 'system', { content, ...developer, ...named });
    }
    const result: Fields = { content: isBlank(message.content) ? noOutput : content, ...named };
    if (role === 'function') return wrap(this.form, 'function', result);
    return wrap(this.form, 'tool', { ...result, tool_call_id: message.tool_call_id ?? '' });
  }
}

function answerOf(message: ChatMessage): Fields {
  const calls = (message.tool_calls ?? []).map((call): Fields => ({
    ...nameAndArguments(call),
    id: call.id,
    type: 'tool_call',
  }));
  const refusal = textOr(message.refusal as Json);
  const reasoning = textOr(message.reasoning_content as Json) || textOr(message.reasoning as Json);
  const more: Fields = {
    ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
    ...(message.function_call ? { function_call: message.function_call } : {}),
  };
  return {
    content: isBlank(message.content) ? refusal : shownContent(message.content),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(Object.keys(more).length > 0 ? { additional_kwargs: more } : {}),
  };
}

function nameAndArguments({ function: called, custom }: ToolCall): Fields {
  if (called) return { name: called.name, args: argumentsOf(called.arguments) };
  const { name, input } = custom as Fields;
  return { name: name!, args: { input: input ?? '' } };
}

/** LangChain accepts OpenAI's parts as blocks, but neither reasoning nor blank text. */
function shownContent(content: ChatMessage['content']): Json {
  if (typeof content === 'string') return content;
  return partsOf(content)
    .filter(({ type, text }) => (type === 'text' ? text?.trim() : !/thinking|reasoning/.test(type)))
    .map((part) =>
      part.type === 'refusal' ? { type: 'text', text: part.refusal as string } : (part as Json),
    );
}

/**
 * The rules: tool messages directly after a call answer it (OpenAI and others: "An assistant message with 'tool_calls' must be
 * followed by tool messages responding to each 'tool_call_id'"; LangGraph: INVALID_CHAT_HISTORY, "Found AIMessages with
 * tool_calls that do not have a corresponding ToolMessage"), every ToolMessage has a `tool_call_id`, and no message is empty.
 */
function langchainViolations({ messages }: Rendered): string[] {
  const violations: string[] = [];
  const made = new Set<string>();
  let open = new Set<string>();
  messages.forEach((value, index) => {
    const fault = (what: string) => violations.push(`message ${index}: ${what}`);
    const unwrapped = unwrap(value, '');
    if (!unwrapped) return fault('not a message of LangChain');
    const { type, fields } = unwrapped;
    if (type === 'remove') return fault('removes messages');
    if (typeof fields.content !== 'string' && !Array.isArray(fields.content))
      fault('content is neither text nor a list');
    if (type === 'tool' || type === 'function') {
      const answered = type === 'tool' ? textOr(fields.tool_call_id) : legacy(textOr(fields.name));
      if (type === 'tool' && answered === '') fault('result without tool_call_id');
      else if (!open.delete(answered)) fault(`result for ${answered} without its call before it`);
      return;
    }
    for (const id of open) fault(`call ${id} has no result directly after it`);
    open = new Set();
    const said = type === 'ai' ? readMessage(value, '') : null;
    for (const { id } of said?.tool_calls ?? []) {
      if (id === '') fault('call without id');
      if (made.has(id)) fault(`call id ${id} used twice`);
      made.add(id);
      open.add(id);
    }
    if (said?.function_call) open.add(legacy(said.function_call.name));
    if (open.size === 0 && isEmpty(fields.content)) fault(`empty ${type} message`);
  });
  for (const id of open) violations.push(`call ${id} has no result`);
  return violations;
}

/** Identifies a `function_call`, which has no id, by its name. */
const legacy = (name: string): string => `function ${name}`;

function isEmpty(content: Json | undefined): boolean {
  if (typeof content === 'string') return content.trim() === '';
  return (
    !Array.isArray(content) ||
    content.every((block) => isFields(block) && textOr(block.text, '.').trim() === '')
  );
}
