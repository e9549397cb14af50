import { z } from 'zod';
import { checkId, type SessionIds } from '../../contract/ids.js';
import { PalimpsestError } from '../../errors.js';
import type { SessionFacts } from '../../limits/limits.js';
import type { PolicyLayers } from '../../policy/layers.js';
import { limitsInForce, type TenantLimits } from '../../policy/tenant-limits.js';
import { overridesIn } from '../tenants/limits.js';
import type { PolicyInput } from '../../policy/schema.js';
import {
  type Calibration,
  HIGHEST_FACTOR,
  isExplained,
  LOWEST_FACTOR,
  type Request,
  SETTLED_REQUESTS,
} from '../../tokens/calibration.js';
import type { InSnakeCase } from '../schema/columns.js';
import type { sessions } from '../schema/log.js';

type Columns = typeof sessions.$inferSelect;

/** A tenant's policy as stored. */
export interface TenantPolicy {
  policy: PolicyInput;
  version: number;
}

/** A session as stored; `policy` as given, without defaults. */
export type SessionRow = Omit<Columns, 'tenantId' | 'sessionId' | 'policy' | 'begunMode' | 'begunRedact'> &
  SessionIds & {
    policy: PolicyLayers;
    /** The tenant's policy, if the session has not adopted it yet. */
    newerTenantPolicy?: TenantPolicy;
    /** The session's sizes come from a factor that no request supports. They must be recomputed before they are stored again. */
    outdatedSizes?: true;
  };

/** The facts that the sizes of a session's policy depend on. */
export function factsOf({
  appliedFactor,
  appliedOverhead,
  meanTurnTokens,
}: Pick<SessionRow, 'appliedFactor' | 'appliedOverhead' | 'meanTurnTokens'>): SessionFacts {
  return { factor: appliedFactor, overhead: appliedOverhead, meanTurnTokens };
}

/** Refuses ids that PostgreSQL would refuse or change: a read with such an id could find another session. */
export function checkIds({ tenant, session }: SessionIds): void {
  checkId(tenant, 'tenant', 'stored');
  checkId(session, 'session', 'stored');
}

/** The error for a session that was erased and recreated under its id, or lost messages to an erasure, after the caller read it. Nothing is written. */
export function replaced({ tenant, session }: SessionIds): PalimpsestError {
  return new PalimpsestError(
    'Store.StaleGeneration',
    `session ${session} of tenant ${tenant} was erased and recreated, or messages of it were erased, meanwhile`,
    { hint: 'Nothing was written. Read the session again.' },
  );
}

/** Throws `Store.StaleGeneration` if the row is not the session that the caller has read. */
export function checkIncarnation(ids: SessionIds, { incarnation }: { incarnation: string }): void {
  if (ids.incarnation !== undefined && ids.incarnation !== incarnation) throw replaced(ids);
}

export function notFound({ tenant, session }: SessionIds): never {
  throw new PalimpsestError('Store.SessionNotFound', `tenant ${tenant} has no session ${session}`, {
    path: 'session',
    hint: 'The first appended turn creates a session.',
  });
}

/** The row as the driver or `row_to_json` returns it. */
export type SessionRecord = InSnakeCase<Columns, Date | string> & {
  newer_tenant_policy?: string | null;
  newer_tenant_version?: number | null;
  /** The tenant's own limits; null for none. */
  tenant_limits?: unknown;
};

/**
 * Selects the row together with the tenant's policy if it is newer, as `toSession` reads it. `ids` is a relation
 * with tenant_id and session_id. A session that does not exist yields a row of nulls, with the tenant's policy if
 * there is one.
 */
export const sessionWithTenant = (ids: string): string =>
  `select s.*, t.policy as newer_tenant_policy, t.policy_version as newer_tenant_version, l.limits as tenant_limits
   from ${ids} left join palimpsest.sessions s on s.tenant_id = ids.tenant_id and s.session_id = ids.session_id
   left join palimpsest.tenants t
     on t.tenant_id = ids.tenant_id and t.policy_version is distinct from s.tenant_policy_version
   left join palimpsest.tenant_limits l on l.tenant_id = ids.tenant_id`;

export function tenantPolicyOf(record: {
  newer_tenant_policy?: string | null;
  newer_tenant_version?: number | null;
}): TenantPolicy | undefined {
  const { newer_tenant_policy: policy, newer_tenant_version: version } = record;
  if (typeof policy !== 'string' || typeof version !== 'number' || version === 0) return undefined;
  return { policy: JSON.parse(policy) as PolicyInput, version };
}

function layersOf({ policy, begun_mode: mode, begun_redact: redact }: SessionRecord): PolicyLayers {
  const layers = JSON.parse(policy) as PolicyLayers;
  const begun: PolicyInput = {
    ...layers.begun,
    ...(mode === null ? {} : { summary: { mode } }),
    ...(redact === false ? { redact } : {}),
  };
  return Object.keys(begun).length === 0 ? layers : { ...layers, begun };
}

/** The operator's limits for the tenant of the record; `defaults` are those of all tenants. */
export function limitsIn(
  { tenant_limits: own }: { tenant_limits?: unknown },
  defaults: TenantLimits | undefined,
): TenantLimits | undefined {
  return limitsInForce(defaults, overridesIn(own));
}

/** `defaults`: the operator's limits for all tenants. */
export function toSession(record: SessionRecord, defaults: TenantLimits | undefined): SessionRow {
  const moment = (at: string | Date | null) => (at === null ? null : new Date(at));
  const newerTenantPolicy = tenantPolicyOf(record);
  const limits = limitsIn(record, defaults);
  const calibration = readCalibration(record.calibration);
  const allowed = isAllowed(record.applied_factor, calibration);
  return {
    tenant: record.tenant_id,
    session: record.session_id,
    incarnation: record.incarnation,
    formerIncarnations: record.former_incarnations,
    policy: { ...layersOf(record), ...(limits === undefined ? {} : { limits }) },
    policyVersion: record.policy_version,
    tenantPolicyVersion: record.tenant_policy_version,
    calibration,
    appliedFactor: allowed ? record.applied_factor : 1,
    appliedOverhead: record.applied_overhead,
    turns: record.turns,
    meanTurnTokens: record.mean_turn_tokens,
    indexedThroughSeq: record.indexed_through_seq,
    forkOf: record.fork_of,
    continuedIn: record.continued_in,
    format: record.format,
    tokenizer: record.tokenizer,
    budget: record.budget,
    nextSeq: record.next_seq,
    systemThroughSeq: record.system_through_seq,
    generation: record.generation,
    throughSeq: record.through_seq,
    liveTokens: record.live_tokens,
    liveMessages: record.live_messages,
    storedBytes: record.stored_bytes,
    measureAtTokens: record.measure_at_tokens,
    measureAtMessages: record.measure_at_messages,
    exhausted: record.exhausted,
    failures: record.failures,
    retryAt: moment(record.retry_at),
    lastError: record.last_error,
    pausedAt: moment(record.paused_at),
    overdueAt: moment(record.overdue_at),
    sweepAt: moment(record.sweep_at),
    closedAt: moment(record.closed_at),
    createdAt: new Date(record.created_at),
    updatedAt: new Date(record.updated_at),
    ...(newerTenantPolicy ? { newerTenantPolicy } : {}),
    ...(allowed ? {} : { outdatedSizes: true }),
  };
}

const tokens = z.number().min(0);
const requests = z.array(z.tuple([z.number().min(1), tokens]));

/** Calibration in a session's row, as any version wrote it. */
const storedSample = z.object({
  factor: z.number().positive(),
  samples: tokens,
  // Earlier versions did not store these fields: they used the declared overhead and kept no requests.
  overhead: tokens.catch(0),
  fitted: z.boolean().catch(false),
  recent: requests.catch([]),
  doubted: requests.optional().catch(undefined),
  implausible: z.object({ counted: tokens, reported: tokens, samples: tokens }).optional().catch(undefined),
});

/**
 * Drops values that cannot be read. A factor below 1 is valid only with the requests that support it.
 * @internal Tests read what earlier versions stored.
 */
export function readCalibration(stored: unknown): Calibration {
  if (typeof stored !== 'object' || stored === null) return {};
  const samples: Record<string, Calibration[string]> = {};
  for (const [key, value] of Object.entries(stored)) {
    const { success, data } = storedSample.safeParse(value);
    if (!success) continue;
    const { doubted, implausible, ...sample } = data;
    const least = isSettled(sample.recent) ? LOWEST_FACTOR : 1;
    samples[key] = {
      ...sample,
      factor: Math.min(HIGHEST_FACTOR, Math.max(least, sample.factor)),
      ...(doubted ? { doubted } : {}),
      ...(implausible ? { implausible } : {}),
    };
  }
  return samples;
}

/** Whether the stored requests support the factor that the sizes use. Earlier versions also used other factors. */
function isAllowed(factor: number, calibration: Calibration): boolean {
  if (factor >= 1) return true;
  return Object.values(calibration).some((sample) => sample.factor < 1 && factor >= 0.9 * sample.factor);
}

function isSettled(recent: readonly Request[]): boolean {
  return recent.filter(isExplained).length >= SETTLED_REQUESTS;
}
