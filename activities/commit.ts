import { buildView, type Head, type ViewItem } from '../src/conversation/context.js';
import type { ChatMessage, LoggedMessage } from '../src/conversation/message.js';
import { PalimpsestError } from '../src/errors.js';
import { limitsOf, measureAt } from '../src/policy/limits.js';
import { reduceToFit } from '../src/policy/reduce.js';
import { resolvePolicy } from '../src/policy/schema.js';
import { acceptHead, acceptSnapshot, type Snapshot } from '../src/summary/accept.js';
import { coverageOf, type ChunkRef } from '../src/summary/chunk.js';
import { extractiveSnapshot } from '../src/summary/extractive.js';
import { buildHead } from '../src/summary/head.js';
import { buildLedger } from '../src/summary/ledger.js';
import { PROMPT_VERSION } from '../src/summary/prompts.js';
import {
  commitCompaction,
  findCommitOf,
  loadCompaction,
  PolicyReplaced,
  type CompactionFacts,
} from '../src/store/compactions.js';
import { readContextSource } from '../src/store/context.js';
import { findDigest, paidFor } from '../src/store/digests.js';
import { readMessages } from '../src/store/messages.js';
import type { SessionIds } from '../src/temporal/names.js';
import { counterFor } from '../src/tokens/counter.js';
import { isMedia } from '../src/tokens/message.js';
import type { Dependencies } from './dependencies.js';
import { retryAt } from './giveUp.js';
import type { Plan } from './plan.js';
import { runStep } from './run.js';

export interface CommitRequest extends SessionIds {
  plan: Omit<Plan, 'chunks' | 'method'>;
  method: Plan['method'];
  /** Chunks as summarized, after halving. */
  chunks: ChunkRef[];
  /** Keys of every digest that went in, the snapshot's last. */
  digests: string[];
  force: boolean;
  /** Unix milliseconds: start of the compaction, and each stretch spent waiting for the model. */
  startedAt: number;
  modelSpans: [number, number][];
  workflowId: string;
  runId: string;
  /** The model failure that made the deterministic fallback serve. */
  failure: { type: string; message: string } | null;
}

/** One committed compaction in numbers; the row in Postgres holds the same and the texts. */
export interface CompactionOutcome {
  generation: number;
  reason: string;
  method: string;
  tokensBefore: number;
  tokensAfter: number;
  evicted: number;
  chunks: number;
  modelCalls: number;
  modelInputTokens: number;
  modelOutputTokens: number;
  /** Milliseconds in which at least one model call was in flight / the rest of the compaction's wall time. */
  modelMs: number;
  overheadMs: number;
  archivePart: number | null;
  workflowId: string;
  runId: string;
}

/**
 * Accepts the new head and commits archive part, snapshot, ledger, reductions and head in one transaction.
 * Throws `Summary.NotSmaller` or `Summary.PinsLost` where the result is refused, `Store.StaleGeneration` where another
 * compaction came first; either way nothing is written. Repeated by the same run, it answers with what it committed.
 */
export function commit({ pool, now }: Dependencies) {
  return (request: CommitRequest): Promise<CompactionOutcome> =>
    runStep('commit', async () => {
      for (;;) {
        try {
          return await acceptAndCommit(request);
        } catch (error) {
          if (!(error instanceof PolicyReplaced)) throw error;
        }
      }
    });

  async function acceptAndCommit(request: CommitRequest): Promise<CompactionOutcome> {
    const { plan, method } = request;
    const ids: SessionIds = { tenant: request.tenant, session: request.session };
    const already = await findCommitOf(pool, ids, request.runId);
    if (already) return outcomeOf(already);

    const { session, source } = await readContextSource(pool, ids, 0);
    if (session.generation !== plan.baseGeneration) {
      throw new PalimpsestError(
        'Store.StaleGeneration',
        `generation ${session.generation} was committed while generation ${plan.baseGeneration + 1} was prepared`,
      );
    }
    const policy = resolvePolicy(session.policy);
    const limits = limitsOf(policy);
    const counter = counterFor(limits.tokenizer);
    const parent = await loadCompaction(pool, ids, plan.baseGeneration);
    const kept = source.tail.filter(({ seq }) => seq > plan.throughSeq);
    const isEvicted = ({ seq }: LoggedMessage) => seq >= plan.fromSeq && seq <= plan.throughSeq;
    const evicted = method === 'none' ? [] : [...source.system, ...source.tail].filter(isEvicted);

    const replaced = method === 'none' ? null : await replace();
    const head = replaced?.head ?? source.head;
    const view = buildView({ system: source.system, head, tail: kept, reductions: [] }, counter);
    const fit = reduceToFit(
      view,
      // Reducing what the next compaction evicts would be work for nothing.
      { limit: plan.partial ? Infinity : limits.contextTarget, target: limits.contextTarget, commit: true },
      counter,
    );
    const tokensBefore = sizeOf(buildView(source, counter));
    const tokensAfter = fit.tokens;
    acceptHead({
      tokensBefore,
      tokensAfter,
      minGain: request.force || plan.partial ? 0 : policy.summary.minGain,
      // A head that stays may be older than the pins, and where there is none they have no place.
      pins: replaced ? policy.pins : [],
      head: head ? firstText(head) : '',
    });

    const endedAt = now();
    const modelMs = spanned(request.modelSpans);
    const normal = measureAt(limits);
    const step = Math.ceil(policy.summary.minGain * limits.budget);
    const messageStep = Math.max(2, Math.ceil(policy.summary.minGain * fit.view.length));
    const missed = tokensAfter > limits.contextTarget && !plan.partial;
    const row = await commitCompaction(pool, ids, {
      baseGeneration: plan.baseGeneration,
      policyVersion: session.policyVersion,
      reason: plan.reason,
      method,
      throughSeq: plan.throughSeq,
      snapshot: replaced?.snapshot ?? parent.snapshot,
      ledger: replaced?.ledger ?? parent.ledger,
      head,
      carriedSeq: plan.carriedSeq,
      coverage: method === 'none' ? [] : coverage(source.system, evicted, request.chunks),
      reductions: fit.reductions,
      tokensBefore,
      tokensAfter,
      evicted: plan.evictedMessages,
      chunks: request.chunks.length,
      digestKeys: request.digests,
      model: method === 'model' ? plan.summarizer.model : null,
      promptVersion: PROMPT_VERSION,
      usage: {
        ...(await paidFor(pool, ids, plan.baseGeneration + 1, request.digests)),
        modelMs,
        overheadMs: Math.max(0, endedAt - request.startedAt - modelMs),
      },
      workflowId: request.workflowId,
      runId: request.runId,
      failure: request.failure && {
        ...request.failure,
        retryAt: retryAt(policy, session.failures, now()),
      },
      exhausted: missed
        ? {
            atSeq: session.nextSeq - 1,
            tokens: tokensAfter,
            reason: `the context stays above its target of ${limits.contextTarget} tokens`,
          }
        : null,
      measureAt: missed
        ? {
            tokens: normal.tokens && Math.max(normal.tokens, tokensAfter + step),
            messages: normal.messages && Math.max(normal.messages, fit.view.length + messageStep),
          }
        : normal,
    });
    return outcomeOf(row);

    async function replace(): Promise<{ head: Head; snapshot: Snapshot; ledger: string }> {
      const snapshot = await snapshotText();
      const carried = await carriedRequest();
      const archive = { parts: parent.parts + 1, throughSeq: plan.throughSeq };
      const served = method === 'model' ? ('model' as const) : ('extractive' as const);
      const common = {
        snapshot,
        pins: policy.pins,
        archive,
        method: served,
        carried,
        acknowledgment: policy.summary.acknowledgment,
      };
      const bare = buildHead({ ...common, ledger: '' }, counter);
      const ledgerTokens = Math.max(
        0,
        Math.min(limits.ledgerTokens, limits.headMax + limits.pinTokens - (bare.tokens[0] ?? 0)),
      );
      const ledger = buildLedger({
        previous: parent.ledger,
        evicted,
        // What is evicted next is visible no longer than until then.
        kept: plan.partial ? [] : kept,
        snapshot,
        maxTokens: ledgerTokens,
        counter,
      });
      return { head: buildHead({ ...common, ledger }, counter), snapshot, ledger };
    }

    async function snapshotText(): Promise<Snapshot> {
      const { snapshotTokens, snapshotCeiling } = plan.summarizer;
      const inputTokens = evicted.reduce((sum, { tokens }) => sum + tokens, plan.previousTokens);
      const key = request.digests.at(-1);
      if (method === 'model' && key !== undefined) {
        const digest = await findDigest(pool, ids.tenant, key);
        if (!digest) throw new PalimpsestError('Store.Corrupt', `digest ${key} is not stored any more`);
        return acceptSnapshot(digest.text, { inputTokens, maxTokens: snapshotCeiling, counter });
      }
      const text = extractiveSnapshot({
        previous: parent.snapshot,
        messages: evicted,
        maxTokens: snapshotTokens,
        counter,
      });
      if (text === '') {
        throw new PalimpsestError(
          'Summary.NotSmaller',
          `${inputTokens} tokens are too few for a summary that would be smaller`,
        );
      }
      return acceptSnapshot(text, { inputTokens, maxTokens: snapshotCeiling, counter });
    }

    async function carriedRequest(): Promise<LoggedMessage | null> {
      if (plan.carriedSeq === null) return null;
      const [carried] = await readMessages(pool, ids, plan.carriedSeq, plan.carriedSeq);
      return carried ?? null;
    }
  }
}

function coverage(system: readonly LoggedMessage[], evicted: readonly LoggedMessage[], chunks: ChunkRef[]) {
  const first = evicted[0]?.seq ?? 1;
  const inContext = system
    .filter(({ seq }) => seq >= first)
    .map(({ seq }) => ({ seq, reason: 'in context' }));
  const withMedia = evicted
    .filter(({ message: { content } }) => Array.isArray(content) && content.some(isMedia))
    .map(({ seq }) => ({ seq, reason: 'media withheld' }));
  return coverageOf(chunks, {
    messages: evicted.map(({ seq }) => seq),
    excluded: inContext,
    partly: withMedia,
  });
}

function sizeOf(view: readonly ViewItem[]): number {
  return view.reduce((sum, { tokens }) => sum + tokens, 0);
}

function firstText({ messages }: { messages: readonly ChatMessage[] }): string {
  const content = messages[0]?.content;
  return typeof content === 'string' ? content : '';
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

export function outcomeOf(row: CompactionFacts): CompactionOutcome {
  const { generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, modelCalls } = row;
  const { modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart } = row;
  return {
    ...{ generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, modelCalls },
    ...{ modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart },
    ...{ workflowId: row.workflowId ?? '', runId: row.runId ?? '' },
  };
}
