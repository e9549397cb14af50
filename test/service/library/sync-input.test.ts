/** `sync` with every input: long lists, odd values, wrong fields, and the same list from several callers. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SyncRequest } from '../../../src/contract/sync.js';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { noteLists } from '../../../src/store/append/known-lists.js';
import { reading } from '../../../src/store/connection/transaction.js';
import { failure } from '../../conformance/case.js';
import { openPool } from '../../support/pool.js';
import { startStack, type Stack } from '../../support/stack.js';
import { storedItems } from '../../support/sessions.js';

let stack: Stack;
let palimpsest: Palimpsest;

beforeAll(async () => {
  stack = await startStack();
  ({ palimpsest } = stack);
});

afterAll(() => stack.stop());

const user = (content: string): ChatMessage => ({ role: 'user', content });
const assistant = (content: string): ChatMessage => ({ role: 'assistant', content });

const replayed = (session: string): Promise<Json[]> => storedItems(palimpsest, session);

test('a list of 20,000 messages is stored in turns, and known from then on', async () => {
  const session = 'long';
  const list = Array.from({ length: 20_000 }, (_, index) =>
    index % 2 ? assistant(`Answer ${index}.`) : user('Go on.'),
  );
  const policy = { enabled: false, contextWindow: 1_000_000 };
  expect(await palimpsest.sync({ session, messages: list, policy })).toMatchObject({
    ...{ known: 0, stored: { fromSeq: 1, throughSeq: 20_000 }, throughSeq: 20_000, unchanged: true },
  });
  expect(await palimpsest.sync({ session, messages: [...list, user('More.')] })).toMatchObject({
    ...{ known: 20_000, stored: { fromSeq: 20_001, throughSeq: 20_001 } },
  });
  // A process that ended in between has stored the first turns.
  await palimpsest.sync({ session: 'long-ended', messages: list.slice(0, 2_500), policy });
  expect(await palimpsest.sync({ session: 'long-ended', messages: list })).toMatchObject({
    ...{ known: 2_500, stored: { fromSeq: 2_501, throughSeq: 20_000 } },
  });
  expect(await replayed('long-ended')).toEqual(list);
});

test('a list of equal messages is the newest part of a log only with its end', async () => {
  const session = 'equal';
  const equal = Array.from({ length: 1_500 }, () => user('ok'));
  const log = [user('Begin.'), ...equal, user('The end.')];
  await palimpsest.appendTurn({ session, turnId: 't', messages: log, policy: { enabled: false } });
  const part = palimpsest.sync({ session, messages: [...equal.slice(0, 1_400), user('More.')] });
  expect(await failure(part)).toMatchObject({ type: 'Store.ListEdited', details: { commonSeq: 0 } });
  const messages = [...log.slice(-1_000), user('More.')];
  expect(await palimpsest.sync({ session, messages })).toMatchObject({ known: 1_000, throughSeq: 1_503 });
});

describe('messages', () => {
  test.each<[string, unknown, string]>([
    ['undefined', undefined, 'messages[1]'],
    ['null', null, 'messages[1]'],
    ['text', 'Hello', 'messages[1]'],
    ['NaN', { ...user('x'), score: NaN }, 'messages[1].score'],
    ['a Date', { ...user('x'), at: new Date(0) }, 'messages[1].at'],
    ['bytes', { ...user('x'), data: new Uint8Array(3) }, 'messages[1].data'],
    ['an unknown role', { role: 'narrator', content: 'x' }, 'messages[1].role'],
  ])('with %s are refused, with their place in the list', async (name, message, path) => {
    const session = `refused-${name}`;
    await palimpsest.sync({ session, messages: [user('Begin.')] });
    const messages = [user('Begin.'), message] as SyncRequest['messages'];
    await expect(palimpsest.sync({ session, messages })).rejects.toMatchObject({
      ...{ type: 'Input.Invalid', path, message: expect.stringContaining(path) },
    });
    expect(await replayed(session)).toEqual([user('Begin.')]);
  });

  test('in place of items are refused with their place among them', async () => {
    const messages = [user('Begin.'), assistant('One.'), user('Two.')];
    const wrong = (index: number) => [assistant('A.'), { role: 'x' }, assistant('B.')].slice(0, index);
    const instead = { at: 1, items: 1, messages: wrong(2) } as SyncRequest['instead'];
    expect(await failure(palimpsest.sync({ session: 'instead-refused', messages, instead }))).toMatchObject({
      ...{ type: 'Input.Invalid', path: 'instead.messages[1].role' },
    });
    const after = [...messages, { role: 'x' }] as SyncRequest['messages'];
    const right = { at: 1, items: 1, messages: [assistant('A.'), assistant('B.')] };
    expect(
      await failure(palimpsest.sync({ session: 'instead-refused', messages: after, instead: right })),
    ).toMatchObject({ type: 'Input.Invalid', path: 'messages[3].role' });
  });

  test('may be empty, and arguments may be any text', async () => {
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
    const called = (id: string, given: string): ChatMessage => ({
      ...{ role: 'assistant', content: null },
      tool_calls: [{ id, type: 'function', function: { name: 'look', arguments: given } }],
    });
    const list: ChatMessage[] = [
      user(''),
      assistant(''),
      user('\u0000 \ud800'),
      ...['a', 'b', 'c'].map((id, index) =>
        called(id, [deep, '{"a":', `"${'}'.repeat(600)}" ${deep}`][index]!),
      ),
      ...['a', 'b', 'c'].map((id): ChatMessage => ({ role: 'tool', tool_call_id: id, content: [] })),
    ];
    await palimpsest.sync({ session: 'odd', messages: list });
    const more = [...list, user('Two.')];
    expect(await palimpsest.sync({ session: 'odd', messages: more })).toMatchObject({ known: list.length });
    expect(await replayed('odd')).toEqual(more);
  });
});

describe('a call with nothing to store', () => {
  const messages = [user('One.')];

  test.each<[Partial<SyncRequest>, string]>([
    [{ at: 'yesterday' }, 'at'],
    [{ at: '2026-01-01' }, 'at'],
    [{ usage: { inputTokens: 3 } as SyncRequest['usage'] }, 'usage.outputTokens'],
    [{ usage: {} }, 'usage'],
    [{ format: 'anthropic' }, 'format'],
  ])('is refused as any other: %j', async (fields, path) => {
    await palimpsest.sync({ session: 'known', messages });
    for (const list of [messages, []])
      expect(await failure(palimpsest.sync({ session: 'known', messages: list, ...fields }))).toMatchObject({
        ...{ type: 'Input.Invalid', path },
      });
  });

  test.each([null, { prompt_tokens: 3 }, { input_tokens: 3, output_tokens: null }])(
    'takes a usage without all numbers: %j',
    async (usage) => {
      const session = `usage-${JSON.stringify(usage)}`;
      const list = [...messages, assistant('Two.')];
      for (let time = 1; time <= 2; time++)
        await palimpsest.sync({ session, messages: list, usage: usage as SyncRequest['usage'] });
      expect(await replayed(session)).toEqual(list);
    },
  );
});

test('of several calls at once whose messages have different ids, one stores the list', async () => {
  const session = 'other-ids';
  const human = (id: string, content: string): Json => ({ type: 'human', data: { id, content } });
  const sent = (id: string) =>
    palimpsest.sync({
      ...{ session, format: 'langchain' },
      messages: [human('a', 'One.'), human(id, 'Two.')] as SyncRequest['messages'],
    });
  await palimpsest.sync({
    session,
    format: 'langchain',
    messages: [human('a', 'One.')] as SyncRequest['messages'],
  });
  await Promise.all(Array.from({ length: 8 }, (_, index) => sent(`b${index}`)));
  expect(await replayed(session)).toHaveLength(2);
});

test('nothing is noted for a session that was erased meanwhile', async () => {
  const session = 'erased';
  await palimpsest.sync({ session, messages: [user('One.')] });
  const pool = openPool(stack.databaseUrl, { max: 1 });
  const owner = new pg.Client(stack.ownerUrl);
  await owner.connect();
  try {
    const ids = { tenant: palimpsest.tenant, session };
    const list = { digest: 'ab'.repeat(32), items: 1, throughSeq: 1 };
    await noteLists(reading(pool, ids), { ...ids, incarnation: randomUUID() }, [list]);
    await noteLists(reading(pool, ids), { ...ids, session: 'never' }, [list]);
    const count = `select from palimpsest.known_lists where digest = decode($1, 'hex')`;
    expect((await owner.query(count, [list.digest])).rowCount).toBe(0);
    await noteLists(reading(pool, ids), ids, [list, list]);
    expect((await owner.query(count, [list.digest])).rowCount).toBe(1);
  } finally {
    await owner.end();
    await pool.end();
  }
});
