import type { Pool } from 'pg';
import { Backfills } from '../../src/library/backfills.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import type { Backfill } from '../../src/contract/backfills.js';
import { openPool } from './pool.js';
import { appendTurn } from '../../src/store/append/turns.js';
import { BackfillWorkflows } from '../../src/temporal/backfill-workflows.js';
import { connectClient } from '../../src/temporal/connection.js';
import { dialogue, smallPolicy } from './dialogue.js';
import type { Stack } from './stack.js';

/** The backfills of a stack's tenant, with the pool in which tests store old sessions. */
export interface BackfillBench {
  pool: Pool;
  backfills: Backfills;
  /** The backfills of another tenant, over the same connections. */
  of(tenant: string): Backfills;
  close(): Promise<void>;
}

export async function openBackfills(
  stack: Pick<Stack, 'databaseUrl' | 'temporal' | 'queuePrefix'>,
  input: { pageSize?: number; maxHistoryEvents?: number } = {},
): Promise<BackfillBench> {
  const pool = openPool(stack.databaseUrl, { max: 8 });
  const client = await connectClient(stack.temporal);
  const workflows = new BackfillWorkflows(client, stack.queuePrefix, input);
  const of = (tenant: string) => new Backfills(pool, workflows, tenant, { model: 'test-summarizer' });
  return {
    ...{ pool, of, backfills: of(stack.queuePrefix) },
    async close() {
      await client.connection.close();
      await pool.end();
    },
  };
}

/**
 * Stores old sessions as an import does: in PostgreSQL alone, so that no workflow knows them. The order of the returned ids is
 * that of their numbers.
 */
export async function fillSessions(
  pool: Pool,
  tenant: string,
  count: number,
  {
    prefix = 'old-',
    turns = 18,
    policy = smallPolicy,
    from = 0,
  }: { prefix?: string; turns?: number; policy?: PolicyInput; from?: number } = {},
): Promise<string[]> {
  const sessions = Array.from(
    { length: count },
    (_, index) => `${prefix}${String(from + index).padStart(5, '0')}`,
  );
  const messages = dialogue(turns).flat();
  const queue = [...sessions];
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let session = queue.shift(); session; session = queue.shift()) {
        // Every session has different texts, so that no digest serves two of them.
        const own = [{ role: 'user' as const, content: `This is ${session}.` }, ...messages].map(
          (message) => ({
            ...message,
            content: `${session}: ${String(message.content)}`,
          }),
        );
        await appendTurn(pool, { tenant, session, turnId: 't', messages: own, policy, imported: true });
      }
    }),
  );
  return sessions;
}

/** Resolves to the report of a job once it satisfies the condition. */
export async function until(
  backfills: Backfills,
  job: string,
  condition: (report: Backfill) => boolean,
  timeoutMs = 270_000,
): Promise<Backfill> {
  for (const deadline = Date.now() + timeoutMs; ;) {
    const report = await backfills.report({ job });
    if (condition(report)) return report;
    if (Date.now() > deadline) throw new Error(`waited in vain: ${JSON.stringify(report)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export const ended = ({ endedAt }: Backfill) => endedAt !== null;

/** Returns the number of committed compactions of each session of a tenant. */
export async function commitsOf(pool: Pool, tenant: string): Promise<Map<string, number>> {
  const { rows } = await pool.query<{ session: string; commits: number }>(
    `select s.session_id as session, count(c.generation) filter (where c.generation > 0)::int as commits
     from palimpsest.sessions s left join palimpsest.compactions c using (tenant_id, session_id)
     where s.tenant_id = $1 group by 1`,
    [tenant],
  );
  return new Map(rows.map(({ session, commits }) => [session, commits]));
}
