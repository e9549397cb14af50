/**
 * A writer that has read a session and is then delayed writes nothing into a later session with the same id: for every kind of
 * write, the new session has no trace of the erased one.
 */
import { randomUUID } from 'node:crypto';
import { MockActivityEnvironment } from '@temporalio/testing';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createDatabaseActivities } from '../../../activities/index.js';
import type { PlanInput } from '../../../activities/plan.js';
import type { NothingToDo, Plan } from '../../../src/compaction/plan/plan-types.js';
import { insertBackfill } from '../../../src/store/backfills/jobs.js';
import { insertPage, readPending, recordItems } from '../../../src/store/backfills/items.js';
import { readSelection } from '../../../src/store/backfills/estimate.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { saveReductions } from '../../../src/store/compactions/reductions.js';
import { storeDigest } from '../../../src/store/compactions/digests.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { eraseMessagesOf } from '../../../src/store/compactions/erase-messages.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { openPool } from '../../support/pool.js';
import { restore } from '../../../src/store/compactions/restore.js';
import { indexTexts } from '../../../src/store/search/index-texts.js';
import {
  loadSession,
  passReduceMark,
  recordFailure,
  setExhausted,
  setPaused,
} from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { configureTenant } from '../../../src/store/sessions/configure.js';
import { appendTurn, appendTurns } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { dialogue } from '../../support/dialogue.js';
import { rowsHolding, rowsOfSession } from '../../support/rows.js';
import { compactThrough, configureSession, newSession, talk } from '../../support/store.js';

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

const marker = 'only the erased session says so';
const policy = { contextWindow: 32_000, pins: ['Never on Fridays.'] };
const job = 'job';

async function begin(ids: SessionIds, messages = talk(12)): Promise<void> {
  await appendTurn(pool, { ...ids, turnId: 'first', messages, policy });
}

const old = talk(12).map((message) => ({ ...message, content: `${marker}: ${String(message.content)}` }));

async function eraseAndBeginAnew(ids: SessionIds): Promise<void> {
  await eraseSession(pool, ids);
  await begin(ids);
}

/**
 * A pool over which a writer is held up between its reads and its first write, that is when it begins a transaction or
 * sends a statement that changes something.
 */
function heldUp(meanwhile: () => Promise<void>): { stopped: Pool; wasHeldUp: () => boolean } {
  const stopped = openPool(database.url, { max: 3 });
  let held = false;
  const hold = async () => {
    if (held) return;
    held = true;
    await meanwhile();
  };
  const begins = (statement: unknown) =>
    /^"begin\b|"text":.*\b(begin|insert into|update palimpsest|delete from)\b/i.test(
      JSON.stringify(statement),
    );
  stopped.on('connect', (client) => {
    const { query } = client;
    Object.assign(client, {
      query: (...given: unknown[]) =>
        begins(given[0])
          ? hold().then(() => Reflect.apply(query, client, given))
          : Reflect.apply(query, client, given),
    });
  });
  return { stopped, wasHeldUp: () => held };
}

interface Writer {
  name: string;
  write(stopped: Pool, ids: SessionIds): Promise<unknown>;
}

const failure = { type: 'Llm.Unavailable', message: marker, retryAt: new Date(0) };
const reduction = { fromSeq: 2, throughSeq: 2, kind: 'message', body: '{}', tokens: 1 } as const;

const writers: Writer[] = [
  {
    name: 'a commit',
    write: async (stopped, ids) => compactThrough(stopped, await loadSession(stopped, ids), 6),
  },
  {
    name: 'a commit of reductions',
    write: async (stopped, ids) =>
      compactThrough(stopped, await loadSession(stopped, ids), 0, {
        ...{ snapshot: null, head: null, evicted: 0, reductions: [reduction] },
      }),
  },
  {
    name: 'what a model wrote',
    write: async (stopped, ids) => {
      const { incarnation } = await loadSession(stopped, ids);
      const cost = { calls: 1, inputTokens: 10, outputTokens: 5 };
      const about = { text: marker, tokens: 3 };
      const payer = { payerSession: ids.session, payerGeneration: 1 };
      const digest = { tenant: ids.tenant, key: randomUUID(), ...about, ...cost, ...payer };
      return storeDigest(stopped, digest, { incarnation });
    },
  },
  { name: 'texts for the search', write: indexTexts },
  {
    name: 'pins',
    write: (stopped, ids) => configureSession(stopped, ids, { ...policy, pins: [marker] }),
  },
  {
    name: 'a policy with another tokenizer',
    write: (stopped, ids) => configureSession(stopped, ids, { ...policy, tokenizer: 'chars/4' }),
  },
  {
    name: 'the policy of its tenant',
    write: async (stopped, ids) => {
      await configureTenant(pool, ids.tenant, { target: 0.5 });
      return loadSession(stopped, ids);
    },
  },
  {
    name: 'the exhausted mark',
    write: async (stopped, ids) =>
      setExhausted(stopped, await loadSession(stopped, ids), { atSeq: 1, tokens: 1, reason: marker }),
  },
  {
    name: 'a measurement',
    write: async (stopped, ids) => {
      const row = await loadSession(stopped, ids);
      return passReduceMark(stopped, row, row);
    },
  },
  {
    name: 'a failure',
    write: async (stopped, ids) => recordFailure(stopped, await loadSession(stopped, ids), failure),
  },
  {
    name: 'a pause',
    write: async (stopped, ids) => setPaused(stopped, await loadSession(stopped, ids), true),
  },
  {
    name: 'reductions of a context that was read',
    write: async (stopped, ids) => {
      const { session, source } = await readContextSource(stopped, ids, 500);
      const seen = source.reductions.length;
      const saved = { generation: session.generation, seen, budget: 500, reductions: [reduction] };
      expect(await saveReductions(stopped, session, saved)).toBeNull();
      throw Object.assign(new Error('nothing was saved'), { type: 'Store.StaleGeneration' });
    },
  },
  { name: 'a restored generation', write: (stopped, ids) => restore(stopped, ids, 0) },
  {
    name: 'turns of an import',
    write: async (stopped, ids) => {
      const logged = { messages: [{ role: 'user', content: marker } as const], times: [] };
      expect(await appendTurns(stopped, [{ ...ids, turnId: 'more', logged, expectedSeq: 12 }])).toBe(false);
      throw Object.assign(new Error('nothing was appended'), { type: 'Store.StaleGeneration' });
    },
  },
];

describe('a session erased and begun again while a writer is delayed gets no data of the old one:', () => {
  test.for(writers)('$name', async ({ write }) => {
    const ids = newSession(randomUUID());
    await begin(ids, old);
    const { stopped, wasHeldUp } = heldUp(() => eraseAndBeginAnew(ids));
    try {
      await expect(write(stopped, ids)).rejects.toMatchObject({ type: 'Store.StaleGeneration' });
    } finally {
      await stopped.end();
    }
    expect(wasHeldUp()).toBe(true);
    const control = { ...ids, session: randomUUID() };
    await begin(control);
    expect(await rowsOfSession(pool, ids)).toEqual(await rowsOfSession(pool, control));
  });

  test.for(writers)('$name, if only messages were erased', async ({ write }) => {
    const ids = newSession(randomUUID());
    await begin(ids, old);
    const seqs = old.map((_, index) => index + 1);
    const { stopped, wasHeldUp } = heldUp(async () => {
      await eraseMessagesOf(pool, ids, { seqs, reason: null, at: new Date() });
    });
    try {
      await expect(write(stopped, ids)).rejects.toMatchObject({ type: 'Store.StaleGeneration' });
    } finally {
      await stopped.end();
    }
    expect(wasHeldUp()).toBe(true);
    expect(await rowsHolding(pool, [marker])).toEqual({});
  });

  test('a fork of the old session is not made from the new one', async () => {
    const ids = newSession(randomUUID());
    await begin(ids, old);
    const { stopped } = heldUp(() => eraseAndBeginAnew(ids));
    const to = randomUUID();
    await expect(fork(stopped, ids, { to, throughSeq: 3 })).rejects.toMatchObject({
      type: 'Store.StaleGeneration',
    });
    await stopped.end();
    expect(await rowsOfSession(pool, { ...ids, session: to })).toEqual({});
  });

  const request = { job, select: {}, mode: 'all', concurrency: 1 } as const;

  test('a page of a backfill leaves out sessions erased since it was read', async () => {
    const ids = newSession(randomUUID());
    await begin(ids, old);
    await insertBackfill(pool, ids.tenant, request);
    const { stopped } = heldUp(() => eraseAndBeginAnew(ids));
    const page = await readSelection(stopped, ids.tenant, {}, null, 10);
    const items = page.map(({ session, incarnation, tokens }) => {
      return {
        session,
        incarnation,
        tokens,
        state: 'failed' as const,
        error: { type: 'Unknown', message: marker },
      };
    });
    expect(await insertPage(stopped, { ...ids, job }, null, items, true)).toBe(true);
    await stopped.end();
    const { rows } = await pool.query(
      `select cursor, (select count(*)::int from palimpsest.backfill_items i where i.tenant_id = b.tenant_id) as items
       from palimpsest.backfills b where tenant_id = $1`,
      [ids.tenant],
    );
    expect(rows).toEqual([{ cursor: null, items: 0 }]);
  });

  test('an outcome of a backfill is not counted for the new session', async () => {
    const ids = newSession(randomUUID());
    const select = async (from: Pool) => {
      const [item] = await readSelection(from, ids.tenant, {}, null, 10);
      const { session, incarnation, tokens } = item!;
      const selected = { session, incarnation, tokens, state: 'pending' as const, error: null };
      await insertPage(pool, { ...ids, job }, null, [selected], false);
      return incarnation;
    };
    const at = Date.now();
    const { session } = ids;
    await begin(ids, old);
    await insertBackfill(pool, ids.tenant, request);
    const incarnation = await select(pool);
    await recordItems(pool, { ...ids, job }, [{ session, incarnation, at }], []);
    await eraseAndBeginAnew(ids);
    const anew = await select(pool);
    const failed = { state: 'failed' as const, step: null, error: { type: 'Unknown', message: marker } };
    const ended = { session, incarnation, at, unsettled: null, ...failed };
    await recordItems(pool, { ...ids, job }, [{ session, incarnation, at }], [ended]);
    expect(await readPending(pool, { ...ids, job }, null, 10)).toEqual([
      { session, generation: 0, incarnation: anew },
    ]);
    await recordItems(pool, { ...ids, job }, [{ session, incarnation: anew, at }], []);
    await recordItems(pool, { ...ids, job }, [], [ended]);
    const { rows } = await pool.query(
      'select state, error_message from palimpsest.backfill_items where tenant_id = $1',
      [ids.tenant],
    );
    expect(rows).toEqual([{ state: 'running', error_message: null }]);
  });
});

test('a turn sent before an erasure does not begin the session again; a later one does', async () => {
  const ids = newSession(randomUUID());
  await begin(ids, old);
  const before = new Date(Date.now() - 60_000);
  await eraseSession(pool, ids);
  const turn = { ...ids, turnId: 'inline', messages: talk(1) };
  await expect(appendTurn(pool, { ...turn, receivedAt: before })).rejects.toMatchObject({
    type: 'Store.StaleGeneration',
  });
  expect(Object.keys(await rowsOfSession(pool, ids))).toEqual([]);
  const later = new Date(Date.now() + 60_000);
  expect(await appendTurn(pool, { ...turn, receivedAt: later })).toMatchObject({ fromSeq: 1 });
});

test('an outcome of a backfill counts for a session that lost only messages meanwhile', async () => {
  const ids = newSession(randomUUID());
  await begin(ids, old);
  await insertBackfill(pool, ids.tenant, { job, select: {}, mode: 'all', concurrency: 1 });
  const [selection] = await readSelection(pool, ids.tenant, {}, null, 10);
  const { session, incarnation, tokens } = selection!;
  const erase = (seq: number) => eraseMessagesOf(pool, ids, { seqs: [seq], reason: null, at: new Date() });
  await erase(1);
  const selected = { session, incarnation, tokens, state: 'pending' as const, error: null };
  await insertPage(pool, { ...ids, job }, null, [selected], true);
  const at = Date.now();
  await erase(2);
  await recordItems(pool, { ...ids, job }, [{ session, incarnation, at }], []);
  await erase(3);
  const failed = { state: 'failed' as const, step: null, error: { type: 'Unknown', message: 'it failed' } };
  await recordItems(pool, { ...ids, job }, [], [{ session, incarnation, at, unsettled: null, ...failed }]);
  const { rows } = await pool.query(
    'select state, error_message from palimpsest.backfill_items where tenant_id = $1',
    [ids.tenant],
  );
  expect(rows).toEqual([{ state: 'failed', error_message: 'it failed' }]);
});

describe('a compaction that began under an earlier version, which names no incarnation,', () => {
  const activities = () =>
    createDatabaseActivities({
      ...{ pool, summarizer: {}, now: Date.now, inlineTurnTenants: [] },
      model: { available: false, summarize: () => Promise.reject(new Error('nobody asks a model here')) },
    });

  async function planned(ids: SessionIds): Promise<Plan> {
    const input: PlanInput = { ...ids, reason: 'manual', force: true };
    const made: Plan | NothingToDo = await new MockActivityEnvironment().run(activities().plan, input);
    if ('nothing' in made) throw new Error(made.nothing);
    return made;
  }

  async function commitOf(ids: SessionIds, startedAt: number, named: boolean): Promise<unknown> {
    const run = new MockActivityEnvironment();
    const made = await planned(ids);
    const { chunks: _chunks, messages: _messages, method, ...plan } = made;
    await eraseSession(pool, ids);
    await appendTurn(pool, { ...ids, turnId: 'first', messages: dialogue(30).flat() });
    return run.run(activities().commit, {
      ...{ ...ids, plan, method, written: null, failed: false, repaired: true, digests: [], force: true },
      ...{ startedAt, paid: [], modelSpans: [], workflowId: 'w', runId: randomUUID(), failure: null },
      ...(named ? { incarnation: plan.incarnation } : {}),
    });
  }

  test.for([
    { named: false, startedAt: () => Date.now() - 60_000, as: 'is known by its start' },
    { named: true, startedAt: () => Date.now() + 60_000, as: 'needs no clock where it does name one' },
  ])('commits nothing into a later session: it $as', async ({ named, startedAt }) => {
    const ids = newSession(randomUUID());
    await appendTurn(pool, { ...ids, turnId: 'first', messages: dialogue(30).flat() });
    await expect(commitOf(ids, startedAt(), named)).rejects.toMatchObject({ type: 'Store.StaleGeneration' });
    expect(await loadSession(pool, ids)).toMatchObject({ generation: 0, lastError: null });
  });

  test('commits into the earlier session', async () => {
    const ids = newSession(randomUUID());
    await appendTurn(pool, { ...ids, turnId: 'first', messages: dialogue(30).flat() });
    const run = new MockActivityEnvironment();
    const made = await planned(ids);
    const { chunks: _chunks, messages: _messages, method, incarnation: _incarnation, ...plan } = made;
    const outcome = await run.run(activities().commit, {
      ...{ ...ids, plan, method, written: null, failed: false, repaired: true, digests: [], force: true },
      ...{
        startedAt: Date.now(),
        paid: [],
        modelSpans: [],
        workflowId: 'w',
        runId: randomUUID(),
        failure: null,
      },
    });
    expect(outcome).toMatchObject({ generation: 1 });
  });
});
