import { wantsAlternation } from './view/alternate.js';
import { arrangeChat } from './view/moved-media.js';
import { type ContextSource, type Reduction, sizeOf, viewing, type ViewItem } from './view/view.js';
import { isReachable, reducing } from './reductions/to-fit.js';
import { layoutOf } from './reductions/layout.js';
import type { Limits } from '../limits/limits.js';
import { sparesResult } from './reductions/retention.js';
import type { Policy } from '../policy/resolve.js';
import type { Steps } from '../steps.js';
import type { TokenCounter } from '../tokens/counter.js';

/** The context that a model is sent: what stands, made to fit. */
export interface FittedContext {
  items: ViewItem[];
  /** Emergency reductions beyond those that `source` holds; to be kept until the next commit (invariant 10). */
  reductions: Reduction[];
  tokens: number;
}

export interface FitRequest {
  /** Context tokens at most. @default what the policy allows */
  budget?: number;
  /** The last step to the request of another format than `openai-chat`. @default chat messages, as the policy's model takes them */
  arrange?: (view: readonly ViewItem[]) => ViewItem[];
}

/**
 * In steps: of 100,000 messages it takes seconds. Throws `Budget.Unreachable` where not even the irreducible floor fits.
 * Switched off: the log as it is.
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
  // Labels of moved media and joints between messages of one role take a few tokens more than the messages themselves.
  while (policy.enabled && fitted.tokens > budget) {
    limit -= fitted.tokens - budget;
    fitted = yield* fitWithin(limit);
  }
  return fitted;
}

/**
 * The view, with the newest user message whole where its excerpt, made for more tokens, leaves no room within `limit`: a shorter
 * excerpt is made of the original.
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
