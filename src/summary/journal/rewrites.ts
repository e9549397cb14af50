/** The journal as it stands: its entries, and how often their lines were rewritten. */
import type { TokenCounter } from '../../tokens/counter.js';
import { layersOf } from '../answer/sections.js';
import type { KeptLayer } from '../ask/layers.js';

export interface JournalEntry {
  /** Messages that it stands for. */
  fromSeq: number;
  throughSeq: number;
  /** Merges that it went through: 0 as it was written from the originals, then one more than the highest that went in. */
  rank: number;
  /** Merges that its lines went through in the mean: one more than those of the lines that went in, by their tokens. */
  rewrites: number;
  /** That a summarizer wrote; 0 where only a pointer to the archive is left. */
  lines: number;
  /** With what code has put behind these lines; without the heading. */
  tokens: number;
  /** No model answered: the rules wrote it, or a part of it. */
  byRule: boolean;
}

export interface Journal {
  /** Oldest first. */
  entries: JournalEntry[];
  /** Mean over the lines. */
  rewritesPerLine: number;
}

/** `snapshot`: the text that the layers make up. */
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
