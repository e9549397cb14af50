import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  patched,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { OpenedBackfill } from '../activities/backfill.js';
import type { EndedCompaction, Start } from '../activities/recordOutcomes.js';
import type { Backfill } from '../src/contract/backfills.js';
import type { BackfillStart } from '../src/contract/workflows.js';
import { Control, type Cut } from './backfill-control.js';
import { type RunningCompaction, SessionQueue, Unrecorded, Window } from './backfill-window.js';
import { Report, reportEveryMs } from './backfill-page.js';
import { backfillWorkflowId } from '../src/temporal/names.js';
import { progressQuery } from './messages.js';
import { databaseActivities } from './options.js';
import { assertOwnId } from './own-id.js';

/** The result of the workflow; PostgreSQL stores the same. */
type BackfillResult = Omit<Backfill, 'request'>;

/** Compacts many sessions of one tenant, page by page, at most `concurrency` at once. */
export function backfill(input: BackfillInput): Promise<BackfillResult> {
  assertOwnId(() => backfillWorkflowId(input));
  const cancelled = CancellationScope.current().cancelRequested;
  // A cancellation in the Temporal UI ends the job as the update does: in order and with a report.
  return CancellationScope.nonCancellable(() => run(input, cancelled));
}

async function run(input: BackfillInput, cancelled: Promise<never>): Promise<BackfillResult> {
  const job = new BackfillRun(input);
  const { control } = job;
  cancelled.catch(() => control.cutShort('cancelled', 'cancelled in Temporal'));
  if (input.carried) job.resume(input.carried);
  else await job.open();
  while (true) {
    job.fill();
    await condition(() => job.isWoken);
    if (control.retries.length > 0) await job.retry();
    else if (control.unsaved) await job.save();
    else if (job.mustRecord) await job.record();
    else if (job.mustHandOver) {
      const carried = await job.handOver();
      if (carried) await continueAsNew<typeof backfill>({ ...input, v: 1, carried });
    } else if (job.wantsPage) await job.nextPage();
    else if (job.wantsPlans) await job.plan();
    else {
      const report = await job.result();
      if (report === null) continue;
      const { request: _request, ...result } = report;
      return result;
    }
  }
}

interface BackfillInput extends BackfillStart {
  /** Set by continue-as-new. */
  carried?: Carried;
}

/** The state that the next run takes over. It is small, because PostgreSQL holds cursor and outcomes. */
interface Carried {
  mode: 'due' | 'all';
  concurrency: number;
  spendLimit: number | null;
  /** Money spent so far, including compactions that are not stored yet. */
  spent: number;
  paused: boolean;
  cut: Cut | null;
  /** The last session started. */
  begunThrough: string | null;
  /** Compactions that still run. */
  flights: RunningCompaction[];
  /** Sessions that need another compaction. */
  again: Start[];
  report: Backfill | null;
  /** Unix milliseconds of the report. */
  reportedAt: number;
}

/** One run of the workflow `backfill`: its state, and the steps that its main loop chooses from. */
class BackfillRun {
  readonly control = new Control();
  private readonly ids: { tenant: string; job: string };
  private readonly pageSize: number;
  private readonly maxHistoryEvents: number;
  private readonly queue: SessionQueue;
  private readonly unrecorded = new Unrecorded();
  private readonly report: Report;
  private readonly window: Window;
  private readonly activities = databaseActivities();
  private mode: Carried['mode'] = 'due';
  private spendLimit: number | null = null;
  private spent = 0;
  private handingOver = false;

  constructor({ tenant, job, pageSize = 500, maxHistoryEvents = Infinity, carried }: BackfillInput) {
    this.ids = { tenant, job };
    this.pageSize = pageSize;
    this.maxHistoryEvents = maxHistoryEvents;
    const plans = patched('a backfill plans several sessions at a time');
    this.queue = new SessionQueue(carried?.begunThrough ?? null, carried?.again ?? [], plans);
    this.report = new Report(this.control, carried?.report ?? null, carried?.reportedAt ?? 0);
    this.takeOver({ mode: 'due', spendLimit: null, spent: 0, ...carried });
    this.window = new Window(this.ids, (ended) => this.onEnd(ended), carried?.flights ?? []);
    setHandler(progressQuery, () => ({
      ...{ state: this.report.state, concurrency: this.control.concurrency, spent: this.spent },
      ...{ running: this.window.running.size, ready: this.queue.length },
    }));
  }

  /** Continues where the last run handed over. */
  resume(carried: Carried): void {
    this.control.takeUp(carried);
    this.unrecorded.renewPageAfter(reportEveryMs);
    this.show();
  }

  async open(): Promise<void> {
    const opened = await this.activities.openBackfill(this.ids);
    this.takeOver(opened);
    const { state, reason, concurrency } = opened;
    const cut = state === 'cancelled' || state === 'stopped' ? { state, reason: reason ?? '' } : null;
    this.control.takeUp({ paused: state === 'paused', concurrency, cut });
    if (opened.ended) await this.finish();
    this.show();
  }

  /** Starts compactions up to the job's concurrency. */
  fill(): void {
    const { control, queue, window } = this;
    while (!control.held && !this.handingOver && window.running.size < control.concurrency) {
      const next = queue.next();
      if (next === undefined) return;
      if (next.rounds === 0) this.unrecorded.addBegun(next);
      window.begin(next);
    }
  }

  get isWoken(): boolean {
    const wants = this.wantsPage || this.wantsPlans;
    return this.isAsked || this.mustRecord || this.mustHandOver || wants || this.isDone;
  }

  /** True if an operator waits for a retry or for a change to be stored. */
  private get isAsked(): boolean {
    return this.control.retries.length > 0 || this.control.unsaved;
  }

  get mustRecord(): boolean {
    const nothingElse = this.window.running.size === 0 && this.unrecorded.length > 0;
    return nothingElse || this.unrecorded.isDue(this.control.concurrency);
  }

  /** True at the end of each page, and when the history has grown long. */
  get mustHandOver(): boolean {
    const { continueAsNewSuggested, historyLength } = workflowInfo();
    const long = continueAsNewSuggested || historyLength > this.maxHistoryEvents;
    return this.handingOver || (this.wantsPage && this.queue.isPageUsedUp) || (long && !this.isDone);
  }

  get wantsPage(): boolean {
    return !this.control.held && !this.handingOver && this.queue.wantsPage;
  }

  get wantsPlans(): boolean {
    return !this.control.held && !this.handingOver && this.queue.unplanned.length > 0;
  }

  private get isDone(): boolean {
    const { control, queue, window, unrecorded } = this;
    const nothingMore = control.cut !== null || queue.isExhausted;
    const nothingLeft = window.running.size === 0 && unrecorded.ended.length === 0;
    return control.ended || (nothingMore && nothingLeft);
  }

  async save(): Promise<void> {
    const { control, ids } = this;
    await control.save(() => {
      const { state, concurrency, cut } = control;
      return this.activities.saveBackfill({ ...ids, state, concurrency, reason: cut?.reason ?? null });
    });
    this.show();
  }

  async retry(): Promise<void> {
    // Started sessions must not be queued again.
    await this.record();
    for (const { request, settle } of this.control.retries.splice(0)) {
      try {
        const spendLimit = request.spendLimit ?? undefined;
        this.takeOver(await this.activities.retryBackfill({ ...this.ids, spendLimit }));
        this.control.wake();
        this.queue.restart();
        settle();
      } catch (error) {
        settle(error);
      }
    }
    this.show();
  }

  async nextPage(): Promise<void> {
    const after = this.queue.begunThrough;
    const { sessions, more } = await this.activities.selectSessions({
      ...{ ...this.ids, after, pageSize: this.pageSize },
    });
    const start = { force: this.mode === 'all', rounds: 0 };
    const page = sessions.map(({ session, generation, incarnation }) => ({
      ...{ session, generation: generation ?? 0, incarnation: incarnation ?? undefined, ...start },
    }));
    this.queue.addPage(page, more);
  }

  async plan(): Promise<void> {
    const sessions = this.queue.unplanned;
    const asked = sessions.map(({ session, incarnation, force }) => ({ session, incarnation, force }));
    const { tenant } = this.ids;
    const plans = await this.activities.planSessions({ tenant, sessions: asked });
    sessions.forEach((session, index) => {
      session.plan = plans[index] ?? null;
      session.plannedAt = Date.now();
    });
  }

  async record(): Promise<void> {
    const { ids, unrecorded, report, spendLimit } = this;
    const wanted = report.isOld;
    const recorded = await this.activities.recordOutcomes({
      ...{ ...ids, ...unrecorded.take(), report: wanted, limited: spendLimit !== null },
    });
    this.queue.again.push(...recorded.again);
    // Only the database knows the cost of failed attempts; it does not include outcomes that arrived in the meantime.
    if (recorded.spent !== null)
      this.spent = unrecorded.ended.reduce((sum, one) => sum + costOf(one), recorded.spent);
    this.checkLimit();
    if (recorded.report) this.showReport(recorded.report);
    else unrecorded.renewPageAfter(reportEveryMs);
  }

  async finish(): Promise<void> {
    this.queue.clear();
    const finished = await this.activities.finishBackfill(this.ids);
    this.control.ended = true;
    this.showReport(finished);
  }

  /** Ends the job if nothing is left to do; returns null if an operator's request comes first. */
  async result(): Promise<Backfill | null> {
    if (!this.control.ended) await this.finish();
    return (await this.isQuiet()) && this.control.ended ? this.report.latest : null;
  }

  /** Returns the state to hand over, or null if something must be done first. */
  async handOver(): Promise<Carried | null> {
    const { control, queue, unrecorded, window, report, mode, spendLimit } = this;
    this.handingOver = true;
    await condition(() => window.starting === 0);
    if (unrecorded.length > 0) {
      await this.record();
      return null;
    }
    if (!(await this.isQuiet()) || unrecorded.ended.length > 0) return null;
    const { concurrency, paused, cut } = control;
    return {
      ...{ mode, concurrency, spendLimit, spent: this.spent, paused, cut },
      ...{ begunThrough: queue.begunThrough, again: queue.again },
      ...{ report: report.latest, reportedAt: report.reportedAt, flights: [...window.running.values()] },
    };
  }

  /** Waits until every message is answered; returns false if a message requires action first. */
  private async isQuiet(): Promise<boolean> {
    await condition(() => allHandlersFinished() || this.isAsked);
    return !this.isAsked;
  }

  private takeOver({ mode, spendLimit, spent }: Pick<OpenedBackfill, 'mode' | 'spendLimit' | 'spent'>): void {
    this.mode = mode;
    this.spendLimit = spendLimit;
    this.spent = spent;
  }

  private onEnd(ended: EndedCompaction): void {
    this.unrecorded.addEnded(ended);
    this.spent += costOf(ended);
    this.checkLimit();
    this.fill();
  }

  private checkLimit(): void {
    const { spendLimit, spent } = this;
    if (spendLimit !== null && spent >= spendLimit) this.control.cutShort('stopped', 'spend limit');
  }

  private showReport(fresh: Backfill): void {
    this.report.take(fresh);
    this.show();
  }

  private show(): void {
    this.report.show(this.spendLimit);
  }
}

function costOf({ end }: EndedCompaction): number {
  return end.kind === 'committed' ? (end.step.cost ?? 0) : 0;
}
