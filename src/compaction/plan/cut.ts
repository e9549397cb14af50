/**
 * Finds the places where the log may be cut: between groups, not before an orphan result, and not after a call that can still
 * be answered. A cut evicts the tail up to and including a seq.
 */
import { groupMessages } from '../../conversation/groups.js';
import type { MessageMeta } from '../../conversation/message.js';

declare const legal: unique symbol;
/** The last evicted seq; only `seqBefore` creates it, from a boundary. */
type LegalCut = number & { readonly [legal]: 'LegalCut' };

export interface Liveness {
  /** Unix milliseconds. */
  now: number;
  /** Age from which an unanswered call counts as abandoned, if a user or assistant message has followed it. */
  deadCallAfterMs: number;
  /** Whether the session is closed, so that no call gets an answer any more. */
  closed: boolean;
}

/** A place to cut: the index of the first kept message. */
interface Boundary {
  index: number;
  /** Unanswered calls in the group that ends here. */
  interrupted: number;
}

/** The last seq evicted by a cut at this boundary. */
function seqBefore(metas: readonly MessageMeta[], index: number): LegalCut {
  return metas[index - 1]!.seq as LegalCut;
}

/** A call that can still be answered: no cut lies after it. */
export interface OpenCall {
  seq: number;
  id: string | null;
  name: string;
  /** Unix milliseconds from which it counts as abandoned; null while no user or assistant message has followed it. */
  abandonedAt: number | null;
}

/** The first call that can still be answered. */
export function firstOpenCall(metas: readonly MessageMeta[], liveness: Liveness): OpenCall | null {
  const { answeredBy } = groupMessages(metas);
  const { index, abandonedAt } = openMessage(metas, answeredBy, liveness);
  const meta = metas[index];
  const call = meta?.calls[answeredBy[index]!.indexOf(null)];
  return meta && call ? { seq: meta.seq, ...call, abandonedAt } : null;
}

/** The first message with a call that can still be answered; the index is the number of messages if there is none. */
function openMessage(
  metas: readonly MessageMeta[],
  answeredBy: readonly (readonly (number | null)[])[],
  { now, deadCallAfterMs, closed }: Liveness,
): { index: number; abandonedAt: number | null } {
  // In an autonomous run no user message follows; a later assistant message then shows that the agent no longer waits.
  const lastTurn = metas.findLastIndex(
    ({ role, empty }) => (role === 'user' || role === 'assistant') && !empty,
  );
  for (const [index, { at }] of metas.entries()) {
    const abandonedAt = lastTurn > index ? at + deadCallAfterMs : null;
    if (!closed && answeredBy[index]!.includes(null) && !(abandonedAt !== null && now >= abandonedAt))
      return { index, abandonedAt };
  }
  return { index: metas.length, abandonedAt: null };
}

/** Boundaries in ascending order. An orphan result stays with the messages before it: a tail never begins with one. @internal Tests list them. */
export function legalBoundaries(metas: readonly MessageMeta[], liveness: Liveness): Boundary[] {
  const { groups, answeredBy, orphans } = groupMessages(metas);
  const { index: last } = openMessage(metas, answeredBy, liveness);
  const leading = leadingSystem(metas);
  const boundaries: Boundary[] = [];
  let nextIsOrphan = false;
  for (const { from, to } of groups.toReversed()) {
    if (to > leading && to <= last && !nextIsOrphan) {
      const answers = answeredBy.slice(from, to).flat();
      boundaries.push({ index: to, interrupted: answers.filter((answer) => answer === null).length });
    }
    if (!metas[from]!.empty) nextIsOrphan = orphans.has(from);
  }
  return boundaries.reverse();
}

/** End of the leading system messages, in case the metas include them: no cut may be inside or directly after them. */
function leadingSystem(metas: readonly MessageMeta[]): number {
  const end = metas.findIndex(
    ({ seq, role }, index) => seq !== index + 1 || (role !== 'system' && role !== 'developer'),
  );
  return end === -1 ? metas.length : end;
}

export interface CutOptions extends Liveness {
  /** Ceilings of the tail; the ceiling that keeps fewer messages applies. Null or absent: no ceiling. */
  keep: { messages?: number | null; tokens?: number | null };
  /** Seq of the request that the current head carries. The new head carries it again if the cut is still inside its run. */
  previousCarriedSeq?: number | null;
  /** Tokens of a carried request above which the head shows an excerpt of it. @default none */
  mostCarried?: number;
  /** Whether an operator requested the cut: a tail within the ceilings is then cut to about half. */
  force?: boolean;
}

export interface CutChoice {
  throughSeq: LegalCut;
  /** Seq of the request that the head carries, because the cut divides its run; null if the cut divides no run. */
  carriedSeq: number | null;
  /** The first message of the tail: a user turn, an assistant message inside a run, or another message. */
  boundary: 'user' | 'assistant' | 'best';
  /** Interrupted calls that the cut separates from the agent's next messages. */
  torn: number;
  /** Tokens and shown messages of the evicted range. */
  evictedTokens: number;
  evictedMessages: number;
  /** Tokens of the carried request if it is in the evicted range, since the head contains the request again; otherwise 0. */
  carriedTokens: number;
  /** Tokens and shown messages of the tail. */
  keptTokens: number;
  keptMessages: number;
}

/** Every legal cut that evicts and keeps at least one message, ascending. */
export function cutCandidates(metas: readonly MessageMeta[], options: CutOptions): CutChoice[] {
  const leading = leadingSystem(metas);
  const tokensBefore = runningSum(metas.map(({ tokens, empty }) => (empty ? 0 : tokens)));
  const shownBefore = runningSum(metas.map(({ empty }) => (empty ? 0 : 1)));
  const outline = outlineOf(metas);
  return legalBoundaries(metas, options).flatMap(({ index, interrupted }) => {
    const { boundary, insideRun, request } = outline(index);
    const carried = insideRun ? request : null;
    const candidate: CutChoice = {
      throughSeq: seqBefore(metas, index),
      carriedSeq: carried?.seq ?? (insideRun ? (options.previousCarriedSeq ?? null) : null),
      boundary,
      torn: insideRun ? interrupted : 0,
      evictedTokens: tokensBefore[index]! - tokensBefore[leading]!,
      evictedMessages: shownBefore[index]! - shownBefore[leading]!,
      carriedTokens: Math.min(carried?.tokens ?? 0, options.mostCarried ?? Infinity),
      keptTokens: tokensBefore[metas.length]! - tokensBefore[index]!,
      keptMessages: shownBefore[metas.length]! - shownBefore[index]!,
    };
    const evicts = candidate.evictedMessages > (carried ? 1 : 0);
    return evicts && candidate.keptMessages > 0 ? [candidate] : [];
  });
}

interface OutlinePoint {
  boundary: CutChoice['boundary'];
  /** Whether the tail would not begin with a user turn. */
  insideRun: boolean;
  /** The last user message before the boundary. */
  request: MessageMeta | null;
}

/** The neighbours of every boundary. System messages inside the log belong to the next turn. */
function outlineOf(metas: readonly MessageMeta[]): (index: number) => OutlinePoint {
  const speaks = ({ role, empty }: MessageMeta) => !empty && role !== 'system' && role !== 'developer';
  const nextShown: (MessageMeta | null)[] = [null];
  const nextSpeaker: (MessageMeta | null)[] = [null];
  for (const meta of metas.toReversed()) {
    nextShown.push(meta.empty ? nextShown.at(-1)! : meta);
    nextSpeaker.push(speaks(meta) ? meta : nextSpeaker.at(-1)!);
  }
  const lastSpeaker: (MessageMeta | null)[] = [null];
  const lastRequest: (MessageMeta | null)[] = [null];
  for (const meta of metas) {
    lastSpeaker.push(speaks(meta) ? meta : lastSpeaker.at(-1)!);
    lastRequest.push(meta.role === 'user' && !meta.empty ? meta : lastRequest.at(-1)!);
  }
  return (index) => {
    const fromEnd = metas.length - index;
    const insideRun = nextSpeaker[fromEnd]?.role !== 'user';
    const startsTurn = !insideRun && lastSpeaker[index]?.role !== 'user';
    const startsStep = insideRun && nextShown[fromEnd]?.role === 'assistant';
    return {
      boundary: startsTurn ? 'user' : startsStep ? 'assistant' : 'best',
      insideRun,
      request: lastRequest[index] ?? null,
    };
  };
}

function runningSum(numbers: readonly number[]): number[] {
  let sum = 0;
  return [0, ...numbers.map((number) => (sum += number))];
}

/**
 * Chooses the cut. The tail is as large as the ceilings allow; the newest group stays even if it exceeds them. Null if no
 * message can be evicted, or if all may stay and no operator requested the cut. Considers the cuts that keep at least half of
 * the largest tail, in four phases; each is tried if the previous one finds no cut:
 *
 * 1. `turnStart`: the tail begins with a user turn.
 * 2. `step`: the tail begins with an assistant message inside a run, so that a run without a user turn is cut too. The run's
 *    request is carried.
 * 3. `largest`: the tail may begin with any message.
 * 4. `leastHarm`: every cut separates an interrupted call from its sequel, and the least harmful cut is taken.
 *
 * No phase separates a call from its result, evicts a call that can still be answered, or lets a tail begin with an orphan
 * result.
 */
export function chooseCut(metas: readonly MessageMeta[], options: CutOptions): CutChoice | null {
  const candidates = cutCandidates(metas, options);
  const smallest = candidates.at(-1);
  const ceilings = ceilingsFor(metas, options);
  if (smallest === undefined || ceilings === null) return null;
  const near = withinReach(candidates, raised(ceilings, smallest));
  return turnStart(near) ?? step(near) ?? largest(near) ?? leastHarm(near);
}

interface Ceilings {
  tokens: number;
  messages: number;
}

/** Raises the ceilings to the size of the smallest tail plus its carried request: no cut makes the context smaller than that. */
function raised({ tokens, messages }: Ceilings, smallest: CutChoice): Ceilings {
  const { keptTokens, keptMessages, carriedTokens } = smallest;
  return {
    tokens: Math.max(tokens, keptTokens + carriedTokens),
    messages: Math.max(messages, keptMessages + (carriedTokens > 0 ? 1 : 0)),
  };
}

/** The cuts within the ceilings that keep at least half of the largest tail, largest first. */
function withinReach(candidates: readonly CutChoice[], { tokens, messages }: Ceilings): CutChoice[] {
  const within = candidates.filter((cut) => cut.keptTokens <= tokens && cut.keptMessages <= messages);
  const most = within[0];
  if (most === undefined) return [];
  return within.filter(
    (cut) => cut.keptTokens * 2 >= most.keptTokens || cut.keptMessages * 2 >= most.keptMessages,
  );
}

function turnStart(near: readonly CutChoice[]): CutChoice | undefined {
  return near.find(({ boundary }) => boundary === 'user');
}

function step(near: readonly CutChoice[]): CutChoice | undefined {
  return near.find(({ boundary, torn }) => boundary === 'assistant' && torn === 0);
}

function largest(near: readonly CutChoice[]): CutChoice | undefined {
  return near.find(({ torn }) => torn === 0);
}

/** The cut with the lowest score; among equal scores, the cut with the largest tail. */
function leastHarm(near: readonly CutChoice[]): CutChoice | null {
  return near.reduce<CutChoice | null>(
    (best, cut) => (best === null || harmOf(cut) < harmOf(best) ? cut : best),
    null,
  );
}

/** A tail that begins inside a run is worse than one that begins with a turn; a call separated from its sequel is worst. */
function harmOf({ boundary, torn }: CutChoice): number {
  return { user: 0, assistant: 1, best: 2 }[boundary] + 2 * torn;
}

/**
 * Returns the cut, or an earlier one if it would evict more than `mostTokens`. The earlier cut evicts between half of
 * `mostTokens` and all of it, or more if the groups allow no smaller cut. Later compactions evict the rest.
 */
export function boundedCut(
  metas: readonly MessageMeta[],
  options: CutOptions,
  cut: CutChoice,
  mostTokens: number,
): CutChoice {
  if (cut.evictedTokens <= mostTokens) return cut;
  const enough = cutCandidates(metas, options).filter(
    ({ throughSeq, evictedTokens }) => throughSeq <= cut.throughSeq && evictedTokens * 2 >= mostTokens,
  );
  const within = enough.filter(({ evictedTokens }) => evictedTokens <= mostTokens);
  return (
    within.findLast(({ boundary }) => boundary === 'user') ??
    within.findLast(({ boundary }) => boundary === 'assistant') ??
    within.at(-1) ??
    enough[0] ??
    cut
  );
}

/** Null if the whole tail may stay. */
function ceilingsFor(
  metas: readonly MessageMeta[],
  { keep, force }: CutOptions,
): { tokens: number; messages: number } | null {
  const shown = metas.filter(({ empty }) => !empty);
  const total = shown.reduce((sum, { tokens }) => sum + tokens, 0);
  const ceilings = { tokens: keep.tokens ?? Infinity, messages: keep.messages ?? Infinity };
  if (total > ceilings.tokens || shown.length > ceilings.messages) return ceilings;
  return force ? { tokens: Math.floor(total / 2), messages: Math.ceil(shown.length / 2) } : null;
}
