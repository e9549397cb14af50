/**
 * What the model calls of a tenant cost, by day. Before a call, the most that it may use is added under a lock of the tenant;
 * afterwards it is corrected to what the call used. So calls that are admitted at once never exceed a limit together, except by
 * what one of them uses beyond its reservation. A call whose worker was killed keeps its reservation.
 */
import type { Pool } from 'pg';
import { beyondLimit, type TenantLimits } from '../../policy/tenant-limits.js';
import type { PalimpsestError } from '../../errors.js';
import { maintenanceOf } from '../connection/pool.js';
import { prepared } from '../connection/prepared.js';
import { type Query, read, reading, withTransaction } from '../connection/transaction.js';

/** USD by the operator's prices, and tokens of prompt and answer. */
export interface Amount {
  cost: number;
  tokens: number;
}

export interface Spent {
  day: Amount;
  month: Amount;
}

const today = "(clock_timestamp() at time zone 'UTC')::date";

/** Makes the admissions of a tenant's calls wait for each other until the transaction ends. */
export const lockCalls =
  "select pg_advisory_xact_lock(hashtextextended('palimpsest model calls of ' || $1::text, 0))";

const addStatement = prepared(
  'add_spend',
  `insert into palimpsest.tenant_spend as spend (tenant_id, day, cost, tokens)
  values ($1, coalesce($4::date, ${today}), $2::float8, $3::bigint)
  on conflict (tenant_id, day) do update set cost = spend.cost + $2::float8, tokens = spend.tokens + $3::bigint
  returning day::text`,
);

const spentSql = `
  select coalesce(sum(cost), 0)::float8 as "monthCost", coalesce(sum(tokens), 0)::float8 as "monthTokens",
    coalesce(sum(cost) filter (where day = ${today}), 0)::float8 as "dayCost",
    coalesce(sum(tokens) filter (where day = ${today}), 0)::float8 as "dayTokens"
  from palimpsest.tenant_spend where tenant_id = $1 and day >= date_trunc('month', ${today})`;

type SpentRow = Record<'monthCost' | 'monthTokens' | 'dayCost' | 'dayTokens', number>;

async function spentIn(query: Query, tenant: string): Promise<Spent> {
  const [row] = await query<SpentRow>(spentSql, [tenant]);
  const { dayCost = 0, dayTokens = 0, monthCost = 0, monthTokens = 0 } = row ?? {};
  return { day: { cost: dayCost, tokens: dayTokens }, month: { cost: monthCost, tokens: monthTokens } };
}

/** What the tenant has spent on this day and in this month (UTC). */
export function spentBy(pool: Pool, tenant: string): Promise<Spent> {
  return spentIn(reading(pool, { tenant }), tenant);
}

export function limitsSpend(limits: TenantLimits | undefined): limits is TenantLimits {
  const { spendPerDay, spendPerMonth, modelTokensPerDay, modelTokensPerMonth } = limits ?? {};
  return [spendPerDay, spendPerMonth, modelTokensPerDay, modelTokensPerMonth].some(
    (one) => one !== undefined,
  );
}

/** The limit that `more` would exceed; null if it may be spent. */
export function refusalOfSpend(limits: TenantLimits, spent: Spent, more: Amount): PalimpsestError | null {
  const measured = [
    ['spendPerDay', spent.day.cost, more.cost],
    ['spendPerMonth', spent.month.cost, more.cost],
    ['modelTokensPerDay', spent.day.tokens, more.tokens],
    ['modelTokensPerMonth', spent.month.tokens, more.tokens],
  ] as const;
  for (const [limit, used, asked] of measured) {
    const most = limits[limit];
    if (most === undefined || used + asked <= most) continue;
    const unit = limit.startsWith('spend') ? 'USD' : 'tokens';
    const [left, need] = [Math.max(0, most - used), asked].map((amount) => Number(amount.toPrecision(3)));
    const message = `The model is not asked: it may use ${need} ${unit}, and ${left} of ${most} are left (${limit}).`;
    return beyondLimit(limit, message, {
      ...{ most, asked },
      hint: 'Summaries are extracted by rule until the day or month (UTC) ends; the operator can raise the limit with `palimpsest limits set`.',
    });
  }
  return null;
}

/** Adds the most that a call may use. Returns its day, or the limit that forbids the call. */
export function reserveSpend(
  pool: Pool,
  tenant: string,
  limits: TenantLimits,
  most: Amount,
): Promise<{ day: string } | { refused: PalimpsestError }> {
  return withTransaction(pool, { tenant }, async ({ query }) => {
    await query(lockCalls, [tenant]);
    const refused = refusalOfSpend(limits, await spentIn(query, tenant), most);
    if (refused) return { refused };
    const [added] = await query<{ day: string }>(addStatement, [tenant, most.cost, most.tokens, null]);
    if (!added) throw new Error('the spend of a call was not stored');
    return { day: added.day };
  });
}

/** Adds what a call used; after a reservation, the difference. `day`: that of the reservation. */
export async function addSpend(
  pool: Pool,
  tenant: string,
  { cost, tokens }: Amount,
  day: string | null = null,
): Promise<void> {
  if (cost === 0 && tokens === 0) return;
  await read(pool, { tenant }, addStatement, [tenant, cost, Math.round(tokens), day]);
}

/** The tenants with the highest spend of this month, and their own limits. For the operator: all tenants. */
export async function spendOfTenants(
  pool: Pool,
  most: number,
): Promise<{ tenant: string; limits: unknown; spent: Spent }[]> {
  const rows = await read<SpentRow & { tenant: string; limits: unknown }>(
    maintenanceOf(pool),
    'shared',
    `select tenant, limits, day_cost as "dayCost", day_tokens::float8 as "dayTokens",
       month_cost as "monthCost", month_tokens::float8 as "monthTokens"
     from palimpsest.spend_of_tenants($1)`,
    [most],
  );
  return rows.map(({ tenant, limits, dayCost, dayTokens, monthCost, monthTokens }) => ({
    ...{ tenant, limits },
    spent: { day: { cost: dayCost, tokens: dayTokens }, month: { cost: monthCost, tokens: monthTokens } },
  }));
}
