import { invalid, PalimpsestError } from '../errors.js';
import { count } from '../numbers.js';
import type { Policy } from '../policy/defaults.js';
import type { TriggerClause } from '../policy/schema.js';
import { counterFor } from '../tokens/counter.js';
import { countOverhead } from '../tokens/message.js';

/** A request's window and its parts, in tokens as this product counts them. */
export interface Frame {
  window: number;
  overhead: number;
  reservedOutput: number;
  /** window − reservedOutput */
  usable: number;
  /** usable − overhead: the room for a context. */
  budget: number;
  /** Converts a size of the policy, in the provider's tokens, into tokens as counted here. */
  counted: (tokens: number) => number;
}

/** The default trigger, and the ceiling of the economic one. */
const DEFAULT_FRACTION = 0.85;

/** Maximum of a fraction as a share of the usable window, so that one more turn still fits. */
const HIGHEST_THRESHOLD = 0.9;

/**
 * In a clause with a message count, a smaller size (context tokens) only prevents compactions of a nearly empty context; the
 * target is not derived from it.
 */
const SMALLEST_SIZE = 1_000;

export const formatTokens = (tokens: number): string => count(Math.round(tokens));

/** The failure of a policy whose parts contradict each other: names them, their numbers and the change to make. */
export function contradiction(
  path: string,
  message: string,
  hint: string,
  details: Record<string, number>,
): PalimpsestError {
  return new PalimpsestError('Input.Invalid', message, { path, hint, details });
}

/**
 * Given texts are counted here; a given number is in the provider's tokens. The larger of declared and learnt overhead applies,
 * since a request may carry less than an earlier one.
 */
function overheadOf({ overhead, tokenizer }: Policy, learnt: number, factor: number): number {
  const seen = Math.ceil(learnt / factor);
  if (typeof overhead === 'number') return Math.max(seen, Math.ceil(overhead / factor));
  return Math.max(seen, countOverhead(overhead, counterFor(tokenizer)));
}

/**
 * `factor`: the provider's tokens per token counted here. `learnt`: tokens of overhead that its reports show. Throws
 * `Input.Invalid` if the window is not larger than overhead + reserved output.
 */
export function frameOf(policy: Policy, given: number, factor = 1, learnt = 0): Frame {
  const counted = (tokens: number) => Math.floor(tokens / factor);
  const window = counted(given);
  const overhead = overheadOf(policy, learnt, factor);
  const reserved = policy.reservedOutputTokens ?? Math.min(4_096, Math.floor(given / 8));
  // Rounded up, like the overhead, so that the budget is never a token too large.
  const reservedOutput = Math.ceil(reserved / factor);
  const usable = window - reservedOutput;
  const budget = usable - overhead;
  if (budget > 0) return { window, overhead, reservedOutput, usable, budget, counted };
  throw contradiction(
    policy.contextWindow === null ? 'policy.overhead' : 'policy.contextWindow',
    `The window of ${formatTokens(window)} tokens is not larger than the request overhead of ${formatTokens(overhead)} and ` +
      `the ${formatTokens(reservedOutput)} reserved for output: no room is left for a context.`,
    'Give the actual contextWindow, or a smaller overhead or reservedOutputTokens.',
    { window, overhead, reservedOutput },
  );
}

/** One clause of the trigger. If both sizes are given, both must be reached. */
interface Threshold {
  path: string;
  /** Overhead + context tokens, or null. */
  tokens: number | null;
  messages: number | null;
  /** The clause of the cost-optimal size; `tokens` is its ceiling. */
  economic?: true;
}

/** The size in overhead + context tokens at which a clause is met, or null if it names messages only. */
function tokensOf(clause: TriggerClause, frame: Frame): number | null {
  const sizes: number[] = [];
  if (clause.tokens !== undefined) sizes.push(frame.counted(clause.tokens));
  if (clause.fraction !== undefined) {
    sizes.push(Math.floor(Math.min(clause.fraction * frame.window, HIGHEST_THRESHOLD * frame.usable)));
  }
  return sizes.length === 0 ? null : Math.max(...sizes);
}

/** The clauses as sizes. Throws `Input.Invalid` if none could ever fire, or one would fire on an empty session. */
export function thresholdsOf(policy: Policy, frame: Frame): Threshold[] {
  const { trigger, economic, idleTrigger, enabled } = policy;
  const thresholds: Threshold[] = trigger.map((clause, index) => ({
    // `Policy` separates the sizes from the other triggers, so their original indexes are lost.
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
      'Omit trigger for [{fraction: 0.85}], or set enabled: false.',
    );
  }
  refuseUnreachable(thresholds, frame);
  for (const { path, tokens, messages } of thresholds) {
    if (tokens === null || messages !== null || tokens > frame.overhead) continue;
    throw contradiction(
      path,
      `A trigger at ${formatTokens(tokens)} tokens is not above the request overhead of ${formatTokens(frame.overhead)}: it ` +
        'would fire on an empty session.',
      'Raise the trigger, lower the overhead, or give the actual contextWindow.',
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
      `${formatTokens(frame.usable)} in addition to the ${formatTokens(frame.reservedOutput)} reserved for output.`,
    'Use a fraction or a smaller number of tokens, or give the actual contextWindow.',
    { trigger: lowest, window: frame.window, reservedOutput: frame.reservedOutput },
  );
}

/**
 * The smallest reachable threshold in context tokens; the target is a share of it. If only message counts trigger, it is
 * the highest threshold that a fraction could give.
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

/** Maximum number of messages in a head: summary turn, carried request, and the acknowledgment if there is one. */
function headMessages({ summary }: Policy): number {
  return summary.acknowledgment === '' ? 2 : 3;
}

/** The default ceilings of the verbatim tail. */
export const DEFAULT_KEEP = { messages: 6, fraction: 0.25 };

/** The sizes, in context tokens, that the ceilings of `keep` must not contradict. */
interface Room {
  /** The smallest size that triggers. */
  threshold: number;
  /** The largest head, pins included. */
  headTokens: number;
  /** Room of the tail below the target. */
  tailTarget: number;
}

/** The ceilings of the tail. Throws `Input.Invalid` if the kept messages would trigger again at once. */
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

/** The default ceilings, lowered if the target or a message trigger (`most` messages) requires it. */
function defaultKeep({ summary }: Policy, tailTarget: number, most: number | null, frame: Frame): Keep {
  // The tail takes the target without journal and state, a size that only a plan knows.
  if (summary.mode === 'journal') return { messages: most, tokens: tailTarget };
  const tokens = Math.min(Math.floor(DEFAULT_KEEP.fraction * frame.window), tailTarget);
  return { messages: Math.min(DEFAULT_KEEP.messages, most ?? Infinity), tokens };
}

/** The given ceilings. Throws `Input.Invalid` if the kept messages would reach the threshold again. */
function givenKeep(keep: NonNullable<Policy['keep']>, { threshold, headTokens }: Room, frame: Frame): Keep {
  const tokens = keptTokens(keep, frame);
  if (tokens !== null && keep.messages === undefined && tokens + headTokens >= threshold) {
    throw contradiction(
      keep.tokens !== undefined && frame.counted(keep.tokens) === tokens
        ? 'policy.keep.tokens'
        : 'policy.keep.fraction',
      `Keeping ${formatTokens(tokens)} tokens in addition to a summary of up to ${formatTokens(headTokens)} reaches the threshold of ` +
        `${formatTokens(threshold)} context tokens again at once.`,
      `Keep fewer than ${formatTokens(threshold - headTokens)} tokens, or raise the trigger.`,
      { keepTokens: tokens, head: headTokens, threshold },
    );
  }
  return { messages: keep.messages ?? null, tokens };
}

/** The smallest message count that triggers alone, or null. Throws `Input.Invalid` if the head itself would reach it. */
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
    `A trigger at ${smallest} messages fires again at once: a compaction adds up to ${head} messages and keeps ${kept}.`,
    `Trigger at ${head + kept + 1} messages or more${kept > 1 ? ', or keep fewer' : ''}.`,
    { trigger: smallest, keep: kept },
  );
}
