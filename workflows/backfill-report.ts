import { setCurrentDetails, upsertSearchAttributes } from '@temporalio/workflow';
import type { Backfill, BackfillState } from '../src/contract/backfills.js';
import { searchAttributes } from '../src/temporal/names.js';
import type { Control } from './backfill-control.js';
import { backfillPage, doneOf } from './backfill-page.js';

/** Shortest time between two reports: each reads the sums over all sessions of the job. */
export const reportEveryMs = 5_000;

/** The operator's view of a backfill: a search attribute for its state, and a page made of the last report. */
export class Report {
  private perSecond: number | null = null;
  private shown: BackfillState | null = null;

  constructor(
    private readonly control: Control,
    public latest: Backfill | null,
    /** Unix milliseconds of `latest`. */
    public reportedAt: number,
  ) {}

  get isOld(): boolean {
    return Date.now() - this.reportedAt >= reportEveryMs;
  }

  get state(): BackfillState {
    return this.control.ended ? (this.latest?.state ?? 'completed') : this.control.state;
  }

  take(fresh: Backfill): void {
    const { latest, reportedAt } = this;
    const seconds = (Date.now() - reportedAt) / 1_000;
    if (latest && reportedAt > 0) this.perSecond = Math.max(0, doneOf(fresh) - doneOf(latest)) / seconds;
    this.reportedAt = Date.now();
    this.latest = fresh;
  }

  show(spendLimit: number | null): void {
    const { control, latest, state } = this;
    if (state !== this.shown) upsertSearchAttributes([{ key: searchAttributes.phase, value: state }]);
    this.shown = state;
    if (!latest) return;
    const { concurrency, cut, ended } = control;
    const now = ended ? latest : { ...latest, state, concurrency, spendLimit, reason: cut?.reason ?? null };
    setCurrentDetails(backfillPage(now, ended ? null : this.perSecond));
  }
}
