/**
 * The places where the log may be cut: between groups, in front of no orphan result, and behind no call that can still be answered. A cut
 * evicts everything of the tail up to and including a seq.
 */
import { groupMessages } from '../../conversation/groups.js';
import type { MessageMeta } from '../../conversation/message.js';

declare const legal: unique symbol;
/** The last evicted seq; only `seqBefore` makes one, of a boundary. */
export type LegalCut = number & { readonly [legal]: 'LegalCut' };

export interface Liveness {
  /** Unix milliseconds. */
  now: number;
  /** Longest time that a call may stay open once a later user or assistant message exists. */
  deadCallAfterMs: number;
  /** The session is closed: no call is answered any more. */
  closed: boolean;
}

/** A place to cut: the index of the first kept message. */
export interface Boundary {
  index: number;
  /** Calls that stay without an answer, in the group that ends here. */
  interrupted: number;
}

/** The last seq evicted by a cut at this boundary. */
export function seqBefore(metas: readonly MessageMeta[], index: number): LegalCut {
  return metas[index - 1]!.seq as LegalCut;
}

/** Ascending. An orphan result goes with what stands before it: a tail never begins with one. */
export function legalBoundaries(metas: readonly MessageMeta[], liveness: Liveness): Boundary[] {
  const { now, deadCallAfterMs, closed } = liveness;
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

/** Callers pass the tail. Should the log's leading system messages be among the metas, nothing may cut inside or directly behind them. */
export function leadingSystem(metas: readonly MessageMeta[]): number {
  const end = metas.findIndex(
    ({ seq, role }, index) => seq !== index + 1 || (role !== 'system' && role !== 'developer'),
  );
  return end === -1 ? metas.length : end;
}
