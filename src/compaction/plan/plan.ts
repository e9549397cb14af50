/** What a compaction of this session would do now: cut, chunks, reductions; or why there is nothing to do. */
import { buildView } from '../../context/view/view.js';
import type { ContextSource } from '../../context/view/view-types.js';
import type { LoggedMessage, MessageMeta } from '../../conversation/message.js';
import type { Redact } from '../../summary/redaction/redact.js';
import { renderMessage } from '../../conversation/render.js';
import { boundedCut, chooseCut, type CutChoice, type CutOptions } from './cut.js';
import { estimateCost } from '../../limits/economics.js';
import { isTriggered, type Limits } from '../../limits/limits.js';
import { largeMessages } from '../../context/reductions/large-message.js';
import { mostCarried } from '../../context/reductions/newest-user.js';
import { assertPlannable } from './plannable.js';
import { commitReductions, leastAfterPolicy } from '../../context/reductions/retention.js';
import type { Policy } from '../../policy/resolve.js';
import { cutChunks, MESSAGE_LABEL_TOKENS, type ChunkRef } from '../../summary/ask/chunk.js';
import { emptyHeadTokens } from '../../summary/head.js';
import type { TokenCounter } from '../../tokens/token-counter.js';
import type { ChainLink, CompactionReason, LargeMessage, NothingToDo, Plan } from './plan-types.js';
import { readingOf, shortReading, type Reading } from './reading.js';
import { readable } from '../../summary/redaction/withheld.js';
import { settingsOf } from './summarizer-settings.js';

/** A session as planning sees it: sizes and links, no text. */
export interface PlanState {
  generation: number;
  policyVersion: number;
  /** Last seq that the head replaces. */
  throughSeq: number;
  /** Context tokens and messages. */
  liveTokens: number;
  liveMessages: number;
  /** No further turns are expected. */
  closed: boolean;
  /** Leading system messages. */
  system: MessageMeta[];
  tail: MessageMeta[];
  head: { tokens: number; carriedSeq: number | null } | null;
  /** Newest first, the genesis last. */
  chain: ChainLink[];
  /** Money spent on summaries of this session so far. */
  spent: number;
}

/** Where planning gets what it reads beyond the state. Ranges are inclusive. */
export interface PlanReads {
  /** Sizes and links of archived messages. */
  metas(fromSeq: number, throughSeq: number): Promise<MessageMeta[]>;
  messages(fromSeq: number, throughSeq: number): Promise<LoggedMessage[]>;
  /** The context with the reductions committed with its head. */
  source(): Promise<ContextSource>;
}

export interface PlanRequest {
  reason: CompactionReason;
  /** Asked for by hand: no trigger, no minimum gain, no exhausted mark. */
  force: boolean;
  /** Null: a model may be asked. Otherwise why not. */
  withoutModel: string | null;
  /** Unix milliseconds. */
  now: number;
  counter: TokenCounter;
  redact: Redact;
}

/**
 * Evicted by one compaction at most, in tokens and in full chunks (half full ones are twice as many): its history, its
 * payloads, and the time for which a commit keeps the worker from anything else, heartbeats included, follow from them.
 */
const mostEvicted = { tokens: 2_000_000, chunks: 500 };

/** Throws `Budget.Unreachable` where no compaction can make the session fit. */
export async function makePlan(
  state: PlanState,
  policy: Policy,
  limits: Limits,
  request: PlanRequest,
  reads: PlanReads,
): Promise<Plan | NothingToDo> {
  if (!policy.enabled && !request.force) return nothing('the policy is switched off');
  const settings = settingsOf(policy, limits);
  const { force, reason, counter } = request;
  const contextSize = { contextTokens: state.liveTokens, messages: state.liveMessages };
  const triggered = force || reason === 'idle' || isTriggered(limits, contextSize);
  const seenThroughSeq = state.tail.at(-1)?.seq ?? state.throughSeq;
  const rest = nobodyEvicted();

  if (reason === 'resummarize') return resummarize();
  if (!force && (await reductionsSuffice()))
    return { ...rest, reason: 'reduce', method: 'none', reductions: 'policy' };
  if (!triggered) return nothing('no trigger is met');

  const liveness = { now: request.now, deadCallAfterMs: policy.deadCallAfter, closed: state.closed };
  const { system, tail } = state;
  const pinTokens = limits.pinTokens + (await tokensPinnedByNumber());
  const { newestUserMessage: newestUser } = policy.reduce;
  assertPlannable({ system, tail, pinTokens, limits, liveness, counter, newestUser });
  const options: CutOptions = {
    keep: { messages: limits.keepMessages, tokens: limits.keepTokens },
    ...liveness,
    previousCarriedSeq: state.head?.carriedSeq ?? null,
    mostCarried: mostCarried(policy, limits),
    force,
  };
  const whole = chooseCut(state.tail, options);
  if (whole && (force || worthEvicting(whole))) return evict(whole, options);
  const messages = await messagesToSummarize(state.throughSeq, modelFor(0));
  if (messages.length > 0) return { ...rest, reason: 'reduce', method: 'model', messages };
  if (!force && (await reductionsHelp())) return { ...rest, reason: 'reduce', method: 'none' };
  return {
    nothing: whole ? 'evicting what may go would save too little' : 'nothing may be evicted',
    exhausted: true,
  };

  /** A plan that evicts and reads nothing. */
  function nobodyEvicted(): Plan {
    return {
      baseGeneration: state.generation,
      policyVersion: state.policyVersion,
      reason,
      method: 'none',
      mode: policy.summary.mode,
      fromSeq: state.throughSeq + 1,
      throughSeq: state.throughSeq,
      seenThroughSeq,
      carriedSeq: state.head?.carriedSeq ?? null,
      chunks: [],
      readFromSeq: state.throughSeq + 1,
      foldGeneration: null,
      previousTokens: 0,
      layers: state.chain[0]?.layers ?? [],
      reductions: 'all',
      messages: [],
      tokensBefore: state.liveTokens,
      evictedMessages: 0,
      evictedTokens: 0,
      partial: false,
      withoutModel: request.withoutModel,
      summarizer: settings,
      fallback: policy.summary.fallback,
    };
  }

  async function evict(whole: CutChoice, cutOptions: CutOptions): Promise<Plan> {
    const cut = boundedCut(state.tail, cutOptions, whole, mostTokens(whole));
    const evicted = state.tail.filter(({ seq }) => seq <= cut.throughSeq);
    const withoutModel = modelFor(cut.evictedTokens);
    const useModel = withoutModel === null;
    const { reading, again } = await read(useModel, cut.evictedTokens);
    return {
      ...rest,
      ...reading,
      method: useModel ? 'model' : 'extractive',
      throughSeq: cut.throughSeq,
      carriedSeq: cut.carriedSeq,
      chunks: useModel ? await chunksAgain(again, evicted) : [],
      messages: await messagesToSummarize(cut.throughSeq, withoutModel),
      evictedMessages: evicted.length,
      evictedTokens: cut.evictedTokens,
      partial: cut.throughSeq < whole.throughSeq,
      withoutModel,
    };
  }

  /** What is folded, and which archived messages are read anew; too many of them are not. */
  async function read(
    useModel: boolean,
    evictedTokens: number,
  ): Promise<{ reading: Reading; again: MessageMeta[] }> {
    const reading = readingOf(policy.summary.mode, state.chain, useModel, reason === 'resummarize');
    if (!useModel || reading.readFromSeq > state.throughSeq) return { reading, again: [] };
    const again = await reads.metas(reading.readFromSeq, state.throughSeq);
    const tokens = again.reduce((sum, meta) => sum + meta.tokens + MESSAGE_LABEL_TOKENS, evictedTokens);
    const most = Math.min(mostEvicted.tokens, mostEvicted.chunks * settings.chunkTokens);
    return tokens <= most ? { reading, again } : { reading: shortReading(state.chain), again: [] };
  }

  async function resummarize(): Promise<Plan | NothingToDo> {
    const withoutModel =
      request.withoutModel ?? (policy.summary.method === 'model' ? null : 'the policy asks no model');
    if (withoutModel !== null) return nothing(`no model can be asked: ${withoutModel}`);
    if (!state.chain[0]?.fallback) return nothing('the fallback wrote nothing of this summary');
    const { reading, again } = await read(true, 0);
    if (again.length === 0) return nothing('too much to read anew at once');
    return { ...rest, ...reading, method: 'model', chunks: await chunksAgain(again, []) };
  }

  /** Null where a model may be asked; otherwise why not. */
  function modelFor(evictedTokens: number): string | null {
    if (request.withoutModel !== null || policy.summary.method === 'extractive')
      return request.withoutModel ?? 'the policy asks no model';
    const { perCompaction, perSession } = policy.spend;
    if (perCompaction === null && perSession === null) return null;
    const cost = estimateCost({
      prices: policy.prices,
      evictedTokens,
      chunkTokens: settings.chunkTokens,
      digestTokens: settings.digestTokens,
      snapshotTokens: settings.snapshotTokens,
    });
    if (perCompaction !== null && cost > perCompaction) return 'spend.perCompaction would be exceeded';
    if (perSession !== null && state.spent + cost > perSession) return 'spend.perSession would be exceeded';
    return null;
  }

  /** The share saved, with the new head at its largest, must reach the policy's `minGain`. */
  function worthEvicting(cut: CutChoice): boolean {
    const summary = Math.min(limits.headMax, Math.ceil(cut.evictedTokens / 2));
    const newHead = Math.max(summary, emptyHeadTokens(policy.summary, counter)) + cut.carriedTokens;
    const saved = cut.evictedTokens + (state.head?.tokens ?? 0) - newHead;
    return saved >= policy.summary.minGain * state.liveTokens;
  }

  function mostTokens({ evictedTokens, evictedMessages }: CutChoice): number {
    const labelled = evictedTokens + evictedMessages * MESSAGE_LABEL_TOKENS;
    const readable = mostEvicted.chunks * settings.chunkTokens * (evictedTokens / labelled);
    return Math.min(mostEvicted.tokens, Math.floor(readable));
  }

  /** Cut where a model has read up to before, so that what it wrote then is found again. `full_rewrite` always reads all, in full chunks. */
  async function chunksAgain(
    again: readonly MessageMeta[],
    evicted: readonly MessageMeta[],
  ): Promise<ChunkRef[]> {
    if (policy.summary.mode === 'full_rewrite') return chunksOf([...again, ...evicted]);
    const reads = state.chain.flatMap((link, index) =>
      link.readByModel ? [link.throughSeq, state.chain[index + 1]?.throughSeq ?? 0] : [],
    );
    const ends = new Set(reads);
    const parts: MessageMeta[][] = [[]];
    for (const meta of [...again, ...evicted]) {
      parts.at(-1)?.push(meta);
      if (ends.has(meta.seq)) parts.push([]);
    }
    return (await Promise.all(parts.map(chunksOf))).flat();
  }

  async function chunksOf(metas: readonly MessageMeta[]): Promise<ChunkRef[]> {
    const texts = new Map<number, string>();
    for (const { seq, tokens } of metas) {
      if (tokens <= settings.chunkTokens / 2) continue;
      const [logged] = await readable(await reads.messages(seq, seq), settings, request.redact);
      if (logged) texts.set(seq, renderMessage(logged));
    }
    const items = metas.map(({ seq, tokens }) => ({ seq, tokens, text: () => texts.get(seq) ?? '' }));
    return cutChunks(items, settings.chunkTokens, counter);
  }

  /** Of messages that the policy names; texts are in the limits. */
  async function tokensPinnedByNumber(): Promise<number> {
    const seqs = policy.pins.flatMap((one) => (typeof one === 'object' && 'seq' in one ? [one.seq] : []));
    const pinned = await Promise.all(seqs.map((seq) => reads.messages(seq, seq)));
    return pinned.flat().reduce((sum, { tokens }) => sum + tokens, 0);
  }

  /** Messages that stay behind the cut and are too large to stay whole. */
  async function messagesToSummarize(
    throughSeq: number,
    withoutModel: string | null,
  ): Promise<LargeMessage[]> {
    const { messageTokens } = limits;
    if (messageTokens === null || withoutModel !== null) return [];
    if (!state.tail.some(({ seq, tokens }) => seq > throughSeq && tokens > messageTokens)) return [];
    const source = await reads.source();
    // What was appended since the sizes were read belongs to the next plan.
    const tail = source.tail.filter(({ seq }) => seq > throughSeq && seq <= seenThroughSeq);
    const view = buildView({ ...source, tail, metas: undefined }, counter);
    const large = largeMessages(view, messageTokens, policy);
    return Promise.all(
      large.map(async ({ seq, tokens }) => ({
        seq,
        tokens,
        chunks: await chunksOf(state.tail.filter((meta) => meta.seq === seq)),
      })),
    );
  }

  /**
   * Whether shorter arguments and tool results alone reach the target, or, below the trigger, are worth a commit: then no
   * model is asked.
   */
  async function reductionsSuffice(): Promise<boolean> {
    const fromArguments = limits.reduceAt !== null && state.liveTokens >= limits.reduceAt;
    if (!triggered && !fromArguments) return false;
    const { before, after } = await reduced('policy');
    const worthwhile = before - after >= policy.summary.minGain * before;
    return worthwhile && (!triggered || after <= limits.contextTarget);
  }

  async function reductionsHelp(): Promise<boolean> {
    const { before, after } = await reduced('all');
    return before - after >= policy.summary.minGain * before;
  }

  async function reduced(what: 'policy' | 'all'): Promise<{ before: number; after: number }> {
    const source = await reads.source();
    const standing = buildView(source, counter);
    const before = standing.reduce((sum, item) => sum + item.tokens, 0);
    const view = what === 'all' ? buildView({ ...source, reductions: [] }, counter) : standing;
    const options = { policy, limits, tokensBefore: before };
    const hopeless = what === 'policy' && triggered && leastAfterPolicy(view, options) > limits.contextTarget;
    if (hopeless) return { before, after: before };
    const { tokens } = commitReductions(view, { ...options, what }, counter);
    return { before, after: tokens };
  }
}

function nothing(why: string): NothingToDo {
  return { nothing: why, exhausted: false };
}
