/**
 * Invariant 12. Any earlier generation can be restored: that commits a new generation whose parent is the restored one, and
 * replay follows the head's chain of parents. After any order of appends, compactions, restores and forks, every earlier
 * context can be restored, and nothing is lost.
 */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildView } from '../../../src/context/view/view.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { listCompactions } from '../../../src/store/compactions/generations.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { openPool } from '../../support/pool.js';
import { restore } from '../../../src/store/compactions/restore.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { replayed as replayedTexts } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';
import { compactThrough, newSession, replayed, talk } from '../../support/store.js';

type Step = { what: 'append'; messages: number } | { what: 'compact' | 'restore' | 'fork'; where: number };

const where = fc.double({ min: 0, max: 1, noNaN: true });

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ what: fc.constant('append' as const), messages: fc.integer({ min: 1, max: 5 }) }),
  fc.record({
    what: fc.constantFrom('compact' as const, 'compact' as const, 'restore' as const, 'fork' as const),
    where,
  }),
);

/** The expected session: its log, and for each generation the messages before its tail and the start of the tail. */
interface Expected {
  log: ChatMessage[];
  generations: { generation: number; parent: number; head: ChatMessage[]; throughSeq: number }[];
}

describe('invariant 12: undo', () => {
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

  async function contextOf(ids: SessionIds): Promise<ChatMessage[]> {
    const { source } = await readContextSource(pool, ids, 0);
    return buildView(source, counterFor('o200k_base')).map(({ message }) => message);
  }

  /** Applies the step to the store and to the expectation; a fork continues as the session. */
  async function take(ids: SessionIds, expected: Expected, next: Step, turn: number): Promise<SessionIds> {
    const { log, generations } = expected;
    const newest = generations.at(-1)!;
    if (next.what === 'append') {
      const messages = talk(next.messages, turn + 1);
      await appendTurn(pool, { ...ids, turnId: `turn ${turn}`, messages });
      log.push(...messages);
      return ids;
    }
    if (next.what === 'compact') {
      const tail = log.length - newest.throughSeq;
      if (tail === 0) return ids;
      const throughSeq = newest.throughSeq + 1 + Math.floor(next.where * (tail - 1));
      const { generation, head } = await compactThrough(pool, ids, throughSeq, {
        snapshot: `by step ${turn}`,
      });
      generations.push({ generation, parent: newest.generation, head: head?.messages ?? [], throughSeq });
      return ids;
    }
    if (next.what === 'restore') {
      const wanted = generations[Math.floor(next.where * (generations.length - 1))]!;
      const { generation } = await restore(pool, ids, wanted.generation);
      generations.push({ ...wanted, generation, parent: wanted.generation });
      return ids;
    }
    const throughSeq = 1 + Math.floor(next.where * (log.length - 1));
    const to = { ...newSession(), tenant: ids.tenant };
    await fork(pool, ids, { throughSeq, to: to.session });
    log.length = throughSeq;
    const byNumber = new Map(generations.map((one) => [one.generation, one]));
    const chain: Expected['generations'] = [];
    for (let one = byNumber.get(newest.generation); one; one = byNumber.get(one.parent)) chain.unshift(one);
    expected.generations = chain.filter((one) => one.throughSeq <= throughSeq);
    return to;
  }

  test('any order of appends, compactions, restores and forks', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 14 }), async (steps) => {
        let ids = newSession();
        await appendTurn(pool, { ...ids, turnId: 'first', messages: talk(3) });
        const genesis = { generation: 0, parent: -1, head: [], throughSeq: 0 };
        const expected: Expected = { log: talk(3), generations: [genesis] };
        for (const [turn, next] of steps.entries()) {
          ids = await take(ids, expected, next, turn);
          const { log, generations } = expected;
          const { generation, head, throughSeq } = generations.at(-1)!;
          expect((await replayed(pool, ids)).map(({ message }) => message)).toEqual(log);
          expect(await contextOf(ids)).toEqual([...head, ...log.slice(throughSeq)]);
          const { liveMessages, ...session } = await loadSession(pool, ids);
          expect(session).toMatchObject({ generation, throughSeq, nextSeq: log.length + 1 });
          expect(liveMessages).toBe(head.length + log.length - throughSeq);
        }
        const parents = (await listCompactions(pool, ids)).map((one) => [
          one.generation,
          one.parentGeneration,
        ]);
        expect(parents).toEqual(expected.generations.slice(1).map((one) => [one.generation, one.parent]));
      }),
      { numRuns: 40 },
    );
  });
});

describe('invariant 12: undo, end to end', () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack();
  });
  afterAll(() => stack.stop());

  test('restores undo and redo a compaction of the model', async () => {
    const { palimpsest } = stack;
    const session = 'undone';
    const turns = dialogue(16);
    for (const [turn, messages] of turns.entries())
      await palimpsest.appendTurn({ session, turnId: `t-${turn}`, messages, policy: smallPolicy });
    await palimpsest.settled({ session });
    const compacted = await palimpsest.context({ session });
    const { generation } = compacted;
    expect(generation).toBeGreaterThan(0);

    expect(await palimpsest.restore({ session, generation: 0 })).toMatchObject({
      ...{ generation: generation + 1, reason: 'restore', method: 'none', evicted: 0, archivePart: null },
    });
    const texts = turns.flat().map((message) => JSON.stringify(message));
    expect(await replayedTexts(palimpsest, session)).toEqual(texts);
    const whole = await palimpsest.context({ session });
    expect(whole.messages.length).toBeGreaterThan(compacted.messages.length);
    expect(whole.tokens).toBeLessThanOrEqual(whole.budget);

    await palimpsest.restore({ session, generation });
    expect((await palimpsest.context({ session })).messages).toEqual(compacted.messages);
    expect(await palimpsest.status({ session })).toMatchObject({
      ...{ generation: generation + 2, summariesPerformed: generation, exhausted: { reason: 'restored' } },
      lastSummary: expect.any(String),
    });
    expect(await replayedTexts(palimpsest, session)).toEqual(texts);
  });

  test('a fork compacts and does not change its source', async () => {
    const { palimpsest } = stack;
    const session = 'source';
    const turns = dialogue(16);
    for (const [turn, messages] of turns.slice(0, 8).entries())
      await palimpsest.appendTurn({ session, turnId: `t-${turn}`, messages, policy: smallPolicy });
    await palimpsest.settled({ session });
    const throughSeq = turns.slice(0, 6).flat().length;
    await palimpsest.fork({ session, to: 'branch', throughSeq });
    for (const [turn, messages] of turns.slice(6).entries())
      await palimpsest.appendTurn({ session: 'branch', turnId: `b-${turn}`, messages });
    await palimpsest.settled({ session: 'branch' });
    expect((await palimpsest.compactions({ session: 'branch' })).length).toBeGreaterThan(0);
    expect(await replayedTexts(palimpsest, 'branch')).toEqual(
      turns.flat().map((message) => JSON.stringify(message)),
    );
    expect(await replayedTexts(palimpsest, session)).toHaveLength(turns.slice(0, 8).flat().length);
  });
});
