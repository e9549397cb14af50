/**
 * A session in memory: the same planning, questions, reductions and acceptance as the service, without PostgreSQL and
 * Temporal. For libraries that hold an array of messages, for comparing policies, for tests and benches.
 */
import { buildView, type ContextSource, type Reduction, type ViewItem } from '../conversation/context.js';
import type { ChatMessage, LoggedMessage } from '../conversation/message.js';
import { redactorFor } from '../conversation/redact.js';
import { isFailure, PalimpsestError } from '../errors.js';
import { policyOf } from '../policy/layers.js';
import { isTriggered, limitsOf, type Limits } from '../policy/limits.js';
import { meanTurn } from '../policy/mean-turn.js';
import { marksAfter, marksBeyond, marksFor, type Marks } from '../policy/marks.js';
import { parsePolicy, type Policy, type PolicyInput } from '../policy/schema.js';
import type { ChunkRef } from '../summary/chunk.js';
import type { SummaryRequest } from '../summary/prompts.js';
import { counterFor, type TokenCounter } from '../tokens/counter.js';
import { fitContext } from './fit.js';
import { chainOf, genesis, type Generation } from './generation.js';
import { MemoryAsker } from './memory-asker.js';
import { MemoryLog } from './memory-log.js';
import type { ChainLink, CompactionReason, Method, NothingToDo, Plan } from './plan-types.js';
import { assertPlanOf } from './plan-of.js';
import { makePlan, type PlanReads, type PlanState } from './plan.js';
import {
  makeReplacement,
  type Parent,
  type RepairNeeded,
  type Replacement,
  type ReplacementInput,
} from './replacement.js';
import { summarize } from './summarize.js';

export type { Generation } from './generation.js';

/** Answers one request of the summarizer with its text. May throw; then the compaction fails and nothing changes. */
export type Summarizer = (
  request: SummaryRequest,
  about: { kind: 'chunk' | 'fold' | 'merge' | 'repair'; maxTokens: number },
) => string | Promise<string>;

export interface ConversationOptions {
  policy?: PolicyInput;
  /** In place of the policy's tokenizer. */
  counter?: TokenCounter;
  /** Unix milliseconds, for calls that nobody answered. @default counts messages, so that runs are alike */
  now?: () => number;
}

export class Conversation {
  readonly policy: Policy;
  /** Under `{economic: true}` they follow the mean turn. */
  limits: Limits;
  /** Committed, oldest first; the genesis is not among them. */
  readonly generations: Generation[] = [];

  private readonly kept: MemoryLog;
  private readonly counter: TokenCounter;
  private readonly now: () => number;
  private readonly redact: (text: string) => string;
  private readonly asker: MemoryAsker;
  /** By budget, since the last commit. */
  private emergencies = new Map<number, Reduction[]>();
  private live = { tokens: 0, messages: 0 };
  private marks: Marks;
  private turn = { turns: 0, mean: 0 };
  private exhausted = false;
  /** Truncating arguments was found not worth a commit; asked again after the next one. */
  private truncationDeclined = false;

  constructor({ policy = {}, counter, now }: ConversationOptions = {}) {
    this.policy = policyOf({ session: parsePolicy(policy) });
    this.limits = limitsOf(this.policy);
    this.counter = counter ?? counterFor(this.limits.tokenizer);
    this.now = now ?? (() => this.log.length * 60_000);
    this.marks = marksFor(this.limits, 0);
    this.redact = redactorFor(this.policy.redact, '') ?? ((text) => text);
    this.kept = new MemoryLog(this.counter);
    this.asker = new MemoryAsker(
      this.policy,
      this.counter,
      this.kept,
      (generation) => this.generations[generation - 1]?.snapshot ?? null,
    );
  }

  /** Every message, numbered from 1. */
  get log(): readonly LoggedMessage[] {
    return this.kept.messages;
  }

  /** One turn. Throws `Input.Invalid`; then nothing was added. `at`: Unix milliseconds. */
  append(messages: readonly ChatMessage[], at: number = this.now()): void {
    const tokens = this.kept.append(messages, at);
    this.live = { tokens: this.live.tokens + tokens, messages: this.live.messages + messages.length };
    this.turn = { turns: this.turn.turns + 1, mean: meanTurn(this.turn, tokens) };
    if (this.policy.economic) this.followMeanTurn();
  }

  /** What to send to the model now. Throws `Budget.Unreachable`. `budget`: context tokens. */
  context(budget: number = this.limits.budget): {
    messages: ChatMessage[];
    items: ViewItem[];
    tokens: number;
  } {
    const source = this.source();
    const made = this.emergencies.get(budget) ?? [];
    const fit = fitContext(
      { ...source, reductions: [...source.reductions, ...made] },
      this.policy,
      this.limits,
      this.counter,
      budget,
    );
    if (fit.reductions.length > 0) this.emergencies.set(budget, [...made, ...fit.reductions]);
    const messages = structuredClone(fit.items.map(({ message }) => message));
    return { messages, items: fit.items, tokens: fit.tokens };
  }

  /** A trigger is met, or old arguments are to be truncated, and nothing holds it back. */
  isDue(): boolean {
    const { tokens, messages } = this.live;
    const reached = (size: number, mark: number | null) => mark !== null && size >= mark;
    const marked = reached(tokens, this.marks.tokens) || reached(messages, this.marks.messages);
    const declined = this.exhausted || this.truncationDeclined;
    const toTruncate = !declined && reached(tokens, this.limits.reduceAt);
    return this.policy.enabled && marked && (this.isTriggered() || toTruncate);
  }

  plan({ force = false, reason, withoutModel = null }: PlanOptions = {}): Promise<Plan | NothingToDo> {
    return makePlan(
      this.state(),
      this.policy,
      this.limits,
      {
        reason: reason ?? (force ? 'manual' : 'trigger'),
        force,
        withoutModel,
        now: this.now(),
        counter: this.counter,
        redact: this.redact,
      },
      this.reads(),
    );
  }

  /**
   * Plans, asks, accepts and commits. Null: nothing to do, or by hand the result would not be smaller. Throws the typed
   * failure of a model that failed where the policy's `fallback` is `none`, or of a result that was refused; the
   * conversation is then as it was.
   */
  async compact(summarizer: Summarizer | null, options: PlanOptions = {}): Promise<Generation | null> {
    const { force = false } = options;
    try {
      const without = summarizer ? {} : { withoutModel: 'there is no summarizer' };
      const plan = await this.plan({ ...options, ...without });
      if (!('nothing' in plan)) return await this.carryOut(plan, summarizer, force);
      if (plan.exhausted) this.stall();
      else if (!this.isTriggered()) {
        this.marks = marksFor(this.limits, Infinity);
        this.truncationDeclined = true;
      }
      return null;
    } catch (error) {
      if (isFailure(error, 'Budget.Unreachable')) this.stall();
      const refused = isFailure(error, 'Summary.NotSmaller') || isFailure(error, 'Summary.PinsLost');
      if (refused) this.stall();
      if (refused && force) return null;
      throw error;
    }
  }

  /**
   * Carries out a plan that was made of this conversation since its last commit; what was appended after it stays in
   * the tail. Throws `Store.StaleGeneration` where something else was committed meanwhile.
   */
  async carryOut(plan: Plan, summarizer: Summarizer | null, force = false): Promise<Generation> {
    this.assertCurrent(plan);
    assertPlanOf(plan, this.state(), this.policy);
    const asked = this.asker.begin(summarizer);
    const byRule = (failed: boolean) =>
      this.commit(
        plan,
        this.replace(plan, { method: 'extractive', written: null, failed }, force),
        asked.calls,
      );
    if (plan.method === 'none') {
      const made = this.replace(plan, { method: 'none', written: null, failed: false }, force);
      return this.commit(plan, made, asked.calls);
    }
    if (plan.method === 'extractive') return byRule(false);
    if (summarizer === null) return byRule(true);
    try {
      const summarized = await summarize(plan, asked.steps(plan), { chunk() {}, consolidating() {} });
      const written = this.asker.written(summarized);
      const input = { method: plan.method, written, failed: false };
      let made = this.replace(plan, input, force, false);
      if ('repair' in made && summarized.snapshot !== null) {
        const snapshot = (await asked.repair(plan, summarized.snapshot, made)) ?? written.snapshot;
        made = this.replace(plan, { ...input, written: { ...written, snapshot } }, force);
      }
      return this.commit(plan, made, asked.calls, written.chunks);
    } catch (error) {
      const evicts = plan.throughSeq >= plan.fromSeq;
      if (this.policy.summary.fallback === 'none' || !evicts || !isModelFailure(error)) throw error;
      return byRule(true);
    }
  }

  /** Commits a new generation that is what an earlier one was; 0 brings the whole log back. */
  restore(generation: number): Generation {
    const target = generation === 0 ? null : this.generations[generation - 1];
    if (target === undefined) {
      throw new PalimpsestError('Input.Invalid', `there is no generation ${generation}`, {
        path: 'generation',
      });
    }
    const before = this.live.tokens;
    const through = target?.throughSeq ?? 0;
    const restored: Generation = {
      ...(target ?? genesis),
      generation: this.generation + 1,
      parent: generation,
      reason: 'restore',
      method: 'none',
      fromSeq: through + 1,
      throughSeq: through,
      coverage: [],
      chunks: [],
      evicted: 0,
      calls: [],
      tokensBefore: before,
    };
    this.push(restored);
    restored.tokensAfter = this.live.tokens;
    this.stall();
    return restored;
  }

  /** Every original in order: the archive parts along the head's chain of parents, then the tail. */
  replay(): ChatMessage[] {
    const evicted = chainOf(this.generations)
      .toReversed()
      .flatMap(({ fromSeq, throughSeq }) => this.kept.range(fromSeq, throughSeq));
    return structuredClone([...evicted, ...this.log.slice(this.throughSeq)].map(({ message }) => message));
  }

  private isTriggered(): boolean {
    return isTriggered(this.limits, { contextTokens: this.live.tokens, messages: this.live.messages });
  }

  private get generation(): number {
    return this.generations.length;
  }

  private get throughSeq(): number {
    return this.generations.at(-1)?.throughSeq ?? 0;
  }

  private source(): ContextSource {
    const newest = this.generations.at(-1);
    const { messages, metas, systemThrough } = this.kept;
    const tailFrom = Math.max(this.throughSeq, systemThrough);
    return {
      system: messages.slice(0, systemThrough),
      head: newest?.head ?? null,
      tail: messages.slice(tailFrom),
      metas: metas.slice(tailFrom),
      reductions: newest?.reductions ?? [],
    };
  }

  private state(): PlanState {
    const newest = this.generations.at(-1);
    const links = chainOf(this.generations).map((one): ChainLink => ({
      generation: one.generation,
      throughSeq: one.throughSeq,
      snapshotTokens: one.snapshot === null ? 0 : this.counter.count(one.snapshot),
      fallback: one.fallback,
      layers: one.layers,
    }));
    return {
      generation: this.generation,
      policyVersion: 1,
      throughSeq: this.throughSeq,
      liveTokens: this.live.tokens,
      liveMessages: this.live.messages,
      closed: false,
      system: this.kept.metas.slice(0, this.kept.systemThrough),
      tail: this.kept.metas.slice(Math.max(this.throughSeq, this.kept.systemThrough)),
      head: newest?.head ? { tokens: sum(newest.head.tokens), carriedSeq: newest.carriedSeq } : null,
      chain: [...links, { generation: 0, throughSeq: 0, snapshotTokens: 0, fallback: false, layers: null }],
      spent: 0,
    };
  }

  private reads(): PlanReads {
    return {
      metas: (from, through) =>
        Promise.resolve(this.kept.metas.slice(Math.max(from - 1, this.kept.systemThrough), through)),
      messages: (from, through) => Promise.resolve(this.kept.range(from, through)),
      source: () => Promise.resolve(this.source()),
    };
  }

  private parent(): Parent {
    const { snapshot, ledger, parts, layers, pinned, fallback } = this.generations.at(-1) ?? genesis;
    return { snapshot, ledger, parts, layers, pinned, fallback };
  }

  private referenced({ carriedSeq }: Pick<Plan, 'carriedSeq'>): LoggedMessage[] {
    const pinned = this.policy.pins.flatMap((pin) =>
      typeof pin === 'object' && 'seq' in pin ? [pin.seq] : [],
    );
    return [...(carriedSeq === null ? [] : [carriedSeq]), ...pinned].flatMap(
      (seq) => this.log[seq - 1] ?? [],
    );
  }

  private replace(
    { chunks: _chunks, messages: _messages, method: _method, ...plan }: Plan,
    input: Pick<ReplacementInput, 'method' | 'written' | 'failed'>,
    force: boolean,
    repaired = true,
  ): (Replacement & { method: Method }) | RepairNeeded {
    this.assertCurrent(plan);
    const parent = this.parent();
    const made = makeReplacement({
      ...input,
      plan,
      standing: plan.mode === 'layered' && parent.layers !== null ? this.asker.textsOf(parent.layers) : null,
      policy: this.policy,
      limits: this.limits,
      counter: this.counter,
      source: this.source(),
      parent,
      referenced: this.referenced(plan),
      redact: this.redact,
      force,
      repaired,
    });
    return 'repair' in made ? made : { ...made, method: input.method };
  }

  private commit(
    plan: Plan,
    made: (Replacement & { method: Method }) | RepairNeeded,
    calls: Generation['calls'],
    chunks: ChunkRef[] = [],
  ): Generation {
    if ('repair' in made)
      throw new PalimpsestError('Summary.NotSmaller', 'the repaired snapshot is too long');
    const { view: _view, newLayer, missed, tokensBefore, tokensAfter, ...rest } = made;
    if (newLayer) this.asker.store(newLayer.layer.key, newLayer.text);
    const evicts = plan.throughSeq >= plan.fromSeq;
    const committed: Generation = {
      ...rest,
      generation: this.generation + 1,
      parent: this.generation,
      reason: plan.reason,
      fromSeq: plan.fromSeq,
      throughSeq: plan.throughSeq,
      carriedSeq: plan.carriedSeq,
      chunks,
      evicted: plan.evictedMessages,
      tokensBefore,
      tokensAfter,
      parts: this.parent().parts + (evicts ? 1 : 0),
      // Requests that were in flight when the fallback took over still report here.
      calls: [...calls],
    };
    this.push(committed);
    const { tokens, messages } = this.live;
    this.marks = marksAfter(this.policy, this.limits, { missed, tokens, messages });
    this.exhausted = missed;
    return committed;
  }

  /** While a summarizer is at work, something else may be committed (invariant 5). */
  private assertCurrent({ baseGeneration }: Pick<Plan, 'baseGeneration'>): void {
    if (baseGeneration === this.generation) return;
    throw new PalimpsestError(
      'Store.StaleGeneration',
      'the conversation was compacted after this plan was made',
    );
  }

  private push(generation: Generation): void {
    this.generations.push(generation);
    this.truncationDeclined = false;
    this.emergencies = new Map();
    const view = buildView(this.source(), this.counter);
    this.live = { tokens: sum(view.map(({ tokens }) => tokens)), messages: view.length };
  }

  private followMeanTurn(): void {
    this.limits = limitsOf(this.policy, { meanTurnTokens: this.turn.mean });
    if (!this.exhausted)
      this.marks = { ...this.marks, tokens: marksFor(this.limits, this.live.tokens).tokens };
  }

  private stall(): void {
    this.exhausted = true;
    this.marks = marksBeyond(this.policy, this.limits, this.live);
  }
}

export interface PlanOptions {
  /** Regardless of size and exhausted mark. */
  force?: boolean;
  reason?: CompactionReason;
  /** Why no model may be asked; null: one may. */
  withoutModel?: string | null;
}

/** Failures of the model's part, after which a deterministic summary may serve. */
function isModelFailure(error: unknown): boolean {
  if (!(error instanceof PalimpsestError)) return true;
  return error.type.startsWith('Llm.') || error.type.startsWith('Summary.');
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
