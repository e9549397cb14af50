import { PalimpsestError } from '../errors.js';
import type { ChunkRef } from './ask/chunk.js';

export interface Coverage {
  fromSeq: number;
  throughSeq: number;
  /** Whether the message was read in one request, in several requests, or not at all. */
  how: 'full' | 'split' | 'withheld';
  /** The reason why the message, or a part of it, was withheld. */
  reason?: string;
}

export interface CoveredMessages {
  /** Seqs of the evicted messages. */
  messages: readonly number[];
  /** Messages that were not read. */
  excluded: readonly { seq: number; reason: string }[];
  /** Messages of which a part was withheld, such as media. */
  partly?: readonly { seq: number; reason: string }[];
}

/**
 * How each evicted message was read, in ranges. Without chunks, the extractive summarizer read all messages.
 * Throws `Store.Corrupt` if no chunk contains a message that is not excluded, or a part of it.
 */
export function coverageOf(
  chunks: readonly ChunkRef[],
  { messages, excluded, partly = [] }: CoveredMessages,
): Coverage[] {
  const remarks = new Map(partly.map(({ seq, reason }) => [seq, reason]));
  const reasons = new Map(excluded.map(({ seq, reason }) => [seq, reason]));
  const ordered = [...chunks].sort((a, b) => a.fromSeq - b.fromSeq || a.fromChar - b.fromChar);
  const ranges: Coverage[] = [];
  let next = 0;
  for (const seq of [...new Set([...messages, ...reasons.keys()])].sort((a, b) => a - b)) {
    const reason = reasons.get(seq);
    if (reason !== undefined) {
      add(seq, 'withheld', reason);
      continue;
    }
    while (next < ordered.length && ordered[next]!.throughSeq < seq) next++;
    const slices: ChunkRef[] = [];
    for (let at = next; at < ordered.length && ordered[at]!.fromSeq <= seq; at++) slices.push(ordered[at]!);
    if (chunks.length > 0) assertRead(seq, slices);
    add(seq, slices.length > 1 ? 'split' : 'full', remarks.get(seq));
  }
  return ranges;

  function add(seq: number, how: Coverage['how'], reason?: string): void {
    const last = ranges.at(-1);
    if (last && last.throughSeq === seq - 1 && last.how === how && last.reason === reason)
      last.throughSeq = seq;
    else ranges.push({ fromSeq: seq, throughSeq: seq, how, ...(reason === undefined ? {} : { reason }) });
  }
}

function assertRead(seq: number, slices: readonly ChunkRef[]): void {
  let read: number | null = 0;
  for (const { fromSeq, fromChar, throughSeq, throughChar } of slices) {
    if ((fromSeq === seq ? fromChar : 0) !== read) break;
    read = throughSeq === seq ? throughChar : null;
  }
  if (read === null) return;
  throw new PalimpsestError(
    'Store.Corrupt',
    `message ${seq} was read by no chunk from character ${read} on`,
    {
      details: { seq, read },
    },
  );
}
