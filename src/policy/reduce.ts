/**
 * What is done, without a model and always the same way, when a context would exceed its budget before a compaction has committed:
 * tool results become excerpts, then arguments, then old messages; then the oldest groups go behind one note; the latest tool
 * batch comes last. Leading system messages, the head and the newest user message are never touched.
 */
import type { Reduction, ViewItem } from '../conversation/context.js';
import type { TokenCounter } from '../tokens/counter.js';
import { assertReachable, layoutOf, noteFor, notesForEverything, omittablePrefixes } from './floor.js';
import { StandIns, stages } from './stand-ins.js';

export interface FitOptions {
  /** Tokens the view must not exceed. A view within it is left as it is. */
  limit: number;
  /** Tokens to reduce to, so that many turns follow without another reduction. */
  target: number;
  /** Inside a compaction: nothing is omitted, the latest tool batch is not touched, and the best effort is returned. */
  commit?: boolean;
}

export interface Fit {
  /** What is new; reductions that the view held before are not repeated. */
  reductions: Reduction[];
  view: ViewItem[];
  tokens: number;
}

/**
 * Throws `Budget.Unreachable` (with the numbers) where even the irreducible floor exceeds `limit`, unless `commit`.
 */
export function reduceToFit(
  view: ViewItem[],
  { limit, target, commit = false }: FitOptions,
  counter: TokenCounter,
): Fit {
  const before = view.reduce((sum, { tokens }) => sum + tokens, 0);
  if (before <= limit) return { reductions: [], view, tokens: before };
  if (commit) return reduced(view, { limit, target, commit }, new Set(), counter);
  assertReachable(view, limit, counter);
  const fit = reduced(view, { limit, target, commit }, omittedAnyway(view, limit), counter);
  return fit.tokens <= limit ? fit : reduced(view, { limit, target, commit }, new Set(), counter);
}

/** `hopeless`: old items that are not shortened, but left to be omitted. */
function reduced(
  view: ViewItem[],
  { limit, target, commit }: Required<FitOptions>,
  hopeless: ReadonlySet<ViewItem>,
  counter: TokenCounter,
): Fit {
  const work = new StandIns(view, counter);
  const { latestGroup, newest, latestTokens, untouchableTokens } = layoutOf(view);
  const isOld = (item: ViewItem) => item !== newest && item.group !== latestGroup;
  const isLatest = (item: ViewItem) => item !== newest && item.group === latestGroup;
  const room = limit - untouchableTokens;
  let goal = Math.min(target, limit);

  if (!commit && latestTokens >= room) {
    // No reduction of anything else could make it fit: the latest batch may keep half of the room, the rest shares the other half.
    const share = Math.floor(Math.max(0, goal - untouchableTokens) / 2);
    shrinkAll(work, isLatest, work.tokens - (latestTokens - share));
  } else if (!commit && latestTokens + untouchableTokens > goal) {
    // The target is out of reach without the latest batch: leave half of what is free to the older messages.
    goal = limit - Math.floor((room - latestTokens) / 2);
  }
  if (commit) {
    shrinkAll(work, isOld, goal);
    return fitOf(work);
  }

  shrinkAll(work, (item) => isOld(item) && !hopeless.has(item), goal);
  omitOldest(work, goal, latestGroup, counter);
  if (hopeless.size > 0 && work.tokens > goal) {
    shrinkAll(work, isOld, goal);
    omitOldest(work, goal, latestGroup, counter);
  }
  if (work.tokens > limit) shrinkAll(work, isLatest, goal);
  if (work.tokens > limit) omitOldest(work, limit, null, counter);
  if (work.tokens > limit) omitEverything(work, counter);
  return fitOf(work);
}

/** No stand-in is shorter, tokens: a pointer alone takes more. */
const shortestStandIn = 12;

/**
 * The oldest items, behind which more than the limit would stand even at its shortest. They are not worth shortening: of
 * 100,000 messages that takes a quarter of a minute.
 */
function omittedAnyway(view: readonly ViewItem[], limit: number): Set<ViewItem> {
  let tokens = 0;
  const last = view.findLastIndex((item) => (tokens += Math.min(item.tokens, shortestStandIn)) > limit);
  return new Set(view.slice(0, last + 1));
}

function shrinkAll(work: StandIns, accepts: (item: ViewItem) => boolean, goal: number): void {
  for (const stage of stages) work.shrink(stage, accepts, goal);
}

function fitOf(work: StandIns): Fit {
  return { reductions: work.reductions(), view: work.view(), tokens: work.tokens };
}

/** Omits as few of the oldest groups as the goal asks for: first of those before the newest user message, then of those after it. */
function omitOldest(work: StandIns, goal: number, spared: number | null, counter: TokenCounter): void {
  for (const side of ['before', 'after'] as const) {
    if (work.tokens <= goal) return;
    const segment = layoutOf(work.view())[side];
    const prefixes = omittablePrefixes(segment, spared);
    const widest = prefixes.at(-1);
    if (widest === undefined) continue;
    const noteTokens = noteFor(widest, counter).tokens;
    const prefix = prefixes.find(({ tokens }) => work.tokens - tokens + noteTokens <= goal) ?? widest;
    const note = noteFor(prefix, counter);
    if (note.tokens < prefix.tokens)
      work.replace({ first: segment.first, items: segment.items.slice(0, prefix.count) }, [note]);
  }
}

/** Leaves nothing of the tail but the newest user message. Needed where a result was recorded behind it, far from its call. */
function omitEverything(work: StandIns, counter: TokenCounter): void {
  const layout = layoutOf(work.view());
  const notes = notesForEverything(layout, counter);
  work.replace(layout.after, notes.after);
  work.replace(layout.before, notes.before);
}
