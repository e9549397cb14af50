/** Anthropic messages (platform.claude.com/docs/en/api/messages). */
import { recoveryTools } from '../../contract/recovery-tools.js';
import type { Json } from '../../conversation/message.js';
import { invalid } from '../../errors.js';
import { type Fields, isFields, textOr } from '../../formats/content.js';
import type { UsageReport } from '../../tokens/reported-usage.js';
import { eventText, jsonIn, type SseEvent } from '../sse.js';
import type { Answer, Call, Collector, IsOurs, Protocol, StreamEditor } from './protocol.js';
import { hasNamesake, isRecoveryTool, listOf, sumOfUsage, tokensIn } from './tools.js';

export const messages: Protocol = {
  name: 'messages',
  format: 'anthropic',
  field: 'messages',
  read(body) {
    const { messages: given, model } = body;
    if (!Array.isArray(given))
      throw invalid('messages must be an array of messages', 'body.messages', 'Send a message request.');
    const begin = given.findIndex((item) => !isFields(item) || item.role !== 'system');
    const leading = begin < 0 ? given : given.slice(0, begin);
    const rest = given.slice(leading.length);
    const last = rest.at(-1);
    const isBegun = isFields(last) && last.role === 'assistant';
    return {
      leading,
      list: isBegun ? rest.slice(0, -1) : rest,
      trailing: isBegun ? [last] : [],
      beside: [leading, body.system, body.tools].filter((part) => part !== undefined),
      model: typeof model === 'string' ? model : undefined,
      maxOutput: tokensIn(body.max_tokens),
      heldByProvider: null,
    };
  },
  tools: recoveryTools.map(({ function: { name, description, parameters } }) => ({
    ...{ name, description },
    input_schema: parameters,
  })),
  takesTools: ({ tools }) => !hasNamesake(tools, ({ name }) => name),
  // The provider wants the tools of all calls that a request has.
  withoutCalls: (offered) => ({ ...offered, tool_choice: { type: 'none' } }),
  answer({ content, stop_reason: reason, usage, model }) {
    return answerOf(listOf(content), reason, usage, model);
  },
  shown(body, isOurs, usage) {
    const content = listOf(body.content).filter((block) => !isOurCall(block, isOurs));
    const hasCalls = content.some((block) => isFields(block) && block.type === 'tool_use');
    const reason = body.stop_reason === 'tool_use' && !hasCalls ? 'end_turn' : (body.stop_reason ?? null);
    return { ...body, content, stop_reason: reason, ...(usage === null ? {} : { usage }) };
  },
  withoutTools: (text) => text,
  isAnswer: (item) => isFields(item) && item.role === 'assistant',
  canBeNamed: () => false,
  again: (items) => [...items],
  results: (results) => [
    {
      role: 'user',
      content: results.map(({ call, content }) => ({
        ...{ type: 'tool_result', tool_use_id: call.id, content },
      })),
    },
  ],
  collector: () => new MessageCollector(),
  editor: (isOurs) => new MessageEditor(isOurs),
  failure: (type, message) => ({ type: 'error', error: { type, message } }),
  failureEvent: (type, message) => eventText(messages.failure(type, message), 'error'),
};

const isOurCall = (block: Json, isOurs: IsOurs): boolean =>
  isFields(block) && block.type === 'tool_use' && isOurs(textOr(block.name));

function answerOf(
  content: Json[],
  reason: Json | undefined,
  usage: Json | undefined,
  model: Json | undefined,
): Answer {
  const calls = content.flatMap((block): Call[] => {
    if (!isFields(block) || block.type !== 'tool_use') return [];
    return [{ id: textOr(block.id), name: textOr(block.name), arguments: block.input ?? {} }];
  });
  // After `pause_turn` the client asks for the rest of the same answer.
  const complete = typeof reason === 'string' && reason !== 'pause_turn' && content.length > 0;
  return { items: [{ role: 'assistant', content }], calls, usage: usageOf(usage, model), complete };
}

function usageOf(usage: Json | undefined, model: Json | undefined): UsageReport | null {
  if (!isFields(usage) || typeof usage.input_tokens !== 'number') return null;
  return { ...usage, input_tokens: usage.input_tokens, ...(typeof model === 'string' ? { model } : {}) };
}

/** A block whose deltas still come, with the text of its input. */
interface OpenBlock {
  block: Fields;
  json: string;
}

class MessageCollector implements Collector {
  /** By their places in the stream. */
  readonly #blocks = new Map<number, OpenBlock>();
  #usage: Fields = {};
  #model: Json = null;
  #reason: Json = null;

  take(event: Fields): void {
    const { type, index, delta } = event;
    const open = typeof index === 'number' ? this.#blocks.get(index) : undefined;
    if (type === 'message_start' && isFields(event.message)) {
      this.#model = event.message.model ?? null;
      this.#usage = reported(this.#usage, event.message.usage);
    } else if (type === 'content_block_start' && typeof index === 'number') {
      if (isFields(event.content_block))
        this.#blocks.set(index, { block: { ...event.content_block }, json: '' });
    } else if (type === 'content_block_delta' && open && isFields(delta)) this.#add(open, delta);
    else if (type === 'message_delta') {
      if (isFields(delta)) this.#reason = delta.stop_reason ?? null;
      this.#usage = reported(this.#usage, event.usage);
    }
  }

  answer(): Answer {
    const read = [...this.#blocks.values()].map(withInput);
    const answer = answerOf(
      read.map(({ block }) => block),
      this.#reason,
      this.#usage,
      this.#model,
    );
    const calls = answer.calls.map((call) => {
      const wrong = read.find(({ block, wrong }) => wrong !== null && block.id === call.id)?.wrong;
      return { ...call, arguments: wrong ?? call.arguments };
    });
    // A recovery call that the model has ended gets an error as its result. Otherwise the answer was cut off within the input.
    const isWhole = read.every(
      ({ block, wrong }) =>
        wrong === null || (this.#reason === 'tool_use' && isRecoveryTool(textOr(block.name))),
    );
    return { ...answer, calls, complete: answer.complete && isWhole };
  }

  #add(open: OpenBlock, { type, partial_json: json, citation, ...texts }: Fields): void {
    if (type === 'input_json_delta') open.json += textOr(json);
    else if (type === 'citations_delta' && citation !== undefined)
      open.block.citations = [...listOf(open.block.citations), citation];
    // `text_delta` has the field `text`, `thinking_delta` the field `thinking`, and so on.
    else
      for (const [name, text] of Object.entries(texts))
        if (typeof text === 'string') open.block[name] = textOr(open.block[name]) + text;
  }
}

/** The block with its input, and the text of the input if it is no JSON. */
function withInput({ block, json }: OpenBlock): { block: Fields; wrong: string | null } {
  if (json === '') return { block, wrong: null };
  try {
    return { block: { ...block, input: JSON.parse(json) as Json }, wrong: null };
  } catch {
    return { block, wrong: json };
  }
}

/** The usage after a further report, which has the fields that have changed. */
function reported(before: Fields, usage: Json | undefined): Fields {
  if (!isFields(usage)) return before;
  const said = Object.entries(usage).filter(([, value]) => value !== null);
  return { ...before, ...Object.fromEntries(said) };
}

class MessageEditor implements StreamEditor {
  readonly #isOurs: IsOurs;
  /** Places of the blocks that the client sees, by their places in the stream; null: it does not see the block. */
  #places = new Map<number, number | null>();
  #shownBlocks = 0;
  #showsCall = false;
  #held: SseEvent[] = [];
  /** Of the streams before, and of this one. */
  #usage: Json = null;
  #current: Fields = {};
  #goesOn = false;

  constructor(isOurs: IsOurs) {
    this.#isOurs = isOurs;
  }

  edit(event: SseEvent): string[] {
    const data = jsonIn(event);
    if (!isFields(data)) return [event.text];
    const { type, index, content_block: block } = data;
    if (type === 'message_delta' || type === 'message_stop') {
      this.#current = reported(this.#current, data.usage);
      this.#held.push(event);
      return [];
    }
    if (type === 'message_start') {
      this.#current = reported({}, isFields(data.message) ? data.message.usage : undefined);
      return this.#goesOn ? [] : [event.text];
    }
    if (typeof index !== 'number') return [event.text];
    if (type === 'content_block_start') this.#open(index, block ?? null);
    const place = this.#places.get(index) ?? null;
    if (place === null) return [];
    return [place === index ? event.text : eventText({ ...data, index: place }, textOr(type))];
  }

  goOn(): void {
    this.#usage = sumOfUsage(this.#usage, this.#current);
    this.#held = [];
    this.#places = new Map();
    this.#goesOn = true;
  }

  end(): string[] {
    return this.#held.map((event) => {
      const data = jsonIn(event);
      if (!isFields(data) || data.type !== 'message_delta') return event.text;
      const delta = isFields(data.delta) ? data.delta : {};
      const hidden = delta.stop_reason === 'tool_use' && !this.#showsCall;
      if (!hidden && !this.#goesOn) return event.text;
      return eventText(
        {
          ...data,
          delta: hidden ? { ...delta, stop_reason: 'end_turn' } : delta,
          ...(this.#goesOn ? { usage: sumOfUsage(this.#usage, this.#current) } : {}),
        },
        'message_delta',
      );
    });
  }

  #open(index: number, block: Json): void {
    const hidden = isOurCall(block, this.#isOurs);
    this.#places.set(index, hidden ? null : this.#shownBlocks++);
    this.#showsCall ||= !hidden && isFields(block) && block.type === 'tool_use';
  }
}
