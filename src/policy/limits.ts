import { counterFor, type TokenizerName } from '../tokens/counter.js';
import { resolveWindow, type ResolvedWindow } from '../tokens/windows.js';
import type { Policy } from './schema.js';
import { headShares, summarizerLimits, type SummarizerLimits } from './summarizer.js';
import {
  contradiction,
  frameOf,
  inWords,
  smallestThreshold,
  thresholdsOf,
  type Frame,
  type Threshold,
} from './thresholds.js';

/**
 * A policy turned into sizes. "Context tokens" are leading system messages + head + tail, without the request
 * overhead; whatever a policy compares with overhead + context is given here with the overhead subtracted.
 */
export interface Limits {
  /** The agent's window, tokens. */
  window: number;
  /** Where the window came from; `fallback` deserves a visible warning. */
  windowSource: ResolvedWindow['source'];
  tokenizer: TokenizerName;
  /** Tokens of system prompt and tool schemas outside the log. */
  overhead: number;
  /** Tokens kept free for the agent's answer. */
  reservedOutput: number;
  /** Most context tokens a request may have: window − overhead − reserved output. */
  budget: number;
  /** Ceiling of a head without pins and carried request: snapshot + ledger + note. Context tokens. */
  headMax: number;
  /** What `headMax` plans for the note, the acknowledgment and their framing. */
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
  summarizer: SummarizerLimits;
  /** Longest ledger, tokens. */
  ledgerTokens: number;
}

/** A head below this holds a note and no memory worth the name. Tokens. */
const SMALLEST_HEAD = 200;
/** Summary turn, acknowledgment and carried request: messages a compaction adds to those it keeps. */
const HEAD_MESSAGES = 3;
const DEFAULT_KEEP = { messages: 6, fraction: 0.25 };

/** Target in context tokens: a share of the smallest threshold, or tokens of overhead + context. */
function targetOf(policy: Policy, threshold: number, frame: Frame): number {
  const target = policy.target <= 1 ? policy.target * threshold : policy.target - frame.overhead;
  if (policy.target <= 1 || target <= 0.9 * threshold) return Math.floor(target);
  throw contradiction(
    'policy.target',
    `A target of ${inWords(policy.target)} tokens is too close to the threshold of ` +
      `${inWords(threshold + frame.overhead)}: the next turns would compact again.`,
    `Give at most ${inWords(Math.floor(0.9 * threshold) + frame.overhead)}, or a share such as 0.6.`,
    { target: policy.target, threshold: threshold + frame.overhead },
  );
}

function headMaxOf(contextTarget: number, frame: Frame): number {
  // The last bound is for thresholds far below the window: a head must not fill what a compaction is to reach.
  const headMax = Math.floor(Math.min(3_500, 0.2 * frame.budget, 0.4 * contextTarget));
  if (headMax >= SMALLEST_HEAD) return headMax;
  throw contradiction(
    'policy',
    `Too small to compact: a budget of ${inWords(frame.budget)} context tokens (window ${inWords(frame.window)}, overhead ` +
      `${inWords(frame.overhead)}, reserved output ${inWords(frame.reservedOutput)}) and a target of ` +
      `${inWords(contextTarget)} leave ${inWords(Math.max(0, headMax))} for a summary, which needs ${SMALLEST_HEAD}.`,
    'Raise contextWindow, trigger or target, or lower overhead.',
    { ...frame, contextTarget, headMax },
  );
}

function pinTokensOf(policy: Policy, room: number): number {
  const counter = counterFor(policy.tokenizer);
  const listMark = 3;
  const pinTokens = policy.pins.reduce((sum, pin) => sum + counter.count(pin) + listMark, 0);
  if (pinTokens <= room / 2) return pinTokens;
  throw contradiction(
    'policy.pins',
    `Pins of ${inWords(pinTokens)} tokens leave too little of the ${inWords(room)} that a compaction keeps beside its summary.`,
    `Shorten them to ${inWords(Math.floor(room / 2))} tokens, or raise the trigger or the window.`,
    { pinTokens, room },
  );
}

interface Keep {
  messages: number | null;
  tokens: number | null;
}

/** The default ceilings, lowered where the target or a message trigger asks for less. */
function defaultKeep(tailTarget: number, triggerMessages: number | null, frame: Frame): Keep {
  const tokens = Math.min(Math.floor(DEFAULT_KEEP.fraction * frame.window), tailTarget);
  if (triggerMessages === null) return { messages: DEFAULT_KEEP.messages, tokens };
  return { messages: Math.min(DEFAULT_KEEP.messages, triggerMessages - HEAD_MESSAGES - 1), tokens };
}

/** Exactly the ceilings given. Refused where what they keep would reach the threshold again. */
function givenKeep(
  keep: NonNullable<Policy['keep']>,
  threshold: number,
  headTokens: number,
  frame: Frame,
): Keep {
  const sizes = [
    keep.tokens,
    keep.fraction === undefined ? undefined : Math.floor(keep.fraction * frame.window),
  ];
  const known = sizes.filter((size) => size !== undefined);
  const tokens = known.length === 0 ? null : Math.min(...known);
  if (tokens !== null && keep.messages === undefined && tokens + headTokens >= threshold) {
    throw contradiction(
      keep.tokens === tokens ? 'policy.keep.tokens' : 'policy.keep.fraction',
      `Keeping ${inWords(tokens)} tokens beside a summary of up to ${inWords(headTokens)} reaches the threshold of ` +
        `${inWords(threshold)} context tokens again at once.`,
      `Keep fewer than ${inWords(threshold - headTokens)} tokens, or raise the trigger.`,
      { keepTokens: tokens, head: headTokens, threshold },
    );
  }
  return { messages: keep.messages ?? null, tokens };
}

/** The smallest message count that fires alone, or null. Refuses one that the head itself would reach. */
function smallestMessageTrigger(thresholds: Threshold[], keep: Policy['keep']): number | null {
  const alone = thresholds.filter(({ tokens, messages }) => tokens === null && messages !== null);
  const smallest = Math.min(...alone.map(({ messages }) => messages ?? Infinity));
  if (smallest === Infinity) return null;
  const kept =
    keep?.messages !== undefined && keep.tokens === undefined && keep.fraction === undefined
      ? keep.messages
      : 1;
  if (smallest > HEAD_MESSAGES + kept) return smallest;
  throw contradiction(
    `${alone.find(({ messages }) => messages === smallest)?.path ?? 'policy.trigger'}.messages`,
    `A trigger at ${smallest} messages fires again at once: a compaction leaves up to ${HEAD_MESSAGES} of its own and keeps ${kept}.`,
    `Trigger at ${HEAD_MESSAGES + kept + 1} messages or more${kept > 1 ? ', or keep fewer' : ''}.`,
    { trigger: smallest, keep: kept },
  );
}

/** All sizes of a policy. Throws `Input.Invalid` with path, numbers and hint where its parts contradict each other. */
export function limitsOf(policy: Policy): Limits {
  const { tokens: window, source: windowSource } = resolveWindow(policy);
  const frame = frameOf(policy, window);
  const thresholds = thresholdsOf(policy, frame);
  const threshold = smallestThreshold(thresholds, frame);
  const contextTarget = targetOf(policy, threshold, frame);
  const headMax = headMaxOf(contextTarget, frame);
  const shares = headShares(policy, headMax);
  const pinTokens = pinTokensOf(policy, contextTarget - headMax);
  const tailTarget = contextTarget - headMax - pinTokens;
  const triggerMessages = smallestMessageTrigger(thresholds, policy.keep);
  const keep =
    policy.keep === null
      ? defaultKeep(tailTarget, triggerMessages, frame)
      : givenKeep(policy.keep, threshold, headMax + pinTokens, frame);
  const triggers = thresholds.map(({ tokens, messages }) => ({
    contextTokens: tokens === null ? null : Math.max(0, tokens - frame.overhead),
    messages,
  }));
  return {
    window,
    windowSource,
    tokenizer: policy.tokenizer,
    overhead: frame.overhead,
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
    summarizer: summarizerLimits(policy, window, shares.snapshot),
    ledgerTokens: shares.ledger,
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
 * watched by its tokens. null: no clause to watch that way.
 */
export function measureAt(limits: Limits): { tokens: number | null; messages: number | null } {
  const smallest = (sizes: (number | null)[]): number | null => {
    const known = sizes.filter((size) => size !== null);
    return known.length === 0 ? null : Math.min(...known);
  };
  return {
    tokens: smallest(limits.triggers.map(({ contextTokens }) => contextTokens)),
    messages: smallest(
      limits.triggers.map(({ contextTokens, messages }) => (contextTokens === null ? messages : null)),
    ),
  };
}
