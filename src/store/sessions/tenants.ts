import type { Pool } from 'pg';
import { limitsOf } from '../../limits/limits.js';
import { type DeploymentPolicy, policyOf } from '../../policy/layers.js';
import { parsePolicy, type PolicyInput } from '../../policy/schema.js';
import { defined } from './configure.js';
import type { TenantPolicy } from './session-row.js';
import { checkId } from '../connection/values.js';
import { read, withTransaction } from '../connection/transaction.js';

/**
 * Replaces the policy of all sessions of a tenant that say nothing else. A session takes it over when it is next
 * appended to, read, measured or compacted. It must hold for a session that says nothing of its own.
 * Throws `Input.Invalid`.
 */
export async function configureTenant(
  pool: Pool,
  tenant: string,
  policy: PolicyInput,
  deployment: DeploymentPolicy = {},
): Promise<{ policyVersion: number }> {
  checkId(tenant, 'tenant');
  const parsed = parsePolicy(policy);
  limitsOf(policyOf(defined({ ...deployment, tenant: parsed })));
  const policyVersion = await withTransaction(pool, async ({ query }) => {
    const [stored] = await query<{ policy_version: number }>(
      `insert into palimpsest.tenants as t (tenant_id, policy, policy_version) values ($1, $2, 1)
       on conflict (tenant_id) do update
         set policy = excluded.policy, policy_version = t.policy_version + 1
       returning policy_version`,
      [tenant, JSON.stringify(parsed)],
    );
    return stored?.policy_version ?? 0;
  });
  return { policyVersion };
}

/** Null where the tenant has none. */
export async function findTenantPolicy(pool: Pool, tenant: string): Promise<TenantPolicy | null> {
  checkId(tenant, 'tenant');
  const [stored] = await read<{ policy: string; version: number }>(
    pool,
    'select policy, policy_version as version from palimpsest.tenants where tenant_id = $1',
    [tenant],
  );
  return stored ? { policy: JSON.parse(stored.policy) as PolicyInput, version: stored.version } : null;
}
