/**
 * Every agent appends on every turn. An append must be safe to repeat, refuse messages that cannot be stored exactly without
 * leaving a trace, and return exactly the stored messages.
 */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import { openPool } from '../../support/pool.js';
import { closeSession, findSession, loadSession } from '../../../src/store/sessions/sessions.js';
import { readContextSource, readTailMetas } from '../../../src/store/reading/context.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
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

describe('invariant 1: nothing is lost', () => {
  const codeUnits = fc
    .array(
      fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.constantFrom(0, 0xd83d, 0xde00, 0xdc00, 0x22, 0x5c)),
      { maxLength: 24 },
    )
    .map((units) => String.fromCharCode(...units));
  const key = fc.oneof(
    fc.constantFrom('__proto__', 'constructor', 'toJSON', '', '1', '0', 'é', 'name'),
    codeUnits,
  );
  const extras = fc
    .array(fc.tuple(key, fc.oneof(codeUnits, fc.jsonValue({ maxDepth: 3 }))), { maxLength: 4 })
    .map((entries) => Object.fromEntries(entries.filter(([name]) => name !== 'toJSON')));
  const message = fc
    .record({
      role: fc.constantFrom('system', 'developer', 'user', 'assistant', 'tool', 'function'),
      content: fc.oneof(
        codeUnits,
        fc.constant(null),
        fc.array(fc.record({ type: fc.constant('text'), text: codeUnits }), { maxLength: 3 }),
      ),
      tool_call_id: codeUnits,
      extras,
    })
    // Input is always a JSON value: no -0, no undefined.
    .map(({ extras: more, ...known }) => JSON.parse(JSON.stringify({ ...known, more })) as ChatMessage);

  it('replays any messages: the same value, keys in order, every code unit, over any cuts', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(message, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 6 }),
        fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }),
        async (turns, cuts) => {
          const ids = newSession();
          for (const [index, messages] of turns.entries()) {
            const { throughSeq } = await appendTurn(pool, { ...ids, turnId: `turn ${index}`, messages });
            if (cuts[index]) await compactThrough(pool, ids, Math.max(throughSeq - 1, 1));
          }
          const expected = turns
            .flat()
            .map((original, index) => ({ seq: index + 1, text: JSON.stringify(original) }));
          const actual = (await replayed(pool, ids)).map(({ seq, message: read }) => ({
            seq,
            text: JSON.stringify(read),
          }));
          expect(actual).toEqual(expected);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('keeps a message of several megabytes and one with a key named __proto__', async () => {
    const large: ChatMessage = {
      role: 'tool',
      tool_call_id: 'c\0',
      content: 'é"\\\u0000\ud800'.repeat(600_000),
    };
    const odd = JSON.parse('{"role":"user","content":"x","__proto__":{"a":1},"z":1,"a":2}') as ChatMessage;
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: 't', messages: [large, odd], policy: { tokenizer: 'chars/4' } });
    const [first, second] = await replayed(pool, ids);
    expect(first?.message.content === large.content).toBe(true);
    expect(JSON.stringify(second?.message)).toBe(JSON.stringify(odd));
  });

  it('links of calls and answers survive ids that Postgres could not hold', async () => {
    const id = 'call\0\ud800';
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'go' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id, type: 'function', function: { name: 'n\0', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: id, content: 'done' },
    ]);
    const { tail } = await readTailMetas(pool, ids);
    expect(tail[1]?.calls).toEqual([{ id, name: 'n\0' }]);
    expect(tail[2]?.answers).toBe(id);
  });
});

describe('a turn is stored once', () => {
  it('gives the same answer to a repeated turn, also to concurrent ones', async () => {
    const ids = newSession();
    const turn = { ...ids, turnId: 't-1', messages: talk(3) };
    const answers = await Promise.all(Array.from({ length: 8 }, () => appendTurn(pool, turn)));
    expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(1);
    for (const answer of answers)
      expect(answer).toMatchObject({ fromSeq: 1, throughSeq: 3, liveMessages: 3, generation: 0 });
    expect(await countRows(pool, 'messages', ids)).toBe(3);
    expect(await countRows(pool, 'turns', ids)).toBe(1);
    expect((await loadSession(pool, ids)).liveMessages).toBe(3);
  });

  it('refuses other content under the same id with Store.TurnConflict', async () => {
    const ids = await sessionWith(pool, talk(2));
    const conflict = appendTurn(pool, { ...ids, turnId: 'first', messages: talk(3) });
    await expect(conflict).rejects.toMatchObject({ type: 'Store.TurnConflict', path: 'turnId' });
    expect(await countRows(pool, 'messages', ids)).toBe(2);
  });

  it('numbers concurrent turns of one session without gaps', async () => {
    const ids = newSession();
    const turns = Array.from({ length: 20 }, (_, index) => ({
      ...ids,
      turnId: `t-${index}`,
      messages: talk((index % 3) + 1),
    }));
    await Promise.all(turns.map((turn) => appendTurn(pool, turn)));
    const seqs = (await replayed(pool, ids)).map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.map((_, index) => index + 1));
    const session = await loadSession(pool, ids);
    expect(session.nextSeq - 1).toBe(seqs.length);
    expect(session.liveMessages).toBe(seqs.length);
  });

  it('refuses a lost race with Store.StaleAppend, but not the repetition of the turn that won', async () => {
    const ids = await sessionWith(pool, talk(2));
    const won = { ...ids, turnId: 'won', messages: talk(1), expectedSeq: 2 };
    await appendTurn(pool, won);
    const lost = appendTurn(pool, { ...ids, turnId: 'lost', messages: talk(1), expectedSeq: 2 });
    await expect(lost).rejects.toMatchObject({
      type: 'Store.StaleAppend',
      details: { lastSeq: 3, expectedSeq: 2 },
    });
    expect(await appendTurn(pool, won)).toMatchObject({ repeated: true, fromSeq: 3, throughSeq: 3 });
  });
});

describe('a session begins with its first turn', () => {
  it.each([
    ['an unknown field', { windows: 1 }, 'policy.windows'],
    ['a fraction above 1', { trigger: [{ fraction: 1.5 }] }, 'policy.trigger[0].fraction'],
    [
      'a window smaller than the overhead',
      { contextWindow: 1_000, overhead: 2_000 },
      expect.stringContaining('policy'),
    ],
  ])('refuses a policy with %s and leaves no trace', async (_, policy, path) => {
    const ids = newSession();
    const refused = appendTurn(pool, { ...ids, turnId: 't', messages: talk(1), policy: policy as object });
    await expect(refused).rejects.toMatchObject({ type: 'Input.Invalid', path });
    expect(await findSession(pool, ids)).toBeNull();
    for (const table of ['messages', 'turns', 'compactions'])
      expect(await countRows(pool, table, ids)).toBe(0);
  });

  it.each([
    ['tenant', { tenant: 'a\0b' }],
    ['session', { session: 'half \ud800' }],
    ['turnId', { turnId: '' }],
    ['turnId', { turnId: 'x'.repeat(513) }],
  ])('refuses a %s that cannot be kept', async (path, wrong) => {
    const refused = appendTurn(pool, { ...newSession(), turnId: 't', messages: talk(1), ...wrong });
    await expect(refused).rejects.toMatchObject({ type: 'Input.Invalid', path });
  });

  it('accepts the same policy again in another order, and refuses a different one', async () => {
    const ids = newSession();
    const policy = { contextWindow: 16_000, trigger: [{ tokens: 9_000 }], keep: { messages: 4 } };
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(1), policy });
    const same = { keep: { messages: 4 }, trigger: { tokens: 9_000 }, contextWindow: 16_000 };
    await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1), policy: same });
    const other = appendTurn(pool, {
      ...ids,
      turnId: '3',
      messages: talk(1),
      policy: { contextWindow: 8_000 },
    });
    await expect(other).rejects.toMatchObject({
      type: 'Input.Invalid',
      path: 'policy',
      hint: expect.stringContaining('configure'),
    });
  });

  it('is created by one of two first turns with different tokenizers, which counts both', async () => {
    const ids = newSession();
    const results = await Promise.allSettled([
      appendTurn(pool, { ...ids, turnId: 'a', messages: talk(1, 200) }),
      appendTurn(pool, { ...ids, turnId: 'b', messages: talk(1, 200), policy: { tokenizer: 'chars/4' } }),
    ]);
    const session = await loadSession(pool, ids);
    const counter = counterFor(session.tokenizer);
    const messages = await replayed(pool, ids);
    expect(messages).toHaveLength(results.filter(({ status }) => status === 'fulfilled').length);
    for (const { message, tokens } of messages) expect(tokens).toBe(countMessage(message, counter));
  });

  it('recognises leading system messages over several turns, and only leading ones', async () => {
    const ids = newSession();
    const append = (turnId: string, ...roles: ChatMessage['role'][]) =>
      appendTurn(pool, {
        ...ids,
        turnId,
        messages: roles.map((role) => ({ role, content: `I am ${role}` })),
      });
    await append('1', 'system');
    await append('2', 'developer', 'user', 'system');
    await append('3', 'system');
    expect((await loadSession(pool, ids)).systemThroughSeq).toBe(2);
    const { source } = await readContextSource(pool, ids, 'own');
    expect(source.system.map(({ seq }) => seq)).toEqual([1, 2]);
    expect(source.tail.map(({ seq }) => seq)).toEqual([3, 4, 5]);
  });
});

describe('the counters of the session row', () => {
  it("report due from the policy's size on, and never if it is off", async () => {
    const ids = newSession();
    const policy = { contextWindow: 8_000, trigger: [{ messages: 12 }], keep: { messages: 4 } };
    const first = await appendTurn(pool, { ...ids, turnId: '1', messages: talk(11), policy });
    const second = await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) });
    expect([first.due, second.due]).toEqual([false, true]);
    expect((await appendTurn(pool, { ...ids, turnId: '2', messages: talk(1) })).due).toBe(true);
    await configureSession(pool, ids, { enabled: false });
    expect((await appendTurn(pool, { ...ids, turnId: '3', messages: talk(50) })).due).toBe(false);
  });

  it('equal the sum of the stored counts', async () => {
    const messages: ChatMessage[] = [{ role: 'system', content: 'be brief' }, ...talk(5)];
    const ids = await sessionWith(pool, messages);
    const { liveTokens, liveMessages } = await loadSession(pool, ids);
    const counter = counterFor('o200k_base');
    expect(liveTokens).toBe(messages.reduce((sum, message) => sum + countMessage(message, counter), 0));
    expect(liveMessages).toBe(6);
  });

  it('are counted again with another tokenizer, with head and reductions; evicted messages keep theirs', async () => {
    const ids = await sessionWith(pool, [{ role: 'system', content: 'be brief' }, ...talk(8, 50)]);
    const stand: Json = { role: 'user', content: 'shortened' };
    await compactThrough(pool, ids, 5, {
      reductions: [{ fromSeq: 7, throughSeq: 7, kind: 'message', body: JSON.stringify(stand), tokens: 3 }],
    });
    const before = await replayed(pool, ids);
    const { policyVersion } = await configureSession(pool, ids, { tokenizer: 'chars/3.3' });
    expect(policyVersion).toBe(2);
    const counter = counterFor('chars/3.3');
    const { session, source } = await readContextSource(pool, ids, 'own');
    const shown = [...source.system, ...source.tail];
    for (const { message, tokens } of shown) expect(tokens).toBe(countMessage(message, counter));
    expect(source.head?.tokens).toEqual(
      source.head?.messages.map((message) => countMessage(message, counter)),
    );
    const reduction = source.reductions[0];
    expect(reduction?.tokens).toBe(countMessage(stand as ChatMessage, counter));
    const total = [...shown.filter(({ seq }) => seq !== 7), ...source.reductions].reduce(
      (sum, { tokens }) => sum + tokens,
      0,
    );
    expect(session.liveTokens).toBe(
      total + (source.head?.tokens ?? []).reduce((sum, tokens) => sum + tokens, 0),
    );
    const evicted = (messages: typeof before) => messages.slice(1, 5).map(({ tokens }) => tokens);
    expect(evicted(await replayed(pool, ids))).toEqual(evicted(before));
  });
});

it('an append opens a closed session again', async () => {
  const ids = await sessionWith(pool, talk(1));
  await closeSession(pool, ids);
  expect((await loadSession(pool, ids)).closedAt).toBeInstanceOf(Date);
  await appendTurn(pool, { ...ids, turnId: 'again', messages: talk(1) });
  expect((await loadSession(pool, ids)).closedAt).toBeNull();
});

describe('a large message', () => {
  it('is counted exactly, off the event loop', async () => {
    const message: ChatMessage = { role: 'user', content: 'The quick brown fox, 42 times. '.repeat(100_000) };
    let turnsOfTheLoop = 0;
    const loop = setInterval(() => turnsOfTheLoop++, 1);
    const ids = newSession();
    const { liveTokens } = await appendTurn(pool, { ...ids, turnId: 'large', messages: [message] });
    clearInterval(loop);
    const before = turnsOfTheLoop;
    expect(liveTokens).toBe(countMessage(message, counterFor('o200k_base')));
    // Counting here, on the loop, let no interval fire; counting in the thread let many.
    expect(turnsOfTheLoop).toBe(before);
    expect(before).toBeGreaterThan(5);
  });
});
