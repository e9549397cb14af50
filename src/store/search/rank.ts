/** Ranking of the texts that match a part of the query. */
import type { WordsPattern } from './query.js';

/** A slice of a message that matches a part of the query. */
export interface Candidate {
  seq: number;
  slice: number;
  /**
   * One bit for each alternative of the terms, then for each pair, then for each identifier: `1` if the slice
   * contains it.
   */
  mask: string;
}

export interface Ranked {
  seq: number;
  slice: number;
  /** Higher is better. */
  rank: number;
  /** Number of identifiers of the query that the text contains verbatim. */
  named: number;
}

/** A message, or a slice of a message if slices rank separately. */
interface Unit extends Ranked {
  /** Weight of each term of the query here, then of each pair. */
  weights: number[];
  /** Weight of the words of its best slice. */
  best: number;
}

/** Share of a word's weight that a message gets from the messages just before and after it, by distance. */
const nearShares = [0, 0.4, 0.2];

/**
 * Ranks best first: texts that hold an identifier verbatim, then by the sum of their words' weights; newest first
 * among equals. A word weighs more the fewer messages hold it (inverse document frequency, Spärck Jones 1972). It
 * also counts a little for the neighbouring messages, because a question and its answer are two messages. A pair of
 * adjacent words weighs the amount by which it is rarer than either word.
 *
 * @param messages number of messages searched
 * @param apart each slice ranks separately, because all slices belong to one message
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

/** The weight of each part of the query, by the messages that hold it. */
class Scale {
  /** Outweighs all words together. */
  readonly identifier: number;
  /** The term that each bit of a mask belongs to, and the weight of the bit. */
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

/** Counts the messages that contain each alternative. */
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
