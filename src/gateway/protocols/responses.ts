/** OpenAI Responses (platform.openai.com/docs/api-reference/responses). */
import { recoveryTools } from '../../contract/recovery-tools.js';
import type { Json } from '../../conversation/message.js';
import { invalid } from '../../errors.js';
import { type Fields, isFields, textOr } from '../../formats/content.js';
import type { UsageReport } from '../../tokens/reported-usage.js';
import { withoutItems } from '../fields.js';
import { eventText, jsonIn, type SseEvent } from '../sse.js';
import type { Answer, Call, Collector, IsOurs, Protocol, StreamEditor } from './protocol.js';
import { hasNamesake, listOf, sumOfUsage, tokensIn } from './tools.js';

export const responses: Protocol = {
  name: 'responses',
  format: 'openai-responses',
  field: 'input',
  read(body) {
    const { input, model, previous_response_id: previous, conversation } = body;
    const given = typeof input === 'string' ? [{ role: 'user', content: input }] : input;
    if (!Array.isArray(given))
      throw invalid('input must be a text or an array of items', 'body.input', 'Send a response request.');
    const begin = given.findIndex((item) => !isInstruction(item));
    const leading = begin < 0 ? given : given.slice(0, begin);
    const held = { 'body.previous_response_id': previous, 'body.conversation': conversation };
    const [heldByProvider = null] = Object.entries(held).flatMap(([path, value]) =>
      value === undefined || value === null ? [] : [path],
    );
    return {
      leading,
      list: given.slice(leading.length),
      trailing: [],
      beside: [leading, body.instructions, body.tools, body.text].filter((part) => part !== undefined),
      model: typeof model === 'string' ? model : undefined,
      maxOutput: tokensIn(body.max_output_tokens),
      heldByProvider,
    };
  },
  tools: recoveryTools.map(({ function: { name, description, parameters } }) => ({
    ...{ type: 'function', name, description, strict: false },
    parameters: parameters,
  })),
  takesTools: ({ tools, background }) => background !== true && !hasNamesake(tools, ({ name }) => name),
  withoutCalls: () => ({}),
  answer: ({ output, status, usage, model }) => answerOf(listOf(output), status, usage, model),
  shown: (body, isOurs, usage) => ({
    ...body,
    output: shownItems(listOf(body.output), isOurs),
    ...(Array.isArray(body.tools) ? { tools: body.tools.filter((tool) => !isOurTool(tool, isOurs)) } : {}),
    ...(usage === null ? {} : { usage }),
  }),
  withoutTools: (text, { tools }, isOurs) =>
    listOf(tools).some((tool) => isOurTool(tool, isOurs))
      ? withoutItems(text, ['tools'], (tool) => isOurTool(tool, isOurs))
      : text,
  isAnswer(item) {
    if (!isFields(item)) return false;
    if (item.role !== undefined) return item.role === 'assistant';
    const type = textOr(item.type);
    return type !== '' && !/_output$|_response$|^item_reference$|^compaction_trigger$/.test(type);
  },
  canBeNamed: ({ store }) => store !== false,
  again: (items, { store }) => (store === false ? items.flatMap(withoutStore) : [...items]),
  results: (results) =>
    results.map(({ call, content }) => ({
      ...{ type: 'function_call_output', call_id: call.id, output: content },
    })),
  collector: () => new ResponseCollector(),
  editor: (isOurs) => new ResponseEditor(isOurs),
  failure: (type, message) => ({ error: { message, type: 'palimpsest', param: null, code: type } }),
  failureEvent: (code, message) =>
    eventText({ type: 'error', code, message, param: null, sequence_number: 0 }, 'error'),
};

const isInstruction = (item: Json): boolean =>
  isFields(item) &&
  (item.type === undefined || item.type === 'message') &&
  (item.role === 'system' || item.role === 'developer');

const isOurCall = (item: Json, isOurs: IsOurs): boolean =>
  isFields(item) && item.type === 'function_call' && isOurs(textOr(item.name));

const isOurTool = (tool: Json, isOurs: IsOurs): boolean =>
  isFields(tool) && tool.type === 'function' && isOurs(textOr(tool.name));

const isReasoning = (item: Json): boolean => isFields(item) && item.type === 'reasoning';

/** Without our calls, and without reasoning that leads to nothing else: the provider refuses it without what follows it. */
function shownItems(output: readonly Json[], isOurs: IsOurs): Json[] {
  return output.filter((item, index) => {
    if (!isReasoning(item)) return !isOurCall(item, isOurs);
    const rest = output.slice(index + 1);
    const led = rest.slice(rest.findIndex((one) => !isReasoning(one)));
    if (!led[0] || !isOurCall(led[0], isOurs)) return true;
    const next = led.find((one) => !isOurCall(one, isOurs));
    return next !== undefined && !isReasoning(next);
  });
}

/** The provider keeps no items, so that no id leads to one, and reasoning needs its encrypted content. */
function withoutStore(item: Json): Json[] {
  if (!isFields(item)) return [item];
  if (item.type === 'reasoning') return typeof item.encrypted_content === 'string' ? [item] : [];
  const { id: _id, ...rest } = item;
  return [rest];
}

function answerOf(
  output: Json[],
  status: Json | undefined,
  usage: Json | undefined,
  model: Json | undefined,
): Answer {
  const calls = output.flatMap((item): Call[] => {
    if (!isFields(item) || item.type !== 'function_call') return [];
    return [{ id: textOr(item.call_id), name: textOr(item.name), arguments: item.arguments ?? '' }];
  });
  const complete = (status === 'completed' || status === 'incomplete') && output.length > 0;
  return { items: output, calls, usage: usageOf(usage, model), complete };
}

function usageOf(usage: Json | undefined, model: Json | undefined): UsageReport | null {
  if (!isFields(usage) || typeof usage.input_tokens !== 'number') return null;
  return { ...usage, input_tokens: usage.input_tokens, ...(typeof model === 'string' ? { model } : {}) };
}

const isEnd = (type: Json | undefined): boolean =>
  type === 'response.completed' || type === 'response.incomplete' || type === 'response.failed';

class ResponseCollector implements Collector {
  #response: Fields = {};
  readonly #items: Json[] = [];

  take({ type, response, item }: Fields): void {
    if (isEnd(type) && isFields(response)) this.#response = response;
    if (type === 'response.output_item.done' && item !== undefined) this.#items.push(item);
  }

  answer(): Answer {
    // Some upstreams end with a response that does not repeat its items.
    const output = listOf(this.#response.output);
    return responses.answer({ ...this.#response, output: output.length > 0 ? output : this.#items });
  }
}

/** An event of an item, and the place of the item in its stream. */
interface PlacedEvent {
  event: SseEvent;
  data: Fields;
  index: number;
}

class ResponseEditor implements StreamEditor {
  readonly #isOurs: IsOurs;
  /** Places of the items that the client sees, by their places in the stream; null: it does not see the item. */
  #places = new Map<number, number | null>();
  #items: Json[] = [];
  #shownItems = 0;
  /** Events of reasoning that waits for the item after it, and whether one of our calls has come since. */
  #reasoning: PlacedEvent[] = [];
  #leadsToOurs = false;
  #sequence: number | null = null;
  #id: Json = null;
  #held: { event: SseEvent; data: Fields } | null = null;
  #usage: Json = null;
  #goesOn = false;

  constructor(isOurs: IsOurs) {
    this.#isOurs = isOurs;
  }

  edit(given: SseEvent): string[] {
    const event = this.#withoutTools(given);
    const data = jsonIn(event);
    if (!isFields(data)) return [event.text];
    const { type, response, item, output_index: index } = data;
    if (isEnd(type)) {
      this.#held = { event, data };
      return [];
    }
    if (isFields(response)) {
      this.#id ??= response.id ?? null;
      return this.#goesOn ? [] : this.#numbered(event, data);
    }
    if (typeof index !== 'number') return this.#numbered(event, data);
    const begun = type === 'response.output_item.added' ? (item ?? null) : undefined;
    const before = begun === undefined ? [] : this.#reasoningBefore(begun);
    const placed = { event, data, index };
    if (isReasoning(begun ?? null) || this.#reasoning.some((one) => one.index === index)) {
      this.#reasoning.push(placed);
      return before;
    }
    return [...before, ...this.#placed(placed)];
  }

  goOn(): void {
    const response = this.#held?.data.response;
    if (isFields(response)) this.#usage = sumOfUsage(this.#usage, response.usage ?? null);
    this.#held = null;
    this.#places = new Map();
    this.#takenReasoning();
    this.#goesOn = true;
  }

  end(): string[] {
    const reasoning = this.#leadsToOurs ? [] : this.#takenReasoning();
    const before = reasoning.flatMap((one) => this.#placed(one));
    if (this.#held === null) return before;
    const { event, data } = this.#held;
    if (!isFields(data.response)) return [...before, event.text];
    const hidden = listOf(data.response.output).some((item) => isOurCall(item, this.#isOurs));
    if (!hidden && !this.#goesOn) return [...before, event.text];
    const usage = sumOfUsage(this.#usage, data.response.usage ?? null);
    const response = { ...data.response, id: this.#id, output: this.#items, usage };
    return [...before, ...this.#numbered(event, data, { response })];
  }

  /** The events of a response repeat the tools of the request. */
  #withoutTools(event: SseEvent): SseEvent {
    const value = jsonIn(event);
    if (event.data === null || !isFields(value) || !isFields(value.response)) return event;
    const isOut = (tool: Json) => isOurTool(tool, this.#isOurs);
    if (!listOf(value.response.tools).some(isOut)) return event;
    const data = withoutItems(event.data, ['response', 'tools'], isOut);
    return { text: event.text.replace(event.data, () => data), data };
  }

  /** What the client gets of the reasoning that waits, now that a further item begins. */
  #reasoningBefore(item: Json): string[] {
    if (isOurCall(item, this.#isOurs)) {
      this.#leadsToOurs = this.#reasoning.length > 0;
      return [];
    }
    if (!isReasoning(item)) return this.#takenReasoning().flatMap((one) => this.#placed(one));
    if (this.#leadsToOurs) this.#takenReasoning();
    return [];
  }

  #takenReasoning(): PlacedEvent[] {
    this.#leadsToOurs = false;
    return this.#reasoning.splice(0);
  }

  #placed({ event, data, index }: PlacedEvent): string[] {
    const { type, item = null } = data;
    if (type === 'response.output_item.added')
      this.#places.set(index, isOurCall(item, this.#isOurs) ? null : this.#shownItems++);
    const place = this.#places.get(index) ?? null;
    if (place === null) return [];
    if (type === 'response.output_item.done') this.#items.push(item);
    return this.#numbered(event, data, place === index ? {} : { output_index: place });
  }

  /** The event with the number that follows the one before it. */
  #numbered(event: SseEvent, data: Fields, changes: Fields = {}): string[] {
    const { type, sequence_number: given } = data;
    const number = typeof given === 'number' ? (this.#sequence === null ? given : this.#sequence + 1) : null;
    this.#sequence = number ?? this.#sequence;
    const isSame = Object.keys(changes).length === 0 && (number === null || number === given);
    if (isSame) return [event.text];
    const changed = { ...data, ...changes };
    if (number !== null) changed.sequence_number = number;
    return [eventText(changed, textOr(type))];
  }
}
