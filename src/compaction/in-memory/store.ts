/** The service's rows in memory: the log, the committed generations, emergency reductions, sizes. */
import { buildView, type ContextSource, type Reduction, sizeOf } from '../../context/view/view.js';
import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { PalimpsestError } from '../../errors.js';
import type { Policy } from '../../policy/defaults.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { chainOf, genesis, type Generation } from './generation.js';
import { MemoryLog } from './log.js';
import type { ChainLink, Plan } from '../plan/plan-types.js';
import type { PlanReads, PlanState } from '../plan/planning.js';
import type { Parent } from '../replace/input.js';

export class MemoryStore {
  readonly log: MemoryLog;
  /** Committed generations, oldest first, without the genesis. */
  readonly generations: Generation[] = [];
  /** Tokens and messages of the context. */
  live = { tokens: 0, messages: 0 };
  /** Emergency reductions since the last commit, by budget. */
  private emergencies = new Map<number, Reduction[]>();

  constructor(private readonly counter: TokenCounter) {
    this.log = new MemoryLog(counter);
  }

  get generation(): number {
    return this.generations.length;
  }

  /** Appends messages and returns their tokens. If it throws `Input.Invalid`, no message is added. */
  append(messages: readonly ChatMessage[], at: number, said?: string): number {
    const tokens = this.log.append(messages, at, said);
    this.live = { tokens: this.live.tokens + tokens, messages: this.live.messages + messages.length };
    return tokens;
  }

  /** The context as committed, with the emergency reductions made for this budget. */
  source(budget?: number): ContextSource {
    const newest = this.generations.at(-1);
    const { messages, metas, systemThrough } = this.log;
    const tailFrom = Math.max(this.throughSeq, systemThrough);
    const made = budget === undefined ? [] : (this.emergencies.get(budget) ?? []);
    return {
      system: messages.slice(0, systemThrough),
      head: newest?.head ?? null,
      tail: messages.slice(tailFrom),
      metas: metas.slice(tailFrom),
      reductions: [...(newest?.reductions ?? []), ...made],
    };
  }

  addEmergencies(budget: number, reductions: readonly Reduction[]): void {
    if (reductions.length === 0) return;
    this.emergencies.set(budget, [...(this.emergencies.get(budget) ?? []), ...reductions]);
  }

  /** Throws `Store.StaleGeneration` if another generation was committed while the summarizer was working (invariant 5). */
  assertCurrent({ baseGeneration }: Pick<Plan, 'baseGeneration'>): void {
    if (baseGeneration === this.generation) return;
    throw new PalimpsestError(
      'Store.StaleGeneration',
      'the conversation was compacted after this plan was made',
    );
  }

  push(generation: Generation): void {
    this.generations.push(generation);
    this.emergencies = new Map();
    const view = buildView(this.source(), this.counter);
    this.live = { tokens: sizeOf(view), messages: view.length };
  }

  parent(): Parent {
    const { snapshot, ledger, state, parts, layers, pinned, fallback } = this.generations.at(-1) ?? genesis;
    return { snapshot, ledger, state, parts, layers, pinned, fallback };
  }

  /** The carried request and the messages that the policy pins by number. */
  referenced({ carriedSeq }: Pick<Plan, 'carriedSeq'>, { pins }: Policy): LoggedMessage[] {
    const pinned = pins.flatMap((pin) => (typeof pin === 'object' && 'seq' in pin ? [pin.seq] : []));
    const seqs = [...(carriedSeq === null ? [] : [carriedSeq]), ...pinned];
    return seqs.flatMap((seq) => this.log.messages[seq - 1] ?? []);
  }

  /** Every original in order: the archive parts along the head's chain of parents, then the tail. */
  replay(): ChatMessage[] {
    const evicted = chainOf(this.generations)
      .toReversed()
      .flatMap(({ fromSeq, throughSeq }) => this.log.range(fromSeq, throughSeq));
    const tail = this.log.messages.slice(this.throughSeq);
    return structuredClone([...evicted, ...tail].map(({ message }) => message));
  }

  planState(): PlanState {
    const newest = this.generations.at(-1);
    const { metas, systemThrough } = this.log;
    const links = chainOf(this.generations).map((one): ChainLink => ({
      generation: one.generation,
      throughSeq: one.throughSeq,
      snapshotTokens: one.snapshot === null ? 0 : this.counter.count(one.snapshot),
      fallback: one.fallback,
      readByModel: one.method === 'model',
      layers: one.layers,
      stateTokens: one.state === null ? 0 : this.counter.count(one.state),
    }));
    const headTokens = newest?.head?.tokens.reduce((sum, tokens) => sum + tokens, 0);
    return {
      generation: this.generation,
      policyVersion: 1,
      throughSeq: this.throughSeq,
      liveTokens: this.live.tokens,
      liveMessages: this.live.messages,
      closed: false,
      system: metas.slice(0, systemThrough),
      tail: metas.slice(Math.max(this.throughSeq, systemThrough)),
      head:
        newest === undefined || headTokens === undefined
          ? null
          : { tokens: headTokens, carriedSeq: newest.carriedSeq },
      chain: [
        ...links,
        {
          generation: 0,
          throughSeq: 0,
          snapshotTokens: 0,
          fallback: false,
          readByModel: false,
          layers: null,
          stateTokens: 0,
        },
      ],
      spent: 0,
    };
  }

  planReads(): PlanReads {
    const { metas, systemThrough } = this.log;
    return {
      metas: (from, through) => Promise.resolve(metas.slice(Math.max(from - 1, systemThrough), through)),
      messages: (from, through) => Promise.resolve(this.log.range(from, through)),
      source: () => Promise.resolve(this.source()),
    };
  }

  private get throughSeq(): number {
    return this.generations.at(-1)?.throughSeq ?? 0;
  }
}
