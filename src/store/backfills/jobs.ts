import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Pool } from 'pg';
import type {
  Backfill,
  BackfillItemState,
  BackfillRequest,
  BackfillState,
} from '../../contract/backfills.js';
import type { BackfillIds } from '../../contract/ids.js';
import { formatNames } from '../../conversation/format-names.js';
import { invalid, PalimpsestError } from '../../errors.js';
import { complain } from '../../policy/issues.js';
import { type Query, read, withTransaction } from '../connection/transaction.js';
import { checkId, storable } from '../connection/values.js';

const maxConcurrency = 500;

const concurrencySchema = z
  .int()
  .min(1)
  .max(maxConcurrency)
  .describe('Compactions at once, 1 to 500. Default 16.');

const spendLimitSchema = z
  .number()
  .positive()
  .describe('Money for model calls of this job at most, in the currency of the policies’ prices.');

/** Which sessions: all conditions hold. */
const selectionSchema = z.strictObject({
  prefix: z.string().min(1).optional().describe('Session ids that begin with this.'),
  format: z.enum(formatNames).optional().describe('Sessions that are written in this format.'),
  idleSince: z.iso
    .datetime({ offset: true, error: 'is no moment of ISO 8601 with a time zone' })
    .optional()
    .describe('No turn since this moment, such as 2026-01-31T00:00:00Z.'),
  minTokens: z.int().min(0).optional().describe('Context tokens at least.'),
});

const fields = {
  select: selectionSchema.optional().describe('Which sessions. Default: all of the tenant.'),
  mode: z
    .enum(['due', 'all'])
    .optional()
    .describe(
      '`due`: sessions over their own trigger; `all`: every one that can become smaller. Default `due`.',
    ),
  concurrency: concurrencySchema.optional(),
  spendLimit: spendLimitSchema.optional(),
};

const estimateSchema = z.strictObject(fields);

const backfillSchema = z.strictObject({
  job: z.string().min(1).describe('Names the job within its tenant: the same name is the same job.'),
  ...fields,
});

/** A request with its defaults, as it is stored and compared. */
export type FullRequest = BackfillRequest &
  Required<Pick<BackfillRequest, 'select' | 'mode' | 'concurrency'>>;

/** Throws `Input.Invalid` with the path of the field. */
export function parseBackfill(input: unknown): FullRequest {
  const { job, ...rest } = checked(backfillSchema, input);
  checkId(job, 'job');
  return { job, ...withDefaults(rest) };
}

export function parseEstimate(input: unknown): Omit<FullRequest, 'job'> {
  return withDefaults(checked(estimateSchema, input));
}

export function checkConcurrency(concurrency: unknown): number {
  return checked(z.strictObject({ concurrency: concurrencySchema }), { concurrency }).concurrency;
}

/** The tenant's sessions are asked for by this: what Postgres would refuse is refused here, with its path. */
function withDefaults(given: z.infer<typeof estimateSchema>): Omit<FullRequest, 'job'> {
  const { select = {}, mode = 'due', concurrency = 16, spendLimit } = given;
  if (select.prefix !== undefined) checkId(select.prefix, 'select.prefix');
  if (select.idleSince !== undefined && Number.isNaN(Date.parse(select.idleSince)))
    throw invalid('select.idleSince is no moment', 'select.idleSince');
  return { select, mode, concurrency, ...(spendLimit === undefined ? {} : { spendLimit }) };
}

function checked<T>(schema: z.ZodType<T>, input: unknown): T {
  const parsed = schema.safeParse(input ?? {});
  if (parsed.success) return parsed.data;
  throw complain(parsed.error, schema, input, '');
}

/** A job that has spent its limit cannot go on without a higher one. */
export function checkSpendLimit(limit: number | null, spent: number): void {
  if (limit === null || spent < limit) return;
  throw invalid(
    `the job has spent ${spent} of its limit of ${limit}`,
    'spendLimit',
    `Give a spendLimit above ${spent}.`,
  );
}

/** Throws `Input.Invalid`. */
export function parseSpendLimit(spendLimit: unknown): number {
  return checked(z.strictObject({ spendLimit: spendLimitSchema }), { spendLimit }).spendLimit;
}

/** Jobs over many sessions: request, progress and outcome. The job's own row, without the sums over its sessions. */
export interface BackfillRow {
  request: FullRequest;
  state: BackfillState;
  reason: string | null;
  cursor: string | null;
  selecting: boolean;
  concurrency: number;
  spendLimit: number | null;
  createdAt: Date;
  endedAt: Date | null;
}

const rowColumns = `request, state, reason, cursor, selecting, concurrency, spend_limit as "spendLimit",
  created_at as "createdAt", ended_at as "endedAt"`;

/**
 * Stores a new job; answers the one of this name where the same was asked for before. Throws `Input.Invalid` (path
 * `job`) where that asked for something else.
 */
export async function insertBackfill(pool: Pool, tenant: string, request: FullRequest): Promise<BackfillRow> {
  checkId(tenant, 'tenant');
  const { job, concurrency, spendLimit = null } = request;
  await withTransaction(pool, ({ query }) =>
    query(
      `insert into palimpsest.backfills (tenant_id, job, request, concurrency, spend_limit)
       values ($1, $2, $3, $4, $5) on conflict do nothing`,
      [tenant, job, JSON.stringify(request), concurrency, spendLimit],
    ),
  );
  const row = await loadBackfillRow(pool, { tenant, job });
  if (isDeepStrictEqual(row.request, JSON.parse(JSON.stringify(request)))) return row;
  throw invalid(
    `a backfill ${JSON.stringify(job)} exists that was asked for otherwise`,
    'job',
    'Give the new one another name; what the other was asked for is in its `request`.',
  );
}

/** Throws `Store.BackfillNotFound`. */
export async function loadBackfillRow(pool: Pool, ids: BackfillIds): Promise<BackfillRow> {
  return rowWith((text, values) => read(pool, text, values), ids, '');
}

/** The row, locked against everyone else who would change the job until the transaction ends. */
export async function lockBackfill(query: Query, ids: BackfillIds): Promise<BackfillRow> {
  return rowWith(query, ids, 'for no key update');
}

async function rowWith(query: Query, { tenant, job }: BackfillIds, lock: string): Promise<BackfillRow> {
  checkId(tenant, 'tenant');
  checkId(job, 'job');
  const [row] = await query<BackfillRow & Record<string, unknown>>(
    `select ${rowColumns} from palimpsest.backfills where tenant_id = $1 and job = $2 ${lock}`,
    [tenant, job],
  );
  if (row) return row;
  throw new PalimpsestError('Store.BackfillNotFound', `tenant ${tenant} has no backfill ${job}`, {
    path: 'job',
    hint: 'A backfill exists from its start on; `backfills` lists them.',
  });
}

interface BackfillChange {
  state?: BackfillState;
  reason?: string | null;
  concurrency?: number;
  spendLimit?: number | null;
  ended?: boolean;
}

export async function updateBackfill(
  query: Query,
  { tenant, job }: BackfillIds,
  change: BackfillChange,
): Promise<void> {
  const { state, reason, concurrency, spendLimit, ended } = change;
  const sets: string[] = ['updated_at = now()'];
  const values: unknown[] = [tenant, job];
  const set = (column: string, value: unknown) => sets.push(`${column} = $${values.push(value)}`);
  if (state !== undefined) set('state', state);
  if (reason !== undefined) set('reason', reason && storable(reason));
  if (concurrency !== undefined) set('concurrency', concurrency);
  if (spendLimit !== undefined) set('spend_limit', spendLimit);
  if (ended !== undefined) sets.push(`ended_at = ${ended ? 'coalesce(ended_at, now())' : 'null'}`);
  await query(`update palimpsest.backfills set ${sets.join(', ')} where tenant_id = $1 and job = $2`, values);
}

interface Sums {
  job: string;
  state: BackfillItemState;
  error_type: string | null;
  sessions: number;
  before: number;
  after: number;
  calls: number;
  input: number;
  output: number;
  cost: number | null;
}

const sums = (where: string) => `
  select job, state, case when state = 'failed' then error_type end as error_type, count(*)::int as sessions,
    coalesce(sum(tokens_before), 0)::float8 as before, coalesce(sum(tokens_after), 0)::float8 as after,
    sum(model_calls)::int as calls, sum(model_input_tokens)::float8 as input,
    sum(model_output_tokens)::float8 as output, sum(cost) as cost
  from palimpsest.backfill_items where ${where} group by 1, 2, 3`;

/** The job with its sums. Throws `Store.BackfillNotFound`. */
export async function loadBackfill(pool: Pool, ids: BackfillIds): Promise<Backfill> {
  const row = await loadBackfillRow(pool, ids);
  return toBackfill(
    ids.job,
    row,
    await read<Sums & Record<string, unknown>>(pool, sums('tenant_id = $1 and job = $2'), [
      ids.tenant,
      ids.job,
    ]),
  );
}

/** The newest jobs of a tenant, newest first. */
export async function listBackfills(pool: Pool, tenant: string, most = 1_000): Promise<Backfill[]> {
  checkId(tenant, 'tenant');
  const rows = await read<BackfillRow & { job: string }>(
    pool,
    `select job, ${rowColumns} from palimpsest.backfills where tenant_id = $1
     order by created_at desc, job limit $2`,
    [tenant, most],
  );
  const jobs = rows.map(({ job }) => job);
  const all = await read<Sums & Record<string, unknown>>(pool, sums('tenant_id = $1 and job = any($2)'), [
    tenant,
    jobs,
  ]);
  return rows.map(({ job, ...row }) =>
    toBackfill(
      job,
      row,
      all.filter((one) => one.job === job),
    ),
  );
}

/**
 * Jobs of all tenants that a workflow has to be at work on, those first that have said nothing for the longest. A paused job
 * waits for its operator.
 */
export function openBackfills(pool: Pool, most: number): Promise<BackfillIds[]> {
  return read<BackfillIds & Record<string, unknown>>(
    pool,
    `select tenant_id as tenant, job from palimpsest.backfills where ended_at is null and state <> 'paused'
     order by updated_at limit $1`,
    [most],
  );
}

function toBackfill(job: string, row: BackfillRow, found: readonly Sums[]): Backfill {
  const { request, state, reason, selecting, concurrency, spendLimit, createdAt, endedAt } = row;
  const inState = (wanted: BackfillItemState) =>
    total(
      found.filter((one) => one.state === wanted),
      'sessions',
    );
  const failed = found.filter((one) => one.state === 'failed');
  // Of sessions that a compaction changed; the rest is as it was.
  const changed = found.filter((one) => one.state === 'compacted');
  const costs = found.flatMap(({ cost }) => (cost === null ? [] : [cost]));
  const counts = {
    selected: total(found, 'sessions'),
    pending: inState('pending'),
    running: inState('running'),
    compacted: inState('compacted'),
    unchanged: inState('unchanged'),
    failed: inState('failed'),
    skipped: inState('skipped'),
  };
  const seconds = Math.max(0.001, ((endedAt ?? new Date()).getTime() - createdAt.getTime()) / 1_000);
  return {
    ...{ job, request, concurrency, spendLimit, state, reason, counts },
    selecting: selecting && endedAt === null,
    failures: Object.fromEntries(
      failed.map(({ error_type, sessions }) => [error_type ?? 'Unknown', sessions]),
    ),
    tokensBefore: total(changed, 'before'),
    tokensAfter: total(changed, 'after'),
    modelCalls: total(found, 'calls'),
    modelInputTokens: total(found, 'input'),
    modelOutputTokens: total(found, 'output'),
    cost: costs.length === 0 ? null : costs.reduce((sum, cost) => sum + cost, 0),
    createdAt: createdAt.toISOString(),
    endedAt: endedAt?.toISOString() ?? null,
    perSecond: (counts.compacted + counts.unchanged + counts.failed) / seconds,
  };
}

function total(
  rows: readonly Sums[],
  column: 'sessions' | 'before' | 'after' | 'calls' | 'input' | 'output',
) {
  return rows.reduce((sum, row) => sum + row[column], 0);
}
