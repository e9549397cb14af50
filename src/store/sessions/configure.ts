/** Another policy for a session that exists: what its owner configures, and what its tenant changed meanwhile. */
import type { SQL } from 'drizzle-orm';
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { isFailure, type PalimpsestError } from '../../errors.js';
import { limitsOf } from '../../limits/limits.js';
import { type DeploymentPolicy, type PolicyLayers, policyOf } from '../../policy/layers.js';
import { parsePolicy, type PolicyInput } from '../../policy/schema.js';
import {
  type Query,
  read,
  type Transaction,
  withSession,
  withTransaction,
} from '../connection/transaction.js';
import { checkId, storable } from '../connection/values.js';
import { liveSizes, recount, type Recount } from './recount.js';
import { notFound, type SessionRow, type TenantPolicy } from './session-row.js';
import { cleared, lockSession, readSession, unlessMeasured, updateSession } from './session-table.js';
import { type SessionSettings, settle } from './settings.js';

/** How often counting outside the lock is tried before it happens under the lock. */
const attemptsOutsideLock = 3;

/**
 * Replaces the session's own policy by one that follows from the present one: nobody else's change between the two is
 * lost. The tenant's layer is the newest, those of file and environment are `deployment`'s, or where it is absent what they
 * were. With another tokenizer, what the context is made of is counted anew: leading system messages, head, tail and
 * reductions; evicted messages keep their counts. Clears the exhausted mark and failures. Throws `Input.Invalid`,
 * `Store.SessionNotFound`.
 */
export async function changePolicy(
  pool: Pool,
  ids: SessionIds,
  change: (own: PolicyInput) => PolicyInput,
  deployment?: DeploymentPolicy,
): Promise<SessionRow> {
  const layersFor = (row: SessionRow) => {
    const { file, environment } = deployment ?? row.policy;
    const session = change(row.policy.session ?? {});
    return { ...defined({ file, environment }), ...tenantLayer(row), session };
  };
  return replaceLayers(pool, ids, layersFor, { overdueAt: unlessMeasured });
}

/**
 * The row with its tenant's present policy, and sizes that what was learnt supports: the same one where it has both
 * already, which costs nothing. A tenant's policy that contradicts the session's own is not taken over, and the row's `lastError` says why.
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
    // A counter that only this process lacks says nothing against the policy.
    if (!isFailure(error, 'Input.Invalid') || error.path === 'policy.tokenizer') throw error;
    return keepLayers(pool, row, newerTenantPolicy.version, error);
  }
}

/**
 * Under the session's lock; what would take long is counted before it. `layersFor` answers null to leave all as it is;
 * `also` is written with the policy.
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
    const outside: Query = (text, values) => read(pool, text, values);
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
    policy: JSON.stringify(settings.policy),
    begunMode: null,
  });
  return { ...rest, ...change };
}

/** Remembers that this version was looked at, so that it is not looked at on every read. */
async function keepLayers(
  pool: Pool,
  ids: SessionIds,
  version: number,
  { type, message }: PalimpsestError,
): Promise<SessionRow> {
  const refused = {
    type,
    message: storable(`The tenant's policy of version ${version} was not taken over: ${message}`),
  };
  return withSession(pool, ids, async (tx) => {
    const { newerTenantPolicy, ...row } = await lockSession(tx, ids);
    if (newerTenantPolicy?.version !== version) return { ...row, newerTenantPolicy };
    // A model that is left alone stays so, and its sessions go on without it.
    const lastError = { ...refused, ...(row.lastError?.fallback ? { fallback: true } : {}) };
    const change = { tenantPolicyVersion: version, lastError };
    await updateSession(tx, ids, change);
    return { ...row, ...change };
  });
}

function tenantLayer({ policy, newerTenantPolicy }: SessionRow): PolicyLayers {
  return defined({ tenant: newerTenantPolicy?.policy ?? policy.tenant });
}

/** Layers without those that nobody gave. */
export function defined(layers: PolicyLayers): PolicyLayers {
  return Object.fromEntries(Object.entries(layers).filter(([, policy]) => policy !== undefined));
}

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
