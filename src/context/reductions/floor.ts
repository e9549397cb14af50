import { sizeOf } from '../view/view.js';
import type { ViewItem } from '../view/view-types.js';
import { PalimpsestError } from '../../errors.js';
import type { Recovery } from '../../policy/resolve.js';
import type { Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { layoutOf, noteFor, notesForEverything, omittablePrefixes } from './layout.js';
import { withShortestNewest } from './newest-user.js';
import { StandIns, stages } from './stand-ins.js';

/** The smallest size that a view can have, and the failure that says so where a budget lies below it. */
interface Floor {
  tokens: number;
  system: number;
  head: number;
  /** The newest user message, in the tail or carried in the head. */
  newestUser: number;
  /** The smallest form of everything else. */
  rest: number;
}

/** The size below which no reduction can bring a view. @internal A test holds it to the smallest view. */
export function* irreducibleFloor(
  view: readonly ViewItem[],
  counter: TokenCounter,
  recovery: Recovery,
): Steps<Floor> {
  const layout = layoutOf(view);
  const shortest = new StandIns(view, counter, recovery);
  for (const stage of stages) yield* shortest.shrinking(stage, (item) => item !== layout.newest, -1);
  const { before, after } = layoutOf(shortest.entries.map(({ item }) => item));
  const saved = [before, after].map((segment) => {
    const widest = omittablePrefixes(segment).at(-1);
    return widest === undefined ? 0 : Math.max(0, widest.tokens - noteFor(widest, counter, recovery).tokens);
  });
  const notes = notesForEverything(layout, counter, recovery);
  const rest = Math.min(
    shortest.tokens - layout.untouchableTokens - saved.reduce((total, tokens) => total + tokens, 0),
    sizeOf([...notes.before, ...notes.after]),
  );
  const ofSource = (wanted: (item: ViewItem) => boolean) => sizeOf(view.filter(wanted));
  const system = ofSource(({ source }) => source === 'system');
  const newestUser = layout.newest?.tokens ?? ofSource(({ source }) => source === 'carried');
  return {
    tokens: layout.untouchableTokens + rest,
    system,
    newestUser,
    head: layout.untouchableTokens - system - newestUser,
    rest,
  };
}

/**
 * Throws `Budget.Unreachable` where no reduction can bring the view down to `budget` tokens. `newestUser`: the policy lets
 * the newest user message be shortened.
 */
export function* assertReachable(
  view: readonly ViewItem[],
  budget: number,
  counter: TokenCounter,
  { newestUser, recovery }: { newestUser: boolean; recovery: Recovery },
): Steps<void> {
  const least = newestUser ? withShortestNewest(view, counter, recovery) : view;
  if (yield* isReachable(least, budget, counter, recovery)) return;
  const {
    tokens: floor,
    system,
    head,
    newestUser: newest,
    rest,
  } = yield* irreducibleFloor(least, counter, recovery);
  const helps =
    !newestUser &&
    (yield* isReachable(withShortestNewest(view, counter, recovery), budget, counter, recovery));
  throw new PalimpsestError(
    'Budget.Unreachable',
    `the smallest valid context has ${floor} tokens, the budget is ${budget}: ${system} for system messages, ${head} for the head, ` +
      `${newest} for the newest user message, ${rest} for the rest`,
    {
      hint:
        (helps ? `${shorteningHint}, ` : '') +
        'raise the context window, lower the request overhead or reserved output tokens, or shorten the system prompt or the newest user message',
      details: { floor, budget, system, head, newestUser: newest, rest },
    },
  );
}

/** Begins the hint where the newest user message is what does not fit. */
export const shorteningHint =
  'set reduce.newestUserMessage to true, so that the context shows an excerpt of the newest user message';

/** Whether some reduction brings the view down to `budget` tokens. */
export function* isReachable(
  view: readonly ViewItem[],
  budget: number,
  counter: TokenCounter,
  recovery: Recovery,
): Steps<boolean> {
  const layout = layoutOf(view);
  const notes = notesForEverything(layout, counter, recovery);
  if (layout.untouchableTokens + sizeOf([...notes.before, ...notes.after]) <= budget) return true;
  return (yield* irreducibleFloor(view, counter, recovery)).tokens <= budget;
}
