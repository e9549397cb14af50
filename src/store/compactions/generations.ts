import { createHash } from 'node:crypto';
import {
  and,
  asc,
  desc,
  eq,
  getTableColumns,
  gt,
  inArray,
  isNotNull,
  notInArray,
  type SQL,
} from 'drizzle-orm';
import type { Pool } from 'pg';
import type { Head } from '../../context/view/view.js';
import type { ChatMessage } from '../../conversation/message.js';
import { PalimpsestError } from '../../errors.js';
import { compactions } from '../schema/compactions.js';
import type { SessionIds } from '../../contract/ids.js';
import type { CompactionOutcome } from '../../contract/compactions.js';
import { readWith } from '../connection/transaction.js';
import { headMessages, toHead } from '../log/messages.js';

type Columns = typeof compactions.$inferSelect;

/** One committed compaction without its texts. */
export type CompactionFacts = Omit<
  Columns,
  'tenantId' | 'sessionId' | 'snapshot' | 'ledger' | 'state' | 'head' | 'headTokens' | 'layout' | 'coverage'
> & {
  /** Tokens of the whole head: summary turn, acknowledgment, carried request. */
  tokens: number;
};

/** One committed compaction with its texts. Generation 0 is the genesis, without head and snapshot. */
export type CompactionRow = CompactionFacts &
  Pick<Columns, 'snapshot' | 'ledger' | 'state' | 'coverage'> & {
    head: Head | null;
    /** Hex sha256 of the snapshot; null without a snapshot. */
    snapshotSha256: string | null;
  };

/** Throws `Store.SessionNotFound` if the session or this generation does not exist. */
export async function loadCompaction(
  pool: Pool,
  ids: SessionIds,
  generation: number,
): Promise<CompactionRow> {
  const row = await findCompaction(pool, ids, eq(compactions.generation, generation));
  if (row) return row;
  throw new PalimpsestError(
    'Store.SessionNotFound',
    `session ${ids.session} has no generation ${generation}`,
    {
      details: { tenant: ids.tenant, session: ids.session, generation },
    },
  );
}

/** The compaction that this workflow run committed, if any. A run commits at most once. */
export function findCommitOf(pool: Pool, ids: SessionIds, runId: string): Promise<CompactionRow | null> {
  return findCompaction(pool, ids, eq(compactions.runId, runId));
}

/**
 * The first compaction after this generation that answers a request to compact, or to resummarize: by the session's own workflow,
 * not by an operator's call or a backfill. Null if there is none.
 */
export async function compactionAfter(
  pool: Pool,
  ids: SessionIds,
  generation: number,
  resummarize: boolean,
): Promise<CompactionOutcome | null> {
  const reasons = resummarize
    ? inArray(compactions.reason, ['resummarize'])
    : notInArray(compactions.reason, ['resummarize', 'restore', 'redact', 'backfill']);
  const [first] = await factsWhere(pool, ids, and(gt(compactions.generation, generation), reasons));
  return first ? outcomeOf(first) : null;
}

/** Lists the compactions of the session without the genesis, oldest first. */
export function listCompactions(pool: Pool, ids: SessionIds): Promise<CompactionFacts[]> {
  return factsWhere(pool, ids, gt(compactions.generation, 0));
}

async function factsWhere(pool: Pool, ids: SessionIds, which: SQL | undefined): Promise<CompactionFacts[]> {
  const { tenantId, sessionId, snapshot, ledger, state, head, layout, coverage, ...facts } =
    getTableColumns(compactions);
  void [snapshot, ledger, state, head, layout, coverage];
  const rows = await readWith(pool, ids, (db) =>
    db
      .select(facts)
      .from(compactions)
      .where(and(eq(tenantId, ids.tenant), eq(sessionId, ids.session), which))
      .orderBy(asc(compactions.generation)),
  );
  return rows.map(({ headTokens, ...row }) => ({ ...row, tokens: sum(headTokens) }));
}

/** Number of generations whose heads are read at once. */
const mostHeads = 200;

/** The heads that the session's contexts have had, newest first. */
export async function listHeads(
  pool: Pool,
  ids: SessionIds,
): Promise<{ messages: ChatMessage[]; carriedSeq: number | null; throughSeq: number }[]> {
  const { tenantId, sessionId, generation, head, carriedSeq, throughSeq } = compactions;
  const rows = await readWith(pool, ids, (db) =>
    db
      .select({ head, carriedSeq, throughSeq })
      .from(compactions)
      .where(and(eq(tenantId, ids.tenant), eq(sessionId, ids.session), isNotNull(head)))
      .orderBy(desc(generation))
      .limit(mostHeads),
  );
  return rows.map(({ head: text, ...row }) => ({ messages: headMessages(text), ...row }));
}

async function findCompaction(pool: Pool, ids: SessionIds, which: SQL): Promise<CompactionRow | null> {
  const [row] = await readWith(pool, ids, (db) =>
    db
      .select()
      .from(compactions)
      .where(and(eq(compactions.tenantId, ids.tenant), eq(compactions.sessionId, ids.session), which)),
  );
  return row ? toCompaction(row) : null;
}

export function toCompaction({
  tenantId,
  sessionId,
  head,
  headTokens,
  layout,
  ...row
}: Columns): CompactionRow {
  void [tenantId, sessionId];
  return {
    ...row,
    tokens: sum(headTokens),
    head: toHead(head, { tokens: headTokens, carriedSeq: row.carriedSeq, layout }),
    snapshotSha256: row.snapshot === null ? null : createHash('sha256').update(row.snapshot).digest('hex'),
  };
}

function sum(tokens: readonly number[]): number {
  return tokens.reduce((total, count) => total + count, 0);
}

export function outcomeOf(row: CompactionFacts): CompactionOutcome {
  const { generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, chunksByRule } = row;
  const { modelCalls, modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart } = row;
  const { cachedTokens, cost, currency, paysBackAfter } = row;
  return {
    ...{ generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, chunksByRule, modelCalls },
    ...{ modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart },
    ...{ savedPerTurn: Math.max(0, tokensBefore - tokensAfter), cachedTokens },
    ...{ cost, currency, paysBackAfter },
    ...{ workflowId: row.workflowId ?? '', runId: row.runId ?? '' },
  };
}
