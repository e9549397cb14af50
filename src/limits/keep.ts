/** The ceilings of the verbatim tail, and the room that they must leave below the triggers. */
import type { Policy } from '../policy/resolve.js';
import { contradiction, formatTokens, type Frame, type Threshold } from './thresholds.js';

/** Ceilings of the tail; null: none. */
export interface Keep {
  messages: number | null;
  tokens: number | null;
}

/** Messages a compaction adds to those it keeps, at most: summary turn, carried request, and the acknowledgment where one is asked for. */
function headMessages({ summary }: Policy): number {
  return summary.acknowledgment === '' ? 2 : 3;
}

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
