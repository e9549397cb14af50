/** Fits a context to its budget, if necessary by dropping entries of the journal. */
import { fitting, type FitRequest, type FittedContext } from '../context/fit.js';
import { sparesResult } from '../context/reductions/retention.js';
import { reducing, shorteningHint, shortestStandIn } from '../context/reductions/to-fit.js';
import {
  type ContextSource,
  type Head,
  type Reduction,
  sizeOf,
  viewing,
  type ViewItem,
} from '../context/view/view.js';
import type { ChatMessage } from '../conversation/message.js';
import { isFailure, restated } from '../errors.js';
import { type Limits, memoryWithin } from '../limits/limits.js';
import type { Policy } from '../policy/defaults.js';
import type { Steps } from '../steps.js';
import type { TokenCounter } from '../tokens/counter.js';
import { headWithin, headWithTurn, type ShorterHead } from './head.js';

interface FittedMemory extends FittedContext {
  /** Layout of the shown head. */
  layout: Head['layout'];
}

/**
 * A journal may be larger than its present room, because it was written for another model's window or before a calibration. If
 * shortening tool results, arguments and old messages is not enough, the journal is reduced to its room within `budget`, and
 * further if the rest still does not fit: whole entries are dropped, oldest first, never the newest. The next compaction merges
 * the entries into that room. Throws `Budget.Unreachable` if the context does not fit even with the newest entry alone. Its hint is
 * for the policy, or for the caller that gave a budget.
 */
export function* fittingMemory(
  source: ContextSource,
  policy: Policy,
  limits: Limits,
  counter: TokenCounter,
  request: FitRequest = {},
): Steps<FittedMemory> {
  const standing = asReduced(source, counter);
  const { budget = limits.budget } = request;
  let shorter = yield* withinRoom(standing, policy, limits, counter, budget);
  for (;;) {
    const head: Head | null = shorter?.head ?? standing.head;
    try {
      const fit = yield* fitting({ ...standing, head }, policy, limits, counter, request);
      const given = shorter === null ? [] : [reductionOf(shorter)];
      return { ...fit, reductions: [...given, ...fit.reductions], layout: head?.layout };
    } catch (error) {
      const missing = missingTokens(error);
      const size = head?.tokens[0] ?? 0;
      const next = head && missing > 0 ? headWithin(head, size - missing, counter) : null;
      if (next === null) throw request.budget === undefined ? error : forAsked(error);
      shorter = next;
    }
  }
}

/** A caller that gave the budget can raise it. */
function forAsked(error: unknown): unknown {
  if (!isFailure(error, 'Budget.Unreachable')) return error;
  const shortens = error.hint?.startsWith(shorteningHint) ? `, or ${shorteningHint}` : '';
  const hint = `raise budget to at least ${String(error.details?.floor)}${shortens}`;
  return restated(error, { hint, cause: error });
}

/** The source with its head as shortened earlier for this budget. */
function asReduced(source: ContextSource, counter: TokenCounter): ContextSource {
  const given = source.reductions.findLast(({ kind }) => kind === 'journal');
  if (given === undefined || source.head === null) return source;
  const turn = JSON.parse(given.body) as ChatMessage;
  return {
    ...source,
    head: headWithTurn(source.head, turn, counter),
    reductions: source.reductions.filter(({ kind }) => kind !== 'journal'),
  };
}

/**
 * Returns the head with its journal reduced to its room. Null if the journal is within its room, or if shortening the other
 * messages is enough.
 */
function* withinRoom(
  source: ContextSource,
  policy: Policy,
  limits: Limits,
  counter: TokenCounter,
  budget: number,
): Steps<ShorterHead | null> {
  const { head } = source;
  if (!policy.enabled || !head?.layout) return null;
  const room = memoryWithin(budget, policy, limits) + head.layout.tokens.pins;
  if ((head.tokens[0] ?? 0) <= room) return null;
  const view = yield* viewing(source, counter);
  if (sizeOf(view) <= budget) return null;
  return (yield* isEnough(view, policy, budget, counter)) ? null : headWithin(head, room, counter);
}

/** Whether shortening tool results, arguments and old messages is enough, without omissions and with the latest tool batch whole. */
function* isEnough(view: ViewItem[], policy: Policy, limit: number, counter: TokenCounter): Steps<boolean> {
  // A lower bound comes first, because shortening 100,000 messages takes a quarter of a minute.
  const least = view.map(({ tokens, source }) =>
    source === 'summarization' || source === 'system' ? tokens : Math.min(tokens, shortestStandIn),
  );
  if (least.reduce((sum, tokens) => sum + tokens, 0) > limit) return false;
  const { recovery } = policy;
  const spared = (item: ViewItem) => sparesResult(item, policy);
  const shortest = { limit, target: limit, commit: true, spared, recovery };
  return (yield* reducing(view, shortest, counter)).tokens <= limit;
}

function reductionOf({ head, fromSeq, throughSeq }: ShorterHead): Reduction {
  const [turn, tokens] = [head.messages[0], head.tokens[0] ?? 0];
  return { fromSeq, throughSeq, kind: 'journal', body: JSON.stringify(turn), tokens };
}

/** Missing tokens of a `Budget.Unreachable`; 0 for other failures. */
function missingTokens(error: unknown): number {
  if (!isFailure(error, 'Budget.Unreachable')) return 0;
  const { floor, budget } = error.details as { floor: number; budget: number };
  return floor - budget;
}
