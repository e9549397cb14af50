import { grouping, type Grouping } from '../../conversation/groups.js';
import type { ChatMessage, LoggedMessage, MessageMeta, Role } from '../../conversation/message.js';
import { metaOf } from '../../conversation/validate.js';
import { atOnce, type Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countLabelled, countMessage } from '../../tokens/message.js';
import {
  assigningCallIds,
  callsPerStep,
  showCaller,
  showOrphan,
  showPlain,
  showResult,
  syntheticResult,
} from './projection.js';

/** Replaces everything before the tail: the summary turn, its acknowledgment, and last the carried request, if any. */
export interface Head {
  messages: ChatMessage[];
  /** Tokens of each of `messages`. */
  tokens: number[];
  /** Seq of the carried request, or null. */
  carriedSeq: number | null;
  /** Layout of the summary turn; null or absent if an earlier version wrote it. */
  layout?: HeadLayout | null;
}

/**
 * The parts of a summary turn: journal entries with their headings, exact values after them, pins, state, or the snapshot of
 * the other modes; `note` is the text around them.
 */
export const headParts = ['note', 'journal', 'exact', 'pins', 'state', 'snapshot'] as const;
export type HeadPart = (typeof headParts)[number];

export interface HeadStretch {
  part: HeadPart;
  characters: number;
}

export interface HeadLayout {
  /** The stretches of the turn's text in order, without gaps. */
  stretches: HeadStretch[];
  /** Tokens of each part; their sum is the size of the turn. */
  tokens: Record<HeadPart, number>;
}

/** A shorter message (stand-in) that the context shows for one message or (`omitted`) for a range. The originals stay in the log. */
export interface Reduction {
  fromSeq: number;
  throughSeq: number;
  /**
   * `summary`: a model summarized this message separately; the paid answer is reused. `journal`: the summary turn without its
   * entries on these messages.
   */
  kind: 'tool_result' | 'arguments' | 'message' | 'omitted' | 'summary' | 'journal';
  /**
   * JSON of the stand-in message. Its ids are replaced by those that the context gives to the original. `null` (kind `omitted`
   * only): the context leaves the range out without a stand-in.
   */
  body: string;
  tokens: number;
}

export interface ContextSource {
  /** The leading system (and developer) messages of the log. */
  system: LoggedMessage[];
  head: Head | null;
  /** The log after the head's `throughSeq`, or after the leading system messages. */
  tail: LoggedMessage[];
  /** Oldest first. A later `omitted` range replaces the ranges that it covers. */
  reductions: Reduction[];
  /** Metas of `tail`, in its order. @default computed */
  metas?: MessageMeta[];
}

export type ViewSource =
  | 'system'
  | 'summarization'
  | 'acknowledgment'
  | 'carried'
  | 'log'
  | 'synthetic'
  | 'orphan'
  | 'reduced'
  | 'omitted'
  | 'media';

/** A message of the context and its source. */
export interface ViewItem {
  /** First and last seq of the item; 0 and 0 for the head and for synthetic results. */
  fromSeq: number;
  throughSeq: number;
  message: ChatMessage;
  tokens: number;
  source: ViewSource;
  /** Number of the item's group: the seq of the group's first message; negative for the head. */
  group: number;
  /** Role of the logged message (an orphan result is shown as a user message but keeps its role); otherwise the role of `message`. */
  role: Role;
  /** Name of a result's tool, from its call or from the result; null if unknown, and for other messages. */
  tool: string | null;
  /** The items joined into this one for models whose roles alternate. */
  joined?: readonly Pick<ViewItem, 'source' | 'tokens'>[];
}

/**
 * The context of a session as sent to the model. It is a projection of the stored messages that is always valid for an
 * OpenAI-compatible endpoint, even if the log has unanswered calls, orphan results, reused ids or empty turns. The view is in
 * request order: leading system messages, head, tail. In the tail every assistant message with calls is followed directly by
 * one result per call, in call order; results recorded later move up to their call, missing results are synthetic. Appending
 * messages only adds items at the end, except that a late result replaces its synthetic one.
 */
export function buildView(source: ContextSource, counter: TokenCounter): ViewItem[] {
  return atOnce(viewing(source, counter));
}

/** {@link buildView} in steps. */
export function* viewing(source: ContextSource, counter: TokenCounter): Steps<ViewItem[]> {
  return [
    ...source.system.filter(({ message }) => !metaOf(message).empty).map(systemItem),
    ...(source.head ? headItems(source.head) : []),
    ...(yield* TailView.items(source, counter)),
  ];
}

function systemItem({ seq, message, tokens }: LoggedMessage): ViewItem {
  const shown = showPlain(message);
  return {
    fromSeq: seq,
    throughSeq: seq,
    message: shown,
    tokens,
    source: 'system',
    group: seq,
    role: message.role,
    tool: null,
  };
}

function headItems({ messages, tokens, carriedSeq }: Head): ViewItem[] {
  return messages.map((message, index) => ({
    fromSeq: 0,
    throughSeq: 0,
    message,
    tokens: tokens[index] ?? 0,
    source:
      carriedSeq !== null && index === messages.length - 1
        ? 'carried'
        : index === 0
          ? 'summarization'
          : 'acknowledgment',
    group: -1 - index,
    role: message.role,
    tool: null,
  }));
}

/** Tokens of a view. */
export function sizeOf(view: readonly ViewItem[]): number {
  return view.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Tokens of the items of a view after `seq`. */
export function sizeBeyond(seq: number, view: readonly ViewItem[]): number {
  return sizeOf(view.filter(({ fromSeq }) => fromSeq > seq));
}

/** The tail of a context: whole groups, unique ids, results directly after their calls, and stand-ins in place of their originals. */
class TailView {
  private readonly tail: LoggedMessage[];
  private readonly metas: MessageMeta[];
  private readonly answeredBy: (number | null)[][];
  /** Index of a result to the index of its caller. */
  private readonly callerOf = new Map<number, number>();
  private readonly standIns = new Map<number, Reduction>();
  private readonly omitted: Reduction[];

  static *items(source: ContextSource, counter: TokenCounter): Steps<ViewItem[]> {
    const metas = source.metas ?? (yield* metasOf(source.tail));
    const { answeredBy } = yield* grouping(metas);
    const callIds = yield* assigningCallIds(metas);
    return yield* new TailView(source, metas, answeredBy, callIds, counter).items();
  }

  private constructor(
    { tail, reductions }: ContextSource,
    metas: MessageMeta[],
    answeredBy: Grouping['answeredBy'],
    private readonly callIds: string[][],
    private readonly counter: TokenCounter,
  ) {
    this.tail = tail;
    this.metas = metas;
    this.answeredBy = answeredBy;
    this.answeredBy.forEach((results, caller) => {
      for (const result of results) if (result !== null) this.callerOf.set(result, caller);
    });
    for (const reduction of reductions)
      if (reduction.kind !== 'omitted') this.standIns.set(reduction.fromSeq, reduction);
    this.omitted = outermostRanges(reductions);
  }

  private *items(): Steps<ViewItem[]> {
    const items: ViewItem[] = [];
    const toolNames = new Map<string, string>();
    let shown: Reduction | undefined;
    for (const [index, { seq }] of this.tail.entries()) {
      yield;
      const meta = this.metas[index]!;
      for (const { id, name } of meta.calls) if (id !== null) toolNames.set(id, name);
      const range = this.rangeOf(seq);
      if (range !== undefined) {
        if (range !== shown) items.push(...omittedItems(range));
        shown = range;
      } else if (meta.role === 'tool' || meta.role === 'function') {
        if (this.isOrphan(index)) items.push(this.orphan(index, toolNames.get(meta.answers ?? '') ?? null));
      } else if (meta.calls.length > 0) {
        yield* this.callGroup(index, items);
      } else if (!meta.empty) {
        const { message, tokens, reduced } = this.stored(index);
        items.push(this.item(index, index, showPlain(message), tokens, reduced ? 'reduced' : 'log'));
      }
    }
    return items;
  }

  private rangeOf(seq: number): Reduction | undefined {
    let low = 0;
    let high = this.omitted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.omitted[middle]!.throughSeq < seq) low = middle + 1;
      else high = middle;
    }
    const range = this.omitted[low];
    return range !== undefined && range.fromSeq <= seq ? range : undefined;
  }

  /** A result stays with its call if the call is shown; the result of an omitted call is shown separately. */
  private isOrphan(index: number): boolean {
    const caller = this.callerOf.get(index);
    return caller === undefined || this.rangeOf(this.tail[caller]!.seq) !== undefined;
  }

  /** Adds a call and its results to `items`: a message may have more calls than a function may have arguments. */
  private *callGroup(index: number, items: ViewItem[]): Steps<void> {
    const caller = this.stored(index);
    const { message, calls } = showCaller(caller.message, this.callIds[index]!);
    items.push(
      this.item(index, index, message, this.weigh(message, caller), caller.reduced ? 'reduced' : 'log'),
    );
    for (const [number, call] of calls.entries()) {
      if (number % callsPerStep === callsPerStep - 1) yield;
      const answer = this.answeredBy[index]![number] ?? null;
      if (answer === null) {
        const synthetic = syntheticResult(call);
        const tokens = countMessage(synthetic, this.counter);
        items.push({
          ...this.item(index, index, synthetic, tokens, 'synthetic'),
          fromSeq: 0,
          throughSeq: 0,
          role: synthetic.role,
          tool: toolOf(this.metas[index]!, number),
        });
        continue;
      }
      const stored = this.stored(answer);
      const result = showResult(stored.message, call);
      const source = stored.reduced ? 'reduced' : 'log';
      const tool = toolOf(this.metas[index]!, number) ?? (this.tail[answer]!.message.name || null);
      items.push({ ...this.item(answer, index, result, this.weigh(result, stored), source), tool });
      yield;
    }
  }

  private orphan(index: number, toolName: string | null): ViewItem {
    const stored = this.stored(index);
    const message = showOrphan(stored.message, this.tail[index]!.seq, toolName);
    const source = stored.reduced ? 'reduced' : 'orphan';
    const tool = this.tail[index]!.message.name || toolName || null;
    const tokens = message === stored.message ? stored.tokens : countLabelled(message, stored, this.counter);
    return { ...this.item(index, index, message, tokens, source), tool };
  }

  private item(
    index: number,
    first: number,
    message: ChatMessage,
    tokens: number,
    source: ViewSource,
  ): ViewItem {
    const { seq } = this.tail[index]!;
    return {
      fromSeq: seq,
      throughSeq: seq,
      message,
      tokens,
      source,
      group: this.tail[first]!.seq,
      role: this.metas[index]!.role,
      tool: null,
    };
  }

  /** The logged message, or its stand-in. */
  private stored(index: number): { message: ChatMessage; tokens: number; reduced: boolean } {
    const { seq, message, tokens } = this.tail[index]!;
    const standIn = this.standIns.get(seq);
    if (standIn === undefined) return { message, tokens, reduced: false };
    const body = JSON.parse(standIn.body) as ChatMessage;
    return { message: body, tokens: standIn.tokens, reduced: true };
  }

  /** Counts a message again only if its text differs. Role, ids, and the field that holds a call are not counted. */
  private weigh(shown: ChatMessage, stored: { message: ChatMessage; tokens: number }): number {
    const { content, name } = stored.message;
    const same = shown.content === content && (shown.name ?? null) === (name ?? null);
    return same ? stored.tokens : countMessage(shown, this.counter);
  }
}

function* metasOf(tail: readonly LoggedMessage[]): Steps<MessageMeta[]> {
  const metas: MessageMeta[] = [];
  for (const { seq, message, tokens } of tail) {
    metas.push({ seq, tokens, at: 0, ...metaOf(message) });
    yield;
  }
  return metas;
}

function toolOf({ calls }: MessageMeta, call: number): string | null {
  return calls[call]?.name || null;
}

function omittedItems({ fromSeq, throughSeq, body, tokens }: Reduction): ViewItem[] {
  const message = JSON.parse(body) as ChatMessage | null;
  if (message === null) return [];
  const { role } = message;
  return [{ fromSeq, throughSeq, message, tokens, source: 'omitted', group: fromSeq, role, tool: null }];
}

/** The omitted ranges that no other range covers, ascending. Of two equal ranges the later range applies. */
function outermostRanges(reductions: readonly Reduction[]): Reduction[] {
  const outermost: Reduction[] = [];
  const ascending = reductions
    .filter(({ kind }) => kind === 'omitted')
    .reverse()
    .sort((one, other) => one.fromSeq - other.fromSeq || other.throughSeq - one.throughSeq);
  for (const range of ascending)
    if (range.throughSeq > (outermost.at(-1)?.throughSeq ?? 0)) outermost.push(range);
  return outermost;
}
