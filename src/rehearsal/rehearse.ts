import { setImmediate as yieldToSignals } from 'node:timers/promises';
import type { Summarizer } from '../compaction/in-memory/asker.js';
import { Conversation } from '../compaction/in-memory/conversation.js';
import type { Generation } from '../compaction/in-memory/generation.js';
import { breakdownBySizes, breakdownOf, type ContextBreakdown } from '../context/view/breakdown.js';
import type { ViewItem } from '../context/view/view.js';
import { cutTurns } from '../conversation/groups.js';
import type { ChatMessage, LoggedMessage } from '../conversation/message.js';
import { isFailure } from '../errors.js';
import type { Limits } from '../limits/limits.js';
import { policyOf } from '../policy/layers.js';
import type { Policy } from '../policy/defaults.js';
import type { PolicyInput } from '../policy/schema.js';
import { describeJournal, type Journal } from '../summary/journal/rewrites.js';
import { counterFor, type TokenCounter, type TokenizerName } from '../tokens/counter.js';
import { CacheMeter, type CacheUse, type Charged, inputMoney, summarizerMoney } from './cache.js';
import { notesAsAsked } from './notes.js';
import { SummarizerEstimate, type SummarizerUse } from './summarizer.js';

interface RehearsedTurn {
  /** Counts from 1. */
  turn: number;
  /** Last seq of the log. */
  throughSeq: number;
  /** Overhead and context tokens of a request at this point; null if the context cannot fit. */
  tokens: number | null;
}

export interface RehearsedCompaction {
  generation: number;
  reason: Generation['reason'];
  /** The compaction was committed after this turn, counted from 1. */
  turn: number;
  /** The evicted range; empty (`throughSeq < fromSeq`) if only reductions were committed. */
  fromSeq: number;
  throughSeq: number;
  /**
   * The first message of the tail: a user turn, an assistant message inside a run, or anything else. Null if nothing was evicted.
   */
  boundary: 'user' | 'assistant' | 'other' | null;
  evictedMessages: number;
  evictedTokens: number;
  /** Overhead and context tokens. */
  tokensBefore: number;
  tokensAfter: number;
  /** Breakdown of the resulting context, without overhead. */
  breakdown: ContextBreakdown;
  /** Tokens that the next request shares with the previous one from its beginning, including the overhead. */
  cachedTokens: number;
  summarizer: SummarizerUse;
}

interface RehearsedFailure {
  type: string;
  message: string;
  /** Suggested remedy. */
  hint?: string;
  /** First turn with the failure, and the number of such turns. */
  turn: number;
  turns: number;
}

/** The results of a session's rehearsal under one policy. */
export interface Rehearsal {
  policy: Policy;
  /** Values at the end; an economic trigger adapts them to the session. */
  limits: Limits;
  /** Smallest size that triggers by tokens, overhead and context together; null if none does. */
  threshold: number | null;
  turns: RehearsedTurn[];
  compactions: RehearsedCompaction[];
  failures: RehearsedFailure[];
  /** The largest request, in overhead and context tokens. */
  largest: number;
  /** True if every request left room for the answer. */
  fits: boolean;
  /** Tokens of the log. */
  rawTokens: number;
  evictedTokens: number;
  summarizer: SummarizerUse;
  /** The requests to the agent's model: one before each answer in the log, and one at the end. */
  agent: CacheUse & { requests: number };
  /** Cost at the policy's prices; without prices, in millions of uncached input tokens. */
  summarizerCost: number;
  agentCost: number;
  /** Both costs per token of the log, in the price of an uncached input token. */
  costPerToken: number;
  /** Content at the end: log messages after the last cut, and the whole context (null if it cannot fit). */
  tail: { messages: number; tokens: number };
  context: { messages: number; tokens: number; breakdown: ContextBreakdown } | null;
  /** `journal` mode: the journal's entries at the end. */
  journal: Journal | null;
}

interface RehearsalOptions {
  /** Token counters. @default the policy's tokenizer */
  counters?: (name: TokenizerName) => TokenCounter;
  signal?: AbortSignal;
  /** Receives each request that the agent would make. */
  request?: (request: RehearsedRequest) => void;
}

/** @internal A benchmark adds up the requests. */
export interface RehearsedRequest {
  turn: number;
  /** Commits before this request. */
  generation: number;
  items: readonly ViewItem[];
  charged: Charged;
}

/** Turns after which the event loop can handle signals. */
const turnsAtOnce = 50;

/**
 * Plays a recorded session turn by turn under one policy, in memory and without a model, as the service would. Throws
 * `Input.Invalid` for an invalid policy or message. Failures of the session under the policy are listed in `failures`.
 */
export async function rehearse(
  messages: readonly ChatMessage[],
  input: PolicyInput,
  options: RehearsalOptions = {},
): Promise<Rehearsal> {
  const rehearser = new Rehearser(input, options);
  const turns = cutTurns(messages);
  for (const [index, { from, to }] of turns.entries()) {
    if (index % turnsAtOnce === 0) await yieldToSignals();
    options.signal?.throwIfAborted();
    const asks = to === messages.length || messages[to]?.role === 'assistant';
    await rehearser.turn(index + 1, messages.slice(from, to), asks);
  }
  return rehearser.result();
}

class Rehearser {
  private readonly policy: Policy;
  private readonly counter: TokenCounter;
  private readonly conversation: Conversation;
  private readonly estimate: SummarizerEstimate;
  /** The content of a journal decides what is requested next; other modes are sized by rule. */
  private readonly notes: Summarizer | null;
  private readonly meter: CacheMeter;
  private readonly turns: RehearsedTurn[] = [];
  private readonly compactions: RehearsedCompaction[] = [];
  private readonly failures = new Map<string, RehearsedFailure>();
  private last: readonly ViewItem[] | null = null;
  /** Last turn of each failure type, because reading and compacting may both fail in one turn. */
  private readonly failedAt = new Map<string, number>();

  constructor(
    input: PolicyInput,
    private readonly options: RehearsalOptions,
  ) {
    this.policy = policyOf({ session: input });
    this.counter = (options.counters ?? counterFor)(this.policy.tokenizer);
    this.conversation = new Conversation({ policy: input, counter: this.counter });
    const { mode, method } = this.policy.summary;
    this.notes = mode === 'journal' && method === 'model' ? notesAsAsked(this.counter) : null;
    this.estimate = new SummarizerEstimate(this.policy, this.counter);
    this.meter = new CacheMeter(this.conversation.limits.overhead);
  }

  /** `asks`: the agent's model is called after this turn. */
  async turn(turn: number, messages: readonly ChatMessage[], asks: boolean): Promise<void> {
    const { conversation } = this;
    conversation.append(messages);
    this.last = this.read(turn);
    this.turns.push({
      turn,
      throughSeq: conversation.log.length,
      tokens: this.last && sizeOf(this.last) + conversation.limits.overhead,
    });
    if (asks && this.last) {
      const charged = this.meter.request(this.last);
      const generation = conversation.generations.length;
      this.options.request?.({ turn, generation, items: this.last, charged });
    }
    await this.compactWhileDue(turn);
  }

  /** Returns the context, or null if it cannot fit. */
  private read(turn: number): readonly ViewItem[] | null {
    try {
      return this.conversation.context().items;
    } catch (error) {
      this.note(turn, error);
      return null;
    }
  }

  private async compactWhileDue(turn: number): Promise<void> {
    const { conversation } = this;
    try {
      while (conversation.isDue()) {
        const before = conversation.generations.at(-1)?.snapshot ?? null;
        const generation = await conversation.compact(this.notes);
        if (generation === null) return;
        this.compactions.push(await this.describe(generation, turn, before));
      }
    } catch (error) {
      this.note(turn, error);
    }
  }

  private async describe(
    generation: Generation,
    turn: number,
    before: string | null,
  ): Promise<RehearsedCompaction> {
    const { log } = this.conversation;
    const { fromSeq, throughSeq, tokensBefore, tokensAfter, reason } = generation;
    const { limits } = this.conversation;
    const leading = leadingSystem(log);
    const archive = log.slice(leading, throughSeq);
    const evicted = archive.filter(({ seq }) => seq >= fromSeq);
    const previousTokens = before === null ? 0 : this.counter.count(before);
    return {
      generation: generation.generation,
      reason,
      turn,
      fromSeq: Math.max(fromSeq, leading + 1),
      throughSeq,
      boundary: throughSeq < fromSeq ? null : boundaryBehind(log, throughSeq),
      evictedMessages: evicted.length,
      evictedTokens: sizeOf(evicted),
      tokensBefore: tokensBefore + limits.overhead,
      tokensAfter: tokensAfter + limits.overhead,
      breakdown: breakdownBySizes(tokensAfter, sizeOf(log.slice(0, leading)), generation.head),
      cachedTokens: (generation.cachedTokens ?? 0) + limits.overhead,
      summarizer:
        evicted.length === 0
          ? { calls: 0, input: 0, output: 0 }
          : this.notes === null
            ? await this.estimate.compaction(
                { fromSeq, throughSeq, evicted, archive, previousTokens },
                limits,
              )
            : useOf(generation),
    };
  }

  /** A failure caused by the policy is a finding; any other error is a defect and ends the rehearsal. */
  private note(turn: number, error: unknown): void {
    if (!isFailure(error)) throw error;
    const { type, message, hint } = error;
    const known = this.failures.get(type);
    if (!known)
      this.failures.set(type, { type, message, ...(hint === undefined ? {} : { hint }), turn, turns: 1 });
    else if (this.failedAt.get(type) !== turn) known.turns += 1;
    this.failedAt.set(type, turn);
  }

  result(): Rehearsal {
    const { policy, compactions, conversation, meter, turns } = this;
    const { limits } = conversation;
    const { prices } = policy;
    const rawTokens = sizeOf(conversation.log);
    const total = (of: (use: SummarizerUse) => number) =>
      compactions.reduce((sum, { summarizer }) => sum + of(summarizer), 0);
    const summarizer = {
      calls: total(({ calls }) => calls),
      input: total(({ input }) => input),
      output: total(({ output }) => output),
    };
    const summarizerCost = summarizerMoney(summarizer, prices);
    const agentCost = inputMoney(meter.total, prices);
    const cut = Math.max(compactions.at(-1)?.throughSeq ?? 0, leadingSystem(conversation.log));
    const tail = conversation.log.slice(cut);
    const final = compactions.length > 0 ? this.read(turns.length) : this.last;
    const newest = conversation.generations.at(-1);
    const largest = turns.reduce((most, { tokens }) => Math.max(most, tokens ?? 0), 0);
    return {
      ...{ policy, limits, threshold: thresholdOf(limits), turns, compactions, rawTokens, summarizer },
      failures: [...this.failures.values()],
      largest,
      fits: largest <= limits.window - limits.reservedOutput && turns.every(({ tokens }) => tokens !== null),
      evictedTokens: compactions.reduce((sum, { evictedTokens }) => sum + evictedTokens, 0),
      agent: { ...meter.total, requests: meter.requests },
      summarizerCost,
      agentCost,
      costPerToken: ((summarizerCost + agentCost) * 1e6) / (prices.input * Math.max(1, rawTokens)),
      tail: { messages: tail.length, tokens: sizeOf(tail) },
      context: final && {
        messages: final.length,
        tokens: sizeOf(final) + limits.overhead,
        breakdown: breakdownOf(final, newest?.head?.layout),
      },
      journal: newest?.layers ? describeJournal(newest.layers, newest.snapshot ?? '', this.counter) : null,
    };
  }
}

function useOf({ calls }: Generation): SummarizerUse {
  return {
    calls: calls.length,
    input: calls.reduce((sum, { inputTokens }) => sum + inputTokens, 0),
    output: calls.reduce((sum, { outputTokens }) => sum + outputTokens, 0),
  };
}

function thresholdOf({ triggers, overhead }: Limits): number | null {
  const sizes = triggers.flatMap(({ contextTokens }) => contextTokens ?? []);
  return sizes.length === 0 ? null : Math.min(...sizes) + overhead;
}

function leadingSystem(log: readonly LoggedMessage[]): number {
  const first = log.findIndex(({ message: { role } }) => role !== 'system' && role !== 'developer');
  return first === -1 ? log.length : first;
}

function boundaryBehind(log: readonly LoggedMessage[], throughSeq: number): 'user' | 'assistant' | 'other' {
  const next = log
    .slice(throughSeq)
    .find(({ message: { role } }) => role !== 'system' && role !== 'developer')?.message.role;
  return next === 'user' || next === 'assistant' ? next : 'other';
}

function sizeOf(items: readonly { tokens: number }[]): number {
  return items.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Shorter texts are faster to count than to look up. */
const shortest = 32;

/**
 * Returns counters that cache their results, because one session is counted under every policy. Discard them with the session:
 * they hold its texts.
 */
export function rememberingCounters(): (name: TokenizerName) => TokenCounter {
  const counters = new Map<TokenizerName, TokenCounter>();
  return (name) => {
    const known = counters.get(name);
    if (known) return known;
    const counter = remembering(counterFor(name));
    counters.set(name, counter);
    return counter;
  };
}

function remembering(counter: TokenCounter): TokenCounter {
  const sizes = new Map<string, number>();
  return {
    name: counter.name,
    count(text) {
      if (text.length < shortest) return counter.count(text);
      const known = sizes.get(text);
      if (known !== undefined) return known;
      const size = counter.count(text);
      sizes.set(text, size);
      return size;
    },
  };
}
