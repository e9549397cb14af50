import { legalBoundaries, type Liveness } from '../../src/compaction/plan/cut.js';
import type { MessageMeta } from '../../src/conversation/message.js';

/** Returns the seqs after which the tail may begin, ascending. A cut after the last of them evicts everything. */
export function legalCuts(metas: readonly MessageMeta[], liveness: Liveness): number[] {
  return legalBoundaries(metas, liveness).map(({ index }) => metas[index - 1]!.seq);
}

/**
 * Returns, for each safe cut, the index of the first message that the cut keeps, ascending: 0 keeps everything, the number of
 * messages keeps nothing.
 */
export function safeCuts(metas: readonly MessageMeta[], liveness: Liveness): number[] {
  return [0, ...legalBoundaries(metas, liveness).map(({ index }) => index)];
}
