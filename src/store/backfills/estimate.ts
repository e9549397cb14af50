/** The sessions that a backfill selects, page by page, in the order of their ids. */
import type { Pool } from 'pg';
import { estimateCompaction } from '../../compaction/plan/estimate.js';
import type { BackfillEstimate, BackfillSelection } from '../../contract/backfills.js';
import { isFailure } from '../../errors.js';
import { isTriggered, type Limits, limitsOf } from '../../limits/limits.js';
import { type PolicyLayers, policyOf, withSummarizer } from '../../policy/layers.js';
import type { Policy } from '../../policy/defaults.js';
import { read } from '../connection/transaction.js';
import { knownTenants } from '../connection/pool.js';
import { factsOf, type SessionRecord, type SessionRow, toSession } from '../sessions/session-row.js';
import type { FullRequest } from './jobs.js';

export interface SelectedSession {
  session: string;
  incarnation: string;
  tokens: number;
  /** Its counters say that it may be due, or its tenant has a policy that it has not adopted. */
  candidate: boolean;
  /** It has no message after its head, so no compaction could change it. */
  empty: boolean;
}

/**
 * Reads one page after the cursor. Only the last page is shorter than `most`. Reads counters alone: no policy and no
 * text.
 */
export async function readSelection(
  pool: Pool,
  tenant: string,
  select: BackfillSelection,
  after: string | null,
  most: number,
): Promise<SelectedSession[]> {
  const { prefix = null, format = null, idleSince = null, minTokens = null } = select;
  return read<SelectedSession & Record<string, unknown>>(
    pool,
    { tenant },
    `select s.session_id as session, s.incarnation, s.live_tokens as tokens, s.through_seq >= s.next_seq - 1 as empty,
       coalesce(s.live_tokens >= s.measure_at_tokens, false)
         or coalesce(s.live_messages >= s.measure_at_messages, false)
         or exists (select from palimpsest.tenants t
              where t.tenant_id = s.tenant_id and t.policy_version <> s.tenant_policy_version) as candidate
     from palimpsest.sessions s
     where s.tenant_id = $1 and ($2::text is null or s.session_id > $2)
       and ($3::text is null or starts_with(s.session_id, $3)) and ($4::text is null or s.format = $4)
       and ($5::timestamptz is null or coalesce((select last.created_at from palimpsest.turns last
             where last.tenant_id = s.tenant_id and last.session_id = s.session_id
             order by last.from_seq desc limit 1), s.created_at) < $5)
       and ($6::bigint is null or s.live_tokens >= $6)
     order by s.session_id limit $7`,
    // PostgreSQL does not read every time that `Date` reads, such as one of the year 0.
    [tenant, after, prefix, format, idleSince && new Date(idleSince), minTokens, most],
  );
}

/** Reads the rows of these sessions, with the tenant's policy if it is newer. */
export async function readSessions(
  pool: Pool,
  tenant: string,
  sessions: readonly string[],
): Promise<SessionRow[]> {
  const records = await read<SessionRecord & Record<string, unknown>>(
    pool,
    { tenant },
    `select s.*, t.policy as newer_tenant_policy, t.policy_version as newer_tenant_version, l.limits as tenant_limits
     from palimpsest.sessions s
     left join palimpsest.tenant_limits l on l.tenant_id = s.tenant_id
     left join palimpsest.tenants t
       on t.tenant_id = s.tenant_id and t.policy_version is distinct from s.tenant_policy_version
     where s.tenant_id = $1 and s.session_id = any($2) order by s.session_id`,
    [tenant, sessions],
  );
  return records.map((record) => toSession(record, knownTenants(pool).limits));
}

/** The summarizer that the workers use if a policy names none. */
export interface SummarizerFacts {
  model?: string;
  contextWindow?: number;
  /** False: no endpoint is configured, and the extraction rules write summaries. @default true */
  available?: boolean;
}

const pageSize = 500;

/**
 * Estimates what a backfill would do. Reads the same pages as the job, one at a time, and judges sessions by their
 * rows. Writes nothing. Estimates the sizes of evicted messages from means, and counts each answer of the model with
 * the maximum size.
 */
export async function estimateBackfill(
  pool: Pool,
  tenant: string,
  { select, mode }: Omit<FullRequest, 'job'>,
  summarizer: SummarizerFacts = {},
): Promise<BackfillEstimate> {
  const sum = { selected: 0, due: 0, tokensBefore: 0, tokensAfter: 0 };
  const model = { modelCalls: 0, modelInputTokens: 0, modelOutputTokens: 0 };
  const money = new Money();
  const judge = judgeByRow(summarizer);
  for (let after: string | null = null; ;) {
    const page = await readSelection(pool, tenant, select, after, pageSize);
    sum.selected += page.length;
    const possible = page.filter(({ candidate, empty }) => (mode === 'all' ? !empty : candidate));
    const sessions = possible.map(({ session }) => session);
    for (const row of await readSessions(pool, tenant, sessions)) {
      const judged = judge(row);
      if (judged === null || (mode === 'due' && !judged.due)) continue;
      const { policy, limits } = judged;
      const size = { tokens: row.liveTokens, messages: row.liveMessages };
      const asksModel = summarizer.available !== false && policy.summary.method === 'model';
      const made = estimateCompaction(policy, limits, size, asksModel);
      sum.due += 1;
      sum.tokensBefore += row.liveTokens;
      sum.tokensAfter += made.tokensAfter;
      model.modelCalls += made.modelCalls;
      model.modelInputTokens += made.modelInputTokens;
      model.modelOutputTokens += made.modelOutputTokens;
      money.add(made.cost, policy.prices.currency);
    }
    if (page.length < pageSize) return { ...sum, ...model, ...money.total() };
    after = page.at(-1)?.session ?? null;
  }
}

/** A sum in one currency. If currencies differ or a cost is unknown, there is no sum. */
class Money {
  private cost = 0;
  private currency: string | null | undefined;
  private known = true;

  add(cost: number | null, currency: string | null): void {
    this.currency ??= currency;
    this.known &&= cost !== null && currency === this.currency;
    this.cost += cost ?? 0;
  }

  total(): { cost: number | null; currency: string | null } {
    const currency = this.known ? (this.currency ?? null) : null;
    return { cost: currency === null ? null : this.cost, currency };
  }
}

/** Policies whose sizes an estimate caches: a tenant has few policies and thousands of sessions. */
const keptPolicies = 200;

/** Null: compaction is disabled or paused, or the policy contradicts itself. */
function judgeByRow(
  summarizer: SummarizerFacts,
): (row: SessionRow) => { policy: Policy; limits: Limits; due: boolean } | null {
  const known = new Map<string, { policy: Policy; limits: Limits } | null>();
  return (row) => {
    if (row.pausedAt !== null) return null;
    const { newerTenantPolicy } = row;
    const layers: PolicyLayers = newerTenantPolicy
      ? { ...row.policy, tenant: newerTenantPolicy.policy }
      : row.policy;
    const key = JSON.stringify([
      layers,
      row.appliedFactor,
      Math.round(4 * Math.log2(1 + row.meanTurnTokens)),
    ]);
    let sizes = known.get(key);
    if (sizes === undefined) {
      sizes = sizesOf(withSummarizer(layers, summarizer), row);
      if (known.size >= keptPolicies) known.clear();
      known.set(key, sizes);
    }
    if (sizes === null || !sizes.policy.enabled) return null;
    const worthwhile =
      row.exhausted === null ||
      newerTenantPolicy !== undefined ||
      row.liveTokens >= (row.measureAtTokens ?? Infinity) ||
      row.liveMessages >= (row.measureAtMessages ?? Infinity);
    const size = { contextTokens: row.liveTokens, messages: row.liveMessages };
    return { ...sizes, due: worthwhile && isTriggered(sizes.limits, size) };
  };
}

function sizesOf(layers: PolicyLayers, row: SessionRow): { policy: Policy; limits: Limits } | null {
  try {
    const policy = policyOf(layers);
    return { policy, limits: limitsOf(policy, factsOf(row)) };
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return null;
    throw error;
  }
}
