import type { TokenCounter } from '../../tokens/counter.js';
import { headingOf, oneLine, formatSnapshot } from '../answer/snapshot.js';
import { sections, type SectionKey } from '../answer/sections.js';
import { clipMiddle } from '../text/sentences.js';

/** Something that may stand in a section; `order` is its place among the others there. */
export interface Candidate {
  text: string;
  order: number;
}

/** Share of the snapshot that each section may take before any takes what others left. */
const shares: Record<SectionKey, number> = {
  intent: 0.34,
  constraints: 0.13,
  decisions: 0.12,
  artifacts: 0.14,
  facts: 0.1,
  state: 0.13,
  next: 0.04,
};

/** Fewest tokens, and characters, of an item that is shortened; less says nothing. */
const SHORTEST = { tokens: 16, characters: 60 };

interface Placed extends Candidate {
  tokens: number;
  whole: boolean;
}

/**
 * Chooses, per section, from candidates given most important first, so that the formatted snapshot has at most `limit`
 * tokens: every section its share first, then what is left by order of sections. Items that do not fit are shortened.
 */
export function fillSections(
  candidates: ReadonlyMap<SectionKey, readonly Candidate[]>,
  limit: number,
  counter: TokenCounter,
): Map<SectionKey, string[]> {
  const placed = new Map<SectionKey, Map<Candidate, Placed>>(sections.map(({ key }) => [key, new Map()]));
  let left = limit;
  for (const round of ['share', 'rest'] as const) {
    for (const { key } of sections) {
      left -= place(key, round === 'share' ? Math.min(left, Math.floor(shares[key] * limit)) : left);
    }
  }
  return trimmed();

  /** Adds items to a section for at most `room` tokens; answers with what they cost. */
  function place(key: SectionKey, room: number): number {
    const chosen = placed.get(key)!;
    let spent = 0;
    let misses = 0;
    for (const candidate of candidates.get(key) ?? []) {
      const before = chosen.get(candidate);
      if (before?.whole || misses > 8) continue;
      const text = oneLine(candidate.text);
      const heading = chosen.size === 0 ? counter.count(headingOf(key)) + 2 : 0;
      const available = room - spent - heading + (before?.tokens ?? 0);
      const fitting = fit(text, available, counter);
      if (!fitting || (before && fitting.tokens <= before.tokens)) {
        misses++;
        continue;
      }
      chosen.set(candidate, { ...candidate, ...fitting });
      spent += fitting.tokens + heading - (before?.tokens ?? 0);
      if (!fitting.whole) misses++;
    }
    return spent;
  }

  /** Lines were counted one by one; where the whole is larger after all, the least important lines go. */
  function trimmed(): Map<SectionKey, string[]> {
    for (;;) {
      const chosen = new Map([...placed].map(([key, items]) => [key, inOrder(items)]));
      if (counter.count(formatSnapshot(chosen)) <= limit) return chosen;
      const fullest = [...placed.values()].sort((a, b) => b.size - a.size)[0];
      const least = fullest && [...fullest.keys()].at(-1);
      if (!least) return new Map();
      fullest.delete(least);
    }
  }
}

function inOrder(items: ReadonlyMap<Candidate, Placed>): string[] {
  return [...items.values()].sort((a, b) => a.order - b.order).map(({ text }) => text);
}

/** The text as a line of at most `room` tokens, shortened if need be; null where nothing worth reading would be left. */
function fit(
  text: string,
  room: number,
  counter: TokenCounter,
): { text: string; tokens: number; whole: boolean } | null {
  const cost = (line: string) => counter.count(`- ${line}\n`) + 1;
  // A token is rarely more than 12 characters on average: longer texts need not be counted to know that they do not fit.
  let shown = text.length > room * 12 ? clipMiddle(text, room * 12) : text;
  for (let tokens = cost(shown); ; tokens = cost(shown)) {
    if (tokens <= room) return { text: shown, tokens, whole: shown === text };
    if (room < SHORTEST.tokens || shown.length < SHORTEST.characters) return null;
    shown = clipMiddle(text, Math.max(1, Math.floor(shown.length * Math.min(0.95, (room / tokens) * 0.98))));
  }
}
