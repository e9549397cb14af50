/** A fork is a separate session with the same past. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildView } from '../../../src/context/view/view.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { listArchiveParts } from '../../../src/store/compactions/archive.js';
import { listCompactions } from '../../../src/store/compactions/generations.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { saveReductions } from '../../../src/store/compactions/reductions.js';
import { storeDigest } from '../../../src/store/compactions/digests.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { restore } from '../../../src/store/compactions/restore.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import {
  compactThrough,
  configureSession,
  countRows,
  newSession,
  replayed,
  sessionWith,
  talk,
} from '../../support/store.js';

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
  const { source } = await readContextSource(pool, ids, 'own');
  return buildView(source, counterFor('o200k_base')).map(({ message }) => message);
}

function target(source: SessionIds): SessionIds {
  return { ...newSession(), tenant: source.tenant };
}

const standIn = (seq: number) => ({
  fromSeq: seq,
  throughSeq: seq,
  kind: 'message' as const,
  body: '{"role":"user","content":"shorter"}',
  tokens: 5,
});

/** Turns of three messages. */
async function inTurns(count: number, tenant = 'acme'): Promise<SessionIds> {
  const ids = newSession(tenant);
  const messages = talk(3 * count);
  for (let turn = 0; turn < count; turn++)
    await appendTurn(pool, { ...ids, turnId: `t-${turn}`, messages: messages.slice(3 * turn, 3 * turn + 3) });
  return ids;
}

describe('fork', () => {
  it('at the end reads exactly like its source: log, context, archive, compactions and sizes', async () => {
    const ids = await inTurns(8);
    const digest = { tenant: ids.tenant, key: `k-${ids.session}`, text: 'd', tokens: 1 };
    await storeDigest(pool, {
      ...{ ...digest, calls: 1, inputTokens: 1, outputTokens: 1 },
      ...{ payerSession: ids.session, payerGeneration: 1 },
    });
    await compactThrough(pool, ids, 6, { digestKeys: [digest.key] });
    await compactThrough(pool, ids, 12, { reductions: [standIn(15)], carriedSeq: 11 });
    const { budget } = await loadSession(pool, ids);
    await saveReductions(pool, ids, { generation: 2, seen: 1, budget, reductions: [standIn(17)] });

    const to = target(ids);
    expect(await fork(pool, ids, { throughSeq: 24, to: to.session })).toEqual({
      ...{ session: to.session, messages: 24, generation: 2, repeated: false },
    });
    expect(await replayed(pool, to)).toEqual(await replayed(pool, ids));
    expect(await contextOf(to)).toEqual(await contextOf(ids));
    expect(await listArchiveParts(pool, to)).toEqual(await listArchiveParts(pool, ids));
    // But for the ids of its source's workflows.
    const compactions = (await listCompactions(pool, ids)).map((one) => ({ ...one, workflowId: '' }));
    expect(await listCompactions(pool, to)).toEqual(compactions);
    expect(await countRows(pool, 'compaction_digests', to)).toBe(1);
    const [copy, source] = [await loadSession(pool, to), await loadSession(pool, ids)];
    expect(copy.forkOf).toEqual({ session: ids.session, throughSeq: 24 });
    for (const field of [
      'liveTokens',
      'liveMessages',
      'generation',
      'throughSeq',
      'policy',
      'turns',
      'budget',
    ] as const)
      expect(copy[field]).toEqual(source[field]);
  });

  it('in the middle has the generations up to there, and continues independently', async () => {
    const ids = await inTurns(8);
    await compactThrough(pool, ids, 6, { reductions: [standIn(8), standIn(20)] });
    const earlier = await contextOf(ids);
    await compactThrough(pool, ids, 14);
    const to = target(ids);
    expect(await fork(pool, ids, { throughSeq: 13, to: to.session })).toMatchObject({
      messages: 13,
      generation: 1,
    });
    expect(await contextOf(to)).toEqual(earlier.slice(0, 2 + 7));
    expect((await replayed(pool, to)).map(({ message }) => message)).toEqual(talk(24).slice(0, 13));

    await appendTurn(pool, { ...to, turnId: 't-5', messages: [{ role: 'user', content: 'another way' }] });
    expect(await compactThrough(pool, to, 12)).toMatchObject({ generation: 2, fromSeq: 7, archivePart: 2 });
    await restore(pool, to, 0);
    expect(await replayed(pool, to)).toHaveLength(14);
    expect(await replayed(pool, ids)).toHaveLength(24);
    expect(await loadSession(pool, ids)).toMatchObject({ generation: 2, nextSeq: 25 });
  });

  it('cuts a turn that reaches further, which then differs from the whole turn', async () => {
    const ids = await inTurns(2);
    const to = target(ids);
    await fork(pool, ids, { throughSeq: 5, to: to.session });
    const messages = talk(6);
    const again = (turnId: string, from: number, end: number) =>
      appendTurn(pool, { ...to, turnId, messages: messages.slice(from, end) });
    expect(await again('t-0', 0, 3)).toMatchObject({ repeated: true, fromSeq: 1, throughSeq: 3 });
    expect(await again('t-1', 3, 5)).toMatchObject({ repeated: true, fromSeq: 4, throughSeq: 5 });
    await expect(again('t-1', 3, 6)).rejects.toMatchObject({ type: 'Store.TurnConflict' });
    expect((await loadSession(pool, to)).turns).toBe((await loadSession(pool, ids)).turns);
  });

  it('follows the chain of the head if generations were restored', async () => {
    const ids = await inTurns(6);
    await compactThrough(pool, ids, 6);
    await compactThrough(pool, ids, 12);
    await restore(pool, ids, 1);
    await compactThrough(pool, ids, 9);
    const to = target(ids);
    expect(await fork(pool, ids, { throughSeq: 10, to: to.session })).toMatchObject({ generation: 4 });
    expect((await listCompactions(pool, to)).map(({ generation }) => generation)).toEqual([1, 3, 4]);
    expect((await listArchiveParts(pool, to)).map(({ part }) => part)).toEqual([1, 3]);
    expect(await replayed(pool, to)).toHaveLength(10);
    expect(await compactThrough(pool, to, 10)).toMatchObject({ generation: 5, archivePart: 4, parts: 3 });
  });

  it('keeps a call open whose result comes later', async () => {
    const call = { id: 'c', type: 'function', function: { name: 'run', arguments: '{}' } };
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'go' },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c', content: 'done' },
    ]);
    const to = target(ids);
    await fork(pool, ids, { throughSeq: 2, to: to.session });
    await appendTurn(pool, {
      ...to,
      turnId: 'r',
      messages: [{ role: 'tool', tool_call_id: 'c', content: 'otherwise' }],
    });
    expect((await contextOf(to)).at(-1)).toEqual({ role: 'tool', tool_call_id: 'c', content: 'otherwise' });
  });

  it('is made once, for concurrent and repeated calls, and never over another session', async () => {
    const ids = await inTurns(4);
    const to = target(ids);
    const request = { throughSeq: 9, to: to.session };
    const answers = await Promise.all(Array.from({ length: 4 }, () => fork(pool, ids, request)));
    expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(1);
    await appendTurn(pool, { ...to, turnId: 'x', messages: talk(1) });
    expect(await fork(pool, ids, request)).toMatchObject({ messages: 9, repeated: true });
    expect(await replayed(pool, to)).toHaveLength(10);

    const refused = { type: 'Input.Invalid', path: 'to' };
    await expect(fork(pool, ids, { ...request, throughSeq: 8 })).rejects.toMatchObject(refused);
    await expect(fork(pool, ids, { throughSeq: 9, to: ids.session })).rejects.toMatchObject(refused);
    const other = await inTurns(1);
    await expect(fork(pool, ids, { throughSeq: 9, to: other.session })).rejects.toMatchObject(refused);
    expect(await replayed(pool, other)).toHaveLength(3);
  });

  it('refuses a seq that is not in the log', async () => {
    const ids = await inTurns(1);
    await expect(fork(pool, ids, { throughSeq: 4, to: 'new' })).rejects.toMatchObject({ path: 'throughSeq' });
    await expect(fork(pool, newSession(), { throughSeq: 1, to: 'new' })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });

  it('counts again the messages that its source had evicted before a change of the tokenizer', async () => {
    const ids = await inTurns(4);
    await compactThrough(pool, ids, 9);
    await configureSession(pool, ids, { tokenizer: 'chars/4' });
    const to = target(ids);
    expect(await fork(pool, ids, { throughSeq: 6, to: to.session })).toMatchObject({ generation: 0 });
    const fresh = newSession();
    await appendTurn(pool, {
      ...fresh,
      turnId: 't',
      messages: talk(12).slice(0, 6),
      policy: { tokenizer: 'chars/4' },
    });
    expect((await loadSession(pool, to)).liveTokens).toBe((await loadSession(pool, fresh)).liveTokens);
  });

  it('has policy and counts of one moment, also if the source is configured meanwhile', async () => {
    const ids = await inTurns(4);
    const to = target(ids);
    const other = await ownerOf(pool).connect();
    try {
      // Somebody else is about to make the target, so that the fork waits in the middle of its work.
      await other.query('begin');
      await other.query(
        `insert into palimpsest.sessions (tenant_id, session_id, policy, policy_version, tokenizer, budget)
         values ($1, $2, '{}', 1, 'chars/4', 1)`,
        [to.tenant, to.session],
      );
      const forking = fork(pool, ids, { throughSeq: 9, to: to.session });
      await blocked();
      await configureSession(pool, ids, { tokenizer: 'chars/4' });
      await other.query('rollback');
      expect(await forking).toMatchObject({ messages: 9, repeated: false });
    } finally {
      other.release();
    }
    const { tokenizer, liveTokens } = await loadSession(pool, to);
    const fresh = newSession();
    const policy = { tokenizer: 'chars/4' as const };
    await appendTurn(pool, { ...fresh, turnId: 't', messages: talk(12).slice(0, 9), policy });
    expect([tokenizer, liveTokens]).toEqual(['chars/4', (await loadSession(pool, fresh)).liveTokens]);
  });
});

/** Resolves once a statement of this database waits for another transaction. */
async function blocked(): Promise<void> {
  for (;;) {
    const { rowCount } = await pool.query(
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    );
    if (rowCount) return;
  }
}
