import { isFailure } from '../errors.js';
import type { Policy } from '../policy/resolve.js';
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
 * A policy turned into sizes, in tokens as this product counts them. "Context tokens" are leading system messages + head + tail,
 * without the request overhead; whatever a policy compares with overhead + context is given here with the overhead subtracted.
 */
export interface Limits {
  /** The agent's window, tokens. */
  window: number;
  /** Source of the window; `fallback` deserves a visible warning. */
  windowSource: ResolvedWindow['source'];
  /** The provider's tokens for one of these; sizes that the policy gives are divided by it. 1 where nothing is known. */
  factor: number;
  tokenizer: TokenizerName;
  /** Tokens of system prompt and tool schemas outside the log. */
  overhead: number;
  /** Tokens kept free for the agent's answer. */
  reservedOutput: number;
  /** Most context tokens a request may have: window − overhead − reserved output. */
  budget: number;
  /** Ceiling of a head without pins and carried request: snapshot + exact values + note. Context tokens. */
  headMax: number;
  /** Part of `headMax` for the note, the acknowledgment and their framing. */
  noteTokens: number;
  /** Tokens of the pins, which come on top of `headMax`. */
  pinTokens: number;
  /** Context tokens a compaction must reach. */
  contextTarget: number;
  /** Context tokens for leading system messages and tail, so that with head and pins the target is reached. */
  tailTarget: number;
  /** Ceilings of the tail; null: none. Where both are given, whichever keeps fewer. */
  keepMessages: number | null;
  keepTokens: number | null;
  /** Any one fires once every size in it is reached. Empty when the policy is off. */
  triggers: { contextTokens: number | null; messages: number | null }[];
  /** The cost-optimal size, which is among `triggers` as well; null without `{economic: true}`. */
  economic: EconomicSizes | null;
  /** The trigger of a quiet session; null without `{idle}`, and where compacting a cold context never pays. */
  idle: IdleSizes | null;
  /** Context tokens from which long call arguments are truncated; null: not before a trigger does it. */
  reduceAt: number | null;
  /** Tokens above which one message of the tail is summarized by itself; null: never. */
  messageTokens: number | null;
  /** Tokens of tool results that stay whole in the tail, newest first. */
  resultBudget: number;
  summarizer: SummarizerLimits;
  /** Most exact values behind a snapshot, tokens. */
  exactTokens: number;
}

/** A head below this holds a note and no memory worth the name. Tokens. */
const SMALLEST_HEAD = 200;

/** Target in context tokens: a share of the smallest threshold, or tokens of overhead + context. */
function targetOf(policy: Policy, threshold: number, frame: Frame): number {
  if (policy.target <= 1) return Math.floor(policy.target * threshold);
  const target = frame.counted(policy.target) - frame.overhead;
  if (target <= 0.9 * threshold) return target;
  throw contradiction(
    'policy.target',
    `A target of ${formatTokens(policy.target)} tokens is too close to the threshold of ` +
      `${formatTokens(threshold + frame.overhead)}: the next turns would compact again.`,
    `Give at most ${formatTokens(Math.floor(0.9 * threshold) + frame.overhead)}, or a share such as 0.6.`,
    { target: policy.target, threshold: threshold + frame.overhead },
  );
}

/** Most of a target that the memory may take in `journal` mode; the tail has the rest. */
export const MEMORY_OF_TARGET = 0.82;

/** Room of the memory in `journal` mode: notes grow with the root of the window, and leave the tail its part of the target. */
function memoryRoom(share: number, contextTarget: number, { budget }: Pick<Frame, 'budget'>): number {
  return Math.min(share * budget, 48 * Math.sqrt(budget), MEMORY_OF_TARGET * contextTarget);
}

/** Tokens of the memory, pins left out, beside which a context of `budget` tokens has room for its messages. */
export function memoryWithin(budget: number, { memory }: Policy, limits: Limits): number {
  const target = Math.min(limits.contextTarget, budget);
  return Math.min(limits.headMax, Math.floor(memoryRoom(memory.share, target, { budget })));
}

function headMaxOf({ summary, memory }: Policy, contextTarget: number, frame: Frame): number {
  // The last bound is for thresholds far below the window: a head must not fill what a compaction is to reach.
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

/** Texts may take half of what a compaction keeps; messages what texts leave of that, since nobody can refuse them any more. */
function pinTokensOf(texts: number, messages: number, room: number): number {
  const most = Math.floor(room / 2);
  if (texts <= most) return Math.min(texts + messages, most);
  throw contradiction(
    'policy.pins',
    `Pins of ${formatTokens(texts)} tokens leave too little of the ${formatTokens(room)} that a compaction keeps beside its summary.`,
    `Shorten them to ${formatTokens(most)} tokens, or raise the trigger or the window.`,
    { pinTokens: texts, room },
  );
}

/** Money can only be limited where there are prices. */
function refuseSpendWithoutPrices({ spend, prices }: Policy): void {
  const limit = spend.perCompaction ?? spend.perSession;
  if (limit === null || prices.currency !== null) return;
  throw contradiction(
    spend.perCompaction === null ? 'policy.spend.perSession' : 'policy.spend.perCompaction',
    `A spend limit of ${limit} means nothing without prices: what a summary costs is not known.`,
    'Give prices.input, per million tokens, and the summarizer’s prices where they differ.',
    { limit },
  );
}

/** Facts about a session that the sizes of a policy follow. */
export interface SessionFacts {
  /** Provider's tokens for one of ours: what the policy gives in tokens is divided by it. At least 0.5. @default 1 */
  factor?: number;
  /** Provider's tokens of a request beside its context; what the policy gives counts where it is more. @default 0 */
  overhead?: number;
  /** Mean tokens of a turn; 0 or absent where nothing was appended yet. */
  meanTurnTokens?: number;
  /** Tokens of the messages that `{seq}` and `{pattern}` pins carry, on top of pinned texts. @default 0 */
  pinTokens?: number;
  /** Tokens of the leading system messages; absent: not known. */
  systemTokens?: number;
}

/**
 * All sizes of a policy. Throws `Input.Invalid` with path, numbers and hint where its parts contradict each other. What was
 * learnt of a provider never makes a valid policy invalid: where there is no room for its sizes any more they stand as
 * declared, and only the budget follows.
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

/** Whether any clause is met by a context of this size. */
export function isTriggered(limits: Limits, context: { contextTokens: number; messages: number }): boolean {
  return limits.triggers.some(
    ({ contextTokens, messages }) =>
      (contextTokens === null || context.contextTokens >= contextTokens) &&
      (messages === null || context.messages >= messages),
  );
}

/**
 * The smallest sizes at which a clause could be met: below both, nothing fires. A clause with tokens and messages is
 * watched by its tokens; a quiet session by the size from which idling matters. null: no clause to watch that way.
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
 * Sizes at which a session wants to be measured again, so that a quiet turn costs nothing. Context tokens and messages;
 * null: never.
 */
export interface Marks {
  tokens: number | null;
  messages: number | null;
}

/** Of a session of this size: where arguments are to be truncated, if that lies ahead, else where a trigger fires. */
export function marksFor(limits: Limits, tokens: number): Marks {
  const marks = measureAt(limits);
  const { reduceAt } = limits;
  if (reduceAt === null || tokens >= reduceAt || marks.tokens === null) return marks;
  return { ...marks, tokens: Math.min(marks.tokens, reduceAt) };
}

/** Share of the budget that comes before the next try where the policy takes any gain: a few words are nothing compactable. */
const leastStep = 0.02;

/**
 * Where compacting cannot help a session of this size, or has missed its target (invariant 9): one `minGain` beyond the
 * size, whether a trigger is reached there already or not.
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

/** Share of the trigger from which the next compaction is written ahead: see docs/decisions.md for what it costs. */
const EAGER_FROM = 0.9;

/** The first size at which a session whose trigger lies there is written ahead. Context tokens. */
export function eagerFrom(trigger: number): number {
  return Math.floor(EAGER_FROM * trigger);
}

/** Context tokens from which, and below which, the next compaction is written ahead of its trigger; null: never. */
export function eagerSizes(policy: Policy, { triggers }: Limits): { from: number; trigger: number } | null {
  if (!isEager(policy)) return null;
  const sizes = triggers.flatMap(({ contextTokens, messages }) =>
    contextTokens !== null && messages === null ? [contextTokens] : [],
  );
  const trigger = Math.min(...sizes);
  return sizes.length === 0 ? null : { from: eagerFrom(trigger), trigger };
}

/** Only notes rest on their messages alone, so only they can be asked for before the rest of a compaction is known. */
export function isEager({ memory, summary }: Pick<Policy, 'memory' | 'summary'>): boolean {
  return memory.eager && summary.mode === 'journal' && summary.method === 'model';
}

/** After a commit. `missed`: its target was not reached, so another one has to wait for something compactable. */
export function marksAfter(
  policy: Policy,
  limits: Limits,
  { missed, ...size }: { missed: boolean; tokens: number; messages: number },
): Marks {
  return missed ? marksBeyond(policy, limits, size) : marksFor(limits, size.tokens);
}
