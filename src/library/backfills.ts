import type { Pool } from 'pg';
import { invalid } from '../errors.js';
import { estimateBackfill, type SummarizerFacts } from '../store/backfills/estimate.js';
import { itemStates, listItems, spentBy } from '../store/backfills/items.js';
import {
  checkConcurrency,
  checkSpendLimit,
  insertBackfill,
  listBackfills,
  loadBackfill,
  loadBackfillRow,
  parseBackfill,
  parseEstimate,
  parseSpendLimit,
} from '../store/backfills/jobs.js';
import type {
  Backfill,
  BackfillEstimate,
  BackfillItemList,
  BackfillItemRequest,
  BackfillRequest,
} from '../contract/backfills.js';
import type { BackfillWorkflows } from '../temporal/backfill-workflows.js';
import { encodeIdPart } from '../contract/ids.js';

/** The backfills of one tenant: rows in PostgreSQL say what a job is, its workflow does the work. */
export class Backfills {
  constructor(
    private readonly pool: Pool,
    private readonly workflows: BackfillWorkflows,
    private readonly tenant: string,
    private readonly summarizer: SummarizerFacts = {},
  ) {}

  async start(request: BackfillRequest): Promise<Backfill> {
    const full = parseBackfill(request);
    const ids = this.ids(full.job);
    const { endedAt } = await insertBackfill(this.pool, this.tenant, full);
    // Also where it was stored before: who stored it may have died before it was started.
    if (endedAt === null) await this.workflows.start(ids);
    return loadBackfill(this.pool, ids);
  }

  async estimate(request: Omit<BackfillRequest, 'job'>): Promise<BackfillEstimate> {
    return estimateBackfill(this.pool, this.tenant, parseEstimate(request), this.summarizer);
  }

  async list(): Promise<Backfill[]> {
    return listBackfills(this.pool, this.tenant);
  }

  async report({ job }: { job: string }): Promise<Backfill> {
    return loadBackfill(this.pool, this.ids(job));
  }

  async items({ job, state, after, limit = 100 }: BackfillItemRequest): Promise<BackfillItemList> {
    if (state !== undefined && !itemStates.includes(state))
      throw invalid(
        `${String(state)} is no state of a session`,
        'state',
        `States: ${itemStates.join(', ')}.`,
      );
    const items = await listItems(this.pool, this.ids(job), { state, after, limit });
    return { items, next: items.length < limit ? null : (items.at(-1)?.session ?? null) };
  }

  async pause({ job }: { job: string }): Promise<Backfill> {
    return this.tell(job, 'pause');
  }

  async resume({ job }: { job: string }): Promise<Backfill> {
    return this.tell(job, 'resume');
  }

  async resize({ job, concurrency }: { job: string; concurrency: number }): Promise<Backfill> {
    return this.tell(job, 'resize', { concurrency: checkConcurrency(concurrency) });
  }

  async cancel({ job }: { job: string }): Promise<Backfill> {
    const present = await this.report({ job });
    return present.state === 'cancelled' ? present : this.tell(job, 'cancel');
  }

  async retry({ job, spendLimit }: { job: string; spendLimit?: number }): Promise<Backfill> {
    const ids = this.ids(job);
    const given = spendLimit === undefined ? {} : { spendLimit: parseSpendLimit(spendLimit) };
    const row = await loadBackfillRow(this.pool, ids);
    checkSpendLimit(given.spendLimit ?? row.spendLimit, await spentBy(this.pool, ids));
    await this.workflows.tell(ids, 'retry', given);
    return loadBackfill(this.pool, ids);
  }

  private async tell(
    job: string,
    update: 'pause' | 'resume' | 'cancel' | 'resize',
    ...args: object[]
  ): Promise<Backfill> {
    const ids = this.ids(job);
    const { endedAt, state } = await loadBackfillRow(this.pool, ids);
    if (endedAt !== null)
      throw invalid(
        `backfill ${job} has ended (${state})`,
        'job',
        'Retry it, or start one under another name.',
      );
    await this.workflows.tell(ids, update, ...args);
    return loadBackfill(this.pool, ids);
  }

  private ids(job: string): { tenant: string; job: string } {
    encodeIdPart(job, 'job');
    return { tenant: this.tenant, job };
  }
}
