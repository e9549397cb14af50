/** The triggers derived from prices: the cost-optimal size, and the cold cache of an idle session. */
import { chunkedGrowth, coldCacheSize, optimum, type Chunking, type Cycle } from './economics.js';
import { DEFAULT_KEEP, type Frame, type Keep, keptTokens } from './thresholds.js';
import type { Policy } from '../policy/defaults.js';

/** Assumed tokens of a turn before the first turn. */
export const FIRST_TURN_TOKENS = 1_000;

/** Tokens. A smaller tail would not hold the request and one tool result of ordinary length. */
const SMALLEST_TAIL = 4_000;
const SMALLEST_HEAD = 200;
const LARGEST_HEAD = 3_500;

/** Average messages per append: an answer alone, or an answer with its tool result. */
const MESSAGES_PER_TURN = 1.5;

/** Room for leading system messages of unknown length. Tokens. */
const SYSTEM_ALLOWANCE = 8_000;

/** Ratio of the head to the rest of the target: the head is at most 0.4 of the target. */
const HEAD_BY_REST = 2 / 3;

/**
 * Ratio of the planned growth to the optimal growth. The last turn overshoots, and tails are shorter than planned, so the
 * actual growth is in the middle of [D*, 1.5 D*]. A smaller growth is used if the evicted messages then fit one summarizer
 * request, which saves more.
 */
const GROWTH = 1.05;

/** Sizes of the economic trigger in context tokens. */
export interface EconomicSizes {
  /** D*: the cost-optimal growth between two compactions; Infinity if reading the cache is free. */
  optimum: number;
  /** The size at D*, at most `at`. From this size on, a compaction pays. */
  from: number;
  /** The size at which a compaction is triggered. */
  at: number;
}

/** The trigger of an idle session. */
export interface IdleSizes {
  /** Idle milliseconds after which the provider's cache is cold. */
  afterMs: number;
  /** The smallest context for which compacting before the next read pays. */
  contextTokens: number;
}

/** The target, in context tokens, if only costs limit the tail. */
export interface EconomicTarget {
  /** Estimated tokens of the kept messages, from the mean turn, within the ceilings of `keep`. */
  tail: number;
  /** Tail, head, pins and leading system messages. */
  contextTarget: number;
}

/** If `systemTokens` is undefined (unknown), the target has room for a system prompt as long as the tail, up to an allowance. */
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
  // Pinned texts take at most half of the target without the head, for any mean turn.
  const beside =
    Math.max(tail, pinTokens, SMALLEST_HEAD / HEAD_BY_REST) +
    pinTokens +
    (systemTokens ?? Math.min(tail, SYSTEM_ALLOWANCE));
  const head = Math.min(LARGEST_HEAD, 0.2 * frame.budget, HEAD_BY_REST * beside);
  return { tail, contextTarget: Math.ceil(beside + head) };
}

/** The sizes, in context tokens, that both triggers are derived from. */
export interface CostFacts extends Chunking {
  contextTarget: number;
  /** The largest head, pins included. */
  headTokens: number;
  snapshotTokens: number;
  promptTokens: number;
  tailTarget: number;
  keep: Keep;
  turnTokens: number;
  /** Leading system messages; 0 if unknown. */
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

/** `ceiling`: maximum of the trigger in context tokens. */
export function economicSizes(policy: Policy, facts: CostFacts, ceiling: number): EconomicSizes {
  const cycle = cycleOf(policy, facts);
  const growth = optimum(cycle);
  const after = facts.systemTokens + cycle.headTokens + cycle.tailTokens;
  // Even if a compaction is cheap, the next turns must not trigger again.
  const least = Math.ceil(facts.contextTarget / 0.9);
  const sized = (size: number) => Math.floor(Math.min(ceiling, Math.max(least, size)));
  const at = sized(after + chunkedGrowth(cycle, facts, GROWTH));
  return { optimum: growth, from: Math.min(at, sized(after + growth)), at };
}

/** Null if compacting before a cold read never pays, or only above the budget. */
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
