/** The context that a model is sent: what stands, made to fit. */
import { wantsAlternation } from '../conversation/alternate.js';
import { arrangeChat } from '../conversation/arrange.js';
import { viewing, type ContextSource, type Reduction, type ViewItem } from '../conversation/context.js';
import type { Limits } from '../policy/limits.js';
import { reducing } from '../policy/reduce.js';
import { sparesResult } from '../policy/retention.js';
import type { Policy } from '../policy/schema.js';
import { atOnce, type Steps } from '../steps.js';
import type { TokenCounter } from '../tokens/counter.js';

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

/** Throws `Budget.Unreachable` where not even the irreducible floor fits. Switched off: the log as it is. */
export function fitContext(...given: Parameters<typeof fitting>): FittedContext {
  return atOnce(fitting(...given));
}

/** The same in steps: of 100,000 messages it takes seconds. */
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
  const view = yield* viewing(source, counter);
  function* fitWithin(limit: number): Steps<FittedContext> {
    const fit = policy.enabled
      ? yield* reducing(
          view,
          {
            limit,
            target: Math.min(limits.contextTarget, limit),
            spared: (item) => sparesResult(item, policy),
            newestUser: policy.reduce.newestUserMessage,
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
