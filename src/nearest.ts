/** The candidates that share the most pairs of characters with `wanted`, best first. Ties keep their order. */
export function nearest(wanted: string, candidates: readonly string[]): string[] {
  const pairs = (text: string) =>
    new Set(Array.from({ length: Math.max(0, text.length - 1) }, (_, at) => text.slice(at, at + 2)));
  const own = pairs(wanted);
  const likeness = (candidate: string) => {
    const other = pairs(candidate);
    let shared = 0;
    for (const pair of own) if (other.has(pair)) shared += 1;
    return (2 * shared) / Math.max(1, own.size + other.size);
  };
  return candidates
    .map((candidate) => ({ candidate, likeness: likeness(candidate) }))
    .sort((a, b) => b.likeness - a.likeness)
    .map(({ candidate }) => candidate);
}
