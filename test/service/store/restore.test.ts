/** Restoring commits a new generation that reads like the earlier one; forking copies a session up to a message. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildView } from '../../../src/context/view/view.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { loadCompaction } from '../../../src/store/compactions/generations.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { saveReductions } from '../../../src/store/compactions/reductions.js';
import { openPool } from '../../support/pool.js';
import { restore } from '../../../src/store/compactions/restore.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import {
  commitInput,
  compactThrough,
  configureSession,
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

const counter = counterFor('o200k_base');

async function contextOf(ids: SessionIds): Promise<ChatMessage[]> {
  const { source } = await readContextSource(pool, ids, 0);
  return buildView(source, counter).map(({ message }) => message);
}

/** Tokens and messages of the context by the rows that it is made of. */
async function sizesOf(ids: SessionIds): Promise<{ liveTokens: number; liveMessages: number }> {
  const { source } = await readContextSource(pool, ids, 0);
  const view = buildView(source, counter);
  return { liveTokens: view.reduce((sum, { tokens }) => sum + tokens, 0), liveMessages: view.length };
}

const standIn = (seq: number) => ({
  fromSeq: seq,
  throughSeq: seq,
  kind: 'message' as const,
  body: '{"role":"user","content":"shorter"}',
  tokens: 5,
});

describe('restore', () => {
  it('returns head, texts and committed reductions as a new generation whose parent is the restored one', async () => {
    const ids = await sessionWith(pool, talk(20));
    const first = await compactThrough(pool, ids, 6, {
      ...{ reductions: [standIn(9)], pinned: ['a rule'], fallback: true, carriedSeq: 5, model: 'm' },
    });
    const before = await contextOf(ids);
    await saveReductions(pool, ids, { generation: 1, seen: 1, budget: 500, reductions: [standIn(11)] });
    await compactThrough(pool, ids, 14);
    expect(await contextOf(ids)).not.toEqual(before);

    const row = await restore(pool, ids, 1);
    expect(await contextOf(ids)).toEqual(before);
    expect(row).toMatchObject({
      ...{ generation: 3, parentGeneration: 1, parentThroughSeq: 6, fromSeq: 7, throughSeq: 6 },
      ...{ reason: 'restore', method: 'none', archivePart: null, evicted: 0, coverage: [], parts: 1 },
      ...{ snapshot: first.snapshot, ledger: first.ledger, head: first.head, carriedSeq: 5 },
      ...{ pinned: ['a rule'], fallback: true, modelCalls: 0, cost: null },
    });
    expect(await loadCompaction(pool, ids, 3)).toEqual(row);
    const session = await loadSession(pool, ids);
    expect(session).toMatchObject({ generation: 3, throughSeq: 6, ...(await sizesOf(ids)) });
    expect(row.tokensAfter).toBe(session.liveTokens);
    expect(await replayed(pool, ids)).toHaveLength(20);
  });

  it('of generation 0 returns the whole log, and of a later one the summary again', async () => {
    const ids = await sessionWith(pool, talk(12));
    const whole = await contextOf(ids);
    await compactThrough(pool, ids, 8);
    const compacted = await contextOf(ids);
    await restore(pool, ids, 0);
    expect(await contextOf(ids)).toEqual(whole);
    expect(await loadSession(pool, ids)).toMatchObject({ throughSeq: 0, ...(await sizesOf(ids)) });
    await restore(pool, ids, 1);
    expect(await contextOf(ids)).toEqual(compacted);
    await restore(pool, ids, 2);
    expect(await contextOf(ids)).toEqual(whole);
  });

  it('keeps later messages, and lets compactions continue with new parts', async () => {
    const ids = await sessionWith(pool, talk(12));
    await compactThrough(pool, ids, 4);
    await compactThrough(pool, ids, 8);
    await appendTurn(pool, { ...ids, turnId: 'more', messages: talk(4) });
    await restore(pool, ids, 1);
    expect((await contextOf(ids)).slice(-12)).toEqual([...talk(12).slice(4), ...talk(4)]);
    expect(await compactThrough(pool, ids, 10)).toMatchObject({
      ...{ generation: 4, parentGeneration: 3, fromSeq: 5, throughSeq: 10, archivePart: 3, parts: 2 },
    });
    const log = await replayed(pool, ids);
    expect(log.map(({ seq }) => seq)).toEqual(Array.from({ length: 16 }, (_, index) => index + 1));
    expect(log.map(({ message }) => message)).toEqual([...talk(12), ...talk(4)]);
  });

  it('marks the session so that it is not compacted again before it has grown', async () => {
    const ids = newSession();
    const policy = { contextWindow: 4_000 };
    await appendTurn(pool, { ...ids, turnId: 't', messages: talk(40, 100), policy });
    await compactThrough(pool, ids, 36, { measureAt: { tokens: 2_000, messages: null } });
    await restore(pool, ids, 0);
    const { liveTokens, measureAtTokens, exhausted, budget } = await loadSession(pool, ids);
    expect(exhausted).toMatchObject({ atSeq: 40, tokens: liveTokens, reason: 'restored' });
    expect(measureAtTokens).toBeGreaterThanOrEqual(liveTokens + Math.ceil(0.1 * budget));
    const quiet = await appendTurn(pool, { ...ids, turnId: 'a', messages: talk(1) });
    expect(quiet.due).toBe(false);
    const grown = await appendTurn(pool, { ...ids, turnId: 'b', messages: talk(4, budget / 10) });
    expect(grown.due).toBe(true);
  });

  it('makes a compaction that was planned before fail, and nothing else', async () => {
    const ids = await sessionWith(pool, talk(12));
    await compactThrough(pool, ids, 4);
    const planned = await commitInput(pool, ids, 8);
    await restore(pool, ids, 0);
    await expect(compactThrough(pool, ids, 8, planned)).rejects.toMatchObject({
      type: 'Store.StaleGeneration',
    });
    expect(await loadSession(pool, ids)).toMatchObject({ generation: 2, throughSeq: 0 });
  });

  it('twice concurrently commits twice, one after the other', async () => {
    const ids = await sessionWith(pool, talk(12));
    await compactThrough(pool, ids, 4);
    await compactThrough(pool, ids, 8);
    const rows = await Promise.all([restore(pool, ids, 1), restore(pool, ids, 0), restore(pool, ids, 1)]);
    expect(rows.map(({ generation }) => generation).sort()).toEqual([3, 4, 5]);
    const newest = rows.find(({ generation }) => generation === 5);
    expect(await loadSession(pool, ids)).toMatchObject({ generation: 5, throughSeq: newest?.throughSeq });
  });

  it('counts again the messages evicted before a change of the tokenizer', async () => {
    const ids = await sessionWith(pool, talk(12));
    await compactThrough(pool, ids, 8);
    await configureSession(pool, ids, { tokenizer: 'chars/4' });
    await restore(pool, ids, 0);
    const { liveTokens, tokenizer } = await loadSession(pool, ids);
    const fresh = newSession();
    await appendTurn(pool, { ...fresh, turnId: 't', messages: talk(12), policy: { tokenizer: 'chars/4' } });
    expect([tokenizer, liveTokens]).toEqual(['chars/4', (await loadSession(pool, fresh)).liveTokens]);
    await restore(pool, ids, 1);
    expect((await loadCompaction(pool, ids, 3)).tokens).not.toBe(18);
    expect(await loadSession(pool, ids)).toMatchObject(await sizesOf(ids));
  });

  it('refuses a generation that does not exist', async () => {
    const ids = await sessionWith(pool, talk(4));
    await expect(restore(pool, ids, 1)).rejects.toMatchObject({ type: 'Input.Invalid', path: 'generation' });
    await expect(restore(pool, newSession(), 0)).rejects.toMatchObject({ type: 'Store.SessionNotFound' });
  });
});
