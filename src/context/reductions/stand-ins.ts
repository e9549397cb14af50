/** Replaces single messages by shorter ones (stand-ins): finds the fields that can be shortened and shortens them in steps. */
import type { Reduction, ViewItem } from '../view/view.js';
import { type ChatMessage, isMedia } from '../../conversation/message.js';
import { textOf } from '../../conversation/validate.js';
import type { Recovery } from '../../policy/defaults.js';
import { atOnce, type Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';
import { excerptOf, excerptOfArguments, excerptSteps } from './excerpt.js';

/** An item of a view being reduced; `kind` is the reduction made, or null. */
export interface Entry {
  item: ViewItem;
  /** The unreduced item: excerpts are always made of it, never of another excerpt. */
  readonly original: ViewItem;
  kind: Reduction['kind'] | null;
}

/** A part of a message that can be shortened. */
interface Field {
  entry: Entry;
  kind: Reduction['kind'];
  /** Current size of its largest piece. */
  tokens: number;
  shorten(message: ChatMessage, maxTokens: number): ChatMessage | null;
}

export interface Fit {
  /** The new reductions, without those that the view already had. */
  reductions: Reduction[];
  view: ViewItem[];
  tokens: number;
}

/** Neighbouring items of a view. */
export interface Run {
  /** Index of the first item. */
  first: number;
  items: readonly ViewItem[];
}

/** Length in characters from which the tokens of an argument are estimated until it is shortened. */
const longArgument = 400;

/** The order in which fields are shortened. */
export const stages = ['tool_result', 'arguments', 'message'] as const;
export type Stage = (typeof stages)[number];

/** A view being reduced, and its running total. Only messages as logged are shortened; earlier reductions stay unchanged. */
export class StandIns {
  readonly entries: Entry[];
  tokens: number;
  private readonly leftOut: Reduction[] = [];

  private readonly counter: TokenCounter;

  constructor(
    view: readonly ViewItem[],
    counter: TokenCounter,
    private readonly recovery: Recovery,
  ) {
    this.counter = remembering(counter);
    this.entries = view.map((item) => ({ item, original: item, kind: null }));
    this.tokens = view.reduce((sum, item) => sum + item.tokens, 0);
  }

  /**
   * Shortens the fields of one stage in the accepted items until the view has at most `goal` tokens or no field is left. All
   * fields are shortened to one step, largest first, before any is shortened to the next. A step that cannot reach the goal is
   * skipped.
   */
  shrink(...given: Parameters<StandIns['shrinking']>): void {
    atOnce(this.shrinking(...given));
  }

  /** {@link shrink} in steps. */
  *shrinking(
    stage: Stage,
    accepts: (item: ViewItem) => boolean,
    goal: number,
    steps: readonly number[] = excerptSteps,
  ): Steps<void> {
    if (this.tokens <= goal) return;
    const fields: Field[] = [];
    for (const entry of this.entries) {
      if (accepts(entry.item)) fields.push(...this.fieldsOf(entry, stage));
      yield;
    }
    for (const [number, step] of steps.entries()) {
      const most = fields.reduce((sum, { tokens }) => sum + Math.max(0, tokens - step), 0);
      if (this.tokens - most > goal && number < steps.length - 1) continue;
      fields.sort(
        (one, other) => other.tokens - one.tokens || one.entry.item.fromSeq - other.entry.item.fromSeq,
      );
      for (const field of fields) {
        if (this.tokens <= goal) return;
        if (field.tokens <= step) break;
        this.shortenField(field, step);
        yield;
      }
    }
  }

  private shortenField(field: Field, step: number): void {
    const message = field.shorten(field.entry.item.message, step);
    if (message !== null && this.put(field.entry, message, field.kind))
      field.tokens = Math.min(field.tokens, step);
  }

  /** Replaces the entry's message if the new one is smaller; returns whether it did. */
  put(entry: Entry, message: ChatMessage, kind: Reduction['kind']): boolean {
    const { item } = entry;
    const tokens = countMessage(message, this.counter);
    if (tokens >= item.tokens) return false;
    this.tokens -= item.tokens - tokens;
    entry.item = { ...item, message, tokens, source: 'reduced' };
    entry.kind = kind;
    return true;
  }

  /** Replaces the items by notes. */
  replace(run: Run, notes: readonly ViewItem[]): void {
    this.replaceAll([{ run, notes }]);
  }

  /** Replaces several runs, given in ascending order. */
  replaceAll(replaced: readonly { run: Run; notes: readonly ViewItem[] }[]): void {
    const old = this.entries.splice(0);
    let copied = 0;
    const copy = (to: number) => {
      for (; copied < to; copied++) this.entries.push(old[copied]!);
    };
    for (const { run, notes } of replaced) {
      copy(run.first);
      copied += run.items.length;
      for (const item of notes) this.entries.push({ item, original: item, kind: 'omitted' });
      for (const { tokens } of run.items) this.tokens -= tokens;
      for (const { tokens } of notes) this.tokens += tokens;
    }
    copy(old.length);
  }

  /** Removes the items, which must be all items of this range in the view. */
  leaveOut(run: Run, { fromSeq, throughSeq }: { fromSeq: number; throughSeq: number }): void {
    this.replace(run, []);
    this.leftOut.push({ fromSeq, throughSeq, kind: 'omitted', body: 'null', tokens: 0 });
  }

  fit(): Fit {
    return { reductions: this.reductions(), view: this.view(), tokens: this.tokens };
  }

  view(): ViewItem[] {
    return this.entries.map(({ item }) => item);
  }

  private reductions(): Reduction[] {
    const shown = this.entries.flatMap(({ item: { fromSeq, throughSeq, message, tokens }, kind }) =>
      kind === null ? [] : [{ fromSeq, throughSeq, kind, body: JSON.stringify(message), tokens }],
    );
    return [...this.leftOut, ...shown];
  }

  private fieldsOf(entry: Entry, stage: Stage): Field[] {
    const { source, role } = entry.original;
    if (source !== 'log' && source !== 'orphan') return [];
    const ofTool = role === 'tool' || role === 'function';
    if (stage === 'arguments') return ofTool ? [] : this.argumentFields(entry);
    if (ofTool !== (stage === 'tool_result')) return [];
    return this.contentFields(entry, stage);
  }

  private contentFields(entry: Entry, kind: Stage): Field[] {
    const { message, tokens, fromSeq } = entry.original;
    const text = textOf(message);
    const besides = besidesText(message);
    if (text === '' && besides === '') return [];
    const calls = message.tool_calls ?? message.function_call;
    // The message was counted before; with calls, its text gets its share of that count.
    const share = () =>
      Math.ceil((tokens * text.length) / (text.length + charactersIn(argumentsIn(message))));
    const textTokens = calls && besides === '' ? share() : besides === '' ? tokens : this.counter.count(text);
    const current = textOf(entry.item.message);
    const size = !calls ? entry.item.tokens : current === text ? textTokens : this.counter.count(current);
    const original = { seq: fromSeq, callId: message.tool_call_id ?? null, besides, recovery: this.recovery };
    const shorten = (current: ChatMessage, maxTokens: number) => {
      const content = excerptOf(text, textTokens, maxTokens, original, this.counter);
      return content === null ? null : withContent(current, content);
    };
    return [{ entry, kind, tokens: size, shorten }];
  }

  private argumentFields(entry: Entry): Field[] {
    const { message, tokens, fromSeq } = entry.original;
    const original = { seq: fromSeq, recovery: this.recovery };
    const texts = argumentsIn(message);
    const characters = charactersIn(texts) + textOf(message).length;
    // A long text gets its share of the message's count.
    const sizes = texts.map((text) =>
      text.length < longArgument ? this.counter.count(text) : Math.ceil((tokens * text.length) / characters),
    );
    const now = argumentsIn(entry.item.message);
    const present = now.map((text, number) =>
      text === texts[number] ? sizes[number]! : this.counter.count(text),
    );
    const largest = present.reduce((most, tokens) => Math.max(most, tokens), 0);
    if (largest === 0) return [];
    const shorter = (number: number, current: string, maxTokens: number) => {
      if (present[number]! <= maxTokens) return current;
      const text = texts[number]!;
      const excerpt = excerptOfArguments(text, sizes[number]!, maxTokens, original, this.counter);
      return this.counter.count(excerpt) < present[number]! ? excerpt : current;
    };
    const shorten = (current: ChatMessage, maxTokens: number) =>
      withArguments(current, (json, number) => shorter(number, json, maxTokens));
    return [{ entry, kind: 'arguments', tokens: largest, shorten }];
  }
}

/** Maximum characters of a text whose count stays cached. Of longer texts, only the count of the last one does. */
const shortText = 8_000;

/** Caches counts: texts and excerpts are counted both separately and with their messages. */
function remembering(counter: TokenCounter): TokenCounter {
  const short = new Map<string, number>();
  let last = { text: '', tokens: 0 };
  return {
    name: counter.name,
    count(text) {
      if (text === '') return 0;
      if (text.length > shortText) {
        if (text !== last.text) last = { text, tokens: counter.count(text) };
        return last.tokens;
      }
      const known = short.get(text);
      if (known !== undefined) return known;
      const tokens = counter.count(text);
      short.set(text, tokens);
      return tokens;
    },
  };
}

function charactersIn(texts: readonly string[]): number {
  return texts.reduce((sum, text) => sum + text.length, 0);
}

/** The arguments of all calls in call order, with a legacy call last; missing arguments are empty strings. */
function argumentsIn({ tool_calls, function_call }: ChatMessage): string[] {
  return [
    ...(tool_calls ?? []).map((call) => call.function?.arguments ?? ''),
    function_call?.arguments ?? '',
  ];
}

/** The message with replaced arguments, numbered as in {@link argumentsIn}. */
export function withArguments(
  message: ChatMessage,
  replaced: (json: string, number: number) => string,
): ChatMessage {
  const { tool_calls: calls = [], function_call: legacy } = message;
  return {
    ...message,
    ...(message.tool_calls && {
      tool_calls: calls.map((call, number) =>
        call.function
          ? { ...call, function: { ...call.function, arguments: replaced(call.function.arguments, number) } }
          : call,
      ),
    }),
    ...(legacy && { function_call: { ...legacy, arguments: replaced(legacy.arguments, calls.length) } }),
  };
}

/** Names the parts that an excerpt of the message's text leaves out. */
export function besidesText({ content, reasoning, reasoning_content }: ChatMessage): string {
  const media = Array.isArray(content) ? content.filter(isMedia).length : 0;
  const parts = media === 0 ? [] : [media === 1 ? '1 media part' : `${media} media parts`];
  return [...parts, ...(reasoning || reasoning_content ? ['reasoning'] : [])].join(' and ');
}

/** The message with other content. Unknown fields, such as reasoning, are removed, since they can be long. */
export function withContent(
  { role, name, tool_call_id, tool_calls, function_call }: ChatMessage,
  content: string,
): ChatMessage {
  return {
    role,
    ...(name !== undefined && { name }),
    content,
    ...(tool_calls !== undefined && { tool_calls }),
    ...(function_call !== undefined && { function_call }),
    ...(tool_call_id !== undefined && { tool_call_id }),
  };
}
