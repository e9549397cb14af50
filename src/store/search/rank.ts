/** Which of the texts that hold something of a query answer it best. */
import type { WordsPattern } from './query.js';

/** A slice of a message that holds something of the query. */
export interface Candidate {
  seq: number;
  slice: number;
  /** A `1` for each alternative of the terms, in order, that the slice holds, then for each pair, then for each identifier. */
  mask: string;
}

export interface Ranked {
  seq: number;
  slice: number;
  /** Higher is better. */
  rank: number;
  /** Identifiers of the query that it holds as they were written. */
  named: number;
}

/** A message, or one of its slices where each ranks by itself. */
interface Unit extends Ranked {
  /** What each term of the query weighs here, then each pair. */
  weights: number[];
  /** What the words of its best slice weigh. */
  best: number;
}

/** Share of a word's weight that a message gets for one said just before or just behind it, by distance. */
const nearShares = [0, 0.4, 0.2];

/**
 * Best first: texts that hold an identifier as it was written, then by the sum of what their words weigh; newest first
 * among equals. A word weighs the more the fewer messages hold it (inverse document frequency, Spärck Jones 1972), and
 * counts a little for the messages beside the one that holds it: a question and its answer are two messages. Two words
 * side by side weigh what their pair is rarer than either.
 *
 * @param messages how many messages were looked through
 * @param apart each slice ranks by itself: all of them are of one message
 */
export function ranked(
  candidates: readonly Candidate[],
  pattern: WordsPattern,
  messages: number,
  apart: boolean,
): Ranked[] {
  const scale = new Scale(candidates, pattern, messages);
  const units = new Map<string | number, Unit>();
  for (const { seq, slice, mask } of candidates) {
    const weights = scale.weightsOf(mask);
    const named = scale.namedIn(mask);
    const best = sum(weights);
    if (best === 0 && named === 0 && pattern.exact.length === 0) continue;
    const key = apart ? `${seq}/${slice}` : seq;
    const unit = units.get(key);
    if (unit === undefined) {
      units.set(key, { seq, slice, weights, named, best, rank: 0 });
      continue;
    }
    if (named > unit.named || (named === unit.named && best > unit.best))
      Object.assign(unit, { slice, best });
    unit.weights = unit.weights.map((weight, term) => Math.max(weight, weights[term]!));
    unit.named = Math.max(unit.named, named);
  }
  for (const unit of units.values())
    unit.rank = sum(unit.weights) + (apart ? 0 : nearWeight(unit, units)) + unit.named * scale.identifier;
  return [...units.values()]
    .sort((a, b) => b.rank - a.rank || b.seq - a.seq || a.slice - b.slice)
    .map(({ seq, slice, rank, named }) => ({ seq, slice, rank, named }));
}

/** What each part of the query is worth, given who holds it. */
class Scale {
  /** More than all words together. */
  readonly identifier: number;
  /** The term that each bit of a mask belongs to, and what the bit is worth. */
  private readonly bits: { term: number; worth: number }[];

  constructor(
    candidates: readonly Candidate[],
    private readonly pattern: WordsPattern,
    messages: number,
  ) {
    const shares = pattern.terms.flatMap((alternatives, term) =>
      alternatives.map(({ share }, place) => ({ term, share, place })),
    );
    const holders = holdersOf(candidates, shares.length + pattern.pairs.length);
    const whole = new Set(
      shares.flatMap(({ term, place }, bit) => (place === 0 && holders[bit] ? [term] : [])),
    );
    const rarity = holders.map((held) =>
      Math.log(1 + (Math.max(messages, held) - held + 0.5) / (held + 0.5)),
    );
    const words = shares.map(({ term, share, place }, bit) => ({
      term,
      worth: place > 0 && whole.has(term) ? 0 : share * rarity[bit]!,
    }));
    const rarityOf = (term: number) => rarity[shares.findIndex((share) => share.term === term)]!;
    const pairs = pattern.pairs.map((_, first) => ({
      term: pattern.terms.length + first,
      worth: Math.max(0, rarity[shares.length + first]! - Math.max(rarityOf(first), rarityOf(first + 1))),
    }));
    this.bits = [...words, ...pairs];
    this.identifier = 1 + sum(this.bits.map(({ worth }) => worth));
  }

  weightsOf(mask: string): number[] {
    const weights = new Array<number>(this.pattern.terms.length + this.pattern.pairs.length).fill(0);
    this.bits.forEach(({ term, worth }, bit) => {
      if (mask[bit] === '1') weights[term] = Math.max(weights[term]!, worth);
    });
    return weights;
  }

  namedIn(mask: string): number {
    return [...mask.slice(this.bits.length)].filter((bit) => bit === '1').length;
  }
}

/** How many messages hold each alternative. */
function holdersOf(candidates: readonly Candidate[], bits: number): number[] {
  const holders = Array.from({ length: bits }, () => new Set<number>());
  for (const { seq, mask } of candidates)
    for (let bit = 0; bit < bits; bit++) if (mask[bit] === '1') holders[bit]!.add(seq);
  return holders.map(({ size }) => size);
}

function nearWeight(unit: Unit, units: ReadonlyMap<string | number, Unit>): number {
  let total = 0;
  unit.weights.forEach((own, term) => {
    let most = 0;
    nearShares.forEach((share, distance) => {
      for (const seq of [unit.seq - distance, unit.seq + distance])
        most = Math.max(most, share * (units.get(seq)?.weights[term] ?? 0));
    });
    total += Math.max(0, most - own);
  });
  return total;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);
