/** Works on items in order, a limited number of them at once, and on each item by itself. */
export class FewAtOnce<Item> {
  readonly #waiting = new Set<Item>();
  readonly #working = new Set<Item>();

  /** `work` never rejects. */
  constructor(
    private readonly most: number,
    private readonly work: (item: Item) => Promise<void>,
  ) {}

  /** Work on the item begins after this call; what is under way does not count. */
  add(item: Item): void {
    this.#waiting.add(item);
    this.#next();
  }

  /** Begins no work on the item. */
  delete(item: Item): void {
    this.#waiting.delete(item);
  }

  has(item: Item): boolean {
    return this.#waiting.has(item);
  }

  #next(): void {
    for (const item of this.#waiting) {
      if (this.#working.size >= this.most) return;
      if (this.#working.has(item)) continue;
      this.#waiting.delete(item);
      this.#working.add(item);
      void this.work(item).finally(() => {
        this.#working.delete(item);
        this.#next();
      });
    }
  }
}
