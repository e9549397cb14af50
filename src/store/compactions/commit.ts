import type { Pool } from 'pg';
import type { Head, Reduction } from '../../context/view/view.js';
import { PalimpsestError } from '../../errors.js';
import type { Coverage } from '../../summary/coverage.js';
import type { KeptLayer, Layer } from '../../summary/ask/layers.js';
import { counterFor, type TokenizerName } from '../../tokens/counter.js';
import { insertArchivePart } from './archive.js';
import { aheadRun } from './digest-holds.js';
import { linkDigests, storeRuleLayer } from './digests.js';
import { toCompaction, type CompactionRow } from './generations.js';
import { insertReductions } from './reductions.js';
import { and, eq, sql, type SQL } from 'drizzle-orm';
import { archiveParts, compactions } from '../schema/compactions.js';
import { cleared, lockSession, updateSession } from '../sessions/session-table.js';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from '../sessions/session-row.js';
import { liveSizes } from '../sessions/recount.js';
import { storable } from '../connection/values.js';
import { withSession, type Transaction } from '../connection/transaction.js';

/** An accepted compaction, which is committed as a whole or not at all. */
export interface CommitInput {
  /** The generation that the compaction was planned on. The commit is refused if the session has a newer one. */
  baseGeneration: number;
  /** The version of the policy that gave its sizes. The commit is refused if the session has a newer one. Absent: not compared. */
  policyVersion?: number;
  /** Counts the stored texts. */
  tokenizer: TokenizerName;
  reason: string;
  method: 'model' | 'extractive' | 'none';
  /** Last evicted seq; that of the base generation if only reductions are committed. */
  throughSeq: number;
  snapshot: string | null;
  ledger: string | null;
  layers?: KeptLayer[] | null;
  /** `journal` mode. */
  state?: string | null;
  /** An entry written by rule; its text is stored with the commit. */
  newLayers?: readonly { layer: Layer; text: string }[];
  /** Texts that the policy's patterns have pinned so far. */
  pinned?: string[];
  /** A model must write this snapshot again as soon as a model answers. */
  fallback?: boolean;
  /** Identifies the redaction of these texts. @default '', none */
  redaction?: string;
  /** Null while there is no head. */
  head: Head | null;
  carriedSeq: number | null;
  coverage: Coverage[];
  /** All reductions in force after this commit, including the reductions of the base that still apply. */
  reductions: Reduction[];
  tokensBefore: number;
  tokensAfter: number;
  /** Tokens at the beginning of the new context that the old one had as well. */
  cachedTokens?: number | null;
  evicted: number;
  chunks: number;
  /** Number of texts that the rules wrote because the model failed at them. */
  chunksByRule?: number;
  /** Type of the model's failure at the first of these texts, if the model wrote the others. */
  chunkFailure?: string | null;
  /** Digests that the compaction uses. The commit protects them from deletion. */
  digestKeys: string[];
  usage: {
    modelCalls: number;
    modelInputTokens: number;
    modelOutputTokens: number;
    modelMs: number;
    overheadMs: number;
  };
  /** Cost of the summarizer; null without prices. */
  cost?: number | null;
  currency?: string | null;
  paysBackAfter?: number | null;
  workflowId: string;
  runId: string;
  /** The failure of the model's requests for this compaction. The model gets no further request before `retryAt`. */
  failure?: { type: string; message: string; retryAt: Date; onlyWaited?: boolean } | null;
  exhausted?: { atSeq: number; tokens: number; reason: string } | null;
  measureAt: { tokens: number | null; messages: number | null };
}

/** The policy changed after the sizes of a commit were computed. Nothing is written, and they must be computed again. */
export class PolicyReplaced extends Error {}

/**
 * Replaces the planned prefix of the context: archive part, snapshot, exact values, reductions and the moved head in
 * one transaction (invariant 2), guarded by compare-and-set on the generation (invariant 5). A run that has committed
 * already gets its row back, so that a retry after a lost answer is safe. Throws `Store.StaleGeneration`, also if
 * the session was erased and recreated since `ids` were read, `Store.DigestGone` or `PolicyReplaced`; in these cases
 * nothing is written.
 */
export async function commitCompaction(
  pool: Pool,
  ids: SessionIds,
  input: CommitInput,
): Promise<CompactionRow> {
  const snapshot = input.snapshot === null ? null : storable(input.snapshot);
  const state = input.state ? storable(input.state) : null;
  const count = (text: string | null) => (text === null ? 0 : counterFor(input.tokenizer).count(text));
  const sizes = { snapshotTokens: count(snapshot), stateTokens: count(state) };
  return withSession(pool, ids, async (tx) => {
    const session = await lockSession(tx, ids);
    const isFirst = session.generation === input.baseGeneration;
    const already = isFirst ? null : await ownCommit(tx, ids, input.runId);
    if (already) return already;
    refuseStale(session, input);
    return store(tx, session, { ...input, snapshot, state, ...sizes });
  });
}

async function store(
  tx: Transaction,
  session: SessionRow,
  input: CommitInput & { snapshotTokens: number; stateTokens: number },
): Promise<CompactionRow> {
  const { head, throughSeq, coverage, usage, exhausted = null, measureAt, ledger } = input;
  const generation = session.generation + 1;
  const fromSeq = session.throughSeq + 1;
  const evicts = throughSeq >= fromSeq;
  const [row] = await tx.db
    .insert(compactions)
    .values({
      tenantId: session.tenant,
      sessionId: session.session,
      generation,
      parentGeneration: session.generation,
      parentThroughSeq: session.throughSeq,
      fromSeq,
      throughSeq,
      reason: input.reason,
      method: input.method,
      snapshot: input.snapshot,
      snapshotTokens: input.snapshotTokens,
      ledger: ledger === null ? null : storable(ledger),
      layers: input.layers?.map(storableLayer) ?? null,
      state: input.state ?? null,
      stateTokens: input.stateTokens,
      pinned: input.pinned?.map(storable) ?? [],
      fallback: input.fallback ?? false,
      cost: input.cost ?? null,
      currency: input.currency ?? null,
      paysBackAfter: input.paysBackAfter ?? null,
      carriedSeq: input.carriedSeq,
      head: head && head.messages.length > 0 ? JSON.stringify(head.messages) : null,
      headTokens: head?.tokens ?? [],
      layout: head?.layout ?? null,
      redaction: input.redaction ?? '',
      coverage: coverage.map(({ reason, ...range }) =>
        reason === undefined ? range : { ...range, reason: storable(reason) },
      ),
      tokensBefore: input.tokensBefore,
      tokensAfter: input.tokensAfter,
      cachedTokens: input.cachedTokens ?? null,
      evicted: input.evicted,
      chunks: input.chunks,
      chunksByRule: input.chunksByRule ?? 0,
      modelCalls: usage.modelCalls,
      modelInputTokens: usage.modelInputTokens,
      modelOutputTokens: usage.modelOutputTokens,
      modelMs: Math.round(usage.modelMs),
      overheadMs: Math.round(usage.overheadMs),
      archivePart: evicts ? nextPart(session) : null,
      parts: evicts ? sql`${partsOf(session)} + 1` : partsOf(session),
      workflowId: input.workflowId,
      runId: input.runId,
    })
    .returning();
  if (!row) throw new Error('the database returned no row for an insert');
  const part = row.archivePart;
  if (part !== null) await insertArchivePart(tx, session, { part, generation, fromSeq, throughSeq });
  await insertReductions(tx, { ...session, generation }, 0, 1, input.reductions);
  for (const layer of input.newLayers ?? []) await storeRuleLayer(tx, session, generation, layer);
  await linkDigests(tx, session, generation, input.digestKeys, [input.runId, aheadRun]);
  await updateSession(tx, session, {
    ...failuresAfter(session, input),
    generation,
    throughSeq,
    ...(await liveSizes(tx.query, { ...session, generation, throughSeq })),
    measureAtTokens: measureAt.tokens,
    measureAtMessages: measureAt.messages,
    exhausted: exhausted && { ...exhausted, reason: storable(exhausted.reason) },
  });
  return toCompaction(row);
}

function storableLayer({ added, waiting, ...layer }: KeptLayer): KeptLayer {
  return {
    ...layer,
    ...(added === undefined ? {} : { added: storable(added) }),
    ...(waiting === undefined ? {} : { waiting: storable(waiting) }),
  };
}

/** The failure fields after a commit. A commit clears earlier failures, except a model's failures if it used no model. */
function failuresAfter(
  { failures, retryAt, lastError }: SessionRow,
  { method, failure, chunkFailure, chunksByRule }: CommitInput,
): Pick<SessionRow, 'failures' | 'retryAt' | 'lastError'> {
  if (failure) {
    const { type, message, onlyWaited } = failure;
    const error = { type, message: storable(message), fallback: true };
    return { failures: failures + (onlyWaited ? 0 : 1), retryAt: failure.retryAt, lastError: error };
  }
  if (method !== 'model' && lastError?.fallback) return { failures, retryAt, lastError };
  const { exhausted: _exhausted, ...forgotten } = cleared;
  if (!chunkFailure) return forgotten;
  const message = `the model failed at ${chunksByRule} of its texts; the rules wrote them`;
  return { ...forgotten, lastError: { type: chunkFailure, message, fallback: true } };
}

function refuseStale(
  session: SessionRow,
  { baseGeneration, policyVersion = session.policyVersion, throughSeq }: CommitInput,
): void {
  if (session.generation !== baseGeneration) {
    throw new PalimpsestError(
      'Store.StaleGeneration',
      `session ${session.session} is at generation ${session.generation}, but this compaction was planned on generation ${baseGeneration}`,
      { hint: 'Plan again.', details: { generation: session.generation, baseGeneration } },
    );
  }
  if (session.policyVersion !== policyVersion) throw new PolicyReplaced();
  if (throughSeq < session.throughSeq || throughSeq >= session.nextSeq) {
    throw new Error(`seq ${throughSeq} is not in the tail ${session.throughSeq + 1}–${session.nextSeq - 1}`);
  }
}

async function ownCommit({ db }: Transaction, ids: SessionIds, runId: string): Promise<CompactionRow | null> {
  const [row] = await db
    .select()
    .from(compactions)
    .where(
      and(
        eq(compactions.tenantId, ids.tenant),
        eq(compactions.sessionId, ids.session),
        eq(compactions.runId, runId),
      ),
    );
  return row ? toCompaction(row) : null;
}

/** The session's next part number; its row is locked. */
const nextPart = ({ tenant, session }: SessionIds): SQL<number> =>
  sql`(select coalesce(max(part), 0) + 1 from ${archiveParts} where tenant_id = ${tenant} and session_id = ${session})`;

/** The number of parts along the chain that ends at the session's present head. */
const partsOf = ({ tenant, session, generation }: SessionRow): SQL<number> =>
  sql`coalesce((select parts from ${compactions}
    where tenant_id = ${tenant} and session_id = ${session} and generation = ${generation}), 0)`;
