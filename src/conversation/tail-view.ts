/** The tail of a context: groups whole, ids unique, results directly behind their calls, stand-ins in the place of what they stand for. */
import type { TokenCounter } from '../tokens/counter.js';
import { countMessage } from '../tokens/message.js';
import type { ContextSource, Reduction, ViewItem, ViewSource } from './context.js';
import { groupMessages } from './groups.js';
import type { ChatMessage, LoggedMessage, MessageMeta } from './message.js';
import {
  assignCallIds,
  showCaller,
  showOrphan,
  showPlain,
  showResult,
  syntheticResult,
} from './projection.js';
import { metaOf } from './validate.js';

export class TailView {
  private readonly tail: LoggedMessage[];
  private readonly metas: MessageMeta[];
  private readonly answeredBy: (number | null)[][];
  /** By index of a result: the index of its caller. */
  private readonly callerOf = new Map<number, number>();
  private readonly callIds: string[][];
  private readonly standIns = new Map<number, Reduction>();
  private readonly omitted: Reduction[];

  constructor(
    { tail, metas, reductions }: ContextSource,
    private readonly counter: TokenCounter,
  ) {
    this.tail = tail;
    this.metas =
      metas ?? tail.map(({ seq, message, tokens }) => ({ seq, tokens, at: 0, ...metaOf(message) }));
    this.answeredBy = groupMessages(this.metas).answeredBy;
    this.answeredBy.forEach((results, caller) => {
      for (const result of results) if (result !== null) this.callerOf.set(result, caller);
    });
    this.callIds = assignCallIds(this.metas);
    for (const reduction of reductions)
      if (reduction.kind !== 'omitted') this.standIns.set(reduction.fromSeq, reduction);
    this.omitted = outermostRanges(reductions);
  }

  items(): ViewItem[] {
    const items: ViewItem[] = [];
    const toolNames = new Map<string, string>();
    let shown: Reduction | undefined;
    this.tail.forEach(({ seq }, index) => {
      const meta = this.metas[index]!;
      for (const { id, name } of meta.calls) if (id !== null) toolNames.set(id, name);
      const range = this.rangeOf(seq);
      if (range !== undefined) {
        if (range !== shown) items.push(omittedItem(range));
        shown = range;
      } else if (meta.role === 'tool' || meta.role === 'function') {
        if (this.isOrphan(index)) items.push(this.orphan(index, toolNames.get(meta.answers ?? '') ?? null));
      } else if (meta.calls.length > 0) {
        items.push(...this.callGroup(index));
      } else if (!meta.empty) {
        const { message, tokens, reduced } = this.stored(index);
        items.push(this.item(index, index, showPlain(message), tokens, reduced ? 'reduced' : 'log'));
      }
    });
    return items;
  }

  private rangeOf(seq: number): Reduction | undefined {
    return this.omitted.find(({ fromSeq, throughSeq }) => fromSeq <= seq && seq <= throughSeq);
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
        });
        return;
      }
      const stored = this.stored(answer);
      const result = showResult(stored.message, call);
      items.push(
        this.item(answer, index, result, this.weigh(result, stored), stored.reduced ? 'reduced' : 'log'),
      );
    });
    return items;
  }

  private orphan(index: number, toolName: string | null): ViewItem {
    const stored = this.stored(index);
    const message = showOrphan(stored.message, this.tail[index]!.seq, toolName);
    return this.item(
      index,
      index,
      message,
      this.weigh(message, stored),
      stored.reduced ? 'reduced' : 'orphan',
    );
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
    };
  }

  /** The logged message, or its stand-in. */
  private stored(index: number): { message: ChatMessage; tokens: number; reduced: boolean } {
    const { seq, message, tokens } = this.tail[index]!;
    const standIn = this.standIns.get(seq);
    if (standIn === undefined) return { message, tokens, reduced: false };
    const body: ChatMessage = JSON.parse(standIn.body);
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

function omittedItem({ fromSeq, throughSeq, body, tokens }: Reduction): ViewItem {
  const message: ChatMessage = JSON.parse(body);
  return { fromSeq, throughSeq, message, tokens, source: 'omitted', group: fromSeq, role: message.role };
}

/** The omitted ranges that no later one covers. */
function outermostRanges(reductions: readonly Reduction[]): Reduction[] {
  let ranges: Reduction[] = [];
  for (const range of reductions) {
    if (range.kind !== 'omitted') continue;
    ranges = ranges.filter((other) => other.fromSeq < range.fromSeq || other.throughSeq > range.throughSeq);
    ranges.push(range);
  }
  return ranges;
}
