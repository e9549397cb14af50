import { isFailure } from '../errors.js';
import type { Policy } from '../policy/defaults.js';
import { counterFor, type TokenizerName } from '../tokens/counter.js';
import { LOWEST_FACTOR } from '../tokens/calibration.js';
import { type ResolvedWindow, resolveWindow } from '../tokens/windows.js';
import {
  type CostFacts,
  economicSizes,
  type EconomicSizes,
  economicTarget,
  FIRST_TURN_TOKENS,
  idleSizes,
  type IdleSizes,
} from './cost-triggers.js';
import {
  headShares,
  refuseCrowdedSections,
  summarizerLimits,
  type SummarizerLimits,
} from './summarizer-requests.js';
import {
  contradiction,
  formatTokens,
  type Frame,
  frameOf,
  keepOf,
  smallestThreshold,
  thresholdsOf,
} from './thresholds.js';

/**
 * The sizes of a policy, in tokens as this product counts them. "Context tokens" are leading system messages + head + tail,
 * without the request overhead. Sizes that a policy compares with overhead + context have the overhead subtracted here.
 */
export interface Limits {
  /** The agent's window in tokens. */
  window: number;
  /** Source of the window; `fallback` deserves a visible warning. */
  windowSource: ResolvedWindow['source'];
  /** The provider's tokens per token counted here; the policy's sizes are divided by it. 1 if unknown. */
  factor: number;
  tokenizer: TokenizerName;
  /** Tokens of system prompt and tool schemas outside the log. */
  overhead: number;
  /** Tokens reserved for the agent's answer. */
  reservedOutput: number;
  /** Maximum context tokens of a request: window − overhead − reserved output. */
  budget: number;
  /** Maximum context tokens of a head without pins and carried request: note, journal and state, or note, snapshot and exact values. */
  headMax: number;
  /** Part of `headMax` for the note, the acknowledgment and their framing. */
  noteTokens: number;
  /** Tokens of the pins, in addition to `headMax`. */
  pinTokens: number;
  /** Context tokens that a compaction must reach. */
  contextTarget: number;
  /** Context tokens for leading system messages and tail: the target without head and pins. */
  tailTarget: number;
  /** Ceilings of the tail; null: none. If both are given, the ceiling that keeps fewer messages applies. */
  keepMessages: number | null;
  keepTokens: number | null;
  /** A trigger fires once all its sizes are reached. Empty if the policy is disabled. */
  triggers: { contextTokens: number | null; messages: number | null }[];
  /** The cost-optimal size, also part of `triggers`; null without `{economic: true}`. */
  economic: EconomicSizes | null;
  /** The trigger of an idle session; null without `{idle}`, or if compacting a cold context never pays. */
  idle: IdleSizes | null;
  /** Context tokens from which long call arguments are truncated; null: not before a trigger fires. */
  reduceAt: number | null;
  /** Tokens above which a message of the tail is summarized separately; null: never. */
  messageTokens: number | null;
  /** Tokens of tool results that stay whole in the tail, newest first. */
  resultBudget: number;
  summarizer: SummarizerLimits;
  /** Maximum tokens of exact values after a snapshot. */
  exactTokens: number;
}

/** Tokens. A smaller head has room for the note but not for a useful summary. */
const SMALLEST_HEAD = 200;

/** The target in context tokens, from a share of the smallest threshold or from tokens of overhead + context. */
function targetOf(policy: Policy, threshold: number, frame: Frame): number {
  if (policy.target <= 1) return Math.floor(policy.target * threshold);
  const target = frame.counted(policy.target) - frame.overhead;
  if (target <= 0.9 * threshold) return target;
  throw contradiction(
    'policy.target',
    `A target of ${formatTokens(policy.target)} tokens is too close to the threshold of ` +
      `${formatTokens(threshold + frame.overhead)}: the next turns would trigger again.`,
    `Give at most ${formatTokens(Math.floor(0.9 * threshold) + frame.overhead)}, or a share such as 0.6.`,
    { target: policy.target, threshold: threshold + frame.overhead },
  );
}

/** Maximum share of the target for journal and state; the tail has the rest. */
export const MEMORY_OF_TARGET = 0.82;

/** Room for journal and state: it grows with the square root of the budget and leaves the tail its share of the target. */
function memoryRoom(share: number, contextTarget: number, { budget }: Pick<Frame, 'budget'>): number {
  return Math.min(share * budget, 48 * Math.sqrt(budget), MEMORY_OF_TARGET * contextTarget);
}

/** Maximum tokens of note, journal and state (without pins) in a context of `budget` tokens, so that messages still fit. */
export function memoryWithin(budget: number, { memory }: Policy, limits: Limits): number {
  const target = Math.min(limits.contextTarget, budget);
  return Math.min(limits.headMax, Math.floor(memoryRoom(memory.share, target, { budget })));
}

function headMaxOf({ summary, memory }: Policy, contextTarget: number, frame: Frame): number {
  // The last bound applies to thresholds far below the window: a head must not fill the whole target.
  const headMax = Math.floor(
    summary.mode === 'journal'
      ? memoryRoom(memory.share, contextTarget, frame)
      : Math.min(3_500, 0.2 * frame.budget, 0.4 * contextTarget),
  );
  if (headMax >= SMALLEST_HEAD) return headMax;
  const { window, overhead, reservedOutput, usable, budget } = frame;
  throw contradiction(
    'policy',
    `Too small to compact: a budget of ${formatTokens(budget)} context tokens (window ${formatTokens(window)}, overhead ` +
      `${formatTokens(overhead)}, reserved output ${formatTokens(reservedOutput)}) and a target of ` +
      `${formatTokens(contextTarget)} leave ${formatTokens(Math.max(0, headMax))} for a summary, which needs ${SMALLEST_HEAD}.`,
    'Raise contextWindow, trigger or target, or lower overhead.',
    { window, overhead, reservedOutput, usable, budget, contextTarget, headMax },
  );
}

function pinnedTextTokens({ pins, tokenizer }: Policy): number {
  const counter = counterFor(tokenizer);
  const listMark = 3;
  return pins.reduce((sum, pin) => sum + (typeof pin === 'string' ? counter.count(pin) + listMark : 0), 0);
}

/**
 * Refuses a policy whose pinned texts take more than half of the room. Pinned messages are in the log already and cannot be
 * refused; they take at most the rest of that half.
 */
function pinTokensOf(texts: number, messages: number, room: number): number {
  const most = Math.floor(room / 2);
  if (texts <= most) return Math.min(texts + messages, most);
  throw contradiction(
    'policy.pins',
    `Pins of ${formatTokens(texts)} tokens leave too little of the ${formatTokens(room)} tokens that a compaction keeps in addition to its summary.`,
    `Shorten them to ${formatTokens(most)} tokens, or raise the trigger or the window.`,
    { pinTokens: texts, room },
  );
}

/** A spend limit requires prices. */
function refuseSpendWithoutPrices({ spend, prices }: Policy): void {
  const limit = spend.perCompaction ?? spend.perSession;
  if (limit === null || prices.currency !== null) return;
  throw contradiction(
    spend.perCompaction === null ? 'policy.spend.perSession' : 'policy.spend.perCompaction',
    `A spend limit of ${limit} needs prices: without them the cost of a summary is unknown.`,
    'Give prices.input, per million tokens, and the summarizer’s prices if they differ.',
    { limit },
  );
}

/** Facts about a session that its sizes depend on. */
export interface SessionFacts {
  /** The provider's tokens per token counted here; the policy's tokens are divided by it. At least 0.5. @default 1 */
  factor?: number;
  /** Tokens, as the provider counts them, of a request without its context. If the policy's overhead is larger, it applies. @default 0 */
  overhead?: number;
  /** Mean tokens of a turn; 0 or absent before the first append. */
  meanTurnTokens?: number;
  /** Tokens that `{seq}` and `{pattern}` pins carry, in addition to pinned texts. @default 0 */
  pinTokens?: number;
  /** Tokens of the leading system messages; absent if unknown. */
  systemTokens?: number;
}

/**
 * All sizes of a policy. Throws `Input.Invalid` with path, numbers and hint if its parts contradict each other. Learnt
 * values never make a valid policy invalid: if they leave no room for its sizes, the declared sizes are used, and only the
 * budget is lowered.
 */
export function limitsOf(policy: Policy, { factor = 1, overhead = 0, ...facts }: SessionFacts = {}): Limits {
  const learnt = { factor: Math.max(LOWEST_FACTOR, factor), overhead };
  if (learnt.factor === 1 && overhead === 0) return sizesOf(policy, facts);
  try {
    return sizesOf(policy, { ...facts, ...learnt });
  } catch (error) {
    if (!isFailure(error, 'Input.Invalid')) throw error;
    const declared = sizesOf(policy, facts);
    const { window, overhead: given, reservedOutput } = declared;
    const beside = Math.max(overhead, given * (typeof policy.overhead === 'number' ? 1 : learnt.factor));
    const room = Math.floor((window - reservedOutput - beside) / learnt.factor);
    return room > 0 ? { ...declared, budget: Math.min(declared.budget, room) } : declared;
  }
}

function sizesOf(policy: Policy, facts: SessionFacts): Limits {
  const { factor = 1, overhead: learnt = 0, pinTokens: pinnedMessages = 0, systemTokens } = facts;
  const turnTokens = facts.meanTurnTokens || FIRST_TURN_TOKENS;
  refuseSpendWithoutPrices(policy);
  const resolved = resolveWindow(policy);
  const frame = frameOf(policy, resolved.tokens, factor, learnt);
  const { window, overhead } = frame;
  const thresholds = thresholdsOf(policy, frame);
  const highest = smallestThreshold(thresholds, frame);

  const pinnedTexts = pinnedTextTokens(policy);
  const cheapest = policy.economic
    ? economicTarget(policy, frame, { turnTokens, pinTokens: pinnedTexts + pinnedMessages, systemTokens })
    : { tail: Infinity, contextTarget: Infinity };
  const contextTarget = Math.min(targetOf(policy, highest, frame), cheapest.contextTarget);
  const headMax = headMaxOf(policy, contextTarget, frame);
  const shares = headShares(policy, headMax);
  refuseCrowdedSections(policy, shares.snapshot);
  const pinTokens = pinTokensOf(pinnedTexts, pinnedMessages, contextTarget - headMax);
  const tailTarget = contextTarget - headMax - pinTokens;
  const headTokens = headMax + pinTokens;
  const room = { threshold: highest, headTokens, tailTarget: Math.min(tailTarget, cheapest.tail) };
  const keep = keepOf(policy, thresholds, room, frame);
  const summarizer = summarizerLimits(policy, window, shares.snapshot);

  const { maxTokens: snapshotTokens, promptTokens } = summarizer;
  const costs: CostFacts = {
    ...{ contextTarget, headTokens, snapshotTokens, promptTokens, tailTarget, keep, turnTokens },
    chunkTokens: summarizer.chunkTokens,
    digestTokens: Math.min(snapshotTokens, Math.floor(summarizer.chunkTokens / 4)),
    systemTokens: Math.min(systemTokens ?? 0, tailTarget),
  };
  const economic = policy.economic ? economicSizes(policy, costs, highest) : null;
  const threshold = economic?.at ?? highest;
  const { arguments: shortened, messages, toolResults } = policy.reduce;
  const reduceAt = shortened && Math.max(1, Math.floor(shortened.from * window) - overhead);
  const triggers = thresholds.map((one) => ({
    contextTokens: one.economic && economic ? economic.at : one.tokens && Math.max(0, one.tokens - overhead),
    messages: one.messages,
  }));
  return {
    window,
    windowSource: resolved.source,
    factor,
    tokenizer: policy.tokenizer,
    overhead,
    reservedOutput: frame.reservedOutput,
    budget: frame.budget,
    headMax,
    noteTokens: shares.note,
    pinTokens,
    contextTarget,
    tailTarget,
    keepMessages: keep.messages,
    keepTokens: keep.tokens,
    triggers: policy.enabled ? triggers : [],
    economic: policy.enabled ? economic : null,
    idle: policy.enabled ? idleSizes(policy, costs, frame) : null,
    reduceAt: policy.enabled && reduceAt !== null && reduceAt < threshold ? reduceAt : null,
    messageTokens: messages === null ? null : Math.floor(messages * threshold),
    resultBudget:
      toolResults.budget === null ? Math.floor(contextTarget / 2) : frame.counted(toolResults.budget),
    summarizer,
    exactTokens: shares.exact,
  };
}

/** Whether a context of this size meets any trigger. */
export function isTriggered(limits: Limits, context: { contextTokens: number; messages: number }): boolean {
  return limits.triggers.some(
    ({ contextTokens, messages }) =>
      (contextTokens === null || context.contextTokens >= contextTokens) &&
      (messages === null || context.messages >= messages),
  );
}

/**
 * The smallest sizes at which a trigger could be met: below both, no trigger fires. Of a trigger with tokens and messages, only the
 * tokens are used. The idle trigger is included with the size from which it applies. null: no trigger has a size of this kind.
 */
export function measureAt(limits: Limits): { tokens: number | null; messages: number | null } {
  const smallest = (sizes: (number | null)[]): number | null => {
    const known = sizes.filter((size) => size !== null);
    return known.length === 0 ? null : Math.min(...known);
  };
  const idle = limits.idle?.contextTokens ?? null;
  return {
    tokens: smallest([...limits.triggers.map(({ contextTokens }) => contextTokens), idle]),
    messages: smallest(
      limits.triggers.map(({ contextTokens, messages }) => (contextTokens === null ? messages : null)),
    ),
  };
}

/**
 * Sizes (context tokens and messages) at which a session is measured again. Below them, no turn needs a measurement. null:
 * never.
 */
export interface Marks {
  tokens: number | null;
  messages: number | null;
}

/**
 * The next sizes at which a session is measured: the size from which arguments are truncated if it is not reached yet, else the
 * smallest size of a trigger.
 */
export function marksFor(limits: Limits, tokens: number): Marks {
  const marks = measureAt(limits);
  const { reduceAt } = limits;
  if (reduceAt === null || tokens >= reduceAt || marks.tokens === null) return marks;
  return { ...marks, tokens: Math.min(marks.tokens, reduceAt) };
}

/**
 * Minimum growth before the next attempt if `minGain` is smaller: a share of the budget in tokens, or the same share of the number
 * of messages. A few words cannot be compacted.
 */
const leastStep = 0.02;

/**
 * The next sizes at which a session is measured if a compaction cannot help it, or if its last compaction missed the target: at
 * least `minGain` beyond its present size, even if the present size already meets a trigger.
 */
export function marksBeyond(
  policy: Policy,
  limits: Limits,
  { tokens, messages }: { tokens: number; messages: number },
): Marks {
  const marks = measureAt(limits);
  const step = Math.max(leastStep, policy.summary.minGain);
  const beyond = (mark: number | null, size: number, whole: number) =>
    mark === null ? null : Math.max(mark, size + Math.max(2, Math.ceil(step * whole)));
  return {
    tokens: beyond(marks.tokens, tokens, limits.budget),
    messages: beyond(marks.messages, messages, messages),
  };
}

/** Share of the threshold from which the next compaction is written ahead; docs/decisions.md gives the cost of writing ahead. */
const EAGER_FROM = 0.9;

/** Context tokens from which the compaction of a session with this threshold is written ahead. */
export function eagerFrom(trigger: number): number {
  return Math.floor(EAGER_FROM * trigger);
}

/** The next compaction is written ahead if the context has at least `from` tokens, but fewer than `trigger`. null: never. */
export function eagerSizes(policy: Policy, { triggers }: Limits): { from: number; trigger: number } | null {
  if (!isEager(policy)) return null;
  const sizes = triggers.flatMap(({ contextTokens, messages }) =>
    contextTokens !== null && messages === null ? [contextTokens] : [],
  );
  const trigger = Math.min(...sizes);
  return sizes.length === 0 ? null : { from: eagerFrom(trigger), trigger };
}

/**
 * A request for notes depends only on its messages; every other request of a compaction depends on more. Therefore only notes
 * can be requested before the rest of a compaction is known.
 */
export function isEager({ memory, summary }: Pick<Policy, 'memory' | 'summary'>): boolean {
  return memory.eager && summary.mode === 'journal' && summary.method === 'model';
}

/** The next sizes to measure after a commit. `missed`: the commit missed its target, so the next one waits for compactable messages. */
export function marksAfter(
  policy: Policy,
  limits: Limits,
  { missed, ...size }: { missed: boolean; tokens: number; messages: number },
): Marks {
  return missed ? marksBeyond(policy, limits, size) : marksFor(limits, size.tokens);
}
