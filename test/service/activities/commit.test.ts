/**
 * Planning and committing as activities on a real database, without a workflow: what happens when a policy changes
 * between two of their statements, when only reductions are committed, and when there is more than one compaction's work.
 */
import { randomUUID } from 'node:crypto';
import { MockActivityEnvironment } from '@temporalio/testing';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { RepairWanted } from '../../../activities/commit.js';
import type { CompactionOutcome } from '../../../src/contract/compactions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import {
  createDatabaseActivities,
  createModelActivities,
  type DatabaseActivities,
} from '../../../activities/index.js';
import type { Measurement } from '../../../activities/measure.js';
import type { PlanInput } from '../../../activities/plan.js';
import type { NothingToDo, Plan } from '../../../src/compaction/plan/plan-types.js';
import type { DigestRef } from '../../../src/compaction/summarize/model-steps.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { ModelClient } from '../../../src/llm/client.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { dialogue, words } from '../../support/dialogue.js';
import { configureSession, newSession } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

const modelThat = (available: boolean): ModelClient => ({
  available,
  summarize: () => Promise.reject(new Error('nobody asks a model here')),
});

function activities(available = false): DatabaseActivities {
  const model = modelThat(available);
  return createDatabaseActivities({ pool, model, summarizer: {}, now: Date.now, inlineTurnTenants: [] });
}

async function sessionOf(messages: ChatMessage[], policy: PolicyInput): Promise<SessionIds> {
  const ids = newSession();
  await appendTurn(pool, { ...ids, turnId: 'first', messages, policy });
  return ids;
}

async function planned(ids: SessionIds, { force = false, model = false } = {}): Promise<Plan> {
  const { plan } = activities(model);
  const input: PlanInput = { ...ids, reason: 'trigger', force };
  const made: Plan | NothingToDo = await new MockActivityEnvironment().run(plan, input);
  if ('nothing' in made) throw new Error(made.nothing);
  return made;
}

async function committed(
  ids: SessionIds,
  { chunks: _chunks, messages: _messages, method, ...plan }: Plan,
): Promise<CompactionOutcome> {
  const outcome: CompactionOutcome | RepairWanted = await new MockActivityEnvironment().run(
    activities().commit,
    {
      ...ids,
      plan,
      method,
      ...{ written: null, failed: false, repaired: true, digests: [], force: false },
      ...{
        startedAt: Date.now(),
        paid: [],
        modelSpans: [],
        workflowId: 'w',
        runId: randomUUID(),
        failure: null,
      },
    },
  );
  if ('repair' in outcome) throw new Error(`a repair of what is ${outcome.repair}`);
  return outcome;
}

const measured = (ids: SessionIds): Promise<Measurement> =>
  new MockActivityEnvironment().run(activities().measure, ids);

/** Connections of this database that wait for a lock. */
async function waiting(): Promise<number> {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  );
  return rows[0]?.count ?? 0;
}

test('a commit follows a policy that arrives while it is prepared', async () => {
  const ids = await sessionOf(dialogue(30).flat(), { contextWindow: 8_000 });
  const plan = await planned(ids);
  // Locks of the session's row are granted in order: first to the new policy, then to the commit that read the old one. They
  // are separate processes, since writers of one process do not meet in the database.
  const elsewhere = openPool(database.url);
  const holder = await ownerOf(pool).connect();
  await holder.query('begin');
  await holder.query(
    'select 1 from palimpsest.sessions where tenant_id = $1 and session_id = $2 for no key update',
    [ids.tenant, ids.session],
  );
  const configuring = configureSession(elsewhere, ids, { contextWindow: 4_000, tokenizer: 'chars/4' });
  await expect.poll(waiting).toBe(1);
  const committing = committed(ids, plan);
  await expect.poll(waiting).toBe(2);
  await holder.query('commit');
  holder.release();
  await configuring;
  await elsewhere.end();
  const outcome = await committing;
  const session = await loadSession(pool, ids);
  expect(session).toMatchObject({ generation: 1, policyVersion: 2, tokenizer: 'chars/4', budget: 3_500 });
  // The mark of the new window, not of the old one, and counts of one tokenizer.
  expect(session.measureAtTokens).toBeLessThan(session.budget);
  expect(session.liveTokens).toBe(outcome.tokensAfter);
});

test('a paid answer survives a moment without the database', async () => {
  const ids = await sessionOf(dialogue(4).flat(), { contextWindow: 8_000 });
  const { summarizer } = await planned(ids, { force: true });
  const own = openPool(database.url);
  let asked = 0;
  const summarize = async () => {
    asked += 1;
    // Gone when the answer arrives, back at the second try.
    const connect = vi.spyOn(own, 'connect');
    connect.mockRejectedValueOnce(Object.assign(new Error('down'), { code: 'ECONNREFUSED' }));
    return {
      ...{ text: `- ${words(12)}`, inputTokens: 9, outputTokens: 3 },
      usageEstimated: false,
      calls: 1,
      ms: 1,
      model: 'm',
    };
  };
  const { summarizeChunk } = createModelActivities({
    ...{ pool: own, model: { available: true, summarize }, summarizer: {}, now: Date.now },
    inlineTurnTenants: [],
  });
  const chunk = { fromSeq: 1, fromChar: 0, throughSeq: 4, throughChar: null, tokens: 500 };
  const step = { chunk, fold: false, foldGeneration: null, maxTokens: summarizer.digestTokens };
  const input = { ...ids, baseGeneration: 0, step, summarizer };
  const first: DigestRef = await new MockActivityEnvironment().run(summarizeChunk, input);
  const again: DigestRef = await new MockActivityEnvironment().run(summarizeChunk, input);
  expect(asked).toBe(1);
  expect([first.cached, again.cached, again.key === first.key]).toEqual([false, true, true]);
  await own.end();
});

test('a new head must have the pins, a commit of reductions alone need not', async () => {
  const call = (id: string) => ({ id, type: 'function', function: { name: 'read', arguments: '{}' } });
  const ids = await sessionOf(
    [
      { role: 'user', content: 'Read all of it.' },
      // The open call keeps everything in the tail.
      { role: 'assistant', content: null, tool_calls: [call('a'), call('open')] },
      { role: 'tool', tool_call_id: 'a', content: words(4_000) },
      { role: 'assistant', content: null, tool_calls: [call('b')] },
      { role: 'tool', tool_call_id: 'b', content: words(3_000) },
    ],
    { contextWindow: 8_000, pins: ['Never deploy on Fridays.'] },
  );
  const plan = await planned(ids);
  expect(plan).toMatchObject({ reason: 'reduce', method: 'none' });
  const { tokensBefore, tokensAfter } = await committed(ids, plan);
  expect(tokensAfter).toBeLessThan(0.9 * tokensBefore);
});

describe('more messages than one compaction takes', () => {
  /** Chunks of 256 tokens: of these messages each takes one. */
  const policy: PolicyInput = { contextWindow: 8_000, tokenizer: 'chars/4', summary: { chunkTokens: 256 } };
  const messages = dialogue(1_300, 150).flat();

  test('the plan stays small', async () => {
    const ids = await sessionOf(messages, policy);
    const plan = await planned(ids, { model: true });
    expect(plan.partial).toBe(true);
    expect(plan.evictedTokens).toBeGreaterThan(50_000);
    expect(plan.chunks.length).toBeLessThan(1_000);
    expect(plan.chunks.at(-1)).toMatchObject({ throughSeq: plan.throughSeq, throughChar: null });
  });

  test('compactions follow one another until the target is reached; none counts as exhausted', async () => {
    const ids = await sessionOf(messages, policy);
    const outcomes: CompactionOutcome[] = [];
    while ((await measured(ids)).due) {
      outcomes.push(await committed(ids, await planned(ids)));
      expect((await loadSession(pool, ids)).exhausted).toBeNull();
    }
    expect(outcomes.length).toBeGreaterThan(2);
    expect(outcomes.at(-1)!.tokensAfter).toBeLessThan(0.6 * 8_000);
    expect(outcomes.reduce((sum, { evicted }) => sum + evicted, 0)).toBeGreaterThan(2_580);
  });
});
