/** The triggers that follow from prices: the cost-optimal size, and a cache that is cold anyway. */
import { chunkedGrowth, coldCacheSize, optimum, type Chunking, type Cycle } from './economics.js';
import { DEFAULT_KEEP, type Frame, type Keep, keptTokens } from './thresholds.js';
import type { Policy } from '../policy/resolve.js';

/** Tokens of a turn of a session that has shown none yet. */
export const FIRST_TURN_TOKENS = 1_000;

/** A smaller tail would not hold one tool result of ordinary length beside what was asked. Tokens. */
const SMALLEST_TAIL = 4_000;
const SMALLEST_HEAD = 200;
const LARGEST_HEAD = 3_500;

/** Messages that an append holds on average: an answer alone, or one with its tool result. */
const MESSAGES_PER_TURN = 1.5;

/** Room for leading system messages of unknown length. Tokens. */
const SYSTEM_ALLOWANCE = 8_000;

/** Head by everything else: the head is at most 0.4 of the target. */
const HEAD_BY_REST = 2 / 3;

/**
 * The growth aimed at, by the optimal one. The last turn overshoots and tails come out shorter than planned, which brings it to the
 * middle of [D*, 1.5 D*]. Less where what is evicted then fits one request of the summarizer, which saves more than that.
 */
const GROWTH = 1.05;

/** Sizes of the economic trigger, context tokens. */
export interface EconomicSizes {
  /** D*: the cost-optimal growth between two compactions; Infinity where reading the cache is free. */
  optimum: number;
  /** The size at D*, or at `at` where that is smaller: from here on compacting is worth it. */
  from: number;
  /** The size that triggers. */
  at: number;
}

/** The trigger of a quiet session. */
export interface IdleSizes {
  /** Quiet milliseconds after which the provider's cache is cold. */
  afterMs: number;
  /** The smallest context that is worth compacting before it is read anew. */
  contextTokens: number;
}

/** What a compaction is to reach where only its cost limits the tail, context tokens. */
export interface EconomicTarget {
  /** As many messages as are kept, each taken as a turn, within the ceilings of `keep`. */
  tail: number;
  /** Tail, head, pins and leading system messages. */
  contextTarget: number;
}

/** `systemTokens` undefined: not known; then there is room for a system prompt as long as the tail. */
export function economicTarget(
  policy: Policy,
  frame: Frame,
  { turnTokens, pinTokens, systemTokens }: { turnTokens: number; pinTokens: number; systemTokens?: number },
): EconomicTarget {
  const { messages = null } = policy.keep ?? DEFAULT_KEEP;
  const ceiling = keptTokens(policy.keep ?? DEFAULT_KEEP, frame) ?? Infinity;
  const wished =
    messages === null ? ceiling : Math.max(SMALLEST_TAIL, (messages * turnTokens) / MESSAGES_PER_TURN);
  const tail = Math.ceil(Math.min(wished, ceiling, frame.budget));
  // Pinned texts take half of what stays beside the head at most, whatever the mean turn does.
  const beside =
    Math.max(tail, pinTokens, SMALLEST_HEAD / HEAD_BY_REST) +
    pinTokens +
    (systemTokens ?? Math.min(tail, SYSTEM_ALLOWANCE));
  const head = Math.min(LARGEST_HEAD, 0.2 * frame.budget, HEAD_BY_REST * beside);
  return { tail, contextTarget: Math.ceil(beside + head) };
}

/** What the sizes of both triggers follow from, context tokens. */
export interface CostFacts extends Chunking {
  contextTarget: number;
  /** The largest head, pins included. */
  headTokens: number;
  snapshotTokens: number;
  promptTokens: number;
  tailTarget: number;
  keep: Keep;
  turnTokens: number;
  /** Leading system messages, as far as they are known. */
  systemTokens: number;
}

function cycleOf(policy: Policy, facts: CostFacts): Cycle {
  const { keep, tailTarget, turnTokens, systemTokens } = facts;
  const tail = Math.min(
    tailTarget - systemTokens,
    keep.tokens ?? Infinity,
    keep.messages === null ? Infinity : (keep.messages * turnTokens) / MESSAGES_PER_TURN,
  );
  return {
    prices: policy.prices,
    turnTokens,
    headTokens: facts.headTokens,
    tailTokens: Math.max(0, tail),
    snapshotTokens: facts.snapshotTokens,
    promptTokens: facts.promptTokens,
    asksModel: policy.summary.method === 'model',
  };
}

/** `ceiling`: context tokens that the trigger never exceeds. */
export function economicSizes(policy: Policy, facts: CostFacts, ceiling: number): EconomicSizes {
  const cycle = cycleOf(policy, facts);
  const growth = optimum(cycle);
  const after = facts.systemTokens + cycle.headTokens + cycle.tailTokens;
  // However cheap a compaction is: the next turns must not compact again.
  const least = Math.ceil(facts.contextTarget / 0.9);
  const sized = (size: number) => Math.floor(Math.min(ceiling, Math.max(least, size)));
  const at = sized(after + chunkedGrowth(cycle, facts, GROWTH));
  return { optimum: growth, from: Math.min(at, sized(after + growth)), at };
}

/** Null where compacting before a cold read never pays, or only beyond what a context may be. */
export function idleSizes(policy: Policy, facts: CostFacts, frame: Frame): IdleSizes | null {
  if (policy.idleTrigger === null) return null;
  const cycle = cycleOf(policy, facts);
  const overheadTokens = frame.overhead + facts.systemTokens;
  const request = coldCacheSize({ ...cycle, overheadTokens });
  if (request === null) return null;
  const after = facts.systemTokens + cycle.headTokens + cycle.tailTokens;
  const contextTokens = Math.ceil(Math.max(request - frame.overhead, after / (1 - policy.summary.minGain)));
  return contextTokens < frame.budget ? { afterMs: policy.idleTrigger, contextTokens } : null;
}
