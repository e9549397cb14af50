import { isDeepStrictEqual } from 'node:util';
import type { Pool } from 'pg';
import type {
  Backfill,
  BackfillItemState,
  BackfillRequest,
  BackfillState,
} from '../../contract/backfills.js';
import { type BackfillIds, checkId } from '../../contract/ids.js';
import { invalid, PalimpsestError } from '../../errors.js';
import { maintenanceOf } from '../connection/pool.js';
import { reading, type Query, read, withTransaction } from '../connection/transaction.js';
import { storable } from '../connection/values.js';
import type { backfills } from '../schema/backfills.js';

/** A request with its defaults filled in, as it is stored and compared. */
export type FullRequest = BackfillRequest &
  Required<Pick<BackfillRequest, 'select' | 'mode' | 'concurrency'>>;

/** A job that has spent its limit needs a higher limit to continue. */
export function checkSpendLimit(limit: number | null, spent: number): void {
  if (limit === null || spent < limit) return;
  throw invalid(
    `the job has spent ${spent} of its limit of ${limit}`,
    'spendLimit',
    `Give a spendLimit above ${spent}.`,
  );
}

/** The row of a job with its request, progress and outcome, without the sums over its sessions. */
export type BackfillRow = Omit<typeof backfills.$inferSelect, 'tenantId' | 'job' | 'updatedAt'> & {
  request: FullRequest;
};

const rowColumns = `request, state, reason, cursor, selecting, concurrency, spend_limit as "spendLimit",
  created_at as "createdAt", ended_at as "endedAt"`;

/**
 * Stores a new job. If a job of this name with the same request exists, returns it. Throws `Input.Invalid` (path
 * `job`) if the existing job has another request.
 */
export async function insertBackfill(pool: Pool, tenant: string, request: FullRequest): Promise<BackfillRow> {
  const { job, concurrency, spendLimit = null } = request;
  await withTransaction(pool, { tenant }, ({ query }) =>
    query(
      `insert into palimpsest.backfills (tenant_id, job, request, concurrency, spend_limit)
       values ($1, $2, $3, $4, $5) on conflict do nothing`,
      [tenant, job, JSON.stringify(request), concurrency, spendLimit],
    ),
  );
  const row = await loadBackfillRow(pool, { tenant, job });
  if (isDeepStrictEqual(row.request, JSON.parse(JSON.stringify(request)))) return row;
  throw invalid(
    `a backfill ${JSON.stringify(job)} exists with another request`,
    'job',
    'Give the new backfill another name. The field `request` of the existing one shows its request.',
  );
}

/** Throws `Store.BackfillNotFound`. */
export async function loadBackfillRow(pool: Pool, ids: BackfillIds): Promise<BackfillRow> {
  return rowWith(reading(pool, ids), ids, '');
}

/** Reads the row and locks it against all other changes of the job until the transaction ends. */
export async function lockBackfill(query: Query, ids: BackfillIds): Promise<BackfillRow> {
  return rowWith(query, ids, 'for no key update');
}

async function rowWith(query: Query, { tenant, job }: BackfillIds, lock: string): Promise<BackfillRow> {
  checkId(tenant, 'tenant', 'stored');
  checkId(job, 'job', 'stored');
  const [row] = await query<BackfillRow & Record<string, unknown>>(
    `select ${rowColumns} from palimpsest.backfills where tenant_id = $1 and job = $2 ${lock}`,
    [tenant, job],
  );
  if (row) return row;
  throw new PalimpsestError('Store.BackfillNotFound', `tenant ${tenant} has no backfill ${job}`, {
    path: 'job',
    hint: 'Start a backfill under this name, or list the existing ones with `backfills`.',
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

/** Reads the job with its sums. Throws `Store.BackfillNotFound`. */
export async function loadBackfill(pool: Pool, ids: BackfillIds): Promise<Backfill> {
  const row = await loadBackfillRow(pool, ids);
  return toBackfill(
    ids.job,
    row,
    await read<Sums & Record<string, unknown>>(pool, ids, sums('tenant_id = $1 and job = $2'), [
      ids.tenant,
      ids.job,
    ]),
  );
}

/** Lists a tenant's newest jobs, newest first. */
export async function listBackfills(pool: Pool, tenant: string, most = 1_000): Promise<Backfill[]> {
  const rows = await read<BackfillRow & { job: string }>(
    pool,
    { tenant },
    `select job, ${rowColumns} from palimpsest.backfills where tenant_id = $1
     order by created_at desc, job limit $2`,
    [tenant, most],
  );
  const jobs = rows.map(({ job }) => job);
  const all = await read<Sums & Record<string, unknown>>(
    pool,
    { tenant },
    sums('tenant_id = $1 and job = any($2)'),
    [tenant, jobs],
  );
  return rows.map(({ job, ...row }) =>
    toBackfill(
      job,
      row,
      all.filter((one) => one.job === job),
    ),
  );
}

/**
 * The jobs of all tenants that need a running workflow, least recently updated first. A paused job waits for its
 * operator.
 */
export function openBackfills(pool: Pool, most: number): Promise<BackfillIds[]> {
  return read<BackfillIds & Record<string, unknown>>(
    maintenanceOf(pool),
    'shared',
    'select tenant, job from palimpsest.open_backfills($1)',
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
  // Sums cover only sessions that a compaction changed.
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

/** A job that could not be checked comes after the others at the next sweep. */
export async function postponeBackfill(pool: Pool, { tenant, job }: BackfillIds): Promise<void> {
  await read(
    pool,
    { tenant },
    'update palimpsest.backfills set updated_at = now() where tenant_id = $1 and job = $2 and ended_at is null',
    [tenant, job],
  );
}
