/** Policy changes of existing sessions, made by their owners or by their tenants. */
import type { SQL } from 'drizzle-orm';
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { isFailure, type PalimpsestError } from '../../errors.js';
import { limitsOf } from '../../limits/limits.js';
import { type DeploymentPolicy, type PolicyLayers, policyOf, withoutLimits } from '../../policy/layers.js';
import { assertWithinLimits } from '../../policy/tenant-limits.js';
import { parsePolicy, type PolicyInput } from '../../policy/schema.js';
import { reading, read, type Transaction, withSession, withTransaction } from '../connection/transaction.js';
import { storable } from '../connection/values.js';
import { liveSizes, recount, type Recount } from './recount.js';
import { limitsOfTenant } from '../tenants/limits.js';
import { notFound, type SessionRow, type TenantPolicy } from './session-row.js';
import { cleared, lockSession, readSession, unlessMeasured, updateSession } from './session-table.js';
import { type SessionSettings, settle } from './settings.js';

/** How many times the messages are counted outside the lock. After that, they are counted under the lock. */
const attemptsOutsideLock = 3;

/**
 * Applies `change` to the session's own policy and stores the result, under the session's lock, so that no concurrent
 * change is lost. The tenant's layer becomes the tenant's present policy. The layers of file and environment come from
 * `deployment`, or stay as they were if it is absent. With another tokenizer, everything in the context is counted again:
 * leading system messages, head, tail and reductions. Evicted messages keep their counts. Clears the exhausted mark and
 * failures. Throws `Input.Invalid`, `Tenant.BeyondLimit`, `Store.SessionNotFound`.
 */
export async function changePolicy(
  pool: Pool,
  ids: SessionIds,
  change: (own: PolicyInput) => PolicyInput,
  deployment?: DeploymentPolicy,
): Promise<SessionRow> {
  const layersFor = (row: SessionRow) => {
    const { file, environment } = deployment ?? row.policy;
    const { session: own = {}, limits } = row.policy;
    const session = change(own);
    assertWithinLimits(session, limits, own);
    return { ...defined({ file, environment, limits }), ...tenantLayer(row), session };
  };
  return replaceLayers(pool, ids, layersFor, { overdueAt: unlessMeasured });
}

/**
 * Returns the row with its tenant's present policy. If the row's sizes come from a calibration factor that no request
 * supports, they are recomputed. If neither is necessary, returns the same row without a query. A tenant's policy that
 * contradicts the session's own is not adopted; the row's `lastError` states the reason.
 */
export async function upToDate(pool: Pool, row: SessionRow): Promise<SessionRow> {
  const { newerTenantPolicy } = row;
  if (newerTenantPolicy === undefined && !row.outdatedSizes) return row;
  try {
    return await replaceLayers(pool, row, (present) =>
      present.newerTenantPolicy || present.outdatedSizes
        ? { ...present.policy, ...tenantLayer(present) }
        : null,
    );
  } catch (error) {
    if (newerTenantPolicy === undefined) throw error;
    // If only this process lacks the tokenizer, the policy is not at fault.
    if (!isFailure(error, 'Input.Invalid') || error.path === 'policy.tokenizer') throw error;
    return keepLayers(pool, row, newerTenantPolicy.version, error);
  }
}

/**
 * Replaces the layers under the session's lock. Slow counts are made before the lock is taken. `layersFor` returns
 * null to change nothing. `also` is written with the policy.
 */
async function replaceLayers(
  pool: Pool,
  ids: SessionIds,
  layersFor: (row: SessionRow) => PolicyLayers | null,
  also: { overdueAt?: SQL } = {},
): Promise<SessionRow> {
  for (let attempt = 1; ; attempt++) {
    const { row: before } = await readSession(pool, ids);
    if (!before) return notFound(ids);
    const outside = reading(pool, ids);
    const planned = layersFor(before);
    if (planned === null) return before;
    const { tokenizer } = settle(planned, before);
    const early =
      attempt <= attemptsOutsideLock && before.tokenizer !== tokenizer
        ? { tokenizer, counts: await recount(outside, before, tokenizer) }
        : null;
    const replaced = await withSession(pool, ids, async (tx) => {
      const row = await lockSession(tx, before);
      const layers = layersFor(row);
      if (layers === null) return row;
      const settings = settle(layers, row);
      const moved = row.nextSeq !== before.nextSeq || row.generation !== before.generation;
      if (early && (moved || early.tokenizer !== settings.tokenizer)) return null;
      return apply(tx, row, settings, also, early?.counts);
    });
    if (replaced !== null) return replaced;
  }
}

async function apply(
  tx: Transaction,
  row: SessionRow,
  settings: SessionSettings,
  also: { overdueAt?: SQL },
  counted?: Recount,
): Promise<SessionRow> {
  if (row.tokenizer !== settings.tokenizer) {
    const counts = counted ?? (await recount(tx.query, row, settings.tokenizer));
    await counts.store(tx.query);
  }
  const { newerTenantPolicy, outdatedSizes: _outdated, ...rest } = row;
  const change = {
    ...settings,
    policyVersion: row.policyVersion + 1,
    tenantPolicyVersion: newerTenantPolicy?.version ?? row.tenantPolicyVersion,
    ...(await liveSizes(tx.query, row)),
    ...cleared,
  };
  await updateSession(tx, row, {
    ...change,
    ...also,
    policy: JSON.stringify(withoutLimits(settings.policy)),
    begunMode: null,
    begunRedact: settings.policy.begun?.redact === false ? false : null,
  });
  return { ...rest, ...change };
}

/** Records that this version was refused, so that later reads do not try it again. */
async function keepLayers(
  pool: Pool,
  ids: SessionIds,
  version: number,
  { type, message }: PalimpsestError,
): Promise<SessionRow> {
  const refused = {
    type,
    message: storable(`The tenant's policy of version ${version} was not adopted: ${message}`),
  };
  return withSession(pool, ids, async (tx) => {
    const { newerTenantPolicy, ...row } = await lockSession(tx, ids);
    if (newerTenantPolicy?.version !== version) return { ...row, newerTenantPolicy };
    // A session that works without its model continues to do so.
    const lastError = { ...refused, ...(row.lastError?.fallback ? { fallback: true } : {}) };
    const change = { tenantPolicyVersion: version, lastError };
    await updateSession(tx, ids, change);
    return { ...row, ...change };
  });
}

function tenantLayer({ policy, newerTenantPolicy }: SessionRow): PolicyLayers {
  return defined({ tenant: newerTenantPolicy?.policy ?? policy.tenant });
}

/** The layers without the undefined ones. */
export function defined(layers: PolicyLayers): PolicyLayers {
  return Object.fromEntries(Object.entries(layers).filter(([, policy]) => policy !== undefined));
}

/**
 * Replaces the tenant's policy, which applies to all sessions that set nothing else. A session adopts it with its
 * next append, read, measurement or compaction. The policy must be valid for a session that has no
 * settings of its own. Throws `Input.Invalid`, `Tenant.BeyondLimit`.
 */
export async function configureTenant(
  pool: Pool,
  tenant: string,
  policy: PolicyInput,
  deployment: DeploymentPolicy = {},
): Promise<{ policyVersion: number }> {
  const parsed = parsePolicy(policy);
  limitsOf(policyOf(defined({ ...deployment, tenant: parsed })));
  const [before, limits] = await Promise.all([findTenantPolicy(pool, tenant), limitsOfTenant(pool, tenant)]);
  assertWithinLimits(parsed, limits, before?.policy);
  const policyVersion = await withTransaction(pool, { tenant }, async ({ query }) => {
    const [stored] = await query<{ policy_version: number }>(
      `insert into palimpsest.tenants as t (tenant_id, policy, policy_version) values ($1, $2, 1)
       on conflict (tenant_id) do update
         set policy = excluded.policy, policy_version = t.policy_version + 1, begun_redact = null
       returning policy_version`,
      [tenant, JSON.stringify(parsed)],
    );
    return stored?.policy_version ?? 0;
  });
  return { policyVersion };
}

/** Null if the tenant has no policy. */
export async function findTenantPolicy(pool: Pool, tenant: string): Promise<TenantPolicy | null> {
  const [stored] = await read<{ policy: string; version: number }>(
    pool,
    { tenant },
    'select policy, policy_version as version from palimpsest.tenants where tenant_id = $1 and policy_version > 0',
    [tenant],
  );
  return stored ? { policy: JSON.parse(stored.policy) as PolicyInput, version: stored.version } : null;
}
