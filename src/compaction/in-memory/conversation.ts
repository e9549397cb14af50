import type { ViewItem } from '../../context/view/view.js';
import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { redactorFor, type Redact } from '../../summary/redaction/redact.js';
import { isFailure, isModelFailure, PalimpsestError } from '../../errors.js';
import { policyOf } from '../../policy/layers.js';
import {
  type Learnt,
  learntOf,
  meanTurn,
  overdue,
  type ReportedTurn,
  requestOf,
} from '../../limits/learnt.js';
import {
  eagerSizes,
  isTriggered,
  type Limits,
  limitsOf,
  type Marks,
  marksAfter,
  marksBeyond,
  marksFor,
} from '../../limits/limits.js';
import { parsePolicy, type PolicyInput } from '../../policy/schema.js';
import type { Policy } from '../../policy/defaults.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import { atOnce } from '../../steps.js';
import { calibrated, calibrationKey, type Calibration } from '../../tokens/calibration.js';
import { counterFor, type TokenCounter } from '../../tokens/counter.js';
import { readUsage, type UsageReport } from '../../tokens/reported-usage.js';
import { fittingMemory } from '../../summary/fit.js';
import { genesis, type Generation } from './generation.js';
import { MemoryAsker, type Summarizer } from './asker.js';
import { MemoryStore } from './store.js';
import type { CompactionReason, Method, NothingToDo, Plan } from '../plan/plan-types.js';
import { assertIsPlan, assertPlanOf, makePlan } from '../plan/plan.js';
import { makeReplacement } from '../replace/replacement.js';
import type { RepairNeeded, Replacement, ReplacementInput } from '../replace/input.js';
import { summarize } from '../summarize/summarize.js';

/**
 * A session in memory: the same planning, questions, reductions and acceptance as the service, without PostgreSQL and
 * Temporal. For libraries that hold an array of messages, for comparing policies, for tests and benches.
 */
export interface ConversationOptions {
  policy?: PolicyInput;
  /** Replaces the policy's tokenizer. */
  counter?: TokenCounter;
  /** Unix milliseconds, for the age of unanswered calls. @default derived from the number of messages, so that runs are reproducible */
  now?: () => number;
  /** Keys the hashes of redacted texts, so that they are those of a service's tenant. @default '' */
  tenant?: string;
}

export class Conversation {
  readonly policy: Policy;
  /** The sizes, adjusted to reported usage and with `{economic: true}` to the mean turn. */
  limits: Limits;

  private readonly store: MemoryStore;
  private readonly counter: TokenCounter;
  private readonly now: () => number;
  private readonly redact: Redact;
  private readonly asker: MemoryAsker;
  private marks: Marks;
  private turn = { turns: 0, mean: 0 };
  private exhausted = false;
  /** The compaction written ahead: its generation, its last message and its calls since the last commit. */
  private ahead: { generation: number; throughSeq: number | null; calls: Generation['calls'] } | null = null;
  /** Set if truncating arguments saves too little for a commit; reset by the next commit. */
  private truncationDeclined = false;
  private learnt: Calibration = {};
  private inUse: Learnt = { factor: 1, overhead: 0 };
  /** Whether a generation was committed since the last turn. The request of that turn may have contained the replaced messages. */
  private hasMoved = false;

  constructor({ policy = {}, counter, now, tenant = '' }: ConversationOptions = {}) {
    this.policy = policyOf({ session: parsePolicy(policy) });
    this.limits = limitsOf(this.policy);
    this.counter = counter ?? counterFor(this.limits.tokenizer);
    this.now = now ?? (() => this.log.length * 60_000);
    this.marks = marksFor(this.limits, 0);
    this.redact = redactorFor(this.policy.redact, tenant) ?? ((text) => text);
    this.store = new MemoryStore(this.counter);
    this.asker = new MemoryAsker(
      this.policy,
      this.counter,
      this.store.log,
      (generation) => this.generations[generation - 1]?.snapshot ?? null,
      () => this.store.parent(),
      this.redact,
    );
  }

  /** All messages, numbered from 1. */
  get log(): readonly LoggedMessage[] {
    return this.store.log.messages;
  }

  /** Committed generations, oldest first, without the genesis. */
  get generations(): readonly Generation[] {
    return this.store.generations;
  }

  /** Calibration learnt from reported usage, by model and tokenizer. */
  get calibration(): Calibration {
    return this.learnt;
  }

  /**
   * Appends one turn. If it throws `Input.Invalid`, no message is added. `at`: Unix milliseconds. `usage`: the provider's usage
   * object for the request that produced the first assistant message of the turn. `said`: time of the turn, an ISO 8601 instant
   * with its zone; messages with their own time keep it.
   */
  append(
    messages: readonly ChatMessage[],
    at: number = this.now(),
    usage?: UsageReport,
    said?: string,
  ): void {
    const reported = usage === undefined ? undefined : readUsage(usage);
    const before = { liveTokens: this.store.live.tokens, budget: this.limits.budget };
    const first = this.log.length;
    const tokens = this.store.append(messages, at, said);
    this.turn = { turns: this.turn.turns + 1, mean: meanTurn(this.turn, tokens) };
    const added = this.log.slice(first);
    const turn = { tokens: added.map((one) => one.tokens), roles: added.map(({ message }) => message.role) };
    if (reported) this.learn({ ...turn, usage: reported }, before);
    this.hasMoved = false;
    if (this.policy.economic) this.followSizes();
  }

  /** The messages to send to the model. Throws `Budget.Unreachable`. `asked`: context tokens, by default the policy's. */
  context(asked?: number): {
    messages: ChatMessage[];
    items: ViewItem[];
    tokens: number;
  } {
    const budget = asked ?? this.limits.budget;
    const request = asked === undefined ? {} : { budget: asked };
    const source = this.store.source(budget);
    const fit = atOnce(fittingMemory(source, this.policy, this.limits, this.counter, request));
    this.store.addEmergencies(budget, fit.reductions);
    const messages = structuredClone(fit.items.map(({ message }) => message));
    return { messages, items: fit.items, tokens: fit.tokens };
  }

  /** Whether a trigger is met or old arguments are due for truncation, and no earlier attempt postpones the compaction. */
  isDue(): boolean {
    const { tokens, messages } = this.store.live;
    const reached = (size: number, mark: number | null) => mark !== null && size >= mark;
    const marked = reached(tokens, this.marks.tokens) || reached(messages, this.marks.messages);
    const declined = this.exhausted || this.truncationDeclined;
    const toTruncate = !declined && reached(tokens, this.limits.reduceAt) && this.holdsLongArguments();
    return this.policy.enabled && marked && (this.isTriggered() || toTruncate);
  }

  /**
   * Whether old calls of the policy's tools may have arguments long enough to be truncated, judged as the service judges a
   * session.
   */
  private holdsLongArguments(): boolean {
    const truncation = this.policy.reduce.arguments;
    if (truncation === null) return false;
    // With every tokenizer, a message with an argument of this length has at least so many tokens.
    const least = Math.floor(truncation.longerThan / 16);
    const { tail } = this.store.source();
    return tail
      .filter(({ seq, tokens }) => seq <= this.log.length - truncation.olderThan && tokens >= least)
      .some(({ message }) =>
        message.tool_calls?.some((call) => truncation.tools.includes(call.function?.name ?? '')),
      );
  }

  /** Whether the context is close to its threshold and nothing was written ahead since the last commit. */
  isAlmostDue(): boolean {
    const sizes = eagerSizes(this.policy, this.limits);
    const { tokens } = this.store.live;
    const isClose = sizes !== null && tokens >= sizes.from && tokens < sizes.trigger;
    return isClose && !this.exhausted && this.ahead?.generation !== this.store.generation && !this.isDue();
  }

  /** Last message covered by the compaction written ahead, or null. */
  get writtenThroughSeq(): number | null {
    return this.ahead?.generation === this.store.generation ? this.ahead.throughSeq : null;
  }

  /**
   * Writes the next compaction ahead: asks the model and stores the answers; the context stays unchanged. Returns the calls
   * made, if any. A failure of the model is not thrown: the model is asked again when the compaction is due.
   */
  async writeAhead(summarizer: Summarizer): Promise<Generation['calls']> {
    const { generation } = this.store;
    this.ahead = { generation, throughSeq: null, calls: [] };
    const plan = await this.plan({ eager: true });
    if ('nothing' in plan) return [];
    const asked = this.asker.begin(summarizer);
    this.ahead = { generation, throughSeq: plan.throughSeq, calls: asked.calls };
    try {
      await summarize(plan, asked.steps(plan), { chunk() {}, consolidating() {} });
    } catch (error) {
      if (!isModelFailure(error)) throw error;
    }
    return asked.calls;
  }

  plan({ force = false, reason, withoutModel = null, eager = false }: PlanOptions = {}): Promise<
    Plan | NothingToDo
  > {
    return makePlan(
      this.store.planState(),
      this.policy,
      this.limits,
      {
        reason: reason ?? (force ? 'manual' : 'trigger'),
        ...{ force, withoutModel, eager, writtenThroughSeq: this.writtenThroughSeq },
        now: this.now(),
        counter: this.counter,
        redact: this.redact,
      },
      this.store.planReads(),
    );
  }

  /**
   * Plans a compaction, asks the summarizer, and commits the accepted result. Returns null if there is nothing to do, or if the
   * result of a forced compaction was refused (not smaller, or without a pin). Throws a typed failure if the model fails and the
   * policy's `fallback` is `none`, or if the result of any other compaction is refused; the conversation then stays unchanged.
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
   * Carries out a plan made from this conversation since its last commit; messages appended after the plan stay in the tail.
   * Throws `Store.StaleGeneration` if another generation was committed in the meantime.
   */
  async carryOut(plan: Plan, summarizer: Summarizer | null, force = false): Promise<Generation> {
    assertIsPlan(plan);
    this.store.assertCurrent(plan);
    assertPlanOf(plan, this.store.planState(), this.policy);
    const asked = this.asker.begin(summarizer);
    const none = { written: null, failed: false, chunksByRule: 0 };
    const byRule = (failed: boolean) => {
      const made = this.replace(plan, { ...none, method: 'extractive', failed }, force);
      return this.commit(plan, made, asked.calls, [], failed ? plan.chunks.length : 0);
    };
    if (plan.method === 'none') {
      return this.commit(plan, this.replace(plan, { ...none, method: 'none' }, force), asked.calls);
    }
    if (plan.method === 'extractive') return byRule(false);
    if (summarizer === null) return byRule(true);
    try {
      const summarized = await summarize(plan, asked.steps(plan), { chunk() {}, consolidating() {} });
      const written = this.asker.written(summarized);
      const { chunksByRule } = summarized;
      const input = { method: plan.method, written, failed: false, chunksByRule };
      let made = this.replace(plan, input, force, false);
      if ('repair' in made && summarized.snapshot !== null) {
        const snapshot = (await asked.repair(plan, summarized.snapshot, made)) ?? written.snapshot;
        made = this.replace(plan, { ...input, written: { ...written, snapshot } }, force);
      }
      return this.commit(plan, made, asked.calls, written.chunks, chunksByRule);
    } catch (error) {
      const evicts = plan.throughSeq >= plan.fromSeq;
      if (this.policy.summary.fallback === 'none' || !evicts || !isModelFailure(error)) throw error;
      return byRule(true);
    }
  }

  /** Commits a new generation equal to an earlier one; 0 restores the whole log. */
  restore(generation: number): Generation {
    const target = generation === 0 ? null : this.generations[generation - 1];
    if (target === undefined) {
      throw new PalimpsestError('Input.Invalid', `there is no generation ${generation}`, {
        path: 'generation',
      });
    }
    const before = this.store.live.tokens;
    const through = target?.throughSeq ?? 0;
    const restored: Generation = {
      ...(target ?? genesis),
      generation: this.store.generation + 1,
      parent: generation,
      reason: 'restore',
      method: 'none',
      fromSeq: through + 1,
      throughSeq: through,
      coverage: [],
      ...{ chunks: [], chunksByRule: 0 },
      evicted: 0,
      calls: [],
      tokensBefore: before,
      cachedTokens: null,
    };
    this.push(restored);
    restored.tokensAfter = this.store.live.tokens;
    this.stall();
    return restored;
  }

  /** Every original in order: the archive parts along the head's chain of parents, then the tail. */
  replay(): ChatMessage[] {
    return this.store.replay();
  }

  private isTriggered(): boolean {
    const { tokens, messages } = this.store.live;
    return isTriggered(this.limits, { contextTokens: tokens, messages });
  }

  private replace(
    { chunks: _chunks, messages: _messages, method: _method, ...plan }: Plan,
    input: Pick<ReplacementInput, 'method' | 'written' | 'failed' | 'chunksByRule'>,
    force: boolean,
    repaired = true,
  ): (Replacement & { method: Method }) | RepairNeeded {
    this.store.assertCurrent(plan);
    const parent = this.store.parent();
    const made = atOnce(
      makeReplacement({
        ...input,
        plan,
        standing:
          parent.layers !== null && plan.mode !== 'incremental' ? this.asker.textsOf(parent.layers) : null,
        policy: this.policy,
        limits: this.limits,
        counter: this.counter,
        source: this.store.source(),
        parent,
        referenced: this.store.referenced(plan, this.policy),
        redact: this.redact,
        force,
        repaired,
      }),
    );
    return 'repair' in made ? made : { ...made, method: input.method };
  }

  private commit(
    plan: Plan,
    made: (Replacement & { method: Method }) | RepairNeeded,
    calls: Generation['calls'],
    chunks: ChunkRef[] = [],
    chunksByRule = 0,
  ): Generation {
    if ('repair' in made)
      throw new PalimpsestError('Summary.NotSmaller', 'the repaired snapshot is too long');
    const { view: _view, newLayers, missed, tokensBefore, tokensAfter, ...rest } = made;
    for (const { layer, text } of newLayers) this.asker.store(layer.key, text);
    const evicts = plan.throughSeq >= plan.fromSeq;
    const committed: Generation = {
      ...rest,
      generation: this.store.generation + 1,
      parent: this.store.generation,
      reason: plan.reason,
      fromSeq: plan.fromSeq,
      throughSeq: plan.throughSeq,
      carriedSeq: plan.carriedSeq,
      ...{ chunks, chunksByRule },
      evicted: plan.evictedMessages,
      tokensBefore,
      tokensAfter,
      parts: this.store.parent().parts + (evicts ? 1 : 0),
      // Requests that were in flight when the fallback was used are still added here.
      calls: [...(this.ahead?.calls ?? []), ...calls],
    };
    this.ahead &&= { ...this.ahead, calls: [] };
    this.push(committed);
    this.marks = marksAfter(this.policy, this.limits, { missed, ...this.store.live });
    this.exhausted = missed;
    return committed;
  }

  private push(generation: Generation): void {
    this.store.push(generation);
    this.truncationDeclined = false;
    this.hasMoved = true;
  }

  private learn(turn: ReportedTurn, before: { liveTokens: number; budget: number }): void {
    const isKnown = turn.usage?.countedTokens !== undefined || !this.hasMoved;
    const request = isKnown ? requestOf(turn, this.policy, before) : null;
    if (request === null) return;
    const key = calibrationKey(turn.usage?.model ?? this.policy.model, this.limits.tokenizer);
    this.learnt = calibrated(this.learnt, key, request);
    const learnt = learntOf(this.policy, this.learnt);
    const next = overdue(this.policy, this.inUse, learnt, { meanTurnTokens: this.turn.mean });
    if (next === null) return;
    this.inUse = next;
    this.followSizes();
  }

  private followSizes(): void {
    this.limits = limitsOf(this.policy, { ...this.inUse, meanTurnTokens: this.turn.mean });
    if (!this.exhausted)
      this.marks = { ...this.marks, tokens: marksFor(this.limits, this.store.live.tokens).tokens };
  }

  private stall(): void {
    this.exhausted = true;
    this.marks = marksBeyond(this.policy, this.limits, this.store.live);
  }
}

export interface PlanOptions {
  /** Plans regardless of size and exhausted mark. */
  force?: boolean;
  reason?: CompactionReason;
  /** Plans the model calls of the next compaction before it is due. */
  eager?: boolean;
  /** The reason why no model may be asked, or null. */
  withoutModel?: string | null;
}
