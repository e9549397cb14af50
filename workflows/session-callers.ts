import type { CompactAnswer } from '../src/contract/workflows.js';

/** A caller of `compact` that waits for the outcome. */
export interface Caller {
  settle: (answer: CompactAnswer, error?: unknown) => void;
  resummarize: boolean;
}

/** Callers of `compact`. Each joins the running compaction if it does the same, or waits for the next compaction. */
export class Callers {
  private readonly waiting: Caller[] = [];
  /** Callers that the running compaction answers. */
  private joined: Caller[] = [];
  private running: { resummarizes: boolean; generation: number } | null = null;

  get count(): number {
    return this.waiting.length;
  }

  /**
   * The compaction that serves everybody who waits; null if nobody does. One on request also lets a model rewrite what the
   * fallback wrote, so it serves callers of `resummarize` too.
   */
  get asked(): 'manual' | 'resummarize' | null {
    if (this.waiting.length === 0) return null;
    return this.waiting.every(({ resummarize }) => resummarize) ? 'resummarize' : 'manual';
  }

  /** Leaves the caller to the next compaction, whatever is running. */
  addToNext(caller: Caller): void {
    this.waiting.push(caller);
  }

  /** @param after the newest generation that the caller has seen: it asks for a later one */
  joinOrAdd(caller: Caller, after = -1): void {
    const { running } = this;
    const joins =
      running !== null && caller.resummarize === running.resummarizes && running.generation > after;
    if (joins) this.joined.push(caller);
    else this.waiting.push(caller);
  }

  takeWaiting(): Caller[] {
    return this.waiting.splice(0);
  }

  refuseWaiting(error: unknown): void {
    for (const { settle } of this.takeWaiting()) settle(null, error);
  }

  /** Starts a compaction that answers `asked` and the callers that join it. */
  begin(asked: readonly Caller[], running: { resummarizes: boolean; generation: number }): void {
    this.joined = [...asked];
    this.running = running;
  }

  answer(answer: CompactAnswer, error?: unknown): void {
    for (const { settle } of this.joined) settle(answer, error);
  }

  /** Moves the callers that joined the running compaction to the next compaction. */
  postpone(): void {
    this.waiting.push(...this.joined);
  }

  end(): void {
    this.joined = [];
    this.running = null;
  }
}
