/** Plans one compaction (cut, chunks and reductions), or gives the reason why there is nothing to do. */
import { mostCarried } from '../../context/reductions/newest-user.js';
import { commitReductions, leastAfterPolicy } from '../../context/reductions/retention.js';
import { sizeOf, viewing } from '../../context/view/view.js';
import { invalid } from '../../errors.js';
import { estimateCost } from '../../limits/economics.js';
import { eagerSizes, isTriggered, type Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/defaults.js';
import type { Prices } from '../../policy/schema.js';
import { inSlices } from '../../steps.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import { emptyHeadTokens } from '../../summary/head.js';
import { chunksToRead, messagesToSummarize, mostEvictable, readAgain } from './chunks.js';
import {
  boundedCut,
  chooseCut,
  cutCandidates,
  type CutChoice,
  type CutOptions,
  firstOpenCall,
} from './cut.js';
import { journalPlan, nextEntryTokens, tailCeiling, tailRoom } from './journal-plan.js';
import type { NothingToDo, Plan } from './plan-types.js';
import { assertPlannable } from './plannable.js';
import { type Planning, type PlanReads, type PlanRequest, type PlanState, seenThrough } from './planning.js';
import { readingOf } from './reading.js';
import { redactionOf, settingsOf } from './summarizer-settings.js';

/** Throws `Budget.Unreachable` if no compaction can make the session fit. */
export async function makePlan(
  state: PlanState,
  policy: Policy,
  limits: Limits,
  request: PlanRequest,
  reads: PlanReads,
): Promise<Plan | NothingToDo> {
  const { force, reason, eager = false } = request;
  if (!policy.enabled && !force) return nothing('the policy is switched off');
  const contextSize = { contextTokens: state.liveTokens, messages: state.liveMessages };
  const triggered = force || eager || reason === 'idle' || isTriggered(limits, contextSize);
  const settings = settingsOf(policy, limits);
  const planning: Planning = { ...request, state, policy, limits, reads, settings, triggered };

  if (eager) return planAhead(planning);
  if (reason === 'resummarize') return resummarize(planning);
  if (!force && (await policyReductionsSuffice(planning)))
    return { ...withoutEviction(planning), reason: 'reduce', reductions: 'policy' };
  if (!triggered) return nothing('no trigger is met');

  const options = await checkedCutOptions(planning);
  const best = chooseCut(state.tail, options);
  const written = best && writtenCut(planning, options);
  const cut = written ?? best;
  if (cut && (force || worthEvicting(planning, cut))) {
    const plan = await evict(planning, cut, options);
    return written ? { ...plan, partial: written.exceedsRoom } : plan;
  }

  const asksModel = reasonAgainstModel(planning, 0) === null;
  const messages = asksModel ? await messagesToSummarize(planning, state.throughSeq) : [];
  if (messages.length > 0)
    return { ...withoutEviction(planning), reason: 'reduce', method: 'model', messages };
  if (!force && (await allReductionsHelp(planning)))
    return { ...withoutEviction(planning), reason: 'reduce' };
  return {
    nothing:
      waitsForCall(planning, options) ??
      (cut ? 'evicting the messages that may be evicted would save too little' : 'nothing may be evicted'),
    exhausted: true,
  };
}

/** The call whose result must come, or that must be abandoned, before enough may be evicted; null if no call is in the way. */
function waitsForCall(planning: Planning, options: CutOptions): string | null {
  const { tail } = planning.state;
  const call = firstOpenCall(tail, options);
  const without = call && chooseCut(tail, { ...options, closed: true });
  if (!without || !worthEvicting(planning, without)) return null;
  const { seq, id, name, abandonedAt } = call;
  const end =
    abandonedAt === null
      ? 'it has a result'
      : `it has a result or, from ${new Date(abandonedAt).toISOString()} on, counts as abandoned`;
  return `nothing after the call of ${name}${id === null ? '' : ` (${id})`} in message ${seq} may be evicted until ${end}`;
}

/**
 * Plans the compaction that will be due at the threshold: the tail is cut as it will be once the context has grown that far.
 * Carrying out this plan makes the model's requests and stores the answers, without a commit.
 */
async function planAhead(planning: Planning): Promise<Plan | NothingToDo> {
  const { state, policy, limits } = planning;
  const sizes = eagerSizes(policy, limits);
  if (sizes === null) return nothing('under this policy nothing is written ahead');
  if (readingOf(policy.summary.mode, state.chain, true).readFromSeq <= state.throughSeq)
    return nothing('a model must first reread the messages that the fallback summarized');
  if (await policyReductionsSuffice(planning)) return nothing('reductions suffice');
  const toCome = Math.max(0, sizes.trigger - state.liveTokens);
  const options = await checkedCutOptions(planning, toCome);
  const cut = chooseCut(state.tail, options);
  if (cut === null || !worthEvicting(planning, cut)) return nothing('too little may be evicted so far');
  const plan = await evict(planning, cut, options);
  if (plan.method !== 'model') return nothing(plan.withoutModel ?? 'no model is asked');
  if (plan.partial) return nothing('more messages must be evicted than one compaction takes');
  return { ...plan, messages: [], fallback: 'none' };
}

/** A context whose notes are written already may miss its target by this share of the distance from target to trigger. */
const WRITTEN_SLACK = 0.5;
/** Minimum share of the tail's room that a cut at the end of written notes must fill. The room varies: notes may be merged. */
const LEAST_FILLED = 0.25;

/** The cut at the end of the notes written ahead; null without such notes, or if it keeps too much or too little for the tail. */
function writtenCut(planning: Planning, options: CutOptions): (CutChoice & { exceedsRoom: boolean }) | null {
  const { state, policy, limits, writtenThroughSeq = null } = planning;
  const sizes = eagerSizes(policy, limits);
  if (writtenThroughSeq === null || sizes === null) return null;
  const cut = cutCandidates(state.tail, options).find(({ throughSeq }) => throughSeq === writtenThroughSeq);
  if (cut === undefined || cut.torn > 0 || cut.keptMessages > (limits.keepMessages ?? Infinity)) return null;
  const slack = WRITTEN_SLACK * (sizes.trigger - limits.contextTarget);
  const room = fillsTarget(policy) ? tailRoom(planning)(cut.evictedTokens) : limits.keepTokens;
  if (room === null) return { ...cut, exceedsRoom: false };
  const most = fillsTarget(policy) ? room + slack : room;
  const serves = cut.keptTokens <= most && cut.keptTokens >= LEAST_FILLED * room;
  return serves ? { ...cut, exceedsRoom: cut.keptTokens > room } : null;
}

/** Whether the policy sets no ceilings, so that the tail takes the rest of the target after journal and state. */
function fillsTarget({ summary, keep }: Policy): boolean {
  return summary.mode === 'journal' && keep === null;
}

/**
 * Options of the cut. `toCome`: tokens that the tail will grow by until the cut. Throws `Budget.Unreachable` if even the
 * smallest context would not fit.
 */
async function checkedCutOptions(planning: Planning, toCome = 0): Promise<CutOptions> {
  const { state, policy, limits, counter, now, force } = planning;
  const { system, tail } = state;
  const liveness = { now, deadCallAfterMs: policy.deadCallAfter, closed: state.closed };
  const pinTokens = limits.pinTokens + (await tokensOfPinnedMessages(planning));
  const { newestUserMessage: newestUser } = policy.reduce;
  const tokens = fillsTarget(policy) ? tailCeiling(planning, toCome) : limits.keepTokens;
  assertPlannable({
    system,
    tail,
    pinTokens,
    limits,
    liveness,
    counter,
    newestUser,
    recovery: policy.recovery,
  });
  return {
    keep: {
      messages: limits.keepMessages,
      tokens: tokens === null ? null : Math.max(0, tokens - toCome),
    },
    ...liveness,
    previousCarriedSeq: state.head?.carriedSeq ?? null,
    mostCarried: mostCarried(policy, limits),
    force,
  };
}

/** Tokens of messages pinned by number; the limits include only pinned texts. */
async function tokensOfPinnedMessages({ policy, reads }: Planning): Promise<number> {
  const seqs = policy.pins.flatMap((one) => (typeof one === 'object' && 'seq' in one ? [one.seq] : []));
  const pinned = await Promise.all(seqs.map((seq) => reads.messages(seq, seq)));
  return pinned.flat().reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Whether the saved share, with the largest possible head, reaches the policy's `minGain`. */
function worthEvicting(planning: Planning, cut: CutChoice): boolean {
  const { state, policy, limits, counter } = planning;
  if (policy.summary.mode === 'journal') {
    const entry = nextEntryTokens(planning, { tokens: cut.evictedTokens });
    return cut.evictedTokens - entry - cut.carriedTokens >= policy.summary.minGain * state.liveTokens;
  }
  const summary = Math.min(limits.headMax, Math.ceil(cut.evictedTokens / 2));
  const newHead =
    Math.max(summary, emptyHeadTokens({ ...policy.summary, recovery: policy.recovery }, counter)) +
    cut.carriedTokens;
  const saved = cut.evictedTokens + (state.head?.tokens ?? 0) - newHead;
  return saved >= policy.summary.minGain * state.liveTokens;
}

async function evict(planning: Planning, whole: CutChoice, options: CutOptions): Promise<Plan> {
  const { state, policy, settings } = planning;
  const cut = boundedCut(state.tail, options, whole, mostEvictable(whole, settings));
  const evicted = state.tail.filter(({ seq }) => seq <= cut.throughSeq);
  const eviction = {
    throughSeq: cut.throughSeq,
    carriedSeq: cut.carriedSeq,
    evictedMessages: evicted.length,
    evictedTokens: cut.evictedTokens,
    partial: cut.throughSeq < whole.throughSeq,
  };
  const withoutModel = reasonAgainstModel(planning, cut.evictedTokens);
  if (withoutModel !== null) {
    const reading = readingOf(policy.summary.mode, state.chain, false);
    return {
      ...withoutEviction(planning),
      ...reading,
      ...eviction,
      method: 'extractive',
      ...journalOf(planning, []),
      withoutModel,
    };
  }
  const { reading, again } = await readAgain(planning, cut.evictedTokens);
  const chunks = await chunksToRead(planning, again, evicted);
  return {
    ...withoutEviction(planning),
    ...reading,
    ...eviction,
    method: 'model',
    chunks,
    ...journalOf(planning, chunks),
    messages: await messagesToSummarize(planning, cut.throughSeq),
    withoutModel,
  };
}

/** Plans to have a model rewrite the fallback's part of the current summary. */
async function resummarize(planning: Planning): Promise<Plan | NothingToDo> {
  const { state, policy } = planning;
  const withoutModel =
    planning.withoutModel ??
    (policy.summary.method === 'model' ? limitsForbid(planning) : 'the policy asks no model');
  if (withoutModel !== null) return nothing(`no model can be asked: ${withoutModel}`);
  if (!state.chain[0]?.fallback) return nothing('the fallback wrote nothing of this summary');
  const { reading, again } = await readAgain(planning, 0);
  if (again.length === 0) return nothing('too many tokens to read again in one compaction');
  const chunks = await chunksToRead(planning, again, []);
  return {
    ...withoutEviction(planning),
    ...reading,
    method: 'model',
    chunks,
    ...journalOf(planning, chunks),
  };
}

/** Whether the limits allow a compaction that evicts nothing. */
function limitsForbid(planning: Planning): string | null {
  return planning.beyondLimits === undefined ? null : reasonAgainstModel(planning, 0);
}

function journalOf(planning: Planning, chunks: readonly ChunkRef[]): Pick<Plan, 'journal'> {
  return planning.policy.summary.mode === 'journal' ? { journal: journalPlan(planning, chunks) } : {};
}

/** Null if a model may be asked. */
function reasonAgainstModel(
  { state, policy, settings, withoutModel, beyondLimits }: Planning,
  evictedTokens: number,
): string | null {
  if (withoutModel !== null || policy.summary.method === 'extractive')
    return withoutModel ?? 'the policy asks no model';
  const { chunkTokens, digestTokens, snapshotTokens } = settings;
  const costAt = (prices: Pick<Prices, 'summarizerInput' | 'summarizerOutput'>) =>
    estimateCost({ prices, evictedTokens, chunkTokens, digestTokens, snapshotTokens });
  const beyond = beyondLimits?.(({ input, output }) =>
    costAt({ summarizerInput: input, summarizerOutput: output }),
  );
  if (beyond) return beyond;
  const { perCompaction, perSession } = policy.spend;
  if (perCompaction === null && perSession === null) return null;
  const cost = costAt(policy.prices);
  if (perCompaction !== null && cost > perCompaction) return 'spend.perCompaction would be exceeded';
  if (perSession !== null && state.spent + cost > perSession) return 'spend.perSession would be exceeded';
  return null;
}

/** A plan that evicts and reads nothing, with all reductions. */
function withoutEviction({ state, policy, reason, withoutModel, settings }: Planning): Plan {
  return {
    baseGeneration: state.generation,
    policyVersion: state.policyVersion,
    reason,
    method: 'none',
    mode: policy.summary.mode,
    fromSeq: state.throughSeq + 1,
    throughSeq: state.throughSeq,
    seenThroughSeq: seenThrough(state),
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
    withoutModel,
    summarizer: settings,
    fallback: policy.summary.fallback,
  };
}

function nothing(why: string): NothingToDo {
  return { nothing: why, exhausted: false };
}

/**
 * Checks a plan from a caller in JavaScript, where no type refuses the answer that there is nothing to do. Throws
 * `Input.Invalid`.
 */
export function assertIsPlan(plan: Plan | NothingToDo | undefined): asserts plan is Plan {
  if (plan && 'nothing' in plan)
    throw invalid(`There is nothing to compact: ${plan.nothing}.`, 'plan', 'Check plan.nothing first.');
  if (!plan?.chunks) throw invalid('plan must be a plan that planCompaction returned.', 'plan');
}

/**
 * Checks a plan that a caller passes in. Throws `Input.Invalid` if the plan was made for other messages (recognized by their
 * sizes) or for a policy with other redaction rules.
 */
export function assertPlanOf(plan: Plan, { throughSeq, tail }: PlanState, policy: Policy): void {
  const evicted = tail.filter(({ seq }) => seq <= plan.throughSeq);
  const tokens = evicted.reduce((sum, meta) => sum + (meta.empty ? 0 : meta.tokens), 0);
  const known = new Set(tail.map(({ seq }) => seq));
  const isOfThese =
    plan.fromSeq === throughSeq + 1 &&
    plan.throughSeq <= Math.max(throughSeq, tail.at(-1)?.seq ?? 0) &&
    evicted.length === plan.evictedMessages &&
    tokens === plan.evictedTokens &&
    plan.messages.every(({ seq }) => known.has(seq));
  if (!isOfThese) throw invalid('The plan was made from other messages.', 'plan', 'Plan again.');
  if (plan.summarizer.redaction !== redactionOf(policy))
    throw invalid('The plan was made with another policy.', 'plan', 'Plan again with this one.');
}

/**
 * Whether the reductions of the policy (shorter arguments and tool results) save at least `minGain` and, if a trigger fires,
 * reach the target. Then nothing is evicted and no model is asked.
 */
async function policyReductionsSuffice(planning: Planning): Promise<boolean> {
  const { state, policy, limits, triggered } = planning;
  const argumentsDue = limits.reduceAt !== null && state.liveTokens >= limits.reduceAt;
  if (!triggered && !argumentsDue) return false;
  const { before, after } = await tokensReducedBy('policy', planning);
  const worthwhile = before - after >= policy.summary.minGain * before;
  return worthwhile && (!triggered || after <= limits.contextTarget);
}

/** Whether all reductions together save at least `minGain`. */
async function allReductionsHelp(planning: Planning): Promise<boolean> {
  const { before, after } = await tokensReducedBy('all', planning);
  return before - after >= planning.policy.summary.minGain * before;
}

async function tokensReducedBy(
  what: 'policy' | 'all',
  { policy, limits, counter, reads, triggered }: Planning,
): Promise<{ before: number; after: number }> {
  const source = await reads.source();
  const standing = await inSlices(viewing(source, counter));
  const before = sizeOf(standing);
  const view = what === 'all' ? await inSlices(viewing({ ...source, reductions: [] }, counter)) : standing;
  const options = { policy, limits, tokensBefore: before };
  const hopeless = what === 'policy' && triggered && leastAfterPolicy(view, options) > limits.contextTarget;
  if (hopeless) return { before, after: before };
  const { tokens } = await inSlices(commitReductions(view, { ...options, what }, counter));
  return { before, after: tokens };
}
