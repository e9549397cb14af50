import { instantIn } from '../conversation/instant.js';
import type { ChatMessage, ContentPart, Json } from '../conversation/message.js';
import {
  assistantMessage,
  type Fields,
  fieldsAt,
  isFields,
  mustBe,
  piecesFor,
  stringAt,
  textOr,
  toolCall,
  unitsOf,
} from './content.js';
import { listAt, openLists } from './envelope.js';
import type { Format, Unit } from './format.js';
import { chatMessages, read, readable, readObject } from './gemini-parts.js';
import { NO_SIGNATURE, render } from './gemini-render.js';

/**
 * Sessions of Gemini CLI (`~/.gemini/tmp/<project>/chats/session-….json`, in later versions `.jsonl`). A record of type
 * `gemini` contains an answer with its calls and their results; records of other types (`info`, `error`, …) were only shown to
 * the user. Records that were rewritten or rewound later are kept but stand for no message (see `conversationOf`).
 */
export const geminiCli: Format = {
  name: 'gemini-cli',
  title: 'Gemini CLI sessions',
  contextFormat: 'gemini',
  normalize: (items, path) => unitsOf(piecesOf(items, path)),
  requestItems(items, messages) {
    const entries = conversationOf(items, 'items');
    const answered = answeredIn(entries);
    const pieces = entries.map((entry) => ({
      ...entry,
      messages: messagesOf([entry], answered).map(({ message }) => message),
    }));
    const said = piecesFor(pieces, messages);
    if (said) return said.flatMap(({ record }) => contentsOf(record, answered));
    return render([{ items: null, messages: [...messages] }]).messages;
  },
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
  bareLayout: 'lines',
};

const isHeader = (value: Json): boolean => isFields(value) && 'sessionId' in value && 'projectHash' in value;
const isSession = (value: Json): boolean => isFields(value) && Array.isArray(value.messages);

function idOf(header: Json | undefined): { id?: string } {
  const id = isFields(header) ? textOr(header.sessionId) : '';
  return id === '' ? {} : { id };
}

/**
 * Returns one piece for each record: the items from the first to the last that wrote it. Records whose items overlap share a
 * piece. Each other item is a piece without messages.
 */
function piecesOf(items: readonly Json[], path: string): Unit[] {
  const entries = conversationOf(items, path);
  const answered = answeredIn(entries);
  const pieces: Unit[] = [];
  let next = 0;
  for (let at = 0; at < entries.length;) {
    const first = at;
    let { from, to } = entries[at]!;
    for (at += 1; at < entries.length && entries[at]!.from <= to; at++) {
      from = Math.min(from, entries[at]!.from);
      to = Math.max(to, entries[at]!.to);
    }
    for (; next < from; next++) pieces.push({ items: [items[next]!], messages: [] });
    const start = next;
    next = Math.max(next, to + 1);
    const said = messagesOf(entries.slice(first, at), answered);
    pieces.push({
      items: items.slice(start, next),
      messages: said.map(({ message }) => message),
      times: said.map((one) => one.at),
    });
  }
  return [...pieces, ...items.slice(next).map((item): Unit => ({ items: [item], messages: [] }))];
}

const answeredIn = (entries: readonly Entry[]): Set<string> =>
  new Set(entries.flatMap(({ record }) => answeredIds(record)));

interface Said {
  message: ChatMessage;
  at: string | null;
}

function messagesOf(entries: readonly Entry[], answered: ReadonlySet<string>): Said[] {
  return entries.flatMap(({ record, path }) => {
    if (record.type === 'gemini') return answerOf(record, path);
    if (record.type !== 'user') return [];
    const all = partList(record.content, `${path}.content`);
    const parts = all.filter((part) => !isAnswer(part, answered));
    if (parts.length < all.length && parts.length === 0) return [];
    const at = instantIn(record.timestamp);
    return chatMessages({ role: 'user', parts }, path).map((message) => ({ message, at }));
  });
}

function answerOf(record: Fields, path: string): Said[] {
  const parts = partList(record.content, `${path}.content`);
  const isThought = (part: Fields): boolean => part.thought === true && typeof part.text === 'string';
  const calls = allCallsOf(record, parts, path);
  const made = calls.map(({ id, name, args }) => toolCall(id, name, args));
  const at = instantIn(record.timestamp);
  const results = calls.flatMap(({ id, result, path, answeredAt }): Said[] => {
    if (result === undefined || result === null) return [];
    const content = resultContent(partList(result, `${path}.result`), path);
    return [{ message: { role: 'tool', tool_call_id: id, content }, at: answeredAt ?? at }];
  });
  const spoken = parts
    .filter((part) => !isThought(part) && !isFields(read(part, 'functionCall')))
    .flatMap((part): ContentPart[] => readable(part, `${path}.content`));
  const thoughts =
    thoughtsOf(record) ||
    parts
      .filter(isThought)
      .map(({ text }) => textOr(text))
      .join('\n\n');
  return [{ message: assistantMessage(spoken, made, thoughts), at }, ...results];
}

/** Returns the calls of an answer: first those in its parts, in their order, then those that are only in `toolCalls`. */
function allCallsOf(record: Fields, parts: readonly Fields[], path: string): Call[] {
  const recorded = callsOf(record, path);
  const inParts = parts.flatMap((part, index): Call[] => {
    const called = read(part, 'functionCall');
    if (!isFields(called)) return [];
    const known = recorded.findIndex((call) => isCallOf(call, called));
    if (known >= 0) return recorded.splice(known, 1);
    const name = textOr(called.name) || 'tool';
    const args = isFields(called.args) ? called.args : {};
    return [
      {
        id: textOr(called.id) || `${name}_part_${index + 1}`,
        name,
        args,
        result: undefined,
        answeredAt: null,
        path,
      },
    ];
  });
  return [...inParts, ...recorded];
}

/** Compares by id, or by name and arguments if a part has no id. */
function isCallOf({ id, name, args }: Call, called: Fields): boolean {
  if (textOr(called.id) !== '') return called.id === id;
  return called.name === name && JSON.stringify(called.args ?? {}) === JSON.stringify(args);
}

interface Call {
  id: string;
  name: string;
  args: Fields;
  result: Json | undefined;
  /** ISO 8601. */
  answeredAt: string | null;
  path: string;
}

function callsOf({ toolCalls }: Fields, path: string): Call[] {
  if (toolCalls === undefined || toolCalls === null) return [];
  if (!Array.isArray(toolCalls)) throw mustBe('an array of calls', toolCalls, `${path}.toolCalls`);
  return toolCalls.map((value, index) => {
    const at = `${path}.toolCalls[${index}]`;
    const { id, name, args, result, timestamp } = fieldsAt(value, at);
    const named = stringAt(name, `${at}.name`) || 'tool';
    return {
      id: textOr(id) || `${named}_${index + 1}`,
      name: named,
      args: isFields(args) ? args : {},
      result,
      answeredAt: instantIn(timestamp),
      path: at,
    };
  });
}

/** Reads what the SDK accepts as content: a text, a part, or a list of them. */
function partList(value: Json | undefined, path: string): Fields[] {
  if (typeof value === 'string') return value === '' ? [] : [{ text: value }];
  if (isFields(value)) return [value];
  if (!Array.isArray(value)) throw mustBe('a text, a part or an array of parts', value, path);
  return value.map((part, index) =>
    typeof part === 'string' ? { text: part } : fieldsAt(part, `${path}[${index}]`),
  );
}

/** One result may consist of several parts: the response, and accompanying media. */
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

/**
 * Returns a record as contents of the API: the answer with its calls, then their responses. A call that is only in `toolCalls`
 * has no signature; if no part is a call, the first one gets `NO_SIGNATURE`.
 */
function contentsOf(record: Fields, answered: ReadonlySet<string>): Fields[] {
  if (record.type !== 'user' && record.type !== 'gemini') return [];
  const parts = partList(record.content, 'content');
  if (record.type === 'user') {
    const asked = parts.filter((part) => !isAnswer(part, answered));
    return asked.length === 0 ? [] : [{ role: 'user', parts: asked }];
  }
  const calls = allCallsOf(record, parts, 'items');
  const inParts = parts.filter((part) => isFields(read(part, 'functionCall'))).length;
  const called = calls.slice(inParts).map(({ id, name, args }, index): Fields => {
    const part: Fields = { functionCall: { id, name, args } };
    return index === 0 && inParts === 0 ? { ...part, thoughtSignature: NO_SIGNATURE } : part;
  });
  const model: Fields = { role: 'model', parts: [...parts, ...called] };
  const answers = calls.flatMap(({ id, name, result }): Fields[] =>
    result === undefined || result === null ? [] : responses(partList(result, 'result'), id, name),
  );
  return answers.length === 0 ? [model] : [model, { role: 'user', parts: answers }];
}

/** Returns exactly one response for each call, followed by its other content. */
function responses(parts: readonly Fields[], id: string, name: string): Fields[] {
  const first = parts.find((part) => isFields(read(part, 'functionResponse')));
  const given = first ? (read(first, 'functionResponse') as Fields) : {};
  const rest = parts.filter((part) => read(part, 'functionResponse') === undefined);
  const texts = first ? [] : rest.map(({ text }) => textOr(text)).filter(Boolean);
  const response = first ? (given.response ?? {}) : { output: texts.join('\n') };
  const more = first ? rest : rest.filter(({ text }) => text === undefined);
  return [{ functionResponse: { ...given, id, name, response } }, ...more];
}

/**
 * A record that is part of the conversation, and the range of items from the first to the last one that wrote it. `to` is
 * inclusive.
 */
interface Entry {
  record: Fields;
  path: string;
  from: number;
  to: number;
}

const isRecord = (value: Json | undefined): value is Fields =>
  isFields(value) && typeof value.type === 'string' && 'id' in value;

/**
 * Computes the final conversation of a Gemini CLI recording. The file is append-only: a record that is written again under its
 * id replaces the earlier one, `{"$rewindTo": id}` removes that record and all after it, and `{"$set": {"messages": […]}}` is a
 * checkpoint of the whole conversation at that time (packages/core/src/services/chatRecordingService.ts, loadConversationRecord
 * and updateMessagesFromHistory).
 */
function conversationOf(items: readonly Json[], path: string): Entry[] {
  const conversation = new Conversation();
  items.forEach((item, index) => {
    if (!isFields(item)) return;
    const at = `${path}[${index}]`;
    if (typeof item.$rewindTo === 'string') conversation.rewind(item.$rewindTo);
    else if (isRecord(item)) conversation.write({ record: item, path: at, from: index, to: index });
    else {
      const turns = checkpointOf(item).map((record, turn): Entry => ({
        ...{ record, from: index, to: index },
        path: `${at}.$set.messages[${turn}]`,
      }));
      if (turns.length > 0) conversation.become(restored(conversation.entries, turns));
    }
  });
  return conversation.entries;
}

class Conversation {
  entries: Entry[] = [];
  private places = new Map<Json, number>();

  write(entry: Entry): void {
    const at = this.places.get(entry.record.id!);
    if (at !== undefined) this.entries[at] = { ...entry, from: this.entries[at]!.from };
    else {
      this.places.set(entry.record.id!, this.entries.length);
      this.entries.push(entry);
    }
  }

  /** As in the CLI, an unknown id removes everything. */
  rewind(id: string): void {
    this.become(this.entries.slice(0, this.places.get(id) ?? 0));
  }

  become(entries: Entry[]): void {
    this.entries = entries;
    this.places = new Map(entries.map(({ record }, index) => [record.id!, index]));
  }
}

function checkpointOf(item: Json): Fields[] {
  const set = isFields(item) ? item.$set : undefined;
  return isFields(set) && Array.isArray(set.messages) ? set.messages.filter(isRecord) : [];
}

/**
 * Returns the conversation after a checkpoint. If the CLI wrote the checkpoint because it summarized messages to make room,
 * these messages stay, because the file contains them, and the summary does not count. If it loaded or shortened the
 * conversation, only the checkpoint counts. Records keep their original content, because checkpoints contain long results in
 * masked form.
 */
function restored(entries: readonly Entry[], turns: readonly Entry[]): Entry[] {
  const known = new Map(entries.map((entry) => [entry.record.id, entry]));
  const answered = new Set([...entries, ...turns].flatMap(({ record }) => answeredIds(record)));
  const said = turns.filter(({ record }) => known.has(record.id) || !onlyAnswers(record, answered));
  const isNew = ({ record }: Entry): boolean => !known.has(record.id);
  const [first] = said;
  const summarized =
    first && isNew(first) && (!said.every(isNew) || /<state_snapshot>/.test(JSON.stringify(first.record)));
  const updated = (entry: Entry): Entry => {
    const before = known.get(entry.record.id);
    if (!before) return entry;
    const completes = answeredIds(entry.record).length > answeredIds(before.record).length;
    return completes ? { ...entry, from: before.from } : before;
  };
  if (!summarized) return said.map(updated);
  const present = new Map(said.map((entry) => [entry.record.id, entry]));
  return entries.map((entry) => updated(present.get(entry.record.id) ?? entry));
}

/** Returns the ids of the calls whose results a record contains. */
function answeredIds({ toolCalls }: Fields): string[] {
  if (!Array.isArray(toolCalls)) return [];
  return toolCalls.flatMap((call) => (isFields(call) && call.result ? [textOr(call.id)] : []));
}

/**
 * Returns whether a record contains only responses that the records of the calls already have. Checkpoints repeat such
 * responses as turns.
 */
function onlyAnswers({ content }: Fields, answered: ReadonlySet<string>): boolean {
  const parts = Array.isArray(content) ? content : [];
  return parts.length > 0 && parts.every((part) => isAnswer(part, answered));
}

function isAnswer(part: Json, answered: ReadonlySet<string>): boolean {
  const response = isFields(part) ? readObject(part, 'functionResponse') : undefined;
  return response !== undefined && answered.has(textOr(response.id));
}
