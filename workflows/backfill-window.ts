import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import { ParentClosePolicy, sleep, startChild } from '@temporalio/workflow';
import type { EndedCompaction, Start } from '../activities/recordOutcomes.js';
import { endOfFailure, endOfOutcome, type End } from '../src/temporal/compaction-end.js';
import { backfillPriority, compactionWorkflowId, searchAttributes } from '../src/temporal/names.js';
import type { compaction } from './compaction.js';
import { databaseActivities } from './options.js';

/** One session that is being compacted. Plain JSON: it is handed from run to run. */
export interface Flight extends Start {
  workflowId: string;
  runId: string | null;
  /** Begun by this job; otherwise it was running already. */
  own: boolean;
}

/** How often those under another parent are looked at: milliseconds, growing by half up to the second. */
const firstLookMs = 500;
const longestLookMs = 10_000;

/**
 * The compactions in flight. Each is the ordinary child workflow and outlives this run: what is still in flight when a
 * run hands over is looked at by the next one, since only the run that started a child hears of its end.
 */
export class Window {
  readonly flights = new Map<string, Flight>();
  /** Asked to start and not yet confirmed: a run that ends before that may leave a child unstarted. */
  starting = 0;
  private readonly followed = new Set<Flight>();
  private following = false;
  private lookMs = firstLookMs;

  constructor(
    private readonly ids: { tenant: string; job: string },
    private readonly onEnd: (ended: EndedCompaction) => void,
    taken: readonly Flight[],
  ) {
    for (const flight of taken) this.flights.set(flight.session, flight);
    this.follow(taken);
  }

  begin(start: Start): void {
    const { tenant } = this.ids;
    const workflowId = compactionWorkflowId({ tenant, session: start.session }, start.generation + 1);
    const flight: Flight = { ...start, workflowId, runId: null, own: true };
    this.flights.set(start.session, flight);
    void this.fly(flight);
  }

  private async fly(flight: Flight): Promise<void> {
    const child = await this.start(flight);
    if (child === null) return;
    try {
      this.end(flight, endOfOutcome(await child.result()));
    } catch (error) {
      this.end(flight, endOfFailure(error));
    }
  }

  private async start(flight: Flight) {
    const { tenant, job } = this.ids;
    const { session, incarnation, generation, force, workflowId } = flight;
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
      flight.runId = child.firstExecutionRunId;
      return child;
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) {
        // The session compacts itself: its row decides, when that has ended.
        flight.own = false;
        this.follow([flight]);
      } else this.end(flight, endOfFailure(error));
      return null;
    } finally {
      this.starting--;
    }
  }

  private end(flight: Flight, end: End): void {
    const { session, incarnation, generation, force, rounds } = flight;
    this.flights.delete(session);
    this.onEnd({ session, at: Date.now(), end, generation, incarnation, force, rounds: rounds + 1 });
  }

  private follow(flights: readonly Flight[]): void {
    for (const flight of flights) this.followed.add(flight);
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
      for (const flight of looked) {
        const end = ended.get(flight.session);
        if (end === undefined) continue;
        this.followed.delete(flight);
        this.end(flight, end);
      }
    }
    this.following = false;
  }

  /** A step that its retries could not bring through is the end of what it was to look at: a retry of the job looks again. */
  private async endsOf(flights: readonly Flight[]): Promise<Map<string, End>> {
    const { followCompactions } = databaseActivities();
    const followed = flights.map(({ session, workflowId, runId, own }) => ({
      ...{ session, workflowId, runId, own },
    }));
    try {
      const ends = await followCompactions({ followed });
      return new Map(ends.map(({ session, end }) => [session, end]));
    } catch (error) {
      const end = endOfFailure(error);
      return new Map(flights.map(({ session }) => [session, end]));
    }
  }
}
