/** The operator's limits of a tenant, as stored. The role of the application may only read them. */
import type { Pool } from 'pg';
import { checkId } from '../../contract/ids.js';
import { PalimpsestError } from '../../errors.js';
import {
  limitsInForce,
  type LimitName,
  type TenantLimits,
  type TenantOverrides,
  tenantOverridesSchema,
} from '../../policy/tenant-limits.js';
import { knownTenants, maintenanceOf } from '../connection/pool.js';
import { read } from '../connection/transaction.js';

/** The limits in a column as the driver returns it; null if the tenant has none of its own. Throws `Store.Corrupt`. */
export function overridesIn(stored: unknown): TenantOverrides | null {
  if (stored === null || stored === undefined) return null;
  const parsed = tenantOverridesSchema.safeParse(stored);
  if (parsed.success) return parsed.data;
  throw new PalimpsestError('Store.Corrupt', 'the stored limits of this tenant cannot be read', {
    hint: 'Set them again with `palimpsest limits clear` and `palimpsest limits set`, or update this version.',
  });
}

export async function findOverrides(pool: Pool, tenant: string): Promise<TenantOverrides | null> {
  const [row] = await read<{ limits: unknown }>(
    pool,
    { tenant },
    'select limits from palimpsest.tenant_limits where tenant_id = $1',
    [tenant],
  );
  return overridesIn(row?.limits);
}

/** The limits in force; undefined if there are none. */
export async function limitsOfTenant(pool: Pool, tenant: string): Promise<TenantLimits | undefined> {
  return limitsInForce(knownTenants(pool).limits, await findOverrides(pool, tenant));
}

/**
 * Changes the tenant's own limits with the role `palimpsest_maintenance`: `given` replaces the limits that it names, `dropped`
 * returns to the defaults. Every process applies them from its next read on. Throws `Store.Unavailable`.
 */
export async function changeLimits(
  pool: Pool,
  tenant: string,
  given: TenantOverrides,
  dropped: readonly LimitName[] = [],
): Promise<void> {
  checkId(tenant, 'tenant');
  await read(maintenanceOf(pool), 'shared', 'select palimpsest.change_tenant_limits($1, $2::jsonb, $3)', [
    tenant,
    JSON.stringify(given),
    dropped,
  ]);
}

/** Removes all limits of the tenant's own: the defaults apply. */
export async function clearLimits(pool: Pool, tenant: string): Promise<void> {
  checkId(tenant, 'tenant');
  await read(maintenanceOf(pool), 'shared', 'select palimpsest.clear_tenant_limits($1)', [tenant]);
}
