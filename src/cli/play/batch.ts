/**
 * Runs `work` on every item, at most `limit` at once. Hands the results on in the order of the items, each as soon as
 * all before it are there; with `ordered: false` each as soon as it is there. Starts nothing new once `signal` is aborted.
 */
export async function inBatches<Item, Result>(
  items: readonly Item[],
  { limit, signal, ordered }: { limit: number; signal: AbortSignal; ordered: boolean },
  work: (item: Item) => Promise<Result>,
  handOn: (result: Result) => void,
): Promise<void> {
  const waiting = new Map<number, Result>();
  let next = 0;
  let handed = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length && !signal.aborted) {
      const index = next++;
      const result = await work(items[index] as Item);
      if (!ordered) {
        handOn(result);
        continue;
      }
      waiting.set(index, result);
      for (let ready = waiting.get(handed); ready !== undefined; ready = waiting.get(handed)) {
        waiting.delete(handed++);
        handOn(ready);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
}
