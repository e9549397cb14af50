import type { Start } from '../activities/recordOutcomes.js';

/** The sessions of a job that wait for a compaction. */
export class SessionQueue {
  /** Selected, in order, and not begun. */
  private ready: Start[] = [];
  private pages = 0;
  /** Sessions may be left beyond `ready`. */
  private more = true;

  constructor(
    /** The last session begun. */
    public begunThrough: string | null,
    /** Sessions that need another compaction. */
    public again: Start[],
  ) {}

  get length(): number {
    return this.ready.length + this.again.length;
  }

  get wantsPage(): boolean {
    return this.ready.length === 0 && this.more;
  }

  /** A page of this run is used up: the next one belongs to the next run. */
  get isPageUsedUp(): boolean {
    return this.wantsPage && this.pages > 0;
  }

  get isExhausted(): boolean {
    return !this.more && this.length === 0;
  }

  /** Those that need another compaction go first: they are too large still. */
  next(): Start | undefined {
    const next = this.again.shift() ?? this.ready.shift();
    if (next?.rounds === 0) this.begunThrough = next.session;
    return next;
  }

  addPage(page: Start[], more: boolean): void {
    if (page.length > 0) this.pages++;
    this.ready = page;
    this.more = more;
  }

  /** Selects from the first session on. */
  restart(): void {
    this.ready = [];
    this.begunThrough = null;
    this.more = true;
  }

  clear(): void {
    this.again = [];
    this.ready = [];
  }
}
