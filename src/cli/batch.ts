/**
 * Runs `work` on every item, at most `limit` at once, and hands the results on in the order of the items, each as soon
 * as all before it are there. Starts nothing new once `signal` is aborted.
 */
export async function inOrder<Item, Result>(
  items: readonly Item[],
  limit: number,
  signal: AbortSignal,
  work: (item: Item, index: number) => Promise<Result>,
  handOn: (result: Result, index: number) => void,
): Promise<void> {
  const waiting = new Map<number, Result>();
  let next = 0;
  let handed = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length && !signal.aborted) {
      const index = next++;
      waiting.set(index, await work(items[index] as Item, index));
      for (let ready = waiting.get(handed); ready !== undefined; ready = waiting.get(handed)) {
        waiting.delete(handed);
        handOn(ready, handed++);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
}
