import { wantsAlternation } from './view/alternate.js';
import { arrangeChat } from './view/moved-media.js';
import { type ContextSource, type Reduction, sizeOf, viewing, type ViewItem } from './view/view.js';
import { isReachable, reducing } from './reductions/to-fit.js';
import { layoutOf } from './reductions/layout.js';
import type { Limits } from '../limits/limits.js';
import { sparesResult } from './reductions/retention.js';
import type { Policy } from '../policy/defaults.js';
import type { Steps } from '../steps.js';
import type { TokenCounter } from '../tokens/counter.js';

/** The context that is sent to a model, reduced to its budget. */
export interface FittedContext {
  items: ViewItem[];
  /** Emergency reductions in addition to those in `source`. They stay until the next commit (invariant 10). */
  reductions: Reduction[];
  tokens: number;
}

export interface FitRequest {
  /** Maximum context tokens. @default the policy's budget */
  budget?: number;
  /** Converts the view into the messages of a request. @default `openai-chat` messages that the policy's model accepts */
  arrange?: (view: readonly ViewItem[]) => ViewItem[];
}

/**
 * Runs in steps, since 100,000 messages take seconds. Throws `Budget.Unreachable` if the irreducible floor does not fit.
 * If the policy is disabled, head and stored reductions stay, and nothing else is changed to fit the budget.
 */
export function* fitting(
  source: ContextSource,
  policy: Policy,
  limits: Limits,
  counter: TokenCounter,
  {
    budget = limits.budget,
    arrange = (view) => arrangeChat(view, counter, wantsAlternation(policy)),
  }: FitRequest = {},
): Steps<FittedContext> {
  const shown = yield* viewing(source, counter);
  const shortens = policy.enabled && policy.reduce.newestUserMessage;
  function* fitWithin(limit: number): Steps<FittedContext> {
    const view = shortens ? yield* reducible(shown, source, limit, counter, policy) : shown;
    const fit = policy.enabled
      ? yield* reducing(
          view,
          {
            limit,
            target: Math.min(limits.contextTarget, limit),
            spared: (item) => sparesResult(item, policy),
            newestUser: policy.reduce.newestUserMessage,
            recovery: policy.recovery,
          },
          counter,
        )
      : { view, reductions: [] };
    yield;
    const items = arrange(fit.view);
    yield;
    return { items, reductions: fit.reductions, tokens: items.reduce((sum, { tokens }) => sum + tokens, 0) };
  }
  let limit = budget;
  let fitted = yield* fitWithin(limit);
  // Labels of moved media and separators of joined messages add a few tokens.
  while (policy.enabled && fitted.tokens > budget) {
    limit -= fitted.tokens - budget;
    fitted = yield* fitWithin(limit);
  }
  return fitted;
}

/**
 * The view. It may have an excerpt of the newest user message that was made for a larger limit. If the excerpt leaves no room
 * within `limit`, the view has the original instead, so that a shorter excerpt can be made.
 */
function* reducible(
  view: ViewItem[],
  source: ContextSource,
  limit: number,
  counter: TokenCounter,
  { recovery }: Pick<Policy, 'recovery'>,
): Steps<ViewItem[]> {
  const { newest } = layoutOf(view);
  if (newest?.source !== 'reduced' || sizeOf(view) <= limit) return view;
  if (yield* isReachable(view, limit, counter, recovery)) return view;
  const reductions = source.reductions.filter(
    ({ fromSeq, kind }) => kind === 'omitted' || fromSeq !== newest.fromSeq,
  );
  return yield* viewing({ ...source, reductions }, counter);
}
