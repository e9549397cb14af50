/** The shorter stand-ins of single messages: which field of which message can be shortened, and the work of doing it step by step. */
import type { Reduction, ViewItem } from '../conversation/context.js';
import type { ChatMessage } from '../conversation/message.js';
import { textOf } from '../conversation/validate.js';
import type { TokenCounter } from '../tokens/counter.js';
import { countMessage, isMedia } from '../tokens/message.js';
import { excerptOf, excerptOfArguments, excerptSteps } from './excerpt.js';

/** One item of a view being reduced; `kind` says what was done to it, null for nothing. */
export interface Entry {
  item: ViewItem;
  kind: Reduction['kind'] | null;
}

/** A part of a message that can be shortened. `tokens` is the present size of its largest piece. */
interface Field {
  entry: Entry;
  kind: Reduction['kind'];
  tokens: number;
  shorten(message: ChatMessage, maxTokens: number): ChatMessage | null;
}

/** What is shortened first, second and last. */
export const stages = ['tool_result', 'arguments', 'message'] as const;
export type Stage = (typeof stages)[number];

/** A view being reduced, and its running total. Only messages as logged are shortened: a reduction that was made before stays as it is. */
export class StandIns {
  readonly entries: Entry[];
  tokens: number;

  constructor(
    view: readonly ViewItem[],
    private readonly counter: TokenCounter,
  ) {
    this.entries = view.map((item) => ({ item, kind: null }));
    this.tokens = view.reduce((sum, item) => sum + item.tokens, 0);
  }

  /**
   * Shortens the fields of one stage among the accepted items, the largest first, all to one step before any to the next, until the view
   * holds `goal` tokens or nothing is left to shorten.
   */
  shrink(
    stage: Stage,
    accepts: (item: ViewItem) => boolean,
    goal: number,
    steps: readonly number[] = excerptSteps,
  ): void {
    if (this.tokens <= goal) return;
    const fields = this.entries.flatMap((entry) => (accepts(entry.item) ? this.fieldsOf(entry, stage) : []));
    for (const step of steps) {
      fields.sort(
        (one, other) => other.tokens - one.tokens || one.entry.item.fromSeq - other.entry.item.fromSeq,
      );
      for (const field of fields) {
        if (this.tokens <= goal) return;
        if (field.tokens <= step) break;
        this.shortenField(field, step);
      }
    }
  }

  private shortenField(field: Field, step: number): void {
    const { item } = field.entry;
    const message = field.shorten(item.message, step);
    if (message === null) return;
    const tokens = countMessage(message, this.counter);
    if (tokens >= item.tokens) return;
    this.tokens -= item.tokens - tokens;
    field.tokens = Math.min(field.tokens, step);
    field.entry.item = { ...item, message, tokens, source: 'reduced' };
    field.entry.kind = field.kind;
  }

  /** Puts notes in place of the items from `first` on. */
  replace({ first, items }: { first: number; items: readonly ViewItem[] }, notes: readonly ViewItem[]): void {
    this.entries.splice(first, items.length, ...notes.map((item): Entry => ({ item, kind: 'omitted' })));
    for (const { tokens } of items) this.tokens -= tokens;
    for (const { tokens } of notes) this.tokens += tokens;
  }

  view(): ViewItem[] {
    return this.entries.map(({ item }) => item);
  }

  reductions(): Reduction[] {
    return this.entries.flatMap(({ item: { fromSeq, throughSeq, message, tokens }, kind }) =>
      kind === null ? [] : [{ fromSeq, throughSeq, kind, body: JSON.stringify(message), tokens }],
    );
  }

  private fieldsOf(entry: Entry, stage: Stage): Field[] {
    const { source, role } = entry.item;
    const asLogged = source === 'log' || source === 'orphan' || entry.kind !== null;
    if (!asLogged || entry.kind === 'omitted') return [];
    const ofTool = role === 'tool' || role === 'function';
    if (stage === 'arguments') return ofTool ? [] : this.argumentFields(entry);
    if (ofTool !== (stage === 'tool_result')) return [];
    return this.contentFields(entry, stage);
  }

  private contentFields(entry: Entry, kind: Stage): Field[] {
    const { message, tokens, fromSeq } = entry.item;
    const text = textOf(message);
    const besides = besidesText(message);
    if (text === '' && besides === '') return [];
    const { tool_calls, function_call, ...spoken } = message;
    const calls = tool_calls ?? function_call;
    const size = calls ? countMessage(spoken, this.counter) : tokens;
    const textTokens = calls || besides !== '' ? this.counter.count(text) : tokens;
    const original = { seq: fromSeq, callId: message.tool_call_id ?? null, besides };
    const shorten = (current: ChatMessage, maxTokens: number) => {
      const content = excerptOf(text, textTokens, maxTokens, original, this.counter);
      return content === null ? null : withContent(current, content);
    };
    return [{ entry, kind, tokens: size, shorten }];
  }

  private argumentFields(entry: Entry): Field[] {
    const { message, fromSeq } = entry.item;
    const texts = [
      ...(message.tool_calls ?? []).map((call) => call.function?.arguments ?? ''),
      message.function_call?.arguments ?? '',
    ];
    const sizes = texts.map((text) => this.counter.count(text));
    const largest = Math.max(...sizes);
    if (largest === 0) return [];
    const shorter = (number: number, maxTokens: number) =>
      sizes[number]! > maxTokens
        ? this.smaller(
            texts[number]!,
            excerptOfArguments(texts[number]!, sizes[number]!, maxTokens, fromSeq, this.counter),
            sizes[number]!,
          )
        : texts[number]!;
    const shorten = (current: ChatMessage, maxTokens: number): ChatMessage => ({
      ...current,
      ...(current.tool_calls && {
        tool_calls: current.tool_calls.map((call, number) =>
          call.function
            ? { ...call, function: { ...call.function, arguments: shorter(number, maxTokens) } }
            : call,
        ),
      }),
      ...(current.function_call && {
        function_call: { ...current.function_call, arguments: shorter(texts.length - 1, maxTokens) },
      }),
    });
    return [{ entry, kind: 'arguments', tokens: largest, shorten }];
  }

  private smaller(text: string, shorter: string, tokens: number): string {
    return this.counter.count(shorter) < tokens ? shorter : text;
  }
}

/** What an excerpt of a message's text leaves out with it. */
function besidesText({ content, reasoning, reasoning_content }: ChatMessage): string {
  const media = Array.isArray(content) ? content.filter(isMedia).length : 0;
  const parts = media === 0 ? [] : [media === 1 ? '1 media part' : `${media} media parts`];
  return [...parts, ...(reasoning || reasoning_content ? ['reasoning'] : [])].join(' and ');
}

/** The message with other content; fields beside the known ones (reasoning, for one) can be long, and go. */
function withContent(
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
