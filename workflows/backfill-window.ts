import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import { ParentClosePolicy, sleep, startChild } from '@temporalio/workflow';
import type { EndedCompaction, Start } from '../activities/recordOutcomes.js';
import { endOfFailure, endOfOutcome, type End } from '../src/temporal/failures.js';
import { backfillPriority, compactionWorkflowId, searchAttributes } from '../src/temporal/names.js';
import type { compaction } from './compaction.js';
import { databaseActivities } from './options.js';

/** The running compaction of one session. Plain JSON: it is handed from run to run. */
export interface RunningCompaction extends Start {
  workflowId: string;
  runId: string | null;
  /** Begun by this job; otherwise it was running already. */
  own: boolean;
}

/** Between two looks at compactions under another parent: milliseconds, growing by half up to the second. */
const firstLookMs = 500;
const longestLookMs = 10_000;

/**
 * The running compactions of a backfill. Each is the ordinary child workflow and outlives this run: the next run looks at
 * those that still run when this one hands over, since only the run that started a child hears of its end.
 */
export class Window {
  /** By session. */
  readonly running = new Map<string, RunningCompaction>();
  /** Asked to start and not yet confirmed: a run that ends before that may leave a child unstarted. */
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

  begin(start: Start): void {
    const { tenant } = this.ids;
    const workflowId = compactionWorkflowId({ tenant, session: start.session }, start.generation + 1);
    const one: RunningCompaction = { ...start, workflowId, runId: null, own: true };
    this.running.set(start.session, one);
    void this.runToEnd(one);
  }

  private async runToEnd(one: RunningCompaction): Promise<void> {
    const child = await this.start(one);
    if (child === null) return;
    try {
      this.end(one, endOfOutcome(await child.result()));
    } catch (error) {
      this.end(one, endOfFailure(error));
    }
  }

  private async start(one: RunningCompaction) {
    const { tenant, job } = this.ids;
    const { session, incarnation, generation, force, workflowId } = one;
    this.starting++;
    try {
      const child = await startChild<typeof compaction>('compaction', {
        workflowId,
        args: [{ v: 1, tenant, session, incarnation, reason: 'backfill', force }],
        parentClosePolicy: ParentClosePolicy.ABANDON,
        staticSummary: `generation ${generation + 1} · backfill ${job}`.slice(0, 200),
        typedSearchAttributes: [
          { key: searchAttributes.tenantId, value: tenant },
          { key: searchAttributes.sessionId, value: session },
          { key: searchAttributes.phase, value: 'planning' },
          { key: searchAttributes.backfillJob, value: job },
        ],
        priority: backfillPriority(tenant),
      });
      one.runId = child.firstExecutionRunId;
      return child;
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) {
        // The session compacts itself: its row decides, when that has ended.
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

  /** A step that its retries could not bring through is the end of what it was to look at: a retry of the job looks again. */
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
