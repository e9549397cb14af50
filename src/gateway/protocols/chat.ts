/** OpenAI chat completions (platform.openai.com/docs/api-reference/chat). */
import { recoveryTools } from '../../contract/recovery-tools.js';
import type { Json } from '../../conversation/message.js';
import { type Fields, isFields, textOr } from '../../formats/content.js';
import { invalid } from '../../errors.js';
import type { UsageReport } from '../../tokens/reported-usage.js';
import { eventText, jsonIn, type SseEvent } from '../sse.js';
import type { Answer, Call, Collector, IsOurs, Protocol, StreamEditor } from './protocol.js';
import { hasNamesake, listOf, sumOfUsage, tokensIn, usageAtEnd } from './tools.js';

export const chat: Protocol = {
  name: 'chat',
  format: 'openai-chat',
  field: 'messages',
  read(body) {
    const { messages, model } = body;
    if (!Array.isArray(messages))
      throw invalid('messages must be an array of messages', 'body.messages', 'Send a chat completion.');
    const begin = messages.findIndex((item) => !isInstruction(item));
    const leading = begin < 0 ? messages : messages.slice(0, begin);
    const rest = messages.slice(leading.length);
    const last = rest.at(-1);
    const isBegun = isFields(last) && last.role === 'assistant' && listOf(last.tool_calls).length === 0;
    return {
      leading,
      list: isBegun ? rest.slice(0, -1) : rest,
      trailing: isBegun ? [last] : [],
      beside: [leading, body.tools, body.functions, body.response_format].filter(
        (part) => part !== undefined,
      ),
      model: typeof model === 'string' ? model : undefined,
      maxOutput: tokensIn(body.max_completion_tokens) ?? tokensIn(body.max_tokens),
      heldByProvider: null,
    };
  },
  tools: recoveryTools,
  takesTools: ({ tools, functions, n }) =>
    functions === undefined && (tokensIn(n) ?? 1) === 1 && !hasNamesake(tools, nameOfTool),
  withoutCalls: () => ({}),
  answer({ choices, usage, model }) {
    const [choice, ...others] = listOf(choices);
    const message = isFields(choice) ? choice.message : undefined;
    if (!isFields(choice) || !isFields(message)) return nothing;
    const complete = typeof choice.finish_reason === 'string' && others.length === 0;
    return { ...ofMessage(message), usage: usageOf(usage, model), complete };
  },
  shown(body, isOurs, usage) {
    const [choice, ...others] = listOf(body.choices);
    if (!isFields(choice) || !isFields(choice.message)) return body;
    const { tool_calls: calls, ...message } = choice.message;
    const left = listOf(calls).filter((call) => !isOurs(nameOfTool(call)));
    const reason = choice.finish_reason === 'tool_calls' && left.length === 0 ? 'stop' : choice.finish_reason;
    const shown = left.length === 0 ? message : { ...message, tool_calls: left };
    return {
      ...body,
      choices: [{ ...choice, message: shown, finish_reason: reason ?? null }, ...others],
      ...(usage === null ? {} : { usage }),
    };
  },
  withoutTools: (text) => text,
  isAnswer: (item) => isFields(item) && item.role === 'assistant',
  canBeNamed: () => false,
  again: (items) => [...items],
  results: (results) =>
    results.map(({ call, content }) => ({ role: 'tool', tool_call_id: call.id, content })),
  collector: () => new ChatCollector(),
  editor: (isOurs) => new ChatEditor(isOurs),
  failure: (type, message) => ({ error: { message, type: 'palimpsest', param: null, code: type } }),
  failureEvent: (type, message) => eventText(chat.failure(type, message)),
};

const nothing: Answer = { items: [], calls: [], usage: null, complete: false };

const isInstruction = (item: Json): boolean =>
  isFields(item) && (item.role === 'system' || item.role === 'developer');

function nameOfTool(tool: Json): string {
  const { function: called } = isFields(tool) ? tool : {};
  return isFields(called) ? textOr(called.name) : '';
}

function usageOf(usage: Json | undefined, model: Json | undefined): UsageReport | null {
  if (!isFields(usage) || typeof usage.prompt_tokens !== 'number') return null;
  return { ...usage, prompt_tokens: usage.prompt_tokens, ...(typeof model === 'string' ? { model } : {}) };
}

function ofMessage(message: Fields): Pick<Answer, 'items' | 'calls'> {
  const calls = listOf(message.tool_calls).flatMap((call): Call[] => {
    if (!isFields(call) || !isFields(call.function)) return [];
    return [
      { id: textOr(call.id), name: textOr(call.function.name), arguments: call.function.arguments ?? '' },
    ];
  });
  return { items: [message], calls };
}

class ChatCollector implements Collector {
  readonly #message: Fields = { role: 'assistant', content: null };
  /** By their places in the stream. */
  readonly #calls = new Map<number, Fields>();
  #usage: Json = null;
  #model: Json = null;
  #isSingle = true;
  #finished = false;

  take({ choices, usage, model }: Fields): void {
    if (isFields(usage)) this.#usage = usage;
    if (typeof model === 'string') this.#model = model;
    for (const choice of listOf(choices)) {
      if (!isFields(choice)) continue;
      if ((choice.index ?? 0) !== 0) this.#isSingle = false;
      else if (isFields(choice.delta)) this.#add(choice.delta);
      if (typeof choice.finish_reason === 'string') this.#finished = true;
    }
  }

  answer(): Answer {
    const calls = [...this.#calls.values()];
    const message = calls.length === 0 ? this.#message : { ...this.#message, tool_calls: calls };
    const usage = usageOf(this.#usage, this.#model);
    return { ...ofMessage(message), usage, complete: this.#finished && this.#isSingle };
  }

  #add({ tool_calls: calls, role: _role, ...delta }: Fields): void {
    for (const [name, value] of Object.entries(delta))
      this.#message[name] = joined(this.#message[name], value);
    for (const call of listOf(calls)) {
      if (!isFields(call)) continue;
      const { index, ...rest } = call;
      const at = typeof index === 'number' ? index : this.#calls.size;
      this.#calls.set(at, joinedCall(this.#calls.get(at), rest));
    }
  }
}

/** Texts and lists of a delta continue those before it. */
function joined(before: Json | undefined, value: Json): Json {
  if (value === null) return before ?? null;
  if (typeof before === 'string' && typeof value === 'string') return before + value;
  if (Array.isArray(before) && Array.isArray(value)) return [...before, ...value];
  return isFields(before) && isFields(value) ? { ...before, ...value } : value;
}

function joinedCall(before: Fields | undefined, { function: called, ...rest }: Fields): Fields {
  const known = isFields(before?.function) ? before.function : {};
  const next = isFields(called) ? called : {};
  const name = textOr(known.name) || textOr(next.name);
  const args = textOr(known.arguments) + textOr(next.arguments);
  const named = Object.fromEntries(
    Object.entries(rest).filter(([, value]) => value !== null && value !== ''),
  );
  return { type: 'function', ...before, ...named, function: { name, arguments: args } };
}

class ChatEditor implements StreamEditor {
  readonly #isOurs: IsOurs;
  /** Fields that all chunks of an answer share. */
  #shared: Fields | null = null;
  /** Places of the calls that the client sees, by their places in the stream; null: it does not see the call. */
  #places = new Map<number, number | null>();
  /** Calls whose names have not come yet, by their places in the stream. */
  #unnamed = new Map<number, Fields>();
  #shownCalls = 0;
  #hasRole = false;
  /** The end of the stream, from the chunk with the reason on. */
  #held: SseEvent[] = [];
  #hasEnded = false;
  #usage: Json = null;
  #goesOn = false;

  constructor(isOurs: IsOurs) {
    this.#isOurs = isOurs;
  }

  edit(event: SseEvent): string[] {
    const chunk = jsonIn(event);
    if (event.data === null || (isFields(chunk) && !Array.isArray(chunk.choices))) return [event.text];
    const [choice] = isFields(chunk) ? listOf(chunk.choices) : [];
    // Azure begins with a chunk that has no choice and no usage.
    const isNote = isFields(chunk) && choice === undefined && !isFields(chunk.usage);
    if (isNote && !this.#hasEnded) return this.#goesOn ? [] : [event.text];
    if (this.#hasEnded || !isFields(chunk) || !isFields(choice)) {
      this.#held.push(event);
      return [];
    }
    const { id, created } = chunk;
    this.#shared ??= { ...(id === undefined ? {} : { id }), ...(created === undefined ? {} : { created }) };
    const delta = isFields(choice.delta) ? choice.delta : {};
    const shown = this.#shown(delta);
    this.#hasEnded = typeof choice.finish_reason === 'string';
    if (this.#hasEnded) this.#held.push({ ...event, data: JSON.stringify(withDelta(chunk, choice, {})) });
    if (shown === null) return [];
    if (!this.#hasEnded)
      return [shown === delta ? event.text : eventText(this.#same(withDelta(chunk, choice, shown)))];
    const { usage: _usage, ...rest } = chunk;
    const open = { ...choice, finish_reason: null };
    return isEmpty(shown) ? [] : [eventText(this.#same(withDelta(rest, open, shown)))];
  }

  goOn(): void {
    this.#usage = sumOfUsage(this.#usage, usageAtEnd(this.#held));
    this.#held = [];
    this.#hasEnded = false;
    this.#places = new Map();
    this.#unnamed = new Map();
    this.#goesOn = true;
  }

  end(): string[] {
    return this.#held.map((event) => {
      const chunk = jsonIn(event);
      if (!isFields(chunk)) return event.text;
      const [choice] = listOf(chunk.choices);
      const reason = isFields(choice) ? choice.finish_reason : undefined;
      const hidden = reason === 'tool_calls' && this.#shownCalls === 0;
      const changed: Fields = { ...chunk };
      if (hidden && isFields(choice)) changed.choices = [{ ...choice, finish_reason: 'stop' }];
      if (isFields(chunk.usage)) changed.usage = sumOfUsage(this.#usage, chunk.usage);
      return eventText(this.#same(changed));
    });
  }

  /** The part of a delta that the client sees; null if nothing of it. */
  #shown(delta: Fields): Fields | null {
    const { tool_calls: calls, ...rest } = delta;
    const told = this.#goesOn && this.#hasRole ? withoutRole(rest) : rest;
    const isFirst = !this.#hasRole && told.role !== undefined;
    this.#hasRole ||= isFirst;
    if (!Array.isArray(calls)) return this.#goesOn ? told : delta;
    const shown = calls.flatMap((call) => this.#shownCall(call));
    if (shown.length > 0) {
      const same = shown.length === calls.length && shown.every((call, index) => call === calls[index]);
      return same && told === rest ? delta : { ...told, tool_calls: shown };
    }
    return isFirst || !isEmpty(told) ? told : null;
  }

  #shownCall(call: Json): Json[] {
    if (!isFields(call)) return [];
    const index = typeof call.index === 'number' ? call.index : this.#places.size;
    const known = this.#places.get(index);
    if (known !== undefined)
      return known === null ? [] : [known === call.index ? call : { ...call, index: known }];
    // Some providers send the name of a call after its id.
    const before = this.#unnamed.get(index);
    const begun = before ? joinedCall(before, call) : call;
    const name = nameOfTool(begun);
    if (name === '') this.#unnamed.set(index, begun);
    else this.#places.set(index, this.#isOurs(name) ? null : this.#shownCalls++);
    const place = this.#places.get(index) ?? null;
    if (place === null) return [];
    return [place === begun.index ? begun : { ...begun, index: place }];
  }

  #same(chunk: Fields): Json {
    return { ...chunk, ...this.#shared };
  }
}

function withoutRole({ role: _role, ...delta }: Fields): Fields {
  return delta;
}

const withDelta = (chunk: Fields, choice: Fields, delta: Fields): Fields => ({
  ...chunk,
  choices: [{ ...choice, delta }],
});

const isEmpty = (delta: Fields): boolean =>
  Object.entries(delta).every(([name, value]) => name === 'role' || value === null || value === '');
