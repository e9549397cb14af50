import { log } from '@temporalio/activity';
import { makeReplacement } from '../src/compaction/replace/replacement.js';
import { PalimpsestError } from '../src/errors.js';
import { economicsOf } from '../src/limits/economics.js';
import { marksAfter } from '../src/limits/marks.js';
import { commitCompaction, PolicyReplaced } from '../src/store/compactions/commit.js';
import { findCommitOf } from '../src/store/compactions/generations.js';
import { renewHolds } from '../src/store/compactions/digest-holds.js';
import { replaced } from '../src/store/sessions/session-row.js';
import { expireDigests, paidFor } from '../src/store/compactions/digests.js';
import type { RepairProblem } from '../src/summary/ask/repair.js';
import { inSlices } from '../src/steps.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { Dependencies } from './dependencies.js';
import { retryAt } from './giveUp.js';
import { idsOf, loadReplacement, type ReplacementRequest } from './replacement.js';
import { runStep } from './run.js';
import type { CompactionOutcome } from '../src/contract/outcome.js';
import { outcomeOf } from '../src/store/compactions/outcome.js';

export interface CommitRequest extends ReplacementRequest {
  /** Keys of every digest that went in. */
  digests: string[];
  /** Keys of every answer that the model gave, those included of a part that failed in the end. */
  paid: string[];
  /** Unix milliseconds: start of the compaction, and each stretch spent waiting for the model. */
  startedAt: number;
  modelSpans: [number, number][];
  workflowId: string;
  runId: string;
  /** Type of the model's failure at the first chunk that the fallback served while the model wrote the rest. Absent in requests of earlier versions. */
  chunkFailure?: string | null;
  /** The model failure that made the deterministic fallback serve. */
  failure: { type: string; message: string; onlyWaited?: boolean } | null;
}

/** The snapshot is to be asked for once more before it may be committed. */
export interface RepairWanted {
  repair: RepairProblem;
}

/** What the compaction has read is held for so long from each attempt to commit on. */
const committingMs = 60 * 60_000;

/** How often sizes are worked out anew within one attempt because another policy came. */
const mostReplaced = 20;

/**
 * Accepts the new head and commits archive part, snapshot, ledger, reductions and head in one transaction; or answers
 * what must be repaired first. Throws `Summary.NotSmaller` or `Summary.PinsLost` where the result is refused,
 * `Store.StaleGeneration` where another compaction came first or the session was erased and begun anew, `Store.DigestGone` where
 * an answer was deleted meanwhile; then
 * nothing is written. Repeated by the same run,
 * it answers with what it committed.
 */
export function commit(dependencies: Dependencies) {
  const { pool, now, metrics } = dependencies;
  return (request: CommitRequest): Promise<CompactionOutcome | RepairWanted> =>
    runStep('commit', async ({ signal }) => {
      const { tenant, session, runId } = request;
      await renewHolds(pool, { tenant, session, runId, forMs: committingMs });
      for (let replaced = 0; replaced < mostReplaced; replaced++) {
        try {
          return await acceptAndCommit(request, signal);
        } catch (error) {
          if (!(error instanceof PolicyReplaced)) throw error;
        }
      }
      throw new PalimpsestError('Store.StaleGeneration', 'the policy was replaced again and again meanwhile');
    });

  async function acceptAndCommit(
    request: CommitRequest,
    signal: AbortSignal,
  ): Promise<CompactionOutcome | RepairWanted> {
    const { plan, method, written } = request;
    const already = await findCommitOf(pool, idsOf(request), request.runId);
    if (already) return outcomeOf(already);

    const { session, input } = await loadReplacement(dependencies, request, signal);
    const ids: SessionIds = { ...idsOf(request), incarnation: session.incarnation };
    // Compactions that began under an earlier version do not say which session they have read.
    if (request.incarnation === undefined && session.createdAt.getTime() > request.startedAt)
      throw replaced(ids);
    const made = await inSlices(makeReplacement(input), signal);
    if ('repair' in made) return { repair: made.repair };

    const { policy, limits } = input;
    const { view, missed, tokensBefore, tokensAfter, newLayer, ...replacement } = made;
    const layerKeys = (made.layers ?? []).map(({ key }) => key);
    const digestKeys = [...new Set([...request.digests, ...layerKeys])];
    const paid = [...new Set([...digestKeys, ...request.paid])];
    const usage = await paidFor(pool, ids, plan.baseGeneration + 1, paid);
    const modelMs = spanned(request.modelSpans);
    const headTokens = made.head?.tokens.reduce((sum, tokens) => sum + tokens, 0) ?? 0;
    const economics = economicsOf({
      prices: policy.prices,
      tokensBefore,
      tokensAfter,
      headTokens,
      tailTokens: tokensAfter - headTokens,
      inputTokens: usage.modelInputTokens,
      outputTokens: usage.modelOutputTokens,
    });
    const row = await commitCompaction(pool, ids, {
      ...replacement,
      baseGeneration: plan.baseGeneration,
      policyVersion: session.policyVersion,
      reason: plan.reason,
      method,
      throughSeq: plan.throughSeq,
      carriedSeq: plan.carriedSeq,
      newLayer,
      tokensBefore,
      tokensAfter,
      evicted: plan.evictedMessages,
      chunks: written?.chunks.length ?? 0,
      chunksByRule: request.chunksByRule ?? 0,
      digestKeys,
      usage: { ...usage, modelMs, overheadMs: Math.max(0, now() - request.startedAt - modelMs) },
      cost: economics.cost,
      currency: policy.prices.currency,
      paysBackAfter: economics.paysBackAfter,
      workflowId: request.workflowId,
      runId: request.runId,
      failure: request.failure && {
        ...request.failure,
        // Who only waited for the deployment's own limit has no reason to leave the model alone.
        retryAt: request.failure.onlyWaited ? new Date(now()) : retryAt(policy, session.failures, now()),
      },
      chunkFailure: request.chunkFailure ?? null,
      exhausted: missed
        ? {
            atSeq: session.nextSeq - 1,
            tokens: tokensAfter,
            reason: `the context stays above its target of ${limits.contextTarget} tokens`,
          }
        : null,
      measureAt: marksAfter(policy, limits, { missed, tokens: tokensAfter, messages: view.length }),
    });
    await expireDigests(pool, ids.tenant, policy.retention.digests);
    const outcome = outcomeOf(row);
    report(ids, outcome, request.failure?.type ?? null);
    return outcome;
  }

  /** One line a compaction in the log, and its figures: ids and numbers, no text. */
  function report(ids: SessionIds, outcome: CompactionOutcome, fallbackFor: string | null): void {
    log.info('compaction committed', {
      ...ids,
      ...outcome,
      ...(fallbackFor === null ? {} : { fallbackFor }),
    });
    metrics?.compacted(outcome);
    if (fallbackFor !== null) metrics?.fellBack(fallbackFor);
    if (outcome.cost !== null && outcome.currency !== null) metrics?.spent(outcome.cost, outcome.currency);
  }
}

/** Length of the union of the spans. */
function spanned(spans: readonly [number, number][]): number {
  let total = 0;
  let until = -Infinity;
  for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
    total += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return total;
}
