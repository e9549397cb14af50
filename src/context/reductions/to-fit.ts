import { PalimpsestError } from '../../errors.js';
import type { Recovery } from '../../policy/defaults.js';
import type { Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { type Reduction, sizeOf, type ViewItem } from '../view/view.js';
import { layoutOf, noteFor, notesForEverything, omittablePrefixes, partsBetween } from './layout.js';
import { shortenNewest, withShortestNewest } from './newest-user.js';
import { type Fit, type Run, stages, StandIns } from './stand-ins.js';

interface FitOptions {
  /** Maximum tokens of the view. A smaller view stays unchanged. */
  limit: number;
  /** Tokens to reduce to, so that many turns can follow without another reduction. */
  target: number;
  /** Inside a compaction: no group is omitted, the latest tool batch and the newest answer stay unchanged, and the result may exceed the limit. */
  commit?: boolean;
  /** Results that are reduced only if nothing else helps (see `sparesResult`), and never inside a compaction. @default none */
  spared?: (item: ViewItem) => boolean;
  /** Whether the newest user message may become an excerpt. @default false */
  newestUser?: boolean;
  /** Whether stand-ins name the tools that read the originals. @default 'tools' */
  recovery?: Recovery;
}

/** The sizes that a view must fit, and the form of its stand-ins. */
interface Size {
  limit: number;
  target: number;
  recovery: Recovery;
}

interface Noting {
  counter: TokenCounter;
  recovery: Recovery;
}

/**
 * Reduces a context that would exceed its budget before a compaction has committed, without a model: excerpts replace tool
 * results, then arguments, then old messages; then a note replaces the oldest groups. The latest tool batch, the newest answer and
 * the results that the policy keeps in full are reduced last. Leading system messages and the head are never changed, the newest user
 * message only if the policy allows it. Throws `Budget.Unreachable` (with the numbers) if the irreducible floor exceeds
 * `limit`, unless `commit` is set.
 */
export function* reducing(
  view: ViewItem[],
  { limit, target, commit = false, spared = () => false, newestUser = false, recovery = 'tools' }: FitOptions,
  counter: TokenCounter,
): Steps<Fit> {
  const before = view.reduce((sum, { tokens }) => sum + tokens, 0);
  if (before <= limit) return { reductions: [], view, tokens: before };
  if (commit) {
    const work = new StandIns(view, counter, recovery);
    yield* shrinkOld(work, Math.min(target, limit), spared);
    return work.fit();
  }
  yield* assertReachable(view, limit, counter, { newestUser, recovery });
  const size = { limit, target: Math.min(target, limit), recovery };
  const open = newestUser ? yield* withRoom(view, size, counter) : view;
  const fit = yield* reduced(open, size, spared, omittedAnyway(open, limit), counter);
  const { reductions, ...rest } =
    fit.tokens <= limit ? fit : yield* reduced(open, size, spared, new Set(), counter);
  const shortened = open.flatMap((item, index) => (item === view[index] ? [] : [reductionOf(item)]));
  return { ...rest, reductions: [...shortened, ...reductions] };
}

/** The view with the newest user message shortened so far that the rest, once reduced, fits beside it. */
function* withRoom(view: ViewItem[], size: Size, counter: TokenCounter): Steps<ViewItem[]> {
  const work = new StandIns(view, counter, size.recovery);
  shortenNewest(work, size);
  return (yield* isReachable(work.view(), size.limit, counter, size.recovery))
    ? work.view()
    : withShortestNewest(view, counter, size.recovery);
}

function reductionOf({ fromSeq, throughSeq, message, tokens }: ViewItem): Reduction {
  return { fromSeq, throughSeq, kind: 'message', body: JSON.stringify(message), tokens };
}

/** Shortens all items but the newest user message, the latest tool batch, the newest answer and spared ones until `goal` is reached. Omits none. */
export function* shrinkOld(
  work: StandIns,
  goal: number,
  spared: (item: ViewItem) => boolean,
  steps?: readonly number[],
): Steps<void> {
  const { latestGroup, latestAnswer, newest } = layoutOf(work.view());
  const isLatest = (item: ViewItem) => item.group === latestGroup || item === latestAnswer;
  const accepts = (item: ViewItem) => item !== newest && !isLatest(item) && !spared(item);
  yield* shrinkAll(work, accepts, goal, steps);
}

/** `hopeless`: old items that are omitted without being shortened first. */
function* reduced(
  view: ViewItem[],
  { limit, target, recovery }: Size,
  spared: (item: ViewItem) => boolean,
  hopeless: ReadonlySet<ViewItem>,
  counter: TokenCounter,
): Steps<Fit> {
  const work = new StandIns(view, counter, recovery);
  const { latestGroup, latestAnswer, newest, untouchableTokens } = layoutOf(view);
  const staysWhole = (item: ViewItem) =>
    item.group === latestGroup || item.group === latestAnswer?.group || spared(item);
  const isLast = (item: ViewItem) => item !== newest && staysWhole(item);
  const isOld = (item: ViewItem) => item !== newest && !isLast(item);
  const lastTokens = view.reduce((sum, item) => sum + (isLast(item) ? item.tokens : 0), 0);
  const room = limit - untouchableTokens;
  const noting = { counter, recovery };
  let goal = target;

  if (lastTokens >= room) {
    // Reducing the other items cannot be enough: the last items may keep half of the room, the others share the other half.
    const share = Math.floor(Math.max(0, goal - untouchableTokens) / 2);
    yield* shrinkAll(work, isLast, work.tokens - (lastTokens - share));
  } else if (lastTokens + untouchableTokens > goal) {
    // The target is unreachable without reducing the last items: older messages get half of the free room.
    goal = limit - Math.floor((room - lastTokens) / 2);
  }

  yield* shrinkAll(work, (item) => isOld(item) && !hopeless.has(item), goal);
  yield* omitOldest(work, goal, staysWhole, noting);
  if (hopeless.size > 0 && work.tokens > goal) {
    yield* shrinkAll(work, isOld, goal);
    yield* omitOldest(work, goal, staysWhole, noting);
  }
  if (work.tokens > limit) yield* shrinkAll(work, isLast, goal);
  if (work.tokens > limit) yield* omitOldest(work, limit, null, noting);
  if (work.tokens > limit) omitEverything(work, noting);
  return work.fit();
}

/** Lower bound of a stand-in in tokens: a pointer alone takes more. */
export const shortestStandIn = 12;

/**
 * The oldest items, which are omitted anyway because the items after them exceed the limit even in their shortest form. Time
 * spent on shortening them would be wasted: a quarter of a minute for 100,000 messages.
 */
function omittedAnyway(view: readonly ViewItem[], limit: number): Set<ViewItem> {
  let tokens = 0;
  const last = view.findLastIndex((item) => (tokens += Math.min(item.tokens, shortestStandIn)) > limit);
  return new Set(view.slice(0, last + 1));
}

function* shrinkAll(
  work: StandIns,
  accepts: (item: ViewItem) => boolean,
  goal: number,
  steps?: readonly number[],
): Steps<void> {
  for (const stage of stages) yield* work.shrinking(stage, accepts, goal, steps);
}

/**
 * Omits as few of the oldest groups as the goal requires, first before the newest user message, then after it. Groups of `spared`
 * items stay, and so do items after the latest tool batch.
 */
function* omitOldest(
  work: StandIns,
  goal: number,
  spared: ((item: ViewItem) => boolean) | null,
  { counter, recovery }: Noting,
): Steps<void> {
  for (const side of ['before', 'after'] as const) {
    if (work.tokens <= goal) return;
    const omitted: { run: Run; notes: ViewItem[] }[] = [];
    let tokens = work.tokens;
    const layout = layoutOf(work.view());
    for (const part of partsBetween(layout[side], spared, layout.latestGroup)) {
      if (tokens <= goal) break;
      yield;
      const prefixes = omittablePrefixes(part);
      const widest = prefixes.at(-1);
      if (widest === undefined) continue;
      const noteTokens = noteFor(widest, counter, recovery).tokens;
      const prefix = prefixes.find((one) => tokens - one.tokens + noteTokens <= goal) ?? widest;
      const note = noteFor(prefix, counter, recovery);
      if (note.tokens >= prefix.tokens) continue;
      tokens -= prefix.tokens - note.tokens;
      omitted.push({ run: { first: part.first, items: part.items.slice(0, prefix.count) }, notes: [note] });
    }
    work.replaceAll(omitted);
  }
}

/**
 * Omits the whole tail except the newest user message. This is necessary if a result was recorded after the newest user message,
 * far from its call.
 */
function omitEverything(work: StandIns, { counter, recovery }: Noting): void {
  const layout = layoutOf(work.view());
  const notes = notesForEverything(layout, counter, recovery);
  work.replace(layout.after, notes.after);
  work.replace(layout.before, notes.before);
}

/** The smallest size that a view can have, by part. */
interface Floor {
  tokens: number;
  system: number;
  head: number;
  /** The newest user message, in the tail or carried in the head. */
  newestUser: number;
  /** The smallest form of everything else. */
  rest: number;
}

/** The smallest size to which reductions can bring a view. @internal A test compares it with the smallest view. */
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
 * Throws `Budget.Unreachable` if no reduction can bring the view down to `budget` tokens. `newestUser`: whether the policy
 * allows the newest user message to be shortened.
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

/** Start of the hint if shortening the newest user message would help. */
export const shorteningHint =
  'set reduce.newestUserMessage to true, so that the context shows an excerpt of the newest user message';

/** Whether reductions can bring the view down to `budget` tokens. */
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
