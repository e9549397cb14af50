import type { ChatMessage, ContentPart, Json } from '../message.js';
import {
  assistantMessage,
  fieldsAt,
  isFields,
  mustBe,
  stringAt,
  textOr,
  toolCall,
  unitsOf,
  type Fields,
} from './content.js';
import { closeLists, listAt, openLists } from './enveloped.js';
import type { Format, Unit } from './format.js';
import { NO_SIGNATURE } from './gemini-convert.js';
import { chatMessages, read, readable } from './gemini-parts.js';

/**
 * Sessions of Gemini CLI (`~/.gemini/tmp/<project>/chats/session-….json`, in later versions `.jsonl`). A record of type
 * `gemini` holds an answer with its calls and their results; records of other types (`info`, `error`, …) were shown to
 * the user only.
 */
export const geminiCli: Format = {
  name: 'gemini-cli',
  title: 'Gemini CLI sessions',
  contextFormat: 'gemini',
  normalize: (items, path) => unitsOf(items.map((item, index) => pieceOf(item, `${path}[${index}]`))),
  requestItems: (items) => items.flatMap(contentsOf),
  open(document, layout) {
    if (layout === 'lines') {
      const header = Array.isArray(document)
        ? document.find((line) => isHeader(line) && !isSession(line))
        : undefined;
      return Array.isArray(document) && header !== undefined ? { ...idOf(header), items: document } : null;
    }
    const list = isFields(document) && isHeader(document) ? listAt(document, ['messages']) : null;
    if (!list || !isFields(document) || !list.items.every(isRecord)) return null;
    return { ...idOf(document), items: openLists(document, [list]) };
  },
  close: closeLists,
};

const isHeader = (value: Json): boolean => isFields(value) && 'sessionId' in value && 'projectHash' in value;
const isSession = (value: Json): boolean => isFields(value) && Array.isArray(value.messages);
const isRecord = (value: Json): value is Fields =>
  isFields(value) && typeof value.type === 'string' && 'id' in value;

function idOf(header: Json | undefined): { id?: string } {
  const id = isFields(header) ? textOr(header.sessionId) : '';
  return id === '' ? {} : { id };
}

function pieceOf(item: Json, path: string): Unit {
  if (!isRecord(item)) return { items: [item], messages: [] };
  if (item.type === 'user') {
    const parts = partList(item.content, `${path}.content`);
    return { items: [item], messages: chatMessages({ role: 'user', parts }, path) };
  }
  return { items: [item], messages: item.type === 'gemini' ? answerOf(item, path) : [] };
}

function answerOf(record: Fields, path: string): ChatMessage[] {
  const parts = partList(record.content, `${path}.content`);
  const calls = callsOf(record, path);
  const made = calls.map(({ id, name, args }) => toolCall(id, name, args));
  const results = calls.flatMap(({ id, result, path: at }): ChatMessage[] => {
    if (result === undefined || result === null) return [];
    return [{ role: 'tool', tool_call_id: id, content: resultContent(partList(result, `${at}.result`), at) }];
  });
  const spoken = parts.flatMap((part): ContentPart[] => readable(part, `${path}.content`));
  return [assistantMessage(spoken, made, thoughtsOf(record)), ...results];
}

interface Call {
  id: string;
  name: string;
  args: Fields;
  result: Json | undefined;
  path: string;
}

function callsOf({ toolCalls }: Fields, path: string): Call[] {
  if (toolCalls === undefined || toolCalls === null) return [];
  if (!Array.isArray(toolCalls)) throw mustBe('an array of calls', toolCalls, `${path}.toolCalls`);
  return toolCalls.map((value, index) => {
    const at = `${path}.toolCalls[${index}]`;
    const { id, name, args, result } = fieldsAt(value, at);
    const named = stringAt(name, `${at}.name`) || 'tool';
    return {
      id: textOr(id) || `${named}_${index + 1}`,
      name: named,
      args: isFields(args) ? args : {},
      result,
      path: at,
    };
  });
}

/** What the SDK takes as content: a text, a part, or a list of them. */
function partList(value: Json | undefined, path: string): Fields[] {
  if (typeof value === 'string') return value === '' ? [] : [{ text: value }];
  if (isFields(value)) return [value];
  if (!Array.isArray(value)) throw mustBe('a text, a part or an array of parts', value, path);
  return value.map((part, index) =>
    typeof part === 'string' ? { text: part } : fieldsAt(part, `${path}[${index}]`),
  );
}

/** One result may consist of several parts: the response, and media beside it. */
function resultContent(parts: readonly Fields[], path: string): ChatMessage['content'] {
  const named = parts.map((part) => {
    const response = read(part, 'functionResponse');
    return isFields(response) ? { functionResponse: { ...response, name: 'result' } } : part;
  });
  const contents = chatMessages({ role: 'user', parts: named }, path).flatMap(({ content }) =>
    typeof content === 'string' ? (content === '' ? [] : [{ type: 'text', text: content }]) : (content ?? []),
  );
  const [only] = contents;
  if (contents.length === 0) return '';
  return contents.length === 1 && only?.type === 'text' ? (only.text ?? '') : contents;
}

function thoughtsOf({ thoughts }: Fields): string {
  if (!Array.isArray(thoughts)) return '';
  return thoughts
    .filter(isFields)
    .map(({ subject, description }) => [textOr(subject), textOr(description)].filter(Boolean).join(': '))
    .join('\n\n');
}

/** A record as contents of the API: the answer with its calls, then their responses. Signatures are not recorded. */
function contentsOf(item: Json): Fields[] {
  if (!isRecord(item)) return [];
  if (item.type !== 'user' && item.type !== 'gemini') return [];
  const parts = partList(item.content, 'content');
  if (item.type === 'user') return [{ role: 'user', parts }];
  const calls = callsOf(item, 'items');
  const called = calls.map(({ id, name, args }, index): Fields => {
    const part: Fields = { functionCall: { id, name, args } };
    return index === 0 ? { ...part, thoughtSignature: NO_SIGNATURE } : part;
  });
  const model: Fields = { role: 'model', parts: [...parts, ...called] };
  const answers = calls.flatMap(({ id, name, result }): Fields[] =>
    result === undefined || result === null ? [] : responses(partList(result, 'result'), id, name),
  );
  return answers.length === 0 ? [model] : [model, { role: 'user', parts: answers }];
}

/** Exactly one response of each call; whatever else it brought follows. */
function responses(parts: readonly Fields[], id: string, name: string): Fields[] {
  const first = parts.find((part) => isFields(read(part, 'functionResponse')));
  const given = first ? (read(first, 'functionResponse') as Fields) : {};
  const rest = parts.filter((part) => read(part, 'functionResponse') === undefined);
  const texts = first ? [] : rest.map(({ text }) => textOr(text)).filter(Boolean);
  const response = first ? (given.response ?? {}) : { output: texts.join('\n') };
  const more = first ? rest : rest.filter(({ text }) => text === undefined);
  return [{ functionResponse: { ...given, id, name, response } }, ...more];
}
