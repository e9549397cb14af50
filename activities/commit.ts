import { log } from '@temporalio/activity';
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import type { Replacement, ReplacementInput } from '../src/compaction/replace/input.js';
import { snapshotKey } from '../src/compaction/plan/reading.js';
import { makeReplacement } from '../src/compaction/replace/replacement.js';
import { PalimpsestError } from '../src/errors.js';
import type { Policy } from '../src/policy/defaults.js';
import { beyondLimitType } from '../src/policy/tenant-limits.js';
import { economicsOf } from '../src/limits/economics.js';
import { type Limits, marksAfter } from '../src/limits/limits.js';
import { commitCompaction, PolicyReplaced, type CommitInput } from '../src/store/compactions/commit.js';
import { findCommitOf, outcomeOf } from '../src/store/compactions/generations.js';
import type { Holder } from '../src/store/compactions/digest-holds.js';
import { replaced, type SessionRow } from '../src/store/sessions/session-row.js';
import { asksForNothing } from '../src/store/sessions/overdue.js';
import { loadSession } from '../src/store/sessions/sessions.js';
import { indexTexts } from '../src/store/search/index-texts.js';
import { expireDigests, holdPaid, mostExpired, type Paid } from '../src/store/compactions/digests.js';
import type { RepairProblem } from '../src/summary/ask/repair.js';
import { inSlices } from '../src/steps.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { CompactionOutcome } from '../src/contract/compactions.js';
import { asksToBeMeasured } from './measure.js';
import { type Dependencies, runStep } from './run.js';
import { retryAt } from './session.js';
import { idsOf, loadReplacement, type ReplacementRequest } from './replacement.js';

export interface CommitRequest extends ReplacementRequest {
  /** Keys of every digest that was used. */
  digests: string[];
  /** Keys of every answer that the model gave, including the answers for a part that eventually failed. */
  paid: string[];
  /** Unix milliseconds: the start of the compaction, and each period spent waiting for the model. */
  startedAt: number;
  modelSpans: [number, number][];
  workflowId: string;
  runId: string;
  /**
   * Type of the model's failure at the first chunk whose digest the rules wrote, if the model answered for the others. Absent in
   * requests of earlier versions.
   */
  chunkFailure?: string | null;
  /** Also do what follows the commit (`Committed.next`). Absent if the session's workflow does that itself. */
  settles?: boolean;
  /** The model failure that caused the deterministic fallback. */
  failure: { type: string; message: string; onlyWaited?: boolean } | null;
}

/** The snapshot must be requested once more before it can be committed. */
export interface RepairWanted {
  repair: RepairProblem;
}

/** The outcome, and what is left to do. */
export interface Committed extends CompactionOutcome {
  /** `due`: the session must be measured again. `embeds`: the indexed texts need vectors. Absent if it was not requested. */
  next?: { due: boolean; embeds: boolean };
}

/** Each attempt to commit holds the digests it uses for this long. */
const committingMs = 60 * 60_000;

/** Maximum tries within one attempt. Each time the policy is replaced in the meantime, the sizes are computed again. */
const mostReplaced = 20;

/**
 * Accepts the new head and commits archive part, snapshot, exact values, reductions and head in one transaction, or returns
 * the problem that a repair must remove first. Throws `Summary.NotSmaller` or `Summary.PinsLost` if the result is refused,
 * `Store.StaleGeneration` if another compaction was committed first or the session was erased and created again, and
 * `Store.DigestGone` if an answer was deleted in the meantime; nothing is written in these cases. When the same run repeats the
 * step, it returns the outcome of its first commit. Afterwards it indexes the texts and looks whether the session is due again.
 */
export function commit(dependencies: Dependencies) {
  return (request: CommitRequest): Promise<Committed | RepairWanted> =>
    runStep('commit', ({ signal }) => commitNow(dependencies, request, signal));
}

/** @param known texts of digests that need not be read, by key */
export async function commitNow(
  dependencies: Dependencies,
  request: CommitRequest,
  signal: AbortSignal,
  known?: ReadonlyMap<string, string>,
): Promise<Committed | RepairWanted> {
  for (let replaced = 0; replaced < mostReplaced; replaced++) {
    try {
      const answer = await acceptAndCommit(dependencies, request, signal, known);
      if ('repair' in answer || request.settles !== true) return answer;
      return { ...answer, next: await settle(dependencies, idsOf(request)) };
    } catch (error) {
      if (!(error instanceof PolicyReplaced)) throw error;
    }
  }
  throw new PalimpsestError('Store.StaleGeneration', 'the policy was replaced again and again meanwhile');
}

/** A search indexes what is missing, and a measurement finds what an erased or recreated session needs. */
async function settle(
  { pool, embedder = null }: Dependencies,
  ids: SessionIds,
): Promise<NonNullable<Committed['next']>> {
  try {
    const row = await loadSession(pool, ids);
    const due = asksToBeMeasured(row);
    if (!due) await asksForNothing(pool, row);
    await indexTexts(pool, ids);
    return { due, embeds: embedder !== null };
  } catch (error) {
    log.warn('a commit was not followed up', {
      ...ids,
      error: error instanceof Error ? error.name : 'unknown',
    });
    return { due: true, embeds: false };
  }
}

async function acceptAndCommit(
  dependencies: Dependencies,
  request: CommitRequest,
  signal: AbortSignal,
  known: ReadonlyMap<string, string> | undefined,
): Promise<CompactionOutcome | RepairWanted> {
  const { pool, now, metrics } = dependencies;
  const { tenant, session: id, runId } = request;
  const holder = { tenant, session: id, runId, forMs: committingMs };
  const [loaded, usage] = await Promise.all([
    loadReplacement(dependencies, request, signal, known).catch(async (error: unknown) => {
      // To a run that has committed, its plan is stale.
      const already = await findCommitOf(pool, idsOf(request), runId);
      if (already) return already;
      throw error;
    }),
    paidBy(pool, holder, request),
  ]);
  if (!('input' in loaded)) return outcomeOf(loaded);
  const { session, input } = loaded;
  const ids: SessionIds = { ...idsOf(request), incarnation: session.incarnation };
  // Compactions started by an earlier version do not say which session they read.
  if (request.incarnation === undefined && session.createdAt.getTime() > request.startedAt)
    throw replaced(ids);
  const made = await inSlices(makeReplacement(input), signal);
  if ('repair' in made) return { repair: made.repair };

  const failure = failureOf(request);
  const commitInput = {
    ...replacementToStore(made, request, input),
    tokenizer: session.tokenizer,
    policyVersion: session.policyVersion,
    exhausted: made.missed ? exhaustedMark(session, made, input.limits) : null,
    failure: failure && failureToStore(failure, input.policy, session, now()),
    ...costsOf(dependencies, request, usage, made, input.policy),
  };
  const outcome = outcomeOf(await commitCompaction(pool, ids, commitInput));
  await expireNowAndThen(pool, ids.tenant, input.policy.retention.digests);
  report(metrics, ids, outcome, failure?.type ?? null);
  return outcome;
}

/** The tenants whose digests this process has expired within the last minute. */
const expired = new LRUCache<string, true>({ max: 10_000, ttl: 60_000 });

/** Expires the tenant's digests at most once a minute: commits of a backfill follow each other within milliseconds. */
async function expireNowAndThen(pool: Pool, tenant: string, olderThanMs: number): Promise<void> {
  if (expired.has(tenant)) return;
  expired.set(tenant, true);
  if ((await expireDigests(pool, tenant, olderThanMs)) === mostExpired) expired.delete(tenant);
}

/** Why the rules wrote the summary in place of a model: it failed, or the operator's limits did not allow to ask it. */
function failureOf({ failure, plan, method }: CommitRequest): CommitRequest['failure'] {
  if (failure !== null || plan.beyondLimits !== true || method !== 'extractive') return failure;
  return { type: beyondLimitType, message: plan.withoutModel ?? '', onlyWaited: true };
}

/** The cost that this session has paid for the texts of the new generation. Texts by rule cost nothing. */
function paidBy(pool: Pool, holder: Holder, { plan, written, digests, paid }: CommitRequest): Promise<Paid> {
  const keys = new Set([...digests, ...paid, ...(written?.layers ?? []).map(({ key }) => key)]);
  return holdPaid(pool, holder, plan.baseGeneration + 1, [...keys]);
}

/** Computes the tokens, time and money that this commit cost, and the digests that it used. */
function costsOf(
  { now }: Dependencies,
  { digests, modelSpans, startedAt }: CommitRequest,
  usage: Paid,
  { layers, head, tokensBefore, tokensAfter }: Replacement,
  { prices }: Policy,
): Pick<CommitInput, 'digestKeys' | 'usage' | 'cost' | 'currency' | 'paysBackAfter'> {
  // A snapshot that a journal took over is kept with its generation.
  const written = (layers ?? []).flatMap(({ key }) => (key.startsWith(snapshotKey) ? [] : [key]));
  const digestKeys = [...new Set([...digests, ...written])];
  const modelMs = spanned(modelSpans);
  const headTokens = head?.tokens.reduce((sum, tokens) => sum + tokens, 0) ?? 0;
  const { cost, paysBackAfter } = economicsOf({
    prices,
    tokensBefore,
    tokensAfter,
    headTokens,
    tailTokens: tokensAfter - headTokens,
    inputTokens: usage.modelInputTokens,
    outputTokens: usage.modelOutputTokens,
  });
  const overheadMs = Math.max(0, now() - startedAt - modelMs);
  return {
    digestKeys,
    usage: { ...usage, modelMs, overheadMs },
    cost,
    currency: prices.currency,
    paysBackAfter,
  };
}

/** The model is not called again until `retryAt`, unless the compaction only waited for the deployment's token limit. */
function failureToStore(
  failure: NonNullable<CommitRequest['failure']>,
  policy: Policy,
  { failures }: SessionRow,
  now: number,
): CommitInput['failure'] {
  return { ...failure, retryAt: failure.onlyWaited ? new Date(now) : retryAt(policy, failures, now) };
}

/** Writes one log line per compaction and updates the metrics: ids and numbers, no text. */
function report(
  metrics: Dependencies['metrics'],
  ids: SessionIds,
  outcome: CompactionOutcome,
  fallbackFor: string | null,
): void {
  log.info('compaction committed', {
    ...ids,
    ...outcome,
    ...(fallbackFor === null ? {} : { fallbackFor }),
  });
  metrics?.compacted(outcome);
  if (fallbackFor !== null) metrics?.fellBack(fallbackFor);
  if (outcome.cost !== null && outcome.currency !== null) metrics?.spent(outcome.cost, outcome.currency);
}

function replacementToStore(
  { view, missed, ...replacement }: Replacement,
  { plan, method, written, workflowId, runId, chunksByRule, chunkFailure }: CommitRequest,
  { policy, limits }: ReplacementInput,
): Omit<CommitInput, 'tokenizer' | 'digestKeys' | 'usage'> {
  return {
    ...replacement,
    baseGeneration: plan.baseGeneration,
    reason: plan.reason,
    method,
    throughSeq: plan.throughSeq,
    carriedSeq: plan.carriedSeq,
    redaction: plan.summarizer.redaction,
    evicted: plan.evictedMessages,
    chunks: written?.chunks.length ?? 0,
    chunksByRule: chunksByRule ?? 0,
    chunkFailure: chunkFailure ?? null,
    workflowId,
    runId,
    measureAt: marksAfter(policy, limits, {
      missed,
      tokens: replacement.tokensAfter,
      messages: view.length,
    }),
  };
}

function exhaustedMark(
  { nextSeq }: SessionRow,
  { tokensAfter }: Replacement,
  { contextTarget }: Limits,
): NonNullable<CommitInput['exhausted']> {
  const reason = `the context stays above its target of ${contextTarget} tokens`;
  return { atSeq: nextSeq - 1, tokens: tokensAfter, reason };
}

/** Returns the length of the union of the spans. */
function spanned(spans: readonly [number, number][]): number {
  let total = 0;
  let until = -Infinity;
  for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
    total += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return total;
}
