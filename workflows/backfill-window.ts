import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import { ParentClosePolicy, sleep, startChild } from '@temporalio/workflow';
import type { EndedCompaction, Start } from '../activities/recordOutcomes.js';
import type { Plan } from '../src/compaction/plan/plan-types.js';
import type { BegunItem } from '../src/store/backfills/items.js';
import { type End, endOfFailure, endOfOutcome } from '../src/temporal/failures.js';
import { backfillPriority, compactionWorkflowId, searchAttributes } from '../src/temporal/names.js';
import type { compaction } from './compaction.js';
import { databaseActivities } from './options.js';
import { startTimer, type Timer } from './timer.js';

/** The running compaction of one session. Plain JSON, because one run hands it to the next. */
export interface RunningCompaction extends Start {
  workflowId: string;
  runId: string | null;
  /** True if this job started it; false if it was already running. */
  own: boolean;
}

/** A selected session. */
export interface Ready extends Start {
  /** Null: it has been tried, and the compaction plans by itself. Absent: not yet tried. */
  plan?: Plan | null;
  /** Unix milliseconds. */
  plannedAt?: number;
}

/** Sessions that are planned at a time, and for how many milliseconds a plan is used: a session may change. */
const plannedAtOnce = 16;
const plannedForMs = 30_000;

/** Milliseconds between two checks of compactions under another parent; the interval grows by half each time. */
const firstLookMs = 500;
const longestLookMs = 10_000;

/**
 * The running compactions of a backfill. Each is an ordinary child workflow and outlives this run. The next run polls the
 * compactions that still run at the handover, because only the run that started a child is told when it ends.
 */
export class Window {
  /** Keyed by session. */
  readonly running = new Map<string, RunningCompaction>();
  /** Children whose start is not confirmed yet. If a run ends before the confirmation, a child may stay unstarted. */
  starting = 0;
  private readonly followed = new Set<RunningCompaction>();
  private following = false;
  private lookMs = firstLookMs;

  constructor(
    private readonly ids: { tenant: string; job: string },
    private readonly onEnd: (ended: EndedCompaction) => void,
    taken: readonly RunningCompaction[],
  ) {
    for (const one of taken) this.running.set(one.session, one);
    this.follow(taken);
  }

  begin({ plan = null, plannedAt = 0, ...start }: Ready): void {
    const { tenant } = this.ids;
    const workflowId = compactionWorkflowId({ tenant, session: start.session }, start.generation + 1);
    const one: RunningCompaction = { ...start, workflowId, runId: null, own: true };
    this.running.set(start.session, one);
    void this.runToEnd(one, Date.now() - plannedAt < plannedForMs ? plan : null);
  }

  private async runToEnd(one: RunningCompaction, plan: Plan | null): Promise<void> {
    const child = await this.start(one, plan);
    if (child === null) return;
    try {
      this.end(one, endOfOutcome(await child.result()));
    } catch (error) {
      this.end(one, endOfFailure(error));
    }
  }

  private async start(one: RunningCompaction, plan: Plan | null) {
    const { tenant, job } = this.ids;
    const { session, incarnation, generation, force, workflowId } = one;
    this.starting++;
    try {
      const child = await startChild<typeof compaction>('compaction', {
        workflowId,
        args: [{ v: 1, tenant, session, incarnation, reason: 'backfill', force, ...(plan && { plan }) }],
        parentClosePolicy: ParentClosePolicy.ABANDON,
        staticSummary: `generation ${generation + 1} · backfill ${job}`.slice(0, 200),
        typedSearchAttributes: [
          { key: searchAttributes.tenantId, value: tenant },
          { key: searchAttributes.sessionId, value: session },
          { key: searchAttributes.backfillJob, value: job },
        ],
        priority: backfillPriority(tenant),
      });
      one.runId = child.firstExecutionRunId;
      return child;
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) {
        // The session's own workflow started this compaction; after it, the session's row decides.
        one.own = false;
        this.follow([one]);
      } else this.end(one, endOfFailure(error));
      return null;
    } finally {
      this.starting--;
    }
  }

  private end(one: RunningCompaction, end: End): void {
    const { session, incarnation, generation, force, rounds } = one;
    this.running.delete(session);
    this.onEnd({ session, at: Date.now(), end, generation, incarnation, force, rounds: rounds + 1 });
  }

  private follow(compactions: readonly RunningCompaction[]): void {
    for (const one of compactions) this.followed.add(one);
    this.lookMs = firstLookMs;
    if (this.following || this.followed.size === 0) return;
    this.following = true;
    void this.look();
  }

  private async look(): Promise<void> {
    for (; this.followed.size > 0; this.lookMs = Math.min(longestLookMs, this.lookMs * 1.5)) {
      await sleep(this.lookMs, { summary: `${this.followed.size} compactions under another parent` });
      const looked = [...this.followed];
      const ended = await this.endsOf(looked);
      for (const one of looked) {
        const end = ended.get(one.session);
        if (end === undefined) continue;
        this.followed.delete(one);
        this.end(one, end);
      }
    }
    this.following = false;
  }

  /**
   * If the step fails after all its retries, the compactions it checked count as failed; a retry of the job checks them again.
   */
  private async endsOf(compactions: readonly RunningCompaction[]): Promise<Map<string, End>> {
    const { followCompactions } = databaseActivities();
    const followed = compactions.map(({ session, workflowId, runId, own }) => ({
      ...{ session, workflowId, runId, own },
    }));
    try {
      const ends = await followCompactions({ followed });
      return new Map(ends.map(({ session, end }) => [session, end]));
    } catch (error) {
      const end = endOfFailure(error);
      return new Map(compactions.map(({ session }) => [session, end]));
    }
  }
}

/** The sessions of a job that wait for a compaction. */
export class SessionQueue {
  /** Selected sessions in order, not started yet. */
  private ready: Ready[] = [];
  private pages = 0;
  /** True if more sessions may follow those in `ready`. */
  private more = true;

  constructor(
    /** The last session started. */
    public begunThrough: string | null,
    /** Sessions that need another compaction. */
    public again: Start[],
    /** Whether selected sessions are planned before they start. */
    private readonly plans: boolean,
  ) {}

  get length(): number {
    return this.ready.length + this.again.length;
  }

  get wantsPage(): boolean {
    return this.ready.length === 0 && this.more;
  }

  /** True if this run has finished a page: the next run takes the next page. */
  get isPageUsedUp(): boolean {
    return this.wantsPage && this.pages > 0;
  }

  get isExhausted(): boolean {
    return !this.more && this.length === 0;
  }

  /** Sessions that need another compaction go first, because they are still too large. */
  next(): Ready | undefined {
    const next = this.again.shift() ?? (this.isPlanned(this.ready[0]) ? this.ready.shift() : undefined);
    if (next?.rounds === 0) this.begunThrough = next.session;
    return next;
  }

  private isPlanned(session: Ready | undefined): boolean {
    return !this.plans || session?.plan !== undefined;
  }

  /** The next sessions to plan; none while enough are planned. */
  get unplanned(): Ready[] {
    const first = this.ready.findIndex((session) => !this.isPlanned(session));
    return first === -1 || first > plannedAtOnce / 2 ? [] : this.ready.slice(first, first + plannedAtOnce);
  }

  addPage(page: Ready[], more: boolean): void {
    if (page.length > 0) this.pages++;
    this.ready = page;
    this.more = more;
  }

  /** Restarts the selection at the first session. */
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

/** Outcomes are stored when this many have accumulated, or after this time. */
const batch = 16;
const batchMs = 1_000;

/** The started sessions and the ended compactions that are not stored yet. */
export class Unrecorded {
  begun: BegunItem[] = [];
  ended: EndedCompaction[] = [];
  private flush: Timer | null = null;
  /** Set while the page shows less than is stored. When it fires, the page is renewed even if no compaction ends for a day. */
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

  /** `concurrency` is the maximum number of concurrent compactions, and so of accumulated outcomes. */
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
