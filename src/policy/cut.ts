/**
 * Where the log may be cut, and where it is cut best. A cut evicts everything of the tail up to and including a seq. Only
 * boundaries between groups are legal, and none behind a call that can still be answered.
 */
import { groupMessages } from '../conversation/groups.js';
import type { MessageMeta } from '../conversation/message.js';

declare const legal: unique symbol;
/** The last evicted seq; only `legalCuts` and what builds on it produce one. */
export type LegalCut = number & { readonly [legal]: 'LegalCut' };

export interface Liveness {
  /** Unix milliseconds. */
  now: number;
  /** How long a call may stay open once a later user or assistant message exists. */
  deadCallAfterMs: number;
  /** The session is closed: no call is answered any more. */
  closed: boolean;
}

export interface CutOptions extends Liveness {
  /** Ceilings of what stays in the tail; whichever keeps fewer. Null or absent: no ceiling. */
  keep: { messages?: number | null; tokens?: number | null };
  /** The request that the present head carries: it stays the request of a run that began before the tail. */
  previousCarriedSeq?: number | null;
  /** Asked for by hand: a tail within the ceilings is cut as well, to about half. */
  force?: boolean;
}

export interface CutChoice {
  throughSeq: LegalCut;
  /** The user message of the run that the cut lies inside, to be carried verbatim in the head; null where the tail begins with a user turn. */
  carriedSeq: number | null;
  /** What the tail begins with: a user turn, an assistant message inside a run, or anything else. */
  boundary: 'user' | 'assistant' | 'best';
  /** Tokens and shown messages of the evicted range. */
  evictedTokens: number;
  evictedMessages: number;
  /** Tokens of the carried request where it lies in the evicted range: they come back in the head. 0 otherwise. */
  carriedTokens: number;
  /** Tokens and shown messages that stay in the tail. */
  keptTokens: number;
  keptMessages: number;
}

/** The seqs behind which the tail may be cut, ascending. The last one evicts everything. */
export function legalCuts(metas: readonly MessageMeta[], liveness: Liveness): LegalCut[] {
  return legalBoundaries(metas, liveness).map((index) => metas[index - 1]!.seq as LegalCut);
}

/** Indexes of the first kept message, ascending. An orphan result goes with what stands before it: a tail never begins with one. */
function legalBoundaries(
  metas: readonly MessageMeta[],
  { now, deadCallAfterMs, closed }: Liveness,
): number[] {
  const { groups, answeredBy, orphans } = groupMessages(metas);
  // In an autonomous run no user message follows; then the agent's own going on shows that it waits no longer.
  const lastTurn = metas.findLastIndex(
    ({ role, empty }) => (role === 'user' || role === 'assistant') && !empty,
  );
  const canBeAnswered = (index: number) =>
    !closed &&
    answeredBy[index]!.includes(null) &&
    !(lastTurn > index && now - metas[index]!.at >= deadCallAfterMs);
  const firstOpen = metas.findIndex((_, index) => canBeAnswered(index));
  const last = firstOpen === -1 ? metas.length : firstOpen;
  const leading = leadingSystem(metas);
  let nextIsOrphan = false;
  return groups
    .toReversed()
    .flatMap(({ from, to }) => {
      const legal = to > leading && to <= last && !nextIsOrphan;
      if (!metas[from]!.empty) nextIsOrphan = orphans.has(from);
      return legal ? [to] : [];
    })
    .toReversed();
}

/** Callers pass the tail. Should the log's leading system messages be among the metas, nothing may cut inside or directly behind them. */
function leadingSystem(metas: readonly MessageMeta[]): number {
  const end = metas.findIndex(
    ({ seq, role }, index) => seq !== index + 1 || (role !== 'system' && role !== 'developer'),
  );
  return end === -1 ? metas.length : end;
}

/** Every legal cut that evicts something and keeps something, ascending. */
export function cutCandidates(metas: readonly MessageMeta[], options: CutOptions): CutChoice[] {
  const leading = leadingSystem(metas);
  const tokensBefore = runningSum(metas.map(({ tokens, empty }) => (empty ? 0 : tokens)));
  const shownBefore = runningSum(metas.map(({ empty }) => (empty ? 0 : 1)));
  const outline = outlineOf(metas);
  return legalBoundaries(metas, options).flatMap((index) => {
    const { boundary, insideRun, request } = outline(index);
    const carried = insideRun ? request : null;
    const candidate: CutChoice = {
      throughSeq: metas[index - 1]!.seq as LegalCut,
      carriedSeq: carried?.seq ?? (insideRun ? (options.previousCarriedSeq ?? null) : null),
      boundary,
      evictedTokens: tokensBefore[index]! - tokensBefore[leading]!,
      evictedMessages: shownBefore[index]! - shownBefore[leading]!,
      carriedTokens: carried?.tokens ?? 0,
      keptTokens: tokensBefore[metas.length]! - tokensBefore[index]!,
      keptMessages: shownBefore[metas.length]! - shownBefore[index]!,
    };
    const evicts = candidate.evictedMessages > (carried ? 1 : 0);
    return evicts && candidate.keptMessages > 0 ? [candidate] : [];
  });
}

interface OutlinePoint {
  boundary: CutChoice['boundary'];
  /** The tail would not begin with a user turn. */
  insideRun: boolean;
  /** The last user message before the boundary. */
  request: MessageMeta | null;
}

/** What lies around every boundary. System messages inside the log belong to the turn that follows them. */
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
 * The cut to take: as much stays as the ceilings allow, but the tail begins with a user turn where one lies within reach (half of what could
 * stay still stays), else with an assistant message inside a run, else at any legal boundary. The newest group stays even where it alone
 * exceeds the ceilings. Null when nothing can be evicted, or when all of it may stay and the cut was not asked for by hand.
 */
export function chooseCut(metas: readonly MessageMeta[], options: CutOptions): CutChoice | null {
  const candidates = cutCandidates(metas, options);
  const smallest = candidates.at(-1);
  if (smallest === undefined) return null;
  const ceilings = ceilingsFor(metas, options);
  if (ceilings === null) return null;

  const maxTokens = Math.max(ceilings.tokens, smallest.keptTokens + smallest.carriedTokens);
  const maxMessages = Math.max(
    ceilings.messages,
    smallest.keptMessages + (smallest.carriedTokens > 0 ? 1 : 0),
  );
  const within = candidates.filter((cut) => cut.keptTokens <= maxTokens && cut.keptMessages <= maxMessages);
  const most = within[0]!;
  const reachable = within.filter(
    (cut) => cut.keptTokens * 2 >= most.keptTokens || cut.keptMessages * 2 >= most.keptMessages,
  );
  return (
    reachable.find(({ boundary }) => boundary === 'user') ??
    reachable.find(({ boundary }) => boundary === 'assistant') ??
    most
  );
}

/**
 * The cut, or where it would evict more than `mostTokens`, one that evicts between half of that and all of it; more only
 * where no smaller group lets it. What the cut would have evicted beyond is left to the compactions that follow.
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

/** Null when the whole tail may stay. */
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
