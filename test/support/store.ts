import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import type { ChatMessage, LoggedMessage } from '../../src/conversation/message.js';
import { commitCompaction, type CommitInput } from '../../src/store/compactions/commit.js';
import type { CompactionRow } from '../../src/store/compactions/generations.js';
import type { DeploymentPolicy } from '../../src/policy/layers.js';
import { parsePolicy, type PolicyInput } from '../../src/policy/schema.js';
import { replay } from '../../src/store/reading/replay.js';
import { changePolicy } from '../../src/store/sessions/configure.js';
import type { SessionRow } from '../../src/store/sessions/session-row.js';
import { loadSession } from '../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../src/contract/ids.js';
import { appendTurn } from '../../src/store/append/turns.js';

/** Returns unique ids, so that the tests of one file need not clean up. */
export function newSession(tenant = 'acme'): SessionIds {
  return { tenant, session: randomUUID() };
}

export function talk(count: number, words = 20): ChatMessage[] {
  return Array.from({ length: count }, (_, index) => ({
    role: index % 2 === 0 ? 'user' : 'assistant',
    content: `number ${index + 1}: ${'word '.repeat(words)}`,
  }));
}

/** Creates a session with these messages in one turn. */
export async function sessionWith(pool: Pool, messages: ChatMessage[], tenant?: string): Promise<SessionIds> {
  const ids = newSession(tenant);
  await appendTurn(pool, { ...ids, turnId: 'first', messages });
  return ids;
}

/** Commits a compaction directly in the store: everything up to `throughSeq` is replaced by a short summary. */
export async function compactThrough(
  pool: Pool,
  ids: SessionIds,
  throughSeq: number,
  changes: Partial<CommitInput> = {},
): Promise<CompactionRow> {
  return commitCompaction(pool, ids, { ...(await commitInput(pool, ids, throughSeq)), ...changes });
}

export async function commitInput(pool: Pool, ids: SessionIds, throughSeq: number): Promise<CommitInput> {
  const session = await loadSession(pool, ids);
  const evicted = throughSeq - session.throughSeq;
  return {
    baseGeneration: session.generation,
    tokenizer: session.tokenizer,
    reason: 'trigger',
    method: 'extractive',
    throughSeq,
    snapshot: `summary of 1–${throughSeq}`,
    ledger: 'src/index.ts',
    head: {
      messages: [
        { role: 'user', content: `summary of 1–${throughSeq}` },
        { role: 'assistant', content: 'Understood.' },
      ],
      tokens: [12, 6],
      carriedSeq: null,
    },
    carriedSeq: null,
    coverage: [{ fromSeq: session.throughSeq + 1, throughSeq, how: 'full' }],
    reductions: [],
    tokensBefore: session.liveTokens,
    tokensAfter: 18,
    evicted,
    chunks: 0,
    digestKeys: [],
    usage: { modelCalls: 0, modelInputTokens: 0, modelOutputTokens: 0, modelMs: 0, overheadMs: 3 },
    workflowId: `compaction/${ids.session}/${session.generation + 1}`,
    runId: randomUUID(),
    measureAt: { tokens: 1_000, messages: null },
  };
}

export async function replayed(pool: Pool, ids: SessionIds): Promise<LoggedMessage[]> {
  const messages: LoggedMessage[] = [];
  for await (const message of replay(pool, ids)) messages.push(message);
  return messages;
}

/** Returns the number of rows of one table that belong to the session. A refused write must not change it. */
export async function countRows(pool: Pool, table: string, { tenant, session }: SessionIds): Promise<number> {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*)::int as count from palimpsest.${table} where tenant_id = $1 and session_id = $2`,
    [tenant, session],
  );
  return rows[0]?.count ?? 0;
}

/** Replaces the session's own policy. */
export function configureSession(
  pool: Pool,
  ids: SessionIds,
  policy: PolicyInput,
  deployment?: DeploymentPolicy,
): Promise<SessionRow> {
  const session = parsePolicy(policy);
  return changePolicy(pool, ids, () => session, deployment);
}
