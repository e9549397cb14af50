/** A newer turn weighs this much in the running mean. */
const TURN_WEIGHT = 0.1;

/** The running mean of the tokens of a turn once one more of `size` has come; the first one is taken as it is. */
export function meanTurn({ turns, mean }: { turns: number; mean: number }, size: number): number {
  return turns === 0 ? size : mean + TURN_WEIGHT * (size - mean);
}
