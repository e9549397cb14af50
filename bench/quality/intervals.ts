/** Shares with their intervals. The identifiers of one session are not independent, so the bootstrap draws whole sessions. */
export interface SessionCount {
  kept: number;
  needed: number;
}

export interface Share {
  share: number;
  /** 95 % interval. */
  low: number;
  high: number;
  sessions: number;
  needed: number;
}

const DRAWS = 1_000;

/** Pooled over identifiers; the interval is a percentile bootstrap over sessions with fixed random numbers. */
export function pooled(counts: readonly SessionCount[]): Share | null {
  const used = counts.filter(({ needed }) => needed > 0);
  const needed = total(used, 'needed');
  if (needed === 0) return null;
  const random = randomNumbers(1);
  const draws = Array.from({ length: DRAWS }, () => {
    const drawn = used.map(() => used[Math.floor(random() * used.length)]!);
    return total(drawn, 'kept') / total(drawn, 'needed');
  }).sort((a, b) => a - b);
  return {
    share: total(used, 'kept') / needed,
    low: draws[Math.floor(DRAWS * 0.025)]!,
    high: draws[Math.ceil(DRAWS * 0.975) - 1]!,
    sessions: used.length,
    needed,
  };
}

function total(counts: readonly SessionCount[], field: keyof SessionCount): number {
  return counts.reduce((sum, count) => sum + count[field], 0);
}

/** mulberry32: 0 to 1, the same sequence for the same seed. */
function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
