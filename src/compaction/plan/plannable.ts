import type { MessageMeta } from '../../conversation/message.js';
import { PalimpsestError } from '../../errors.js';
import { counterFor, type TokenCounter } from '../../tokens/counter.js';
import { cutCandidates, type Liveness } from './cut.js';
import { shorteningHint, shortestStandIn } from '../../context/reductions/to-fit.js';
import { noteFor } from '../../context/reductions/layout.js';
import type { Recovery } from '../../policy/defaults.js';
import type { Limits } from '../../limits/limits.js';

/**
 * The input of {@link assertPlannable}, which checks before any model call whether a compaction could make the session fit.
 * It has the sizes of the messages and the links between calls and results, but no texts.
 */
export interface PlannableState {
  /** Leading system messages. */
  system: readonly MessageMeta[];
  tail: readonly MessageMeta[];
  /** Tokens of the pins. */
  pinTokens: number;
  limits: Pick<Limits, 'overhead' | 'budget' | 'tokenizer'>;
  liveness: Liveness;
  /** Whether the policy allows the newest user message to be shortened. @default false */
  newestUser?: boolean;
  /** @default 'tools' */
  recovery?: Recovery;
  /** @default the counter named by the limits */
  counter?: TokenCounter;
}

/** Sizes in tokens of the smallest request after a compaction with all reductions; `tokens` is their sum. */
interface SmallestContext {
  tokens: number;
  overhead: number;
  system: number;
  pins: number;
  /** The newest user message, in the tail or carried in the head. */
  newestUser: number;
  /** The rest of the smallest legal tail, in its shortest form. */
  rest: number;
}

/** A lower bound for all compactions. @internal A test compares it with the smallest cut. */
export function smallestContext({
  system,
  tail,
  pinTokens,
  limits,
  liveness,
  newestUser = false,
  recovery = 'tools',
  counter = counterFor(limits.tokenizer),
}: PlannableState): SmallestContext {
  const smallest = cutCandidates(tail, { ...liveness, keep: {} }).at(-1);
  const kept = tail.filter(({ seq, empty }) => !empty && seq > (smallest?.throughSeq ?? 0));
  const newest = tail.findLast(({ role, empty }) => role === 'user' && !empty);
  const others = kept.filter((meta) => meta !== newest);
  const shortest = others.reduce((sum, { tokens }) => sum + Math.min(tokens, shortestStandIn), 0);
  const sizes = {
    overhead: limits.overhead,
    system: system.reduce((sum, { tokens, empty }) => sum + (empty ? 0 : tokens), 0),
    pins: pinTokens,
    newestUser: Math.min(newest?.tokens ?? 0, newestUser ? shortestStandIn : Infinity),
    rest: others.length === 0 ? 0 : Math.min(shortest, noteTokens(others, counter, recovery)),
  };
  return { ...sizes, tokens: Object.values(sizes).reduce((sum, size) => sum + size, 0) };
}

function noteTokens(others: readonly MessageMeta[], counter: TokenCounter, recovery: Recovery): number {
  const range = { fromSeq: others[0]!.seq, throughSeq: others.at(-1)!.seq };
  return noteFor(range, counter, recovery).tokens;
}

/** Throws `Budget.Unreachable`, with the numbers, if the window cannot hold even the smallest context. */
export function assertPlannable(state: PlannableState): void {
  const { tokens: floor, ...sizes } = smallestContext(state);
  const window = state.limits.budget + state.limits.overhead;
  if (floor <= window) return;
  const { overhead, system, pins, newestUser, rest } = sizes;
  const helps = !state.newestUser && smallestContext({ ...state, newestUser: true }).tokens <= window;
  throw new PalimpsestError(
    'Budget.Unreachable',
    `the smallest request has ${floor} tokens (${overhead} for the request overhead, ${system} for system messages, ${pins} for pins, ` +
      `${newestUser} for the newest user message, ${rest} for the rest), but the window without the reserved output has only ${window}`,
    {
      hint:
        (helps ? `${shorteningHint}, ` : '') +
        'raise the context window, lower the request overhead or reserved output tokens, or shorten pins, the system prompt or the newest user message',
      details: { floor, window, ...sizes },
    },
  );
}
