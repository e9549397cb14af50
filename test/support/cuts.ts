import { legalBoundaries, type Liveness } from '../../src/compaction/plan/cut.js';
import type { MessageMeta } from '../../src/conversation/message.js';

/** The seqs after which the tail may begin, ascending. The last one evicts everything. */
export function legalCuts(metas: readonly MessageMeta[], liveness: Liveness): number[] {
  return legalBoundaries(metas, liveness).map(({ index }) => metas[index - 1]!.seq);
}

/** Indexes of the message that a safe cut keeps first, ascending: 0 keeps everything, the number of messages nothing. */
export function safeCuts(metas: readonly MessageMeta[], liveness: Liveness): number[] {
  return [0, ...legalBoundaries(metas, liveness).map(({ index }) => index)];
}
