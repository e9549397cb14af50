/** The tail of a context: groups whole, ids unique, results directly behind their calls, stand-ins in the place of what they stand for. */
import type { TokenCounter } from '../../tokens/counter.js';
import type { Steps } from '../../steps.js';
import { countMessage } from '../../tokens/message.js';
import type { ContextSource, Reduction, ViewItem, ViewSource } from './view-types.js';
import { grouping, type Grouping } from '../../conversation/groups.js';
import type { ChatMessage, LoggedMessage, MessageMeta } from '../../conversation/message.js';
import {
  assignCallIds,
  showCaller,
  showOrphan,
  showPlain,
  showResult,
  syntheticResult,
} from './projection.js';
import { metaOf } from '../../conversation/validate.js';

export class TailView {
  private readonly tail: LoggedMessage[];
  private readonly metas: MessageMeta[];
  private readonly answeredBy: (number | null)[][];
  /** By index of a result: the index of its caller. */
  private readonly callerOf = new Map<number, number>();
  private readonly callIds: string[][];
  private readonly standIns = new Map<number, Reduction>();
  private readonly omitted: Reduction[];

  static *items(source: ContextSource, counter: TokenCounter): Steps<ViewItem[]> {
    const metas = source.metas ?? (yield* metasOf(source.tail));
    const { answeredBy } = yield* grouping(metas);
    return yield* new TailView(source, metas, answeredBy, counter).items();
  }

  private constructor(
    { tail, reductions }: ContextSource,
    metas: MessageMeta[],
    answeredBy: Grouping['answeredBy'],
    private readonly counter: TokenCounter,
  ) {
    this.tail = tail;
    this.metas = metas;
    this.answeredBy = answeredBy;
    this.answeredBy.forEach((results, caller) => {
      for (const result of results) if (result !== null) this.callerOf.set(result, caller);
    });
    this.callIds = assignCallIds(this.metas);
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
        items.push(...this.callGroup(index));
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

  /** A result stays with its call where the call is shown; the result of an omitted call is shown by itself. */
  private isOrphan(index: number): boolean {
    const caller = this.callerOf.get(index);
    return caller === undefined || this.rangeOf(this.tail[caller]!.seq) !== undefined;
  }

  private callGroup(index: number): ViewItem[] {
    const caller = this.stored(index);
    const { message, calls } = showCaller(caller.message, this.callIds[index]!);
    const items = [
      this.item(index, index, message, this.weigh(message, caller), caller.reduced ? 'reduced' : 'log'),
    ];
    calls.forEach((call, number) => {
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
        return;
      }
      const stored = this.stored(answer);
      const result = showResult(stored.message, call);
      const source = stored.reduced ? 'reduced' : 'log';
      const tool = toolOf(this.metas[index]!, number) ?? (this.tail[answer]!.message.name || null);
      items.push({ ...this.item(answer, index, result, this.weigh(result, stored), source), tool });
    });
    return items;
  }

  private orphan(index: number, toolName: string | null): ViewItem {
    const stored = this.stored(index);
    const message = showOrphan(stored.message, this.tail[index]!.seq, toolName);
    const source = stored.reduced ? 'reduced' : 'orphan';
    const tool = this.tail[index]!.message.name || toolName || null;
    return { ...this.item(index, index, message, this.weigh(message, stored), source), tool };
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

  /** Ids are not counted, so only a message shown with other text or in another form is counted again. */
  private weigh(shown: ChatMessage, stored: { message: ChatMessage; tokens: number }): number {
    const { role, content, name, function_call } = stored.message;
    const same =
      shown.role === role &&
      shown.content === content &&
      (shown.name ?? null) === (name ?? null) &&
      (shown.function_call ?? null) === (function_call ?? null);
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

/** The omitted ranges that no other one covers, ascending. Of two equal ones the later holds. */
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
