/** Describes a journal: its entries, and how often their lines were rewritten. */
import type { TokenCounter } from '../../tokens/counter.js';
import { layersOf } from '../answer/sections.js';
import type { KeptLayer } from '../ask/layers.js';

export interface JournalEntry {
  /** First and last message of the entry. */
  fromSeq: number;
  throughSeq: number;
  /** Number of merges: 0 for an entry written from the originals, else one more than the highest rank merged into it. */
  rank: number;
  /** Mean number of merges of its lines: one more than the mean of the merged lines, weighted by tokens. */
  rewrites: number;
  /** Lines written by a summarizer; 0 if an earlier version left only a pointer to the archive. */
  lines: number;
  /** Tokens including lines added by code, without the heading. */
  tokens: number;
  /** Whether the rules wrote the entry, or a part of it, because no model answered. */
  byRule: boolean;
}

export interface Journal {
  /** Oldest first. */
  entries: JournalEntry[];
  /** Mean over all lines. */
  rewritesPerLine: number;
}

/** `snapshot`: the text of all layers. */
export function describeJournal(
  layers: readonly KeptLayer[],
  snapshot: string,
  counter: TokenCounter,
): Journal {
  const texts = layersOf(snapshot);
  const entries = layers.map(
    ({ fromSeq, throughSeq, rank, rewrites = rank, added, left, extractive }, index): JournalEntry => {
      const text = texts[index] ?? '';
      const byCode = added === undefined ? 0 : added.split('\n').length;
      return {
        ...{ fromSeq, throughSeq, rank, rewrites },
        lines: left ? 0 : text.split('\n').filter((line) => line.trim() !== '').length - byCode,
        tokens: counter.count(text),
        byRule: extractive === true,
      };
    },
  );
  return { entries, rewritesPerLine: rewritesPerLine(entries) };
}

function rewritesPerLine(entries: readonly JournalEntry[]): number {
  const lines = entries.reduce((sum, entry) => sum + entry.lines, 0);
  return lines === 0 ? 0 : entries.reduce((sum, entry) => sum + entry.rewrites * entry.lines, 0) / lines;
}
