import { invalid, PalimpsestError } from '../errors.js';
import { count } from '../numbers.js';
import type { Policy } from '../policy/resolve.js';
import type { TriggerClause } from '../policy/schema.js';
import { counterFor } from '../tokens/counter.js';
import { countOverhead } from '../tokens/message.js';

/** A request's window and what it holds, in tokens as this product counts them. */
export interface Frame {
  window: number;
  overhead: number;
  reservedOutput: number;
  /** window − reservedOutput */
  usable: number;
  /** usable − overhead: what is left for a context. */
  budget: number;
  /** A size that the policy gives in the provider's tokens, as counted here. */
  counted: (tokens: number) => number;
}

/** Where no trigger names a size, and the ceiling of the economic one. */
const DEFAULT_FRACTION = 0.85;

/** Share of the usable window that no fraction exceeds, so that one more turn still fits. */
const HIGHEST_THRESHOLD = 0.9;

/** Context tokens under which a size beside a message count says "not while nearly empty" and sets no target. */
const SMALLEST_SIZE = 1_000;

export const formatTokens = (tokens: number): string => count(Math.round(tokens));

/** A policy whose parts contradict each other: says which, with the numbers, and what to change. */
export function contradiction(
  path: string,
  message: string,
  hint: string,
  details: Record<string, number>,
): PalimpsestError {
  return new PalimpsestError('Input.Invalid', message, { path, hint, details });
}

/** Texts are counted here; numbers are the provider's, and the larger one holds: a request may carry less than it did. */
function overheadOf({ overhead, tokenizer }: Policy, learnt: number, factor: number): number {
  const seen = Math.ceil(learnt / factor);
  if (typeof overhead === 'number') return Math.max(seen, Math.ceil(overhead / factor));
  return Math.max(seen, countOverhead(overhead, counterFor(tokenizer)));
}

/**
 * `factor`: the provider's tokens for one of ours. `learnt`: tokens of overhead that its reports show. Throws
 * `Input.Invalid` where the window is smaller than overhead + reserved output.
 */
export function frameOf(policy: Policy, given: number, factor = 1, learnt = 0): Frame {
  const counted = (tokens: number) => Math.floor(tokens / factor);
  const window = counted(given);
  const overhead = overheadOf(policy, learnt, factor);
  const reserved = policy.reservedOutputTokens ?? Math.min(4_096, Math.floor(given / 8));
  // Rounded up, as the overhead is: what they leave for a context is never a token too many.
  const reservedOutput = Math.ceil(reserved / factor);
  const usable = window - reservedOutput;
  const budget = usable - overhead;
  if (budget > 0) return { window, overhead, reservedOutput, usable, budget, counted };
  throw contradiction(
    policy.contextWindow === null ? 'policy.overhead' : 'policy.contextWindow',
    `The window of ${formatTokens(window)} tokens is not larger than the request overhead of ${formatTokens(overhead)} and ` +
      `the ${formatTokens(reservedOutput)} reserved for output: nothing is left for a context.`,
    'Give the real contextWindow, or a smaller overhead or reservedOutputTokens.',
    { window, overhead, reservedOutput },
  );
}

/** One clause of the trigger. Both sizes given: both must be reached. */
interface Threshold {
  path: string;
  /** Overhead + context tokens, or null. */
  tokens: number | null;
  messages: number | null;
  /** The cost-optimal size: `tokens` is its ceiling. */
  economic?: true;
}

/** The size in overhead + context tokens at which a clause is met, or null where it names messages only. */
function tokensOf(clause: TriggerClause, frame: Frame): number | null {
  const sizes: number[] = [];
  if (clause.tokens !== undefined) sizes.push(frame.counted(clause.tokens));
  if (clause.fraction !== undefined) {
    sizes.push(Math.floor(Math.min(clause.fraction * frame.window, HIGHEST_THRESHOLD * frame.usable)));
  }
  return sizes.length === 0 ? null : Math.max(...sizes);
}

/** The clauses as sizes. Throws `Input.Invalid` where none could ever fire, or one fires on an empty session. */
export function thresholdsOf(policy: Policy, frame: Frame): Threshold[] {
  const { trigger, economic, idleTrigger, enabled } = policy;
  const thresholds: Threshold[] = trigger.map((clause, index) => ({
    // Policies keep the sizes apart from the other triggers, and with them the places where they stood.
    path: economic || idleTrigger !== null ? 'policy.trigger' : `policy.trigger[${index}]`,
    tokens: tokensOf(clause, frame),
    messages: clause.messages ?? null,
  }));
  if (economic) {
    const tokens = tokensOf({ fraction: DEFAULT_FRACTION }, frame);
    thresholds.push({ path: 'policy.trigger', tokens, messages: null, economic: true });
  }
  if (enabled && thresholds.length === 0 && idleTrigger === null) {
    throw invalid(
      'An enabled policy needs at least one trigger.',
      'policy.trigger',
      'Leave trigger out for [{fraction: 0.85}], or set enabled: false.',
    );
  }
  refuseUnreachable(thresholds, frame);
  for (const { path, tokens, messages } of thresholds) {
    if (tokens === null || messages !== null || tokens > frame.overhead) continue;
    throw contradiction(
      path,
      `A trigger at ${formatTokens(tokens)} tokens is not above the request overhead of ${formatTokens(frame.overhead)}: it ` +
        'would fire on an empty session.',
      'Raise the trigger, lower the overhead, or give the real contextWindow.',
      { trigger: tokens, overhead: frame.overhead },
    );
  }
  return thresholds;
}

function refuseUnreachable(thresholds: Threshold[], frame: Frame): void {
  if (thresholds.length === 0) return;
  const tokens = thresholds.map((threshold) => threshold.tokens ?? 0);
  const lowest = Math.min(...tokens);
  if (lowest <= frame.usable) return;
  throw contradiction(
    thresholds[tokens.indexOf(lowest)]?.path ?? 'policy.trigger',
    `A trigger at ${formatTokens(lowest)} tokens can never fire: the window of ${formatTokens(frame.window)} holds ` +
      `${formatTokens(frame.usable)} beside the ${formatTokens(frame.reservedOutput)} reserved for output.`,
    'Use a fraction, a smaller number of tokens, or give the real contextWindow.',
    { trigger: lowest, window: frame.window, reservedOutput: frame.reservedOutput },
  );
}

/**
 * The smallest threshold that can be reached, in context tokens: the target is a share of it. Where only messages
 * decide: the highest a fraction could give.
 */
export function smallestThreshold(thresholds: Threshold[], frame: Frame): number {
  const sizes = thresholds.flatMap(({ tokens, messages }) => {
    if (tokens === null || tokens > frame.usable) return [];
    const size = tokens - frame.overhead;
    return messages !== null && size < SMALLEST_SIZE ? [] : [size];
  });
  if (sizes.length > 0) return Math.min(...sizes);
  return Math.floor(HIGHEST_THRESHOLD * frame.usable) - frame.overhead;
}

/** Ceilings of the tail; null: none. */
export interface Keep {
  messages: number | null;
  tokens: number | null;
}

/** Messages a compaction adds to those it keeps, at most: summary turn, carried request, and the acknowledgment where one is asked for. */
function headMessages({ summary }: Policy): number {
  return summary.acknowledgment === '' ? 2 : 3;
}

/** The ceilings of the verbatim tail, and the room that they must leave below the triggers. */
export const DEFAULT_KEEP = { messages: 6, fraction: 0.25 };

/** The sizes that the ceilings of `keep` may not contradict, context tokens. */
interface Room {
  /** The smallest size that triggers. */
  threshold: number;
  /** The largest head, pins included. */
  headTokens: number;
  /** Room of the tail below the target. */
  tailTarget: number;
}

/** The ceilings of the tail. Throws `Input.Invalid` where what they keep would trigger again at once. */
export function keepOf(policy: Policy, thresholds: Threshold[], room: Room, frame: Frame): Keep {
  const head = headMessages(policy);
  const triggerMessages = smallestMessageTrigger(thresholds, policy.keep, head);
  return policy.keep === null
    ? defaultKeep(
        policy,
        room.tailTarget,
        triggerMessages === null ? null : triggerMessages - head - 1,
        frame,
      )
    : givenKeep(policy.keep, room, frame);
}

/** The smaller of the ceilings given in tokens and as a share of the window, or null. */
export function keptTokens(keep: NonNullable<Policy['keep']>, frame: Frame): number | null {
  const sizes = [
    keep.tokens === undefined ? undefined : frame.counted(keep.tokens),
    keep.fraction === undefined ? undefined : Math.floor(keep.fraction * frame.window),
  ].filter((size) => size !== undefined);
  return sizes.length === 0 ? null : Math.min(...sizes);
}

/** The default ceilings, lowered where the target or a message trigger (`most` messages) asks for less. */
function defaultKeep({ summary }: Policy, tailTarget: number, most: number | null, frame: Frame): Keep {
  // The tail then takes what the memory leaves of the target, which only a plan knows.
  if (summary.mode === 'journal') return { messages: most, tokens: tailTarget };
  const tokens = Math.min(Math.floor(DEFAULT_KEEP.fraction * frame.window), tailTarget);
  return { messages: Math.min(DEFAULT_KEEP.messages, most ?? Infinity), tokens };
}

/** Exactly the ceilings given. Refused where what they keep would reach the threshold again. */
function givenKeep(keep: NonNullable<Policy['keep']>, { threshold, headTokens }: Room, frame: Frame): Keep {
  const tokens = keptTokens(keep, frame);
  if (tokens !== null && keep.messages === undefined && tokens + headTokens >= threshold) {
    throw contradiction(
      keep.tokens !== undefined && frame.counted(keep.tokens) === tokens
        ? 'policy.keep.tokens'
        : 'policy.keep.fraction',
      `Keeping ${formatTokens(tokens)} tokens beside a summary of up to ${formatTokens(headTokens)} reaches the threshold of ` +
        `${formatTokens(threshold)} context tokens again at once.`,
      `Keep fewer than ${formatTokens(threshold - headTokens)} tokens, or raise the trigger.`,
      { keepTokens: tokens, head: headTokens, threshold },
    );
  }
  return { messages: keep.messages ?? null, tokens };
}

/** The smallest message count that fires alone, or null. Refuses one that the head itself would reach. */
function smallestMessageTrigger(thresholds: Threshold[], keep: Policy['keep'], head: number): number | null {
  const alone = thresholds.filter(({ tokens, messages }) => tokens === null && messages !== null);
  const smallest = Math.min(...alone.map(({ messages }) => messages ?? Infinity));
  if (smallest === Infinity) return null;
  const kept =
    keep?.messages !== undefined && keep.tokens === undefined && keep.fraction === undefined
      ? keep.messages
      : 1;
  if (smallest > head + kept) return smallest;
  throw contradiction(
    `${alone.find(({ messages }) => messages === smallest)?.path ?? 'policy.trigger'}.messages`,
    `A trigger at ${smallest} messages fires again at once: a compaction leaves up to ${head} of its own and keeps ${kept}.`,
    `Trigger at ${head + kept + 1} messages or more${kept > 1 ? ', or keep fewer' : ''}.`,
    { trigger: smallest, keep: kept },
  );
}
