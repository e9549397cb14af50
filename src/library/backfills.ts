import type { Pool } from 'pg';
import { invalid } from '../errors.js';
import { estimateBackfill, type SummarizerFacts } from '../store/backfills/estimate.js';
import { listItems, spentBy } from '../store/backfills/items.js';
import {
  checkSpendLimit,
  type FullRequest,
  insertBackfill,
  listBackfills,
  loadBackfill,
  loadBackfillRow,
} from '../store/backfills/jobs.js';
import {
  type Backfill,
  type BackfillEstimate,
  type BackfillItemList,
  type BackfillItemRequest,
  type BackfillRequest,
  backfillRequest,
  type EstimateRequest,
  estimateRequest,
  itemsRequest,
  resizeRequest,
  retryRequest,
} from '../contract/backfills.js';
import type { Asked, OfJob } from '../contract/client.js';
import { checked } from '../contract/schema.js';
import type { BackfillWorkflows } from '../temporal/backfill-workflows.js';
import { encodeIdPart } from '../contract/ids.js';

/** The backfills of one tenant. Rows in PostgreSQL define a job, and its workflow does the work. */
export class Backfills {
  constructor(
    private readonly pool: Pool,
    private readonly workflows: BackfillWorkflows,
    private readonly tenant: string,
    private readonly summarizer: SummarizerFacts = {},
  ) {}

  async start(request: BackfillRequest): Promise<Backfill> {
    const { job, ...asked } = checked(backfillRequest, request);
    const ids = this.ids(job);
    const { endedAt } = await insertBackfill(this.pool, this.tenant, { job, ...withDefaults(asked) });
    // Also starts a job that was stored before: its first caller may have ended between storing and starting it.
    if (endedAt === null) await this.workflows.start(ids);
    return loadBackfill(this.pool, ids);
  }

  async estimate(request: EstimateRequest): Promise<BackfillEstimate> {
    return estimateBackfill(
      this.pool,
      this.tenant,
      withDefaults(checked(estimateRequest, request)),
      this.summarizer,
    );
  }

  async list(): Promise<Backfill[]> {
    return listBackfills(this.pool, this.tenant);
  }

  async report({ job }: OfJob): Promise<Backfill> {
    return loadBackfill(this.pool, this.ids(job));
  }

  async items({ job, ...request }: BackfillItemRequest): Promise<BackfillItemList> {
    const { limit = 100, ...page } = checked(itemsRequest, request);
    const items = await listItems(this.pool, this.ids(job), { ...page, limit });
    return { items, next: items.length < limit ? null : (items.at(-1)?.session ?? null) };
  }

  async pause({ job }: OfJob): Promise<Backfill> {
    return this.tell(job, 'pause');
  }

  async resume({ job }: OfJob): Promise<Backfill> {
    return this.tell(job, 'resume');
  }

  async resize({ job, ...request }: Asked<'resizeBackfill'>): Promise<Backfill> {
    return this.tell(job, 'resize', checked(resizeRequest, request));
  }

  async cancel({ job }: OfJob): Promise<Backfill> {
    const present = await this.report({ job });
    return present.state === 'cancelled' ? present : this.tell(job, 'cancel');
  }

  async retry({ job, ...request }: Asked<'retryBackfill'>): Promise<Backfill> {
    const ids = this.ids(job);
    const given = checked(retryRequest, request);
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
        'Retry the job, or start one under another name.',
      );
    await this.workflows.tell(ids, update, ...args);
    return loadBackfill(this.pool, ids);
  }

  private ids(job: string): { tenant: string; job: string } {
    encodeIdPart(job, 'job');
    return { tenant: this.tenant, job };
  }
}

function withDefaults({
  select = {},
  mode = 'due',
  concurrency = 16,
  spendLimit,
}: EstimateRequest): Omit<FullRequest, 'job'> {
  return { select, mode, concurrency, ...(spendLimit === undefined ? {} : { spendLimit }) };
}
