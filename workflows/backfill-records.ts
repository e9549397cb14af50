import type { EndedCompaction, Start } from '../activities/recordOutcomes.js';
import type { BegunItem } from '../src/store/backfills/items.js';
import { startTimer, type Timer } from './timer.js';

/** Outcomes are written down when so many have come together, or after so long. */
const batch = 16;
const batchMs = 1_000;

/** The sessions begun and the compactions ended that are not written down yet. */
export class Unrecorded {
  begun: BegunItem[] = [];
  ended: EndedCompaction[] = [];
  private flush: Timer | null = null;
  /** Set while the page shows less than is written down: a job may wait a day for its last session. */
  private renew: Timer | null = null;

  get length(): number {
    return this.begun.length + this.ended.length;
  }

  addBegun({ session, incarnation }: Start): void {
    this.begun.push({ session, incarnation, at: Date.now() });
    this.flushSoon();
  }

  addEnded(ended: EndedCompaction): void {
    this.ended.push(ended);
    this.flushSoon();
  }

  /** `concurrency`: compactions at most at once; there may never be more outcomes than that together. */
  isDue(concurrency: number): boolean {
    const isTime = this.flush?.fired === true || this.renew?.fired === true;
    return isTime || this.ended.length >= Math.min(batch, concurrency);
  }

  take(): { begun: BegunItem[]; ended: EndedCompaction[] } {
    const { begun, ended } = this;
    this.begun = [];
    this.ended = [];
    if (this.flush?.fired) this.flush = null;
    if (this.renew?.fired) this.renew = null;
    return { begun, ended };
  }

  renewPageAfter(ms: number): void {
    this.renew ??= startTimer(ms, 'until the page is renewed');
  }

  private flushSoon(): void {
    this.flush ??= startTimer(batchMs, 'until outcomes are written down');
  }
}
