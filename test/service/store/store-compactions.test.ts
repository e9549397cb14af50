/** One commit replaces one planned prefix, or nothing; readers before and after it. */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { commitCompaction } from '../../../src/store/compactions/commit.js';
import { findCommitOf, listCompactions, loadCompaction } from '../../../src/store/compactions/generations.js';
import { listArchiveParts, readArchivePart } from '../../../src/store/compactions/archive.js';
import { readContextSource, readTailMetas } from '../../../src/store/reading/context.js';
import { saveReductions } from '../../../src/store/compactions/reductions.js';
import { findOrClaim, seeLease } from '../../../src/store/compactions/digest-leases.js';
import { digestTexts, holdPaid, storeDigest } from '../../../src/store/compactions/digests.js';
import { readMembers, readMessages } from '../../../src/store/log/messages.js';
import { openPool, ownerOf } from '../../support/pool.js';
import {
  findSession,
  loadSession,
  recordFailure,
  setExhausted,
} from '../../../src/store/sessions/sessions.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import {
  commitInput,
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

describe('invariant 2: no orphan archive', () => {
  it('commits archive part, texts, digest links, reductions and head together', async () => {
    const ids = await sessionWith(pool, talk(10));
    const before = await readMembers(pool, ids, 1, 6);
    const row = await compactThrough(pool, ids, 6, {
      carriedSeq: 5,
      snapshot: 'kept \0 and \ud800',
      coverage: [{ fromSeq: 1, throughSeq: 6, how: 'withheld', reason: 'media' }],
      reductions: [
        {
          fromSeq: 8,
          throughSeq: 8,
          kind: 'message',
          body: '{"role":"assistant","content":"short"}',
          tokens: 5,
        },
      ],
    });
    expect(row).toMatchObject({
      generation: 1,
      parentGeneration: 0,
      fromSeq: 1,
      throughSeq: 6,
      archivePart: 1,
      parts: 1,
      tokens: 18,
    });
    expect(row.snapshot).toBe('kept \u2400 and \ufffd');
    expect(row.snapshotTokens).toBeGreaterThan(0);
    expect(await loadCompaction(pool, ids, 1)).toEqual(row);
    expect(await findCommitOf(pool, ids, row.runId)).toEqual(row);

    const [part] = await listArchiveParts(pool, ids);
    expect(part).toMatchObject({ part: 1, generation: 1, fromSeq: 1, throughSeq: 6, messages: 6 });
    expect(part?.tokens).toBe(before.reduce((sum, { tokens }) => sum + tokens, 0));
    const archived = await readArchivePart(pool, ids, 1);
    expect(archived).toEqual(await readMessages(pool, ids, 1, 6));

    const { session, source } = await readContextSource(pool, ids, 0);
    expect(session).toMatchObject({ generation: 1, throughSeq: 6, measureAtTokens: 1_000, exhausted: null });
    expect(source.head).toMatchObject({ tokens: [12, 6], carriedSeq: 5 });
    expect(source.tail.map(({ seq }) => seq)).toEqual([7, 8, 9, 10]);
    const kept = source.tail.filter(({ seq }) => seq !== 8).reduce((sum, { tokens }) => sum + tokens, 0);
    expect(session.liveTokens).toBe(18 + kept + 5);
    expect(session.liveMessages).toBe(2 + 4);
  });

  it('writes nothing if one part of the commit cannot be written', async () => {
    const ids = await sessionWith(pool, talk(10));
    const before = await loadSession(pool, ids);
    const failing = compactThrough(pool, ids, 6, { digestKeys: ['never stored'] });
    await expect(failing).rejects.toMatchObject({ type: 'Store.DigestGone' });
    expect(await loadSession(pool, ids)).toEqual(before);
    expect(await listArchiveParts(pool, ids)).toEqual([]);
    expect(await listCompactions(pool, ids)).toEqual([]);
  });

  it('chains generations: parts in order along the parents, then the tail', async () => {
    const messages = talk(30);
    const ids = await sessionWith(pool, messages);
    for (const through of [5, 5, 12, 29]) {
      await compactThrough(pool, ids, through, through === 5 ? {} : { reason: 'trigger' });
    }
    const rows = await listCompactions(pool, ids);
    expect(
      rows.map(({ parentGeneration, fromSeq, throughSeq, archivePart, parts }) => [
        parentGeneration,
        fromSeq,
        throughSeq,
        archivePart,
        parts,
      ]),
    ).toEqual([
      [0, 1, 5, 1, 1],
      [1, 6, 5, null, 1],
      [2, 6, 12, 2, 2],
      [3, 13, 29, 3, 3],
    ]);
    expect((await replayed(pool, ids)).map(({ message }) => message)).toEqual(messages);
  });

  it('any history over any cuts replays exactly, and reads only system messages and tail', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 2 }),
        fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 8 }),
        fc.array(fc.integer({ min: 0, max: 100 }), { maxLength: 8 }),
        async (leading, sizes, cuts) => {
          const system = Array.from({ length: leading }, () => ({
            role: 'system' as const,
            content: 'be brief',
          }));
          const ids = newSession();
          const all = [...system];
          for (const [index, size] of sizes.entries()) {
            const messages = [...(index === 0 ? system : []), ...talk(size, 2)];
            if (index > 0) all.push(...(messages as typeof all));
            else all.splice(0, all.length, ...(messages as typeof all));
            await appendTurn(pool, { ...ids, turnId: `${index}`, messages });
            const cut = cuts[index];
            const { throughSeq, nextSeq } = await loadSession(pool, ids);
            const through = throughSeq + Math.floor(((nextSeq - 1 - throughSeq) * (cut ?? 0)) / 100);
            if (cut !== undefined) await compactThrough(pool, ids, through);
          }
          expect((await replayed(pool, ids)).map(({ message }) => message)).toEqual(all);
          const { session, source } = await readContextSource(pool, ids, 'own');
          expect(source.system).toHaveLength(leading);
          const from = Math.max(session.throughSeq, leading) + 1;
          expect(source.tail.map(({ seq }) => seq)).toEqual(
            Array.from({ length: all.length - from + 1 }, (_, index) => from + index),
          );
          const shown = [...source.system, ...source.tail];
          const head = source.head?.tokens.reduce((sum, tokens) => sum + tokens, 0) ?? 0;
          expect(session.liveTokens).toBe(shown.reduce((sum, { tokens }) => sum + tokens, head));
        },
      ),
      { numRuns: 40 },
    );
  });
});

describe('invariant 5: appends during a compaction survive', () => {
  it('replaces only the planned prefix, whatever was appended since', async () => {
    const ids = await sessionWith(pool, talk(10));
    const planned = await commitInput(pool, ids, 8);
    await appendTurn(pool, { ...ids, turnId: 'meanwhile', messages: talk(3) });
    await commitCompaction(pool, ids, planned);
    const { source } = await readContextSource(pool, ids, 'own');
    expect(source.tail.map(({ seq }) => seq)).toEqual([9, 10, 11, 12, 13]);
  });

  it('of two compactions planned on one generation, one commits and the other is Store.StaleGeneration', async () => {
    const ids = await sessionWith(pool, talk(10));
    const planned = await Promise.all([
      commitInput(pool, ids, 4),
      commitInput(pool, ids, 6),
      commitInput(pool, ids, 8),
    ]);
    const results = await Promise.allSettled(planned.map((input) => commitCompaction(pool, ids, input)));
    const refused = results.filter((result) => result.status === 'rejected');
    expect(refused).toHaveLength(2);
    for (const { reason } of refused) expect(reason).toMatchObject({ type: 'Store.StaleGeneration' });
    expect(await listCompactions(pool, ids)).toHaveLength(1);
    expect(await listArchiveParts(pool, ids)).toHaveLength(1);
  });

  it('answers a run that has already committed with its row, also if later generations follow', async () => {
    const ids = await sessionWith(pool, talk(10));
    const planned = await commitInput(pool, ids, 4);
    const answers = await Promise.all([1, 2, 3].map(() => commitCompaction(pool, ids, planned)));
    await compactThrough(pool, ids, 6);
    answers.push(await commitCompaction(pool, ids, planned));
    for (const answer of answers) expect(answer).toEqual(answers[0]);
    expect(await listCompactions(pool, ids)).toHaveLength(2);
  });

  it('counts concurrent appends and commits exactly', async () => {
    const ids = await sessionWith(pool, talk(10));
    const planned = await commitInput(pool, ids, 8);
    const appends = Array.from({ length: 10 }, (_, index) =>
      appendTurn(pool, { ...ids, turnId: `t${index}`, messages: talk(2) }),
    );
    await Promise.all([...appends, commitCompaction(pool, ids, planned)]);
    const { session, source } = await readContextSource(pool, ids, 0);
    expect(session.liveTokens).toBe(source.tail.reduce((sum, { tokens }) => sum + tokens, 18));
    expect(session.liveMessages).toBe(source.tail.length + 2);
    expect(source.tail).toHaveLength(22);
  });
});

describe('invariant 6: a model result is never paid for again', () => {
  const digest = (tenant: string, key: string, text: string, payerSession: string, payerGeneration = 1) => ({
    ...{ tenant, key, text, tokens: 3 },
    ...{ calls: 1, inputTokens: 100, outputTokens: 10, payerSession, payerGeneration },
  });

  it('keeps the first result under a key and returns it to later callers', async () => {
    const { tenant, session } = await sessionWith(pool, talk(1));
    const key = `key of ${session}`;
    const stored = await Promise.all(
      ['a', 'b', 'c'].map((text) => storeDigest(pool, digest(tenant, key, text, session))),
    );
    expect(new Set(stored.map(({ text }) => text)).size).toBe(1);
    expect(await digestTexts(pool, tenant, [key])).toEqual(new Map([[key, stored[0]?.text]]));
  });

  it('ends the lease of its asker, and of no other', async () => {
    const { tenant, session } = await sessionWith(pool, talk(1));
    const leased = { tenant, key: `leased by ${session}` };
    const holder = { tenant, session, runId: 'run', forMs: 60_000 };
    const asker = { step: 'run/1', attempt: 1 };
    expect(await findOrClaim(pool, holder, leased, asker)).toEqual({ found: null, claimed: true });
    expect(await findOrClaim(pool, holder, leased, { ...asker, step: 'run/2' })).toEqual({
      ...{ found: null, claimed: false },
    });
    const answer = digest(tenant, leased.key, 'a', session);
    await storeDigest(pool, answer, { asker: { ...asker, step: 'run/2' } });
    expect(await seeLease(pool, leased)).toMatchObject({ failure: null });
    await storeDigest(pool, answer, { asker });
    expect(await seeLease(pool, leased)).toBeNull();
    expect(await findOrClaim(pool, holder, leased, asker)).toEqual({
      ...{ found: { text: 'a', tokens: expect.any(Number) }, claimed: false },
    });
    expect(await seeLease(pool, leased)).toBeNull();
  });

  it('counts the calls of one compaction, and not the stored answers', async () => {
    const ids = await sessionWith(pool, talk(1));
    const other = await sessionWith(pool, talk(1));
    const keys = ['k1', 'k2', 'k3'].map((key) => key + ids.session);
    await storeDigest(pool, digest(ids.tenant, keys[0] ?? '', 'earlier', ids.session, 1));
    await storeDigest(pool, digest(ids.tenant, keys[1] ?? '', 'now', ids.session, 2));
    await storeDigest(pool, digest(ids.tenant, keys[2] ?? '', 'somebody else', other.session, 2));
    const holder = { ...ids, runId: 'run', forMs: 60_000 };
    expect(await holdPaid(pool, holder, 2, keys)).toEqual({
      modelCalls: 1,
      modelInputTokens: 100,
      modelOutputTokens: 10,
    });
    expect(await holdPaid(pool, holder, 2, [])).toEqual({
      modelCalls: 0,
      modelInputTokens: 0,
      modelOutputTokens: 0,
    });
  });
});

describe('invariant 9: no loop', () => {
  const mark = { atSeq: 10, tokens: 500, reason: 'nothing may be evicted' };

  it('an exhausted session becomes due again only after it has grown', async () => {
    const ids = newSession();
    const policy = { contextWindow: 8_000, trigger: [{ tokens: 3_000 }], keep: { messages: 2 } };
    expect((await appendTurn(pool, { ...ids, turnId: '1', policy, messages: talk(1, 4_000) })).due).toBe(
      true,
    );
    await setExhausted(pool, ids, mark);
    expect((await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) })).due).toBe(false);
    expect((await appendTurn(pool, { ...ids, turnId: '3', messages: talk(1, 2_000) })).due).toBe(true);
    await setExhausted(pool, ids, null);
    expect(await loadSession(pool, ids)).toMatchObject({ exhausted: null, measureAtTokens: 3_000 });
  });

  it('is not marked exhausted by a measurement before a new policy or new messages', async () => {
    const ids = newSession();
    const policy = { contextWindow: 8_000, trigger: [{ tokens: 3_000 }], keep: { messages: 2 } };
    await appendTurn(pool, { ...ids, turnId: '1', policy, messages: talk(1, 4_000) });
    const judged = await loadSession(pool, ids);
    expect((await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) })).due).toBe(true);
    await setExhausted(pool, ids, mark, judged);
    expect(await loadSession(pool, ids)).toMatchObject({ exhausted: null, measureAtTokens: 3_000 });
    const again = await loadSession(pool, ids);
    await configureSession(pool, ids, { ...policy, trigger: [{ tokens: 2_000 }] });
    await setExhausted(pool, ids, mark, again);
    expect(await loadSession(pool, ids)).toMatchObject({ exhausted: null, measureAtTokens: 2_000 });
    await setExhausted(pool, ids, mark, await loadSession(pool, ids));
    expect((await loadSession(pool, ids)).exhausted).toEqual(mark);
  });

  it('the same for a trigger that counts messages', async () => {
    const ids = newSession();
    const policy = { contextWindow: 8_000, trigger: [{ messages: 10 }], keep: { messages: 2 } };
    expect((await appendTurn(pool, { ...ids, turnId: '1', policy, messages: talk(20) })).due).toBe(true);
    await setExhausted(pool, ids, mark);
    expect((await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) })).due).toBe(false);
    expect((await appendTurn(pool, { ...ids, turnId: '3', messages: talk(1) })).due).toBe(true);
  });

  it('counts failures until a commit clears them', async () => {
    const ids = await sessionWith(pool, talk(6));
    const retryAt = new Date('2030-01-01T00:00:00Z');
    const failure = { type: 'Llm.Unavailable', message: 'down \0', retryAt };
    await recordFailure(pool, ids, failure);
    await recordFailure(pool, ids, failure);
    expect(await loadSession(pool, ids)).toMatchObject({
      failures: 2,
      retryAt,
      lastError: { type: 'Llm.Unavailable', message: 'down \u2400' },
    });
    await compactThrough(pool, ids, 4);
    expect(await loadSession(pool, ids)).toMatchObject({ failures: 0, retryAt: null, lastError: null });
  });

  it('remembers that a fallback replaced a model, until the model has made a commit', async () => {
    const ids = await sessionWith(pool, talk(8));
    const retryAt = new Date('2030-01-01T00:00:00Z');
    const failure = { type: 'Llm.Unavailable', message: 'down', retryAt };
    await compactThrough(pool, ids, 2, { failure });
    const left = { failures: 1, retryAt, lastError: { type: 'Llm.Unavailable', fallback: true } };
    expect(await loadSession(pool, ids)).toMatchObject(left);
    await compactThrough(pool, ids, 4);
    expect(await loadSession(pool, ids)).toMatchObject(left);
    await compactThrough(pool, ids, 5, { failure });
    expect(await loadSession(pool, ids)).toMatchObject({ failures: 2 });
    await compactThrough(pool, ids, 6, { method: 'model' });
    expect(await loadSession(pool, ids)).toMatchObject({ failures: 0, retryAt: null, lastError: null });
  });
});

describe('invariant 10: a stable prefix', () => {
  const shorter = (seq: number) => ({
    ...{ fromSeq: seq, throughSeq: seq, kind: 'tool_result' as const },
    ...{ body: JSON.stringify({ role: 'user', content: `short ${seq} \0` }), tokens: 4 },
  });

  it('returns the reductions that a reader stored, only for its budget and generation, in their order', async () => {
    const ids = await sessionWith(pool, talk(10));
    const save = (seen: number, seqs: number[]) =>
      saveReductions(pool, ids, { generation: 0, budget: 5_000, seen, reductions: seqs.map(shorter) });
    expect(await save(0, [4, 2])).toEqual([shorter(4), shorter(2)]);
    await appendTurn(pool, { ...ids, turnId: 'more', messages: talk(2) });
    expect(await save(2, [3])).toEqual([shorter(4), shorter(2), shorter(3)]);
    const stored = async (budget: number | 'own') =>
      (await readContextSource(pool, ids, budget)).source.reductions;
    expect(await stored(5_000)).toEqual([shorter(4), shorter(2), shorter(3)]);
    expect(await stored(6_000)).toEqual([]);
    expect(await stored('own')).toEqual([]);
    await compactThrough(pool, ids, 2, { reductions: [shorter(4)] });
    expect(await stored(5_000)).toEqual([shorter(4)]);
    expect(await stored(0)).toEqual([shorter(4)]);
  });

  it("refuses a reader that has not seen another one's reductions, or that a commit overtook", async () => {
    const ids = await sessionWith(pool, talk(10));
    const save = (seq: number) =>
      saveReductions(pool, ids, { generation: 0, budget: 5_000, seen: 0, reductions: [shorter(seq)] });
    const answers = await Promise.all([save(2), save(4), save(6)]);
    expect(answers.filter((answer) => answer !== null)).toHaveLength(1);
    expect(await countRows(pool, 'reductions', ids)).toBe(1);
    await compactThrough(pool, ids, 6);
    expect(await save(8)).toBeNull();
  });

  it("stores the reductions of the session's policy under its own budget", async () => {
    const ids = await sessionWith(pool, talk(4));
    const { budget } = await loadSession(pool, ids);
    await saveReductions(pool, ids, { generation: 0, budget, seen: 0, reductions: [shorter(1)] });
    expect((await readContextSource(pool, ids, 'own')).source.reductions).toEqual([shorter(1)]);
  });

  it('counts a committed range once, however many reductions it replaced', async () => {
    const ids = await sessionWith(pool, talk(8));
    const omitted = { ...shorter(1), throughSeq: 5, kind: 'omitted' as const, tokens: 9 };
    await compactThrough(pool, ids, 0, {
      reason: 'reduce',
      method: 'none',
      head: null,
      snapshot: null,
      reductions: [shorter(2), shorter(5), omitted, shorter(7)],
    });
    const members = await readMembers(pool, ids, 1, 8);
    const rest = members
      .filter(({ seq }) => seq === 6 || seq === 8)
      .reduce((sum, { tokens }) => sum + tokens, 0);
    expect(await loadSession(pool, ids)).toMatchObject({
      liveTokens: rest + 9 + 4,
      liveMessages: 4,
      generation: 1,
      throughSeq: 0,
    });
    const { source } = await readContextSource(pool, ids, 0);
    expect(source.head).toBeNull();
    expect(source.reductions).toHaveLength(4);
  });
});

describe('invariant 11: a tenant sees its own rows only', () => {
  it('keeps two tenants apart that use the same session and digest names', async () => {
    const session = newSession().session;
    const [a, b] = [
      { tenant: 'a', session },
      { tenant: 'b', session },
    ];
    await appendTurn(pool, { ...a, turnId: 't', messages: talk(6) });
    expect(await findSession(pool, b)).toBeNull();
    await appendTurn(pool, { ...b, turnId: 't', messages: talk(2, 1) });
    await compactThrough(pool, a, 4);
    expect(await loadSession(pool, b)).toMatchObject({ generation: 0, nextSeq: 3 });
    expect(await replayed(pool, b)).toHaveLength(2);
    expect(await listCompactions(pool, b)).toEqual([]);
    expect(await listArchiveParts(pool, b)).toEqual([]);
    expect((await readTailMetas(pool, b)).head).toBeNull();
    const cost = {
      calls: 1,
      inputTokens: 1,
      outputTokens: 1,
      payerSession: session,
      payerGeneration: 1,
    };
    await storeDigest(pool, {
      tenant: 'a',
      key: session,
      text: 'a',
      tokens: 1,
      ...cost,
    });
    expect(await digestTexts(pool, 'b', [session])).toEqual(new Map());
  });
});

describe('corruption behind the store is named', () => {
  /** Changes a row as an administrator could, with triggers and constraints disabled. */
  async function tamper(statement: string, values: unknown[]): Promise<void> {
    const client = await ownerOf(pool).connect();
    try {
      await client.query('begin');
      await client.query('set local session_replication_role = replica');
      await client.query('alter table palimpsest.messages drop constraint messages_sha256');
      await client.query(statement, values);
      await client.query(
        "alter table palimpsest.messages add constraint messages_sha256 check (sha256 = sha256(convert_to(body, 'UTF8'))) not valid",
      );
      await client.query('commit');
    } finally {
      client.release();
    }
  }

  it.each([
    [
      'a changed body',
      `update palimpsest.messages set body = replace(body, 'number', 'numbed') where tenant_id = $1 and session_id = $2 and seq = 3`,
      { seq: 3 },
    ],
    [
      'a missing message',
      `delete from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq = 3`,
      { seq: 3 },
    ],
    [
      'a missing last message',
      `delete from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq = 6`,
      { seq: 6 },
    ],
    [
      'a body and hash changed together',
      `update palimpsest.messages set body = '{"role":"user"}', sha256 = sha256('{"role":"user"}') where tenant_id = $1 and session_id = $2 and seq = 3`,
      { part: 1 },
    ],
  ])('%s', async (_, statement, where) => {
    const ids = await sessionWith(pool, talk(6));
    await compactThrough(pool, ids, 4);
    await tamper(statement, [ids.tenant, ids.session]);
    await expect(replayed(pool, ids)).rejects.toMatchObject({ type: 'Store.Corrupt', details: where });
  });
});
