/** `sync`: a caller sends its whole list, whatever it holds, and every message is stored once. */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SyncRequest } from '../../../src/contract/sync.js';
import type { FormatName } from '../../../src/conversation/format-names.js';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { failure } from '../../conformance/case.js';
import { startStack, type Stack } from '../../support/stack.js';
import { storedItems } from '../../support/sessions.js';

type Messages = SyncRequest['messages'];

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

/** What an agent says in one turn, in each format that frameworks hold. */
const turnIn: Partial<Record<FormatName, (turn: number) => Json[]>> = {
  'openai-chat': (turn) => [
    { role: 'user', content: `Question ${turn}: ${'word '.repeat(150)}` },
    {
      ...{ role: 'assistant', content: null },
      tool_calls: [1, 2].map((n) => ({
        ...{ id: `c${turn}-${n}`, type: 'function' },
        function: { name: 'look', arguments: `{"order":${turn * n}}` },
      })),
    },
    ...[1, 2].map((n) => ({
      role: 'tool',
      tool_call_id: `c${turn}-${n}`,
      content: `Order ${turn * n} shipped.`,
    })),
    { role: 'assistant', content: `Answer ${turn}.` },
  ],
  anthropic: (turn) => [
    { role: 'user', content: `Question ${turn}: ${'word '.repeat(150)}` },
    {
      role: 'assistant',
      content: [1, 2].map((n) => ({ type: 'tool_use', id: `c${turn}-${n}`, name: 'look', input: { n } })),
    },
    {
      role: 'user',
      content: [1, 2].map((n) => ({
        type: 'tool_result',
        tool_use_id: `c${turn}-${n}`,
        content: `Found ${n}.`,
      })),
    },
    { role: 'assistant', content: [{ type: 'text', text: `Answer ${turn}.` }] },
  ],
  'openai-responses': (turn) => [
    { role: 'user', content: `Question ${turn}: ${'word '.repeat(150)}` },
    ...[1, 2].map((n) => ({
      ...{ type: 'function_call', call_id: `c${turn}-${n}`, name: 'look', arguments: `{"n":${n}}` },
    })),
    ...[1, 2].map((n) => ({ type: 'function_call_output', call_id: `c${turn}-${n}`, output: `Found ${n}.` })),
    {
      ...{ type: 'message', role: 'assistant', status: 'completed', id: `msg_${turn}` },
      content: [{ type: 'output_text', text: `Answer ${turn}.`, annotations: [] }],
    },
  ],
  langchain: (turn) => [
    { type: 'human', data: { content: `Question ${turn}: ${'word '.repeat(150)}`, id: `h${turn}` } },
    {
      type: 'ai',
      data: {
        ...{ content: '', id: `a${turn}` },
        tool_calls: [1, 2].map((n) => ({
          id: `c${turn}-${n}`,
          name: 'look',
          args: { n },
          type: 'tool_call',
        })),
      },
    },
    ...[1, 2].map((n) => ({ type: 'tool', data: { content: `Found ${n}.`, tool_call_id: `c${turn}-${n}` } })),
    { type: 'ai', data: { content: `Answer ${turn}.`, id: `b${turn}` } },
  ],
  'ai-sdk': (turn) => [
    { role: 'user', content: `Question ${turn}: ${'word '.repeat(150)}` },
    {
      role: 'assistant',
      content: [1, 2].map((n) => ({
        ...{ type: 'tool-call', toolCallId: `c${turn}-${n}`, toolName: 'look', input: { n } },
      })),
    },
    {
      role: 'tool',
      content: [1, 2].map((n) => ({
        ...{ type: 'tool-result', toolCallId: `c${turn}-${n}`, toolName: 'look' },
        output: { type: 'text', value: `Found ${n}.` },
      })),
    },
    { role: 'assistant', content: [{ type: 'text', text: `Answer ${turn}.` }] },
  ],
  gemini: (turn) => [
    { role: 'user', parts: [{ text: `Question ${turn}: ${'word '.repeat(150)}` }] },
    { role: 'model', parts: [1, 2].map((n) => ({ functionCall: { name: 'look', args: { n } } })) },
    { role: 'user', parts: [1, 2].map((n) => ({ functionResponse: { name: 'look', response: { n } } })) },
    { role: 'model', parts: [{ text: `Answer ${turn}.` }] },
  ],
};

/** The beginnings of a turn that an agent sends to its model. */
function requests(turn: Json[]): Json[][] {
  return [turn.slice(0, 1), turn.slice(0, -1)];
}

const turns = 30;
const policy = { contextWindow: 4_000 };

describe.each(Object.keys(turnIn) as FormatName[])('%s', (format) => {
  const turnOf = turnIn[format]!;
  const whole = Array.from({ length: turns }, (_, turn) => turnOf(turn)).flat();

  test('a caller that keeps the whole list stores every message once', async () => {
    const session = `whole-${format}`;
    let list: Json[] = [];
    for (let turn = 0; turn < turns; turn++) {
      for (const part of requests(turnOf(turn))) {
        const { edited } = await palimpsest.sync({
          session,
          format,
          policy,
          messages: [...list, ...part] as Messages,
        });
        expect(edited).toBeNull();
      }
      list = [...list, ...turnOf(turn)];
      // A repeated call, as after a restart.
      const again = { session, messages: list as Messages };
      await palimpsest.sync(again);
      expect((await palimpsest.sync(again)).stored).toBeNull();
    }
    await palimpsest.settled({ session });
    expect(await replayed(session)).toEqual(whole);
    expect((await palimpsest.status({ session })).generation).toBeGreaterThan(0);
  });

  test('a caller that puts each context in place of its list stores every message once', async () => {
    const session = `replaced-${format}`;
    let list: Json[] = [];
    let largest = 0;
    for (let turn = 0; turn < turns; turn++) {
      let sent = 0;
      for (const part of [...requests(turnOf(turn)), turnOf(turn)]) {
        const messages = [...list, ...part.slice(sent)] as Messages;
        const { context, edited } = await palimpsest.sync({ session, format, policy, messages });
        expect(edited).toBeNull();
        list = withIds(context.messages as unknown as Json[], turn);
        largest = Math.max(largest, context.tokens);
        sent = part.length;
      }
      // Compactions come between a context and the next call.
      if (turn % 5 === 4) await palimpsest.settled({ session });
    }
    expect(await replayed(session)).toEqual(whole);
    const { generation } = await palimpsest.status({ session });
    expect(generation).toBeGreaterThan(0);
    expect(largest).toBeLessThanOrEqual(policy.contextWindow);
  });
});

/** Frameworks give ids to messages that have none. */
function withIds(items: Json[], turn: number): Json[] {
  return items.map((item, index) => {
    if (item === null || typeof item !== 'object' || !('data' in item)) return item;
    const { data } = item;
    return { ...item, data: { id: `given-${turn}-${index}`, ...(data as object) } };
  });
}

describe('a list that is not the log and more', () => {
  const dialog = [user('One.'), assistant('Two.'), user('Three.'), assistant('Four.')];

  test('is refused, with the last message that both have', async () => {
    const session = 'edited-refused';
    await palimpsest.sync({ session, messages: dialog });
    const edited = [...dialog.slice(0, 2), user('Another.')];
    for (const messages of [edited, dialog.slice(0, 3), [user('Nothing of it.')]])
      expect(await failure(palimpsest.sync({ session, messages }))).toMatchObject({
        ...{ type: 'Store.ListEdited', path: 'messages' },
        details: { lastSeq: 4 },
      });
    expect(await replayed(session)).toEqual(dialog);
  });

  test('goes on in a fork, also in the next calls', async () => {
    const session = 'edited-fork';
    await palimpsest.sync({ session, messages: dialog });
    const edited = [...dialog.slice(0, 2), user('Another.')];
    const forked = await palimpsest.sync({ session, messages: edited, onEdit: 'fork' });
    expect(forked).toMatchObject({
      ...{ session: 'edited-fork~1', known: 2, edited: { commonSeq: 2, lastSeq: 4 } },
      stored: { fromSeq: 3, throughSeq: 3 },
    });
    const more = [...edited, assistant('Fourth.')];
    expect(await palimpsest.sync({ session, messages: more })).toMatchObject({
      ...{ session: 'edited-fork~1', known: 3, edited: null },
    });
    const again = await palimpsest.sync({ session, messages: [user('Afresh.')], onEdit: 'fork' });
    expect(again).toMatchObject({ session: 'edited-fork~2', known: 0, stored: { fromSeq: 1 } });
    expect(await replayed(session)).toEqual(dialog);
    expect(await replayed('edited-fork~1')).toEqual(more);
    expect(await replayed('edited-fork~2')).toEqual([user('Afresh.')]);
  });

  test('is the branch that has it, when either list is sent again', async () => {
    const session = 'edited-branches';
    await palimpsest.sync({ session, messages: dialog });
    const edited = [...dialog.slice(0, 2), user('Another.')];
    const other = [user('Afresh.')];
    const fork = (messages: ChatMessage[]) => palimpsest.sync({ session, messages, onEdit: 'fork' });
    await fork(edited);
    await fork(other);
    for (const [list, inUse, commonSeq] of [
      [dialog, session, 0],
      [edited, `${session}~1`, 2],
      [other, `${session}~2`, 0],
      [edited, `${session}~1`, 0],
      [dialog, session, 2],
    ] as const) {
      const answer = { session: inUse, known: list.length, stored: null, throughSeq: list.length };
      expect(await fork([...list])).toMatchObject({ ...answer, edited: { commonSeq } });
      expect(await fork([...list])).toMatchObject({ ...answer, edited: null });
    }
    expect((await palimpsest.status({ session })).continuedIn).toBeNull();
    expect(await failure(palimpsest.sync({ session, messages: edited }))).toMatchObject({
      type: 'Store.ListEdited',
    });
    // What is new goes to the branch.
    const more = [...edited, assistant('Fourth.')];
    expect(await fork(more)).toMatchObject({ session: `${session}~1`, known: 3, stored: { fromSeq: 4 } });
    // A further edit of the first branch is a branch of its own.
    await fork(dialog);
    const third = [...dialog.slice(0, 2), user('Yet another.')];
    expect(await fork(third)).toMatchObject({ session: `${session}~3`, known: 2 });
    expect(await replayed(`${session}~3`)).toEqual(third);
    expect(await replayed(`${session}~1`)).toEqual(more);
    expect(await replayed(session)).toEqual(dialog);
    expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(4);
  });

  test('that cannot be stored after a branch does not move the session', async () => {
    const session = 'edited-wrong';
    await palimpsest.sync({ session, messages: dialog });
    const edited = [...dialog.slice(0, 2), user('Another.')];
    await palimpsest.sync({ session, messages: edited, onEdit: 'fork' });
    const wrong = { role: 'nobody', content: 'Hello.' } as unknown as ChatMessage;
    const call = palimpsest.sync({ session, messages: [...dialog, wrong], onEdit: 'fork' });
    expect(await failure(call)).toMatchObject({ type: 'Input.Invalid', path: 'messages[4].role' });
    expect((await palimpsest.status({ session })).continuedIn).toBe(`${session}~1`);
  });

  test('appends what the log does not have, once', async () => {
    const session = 'edited-append';
    await palimpsest.sync({ session, messages: dialog });
    const edited = [...dialog.slice(0, 2), user('Another.')];
    for (let time = 1; time <= 2; time++)
      await palimpsest.sync({ session, messages: edited, onEdit: 'append' });
    const more = [...edited, assistant('Fourth.')];
    await palimpsest.sync({ session, messages: more });
    expect(await replayed(session)).toEqual([...dialog, user('Another.'), assistant('Fourth.')]);
  });

  test('may be the newest part of the log', async () => {
    const session = 'window';
    const long = [1, 2, 3, 4, 5, 6].map((n) => (n % 2 ? user(`Question ${n}`) : assistant(`Answer ${n}`)));
    await palimpsest.sync({ session, messages: long });
    const messages = [...long.slice(-2), user('Next.')];
    expect(await palimpsest.sync({ session, messages })).toMatchObject({ known: 2, stored: { fromSeq: 7 } });
    expect(await replayed(session)).toEqual([...long, user('Next.')]);
  });

  test('of one message is not taken for the newest one', async () => {
    const session = 'one-word';
    await palimpsest.sync({ session, messages: [user('Hello.'), assistant('Yes?'), user('ok')] });
    const call = palimpsest.sync({ session, messages: [user('ok')] });
    expect(await failure(call)).toMatchObject({ type: 'Store.ListEdited', details: { commonSeq: 0 } });
  });
});

test('a session that was appended turn by turn is gone on with', async () => {
  const session = 'moved';
  const messages = [user('One.'), assistant('Two.')];
  await palimpsest.appendTurn({ session, turnId: 't-1', messages });
  const list = [...messages, user('Three.')];
  expect(await palimpsest.sync({ session, messages: list })).toMatchObject({
    known: 2,
    stored: { fromSeq: 3 },
  });
  // The platform goes on with both.
  await palimpsest.appendTurn({ session, turnId: 't-2', messages: [assistant('Four.')] });
  const all = [...list, assistant('Four.'), user('Five.')];
  expect(await palimpsest.sync({ session, messages: all })).toMatchObject({
    known: 4,
    stored: { fromSeq: 5 },
  });
  expect(await replayed(session)).toEqual(all);
});

test('an empty list stores nothing and answers the context', async () => {
  const session = 'empty';
  expect(await failure(palimpsest.sync({ session, messages: [] }))).toMatchObject({
    type: 'Store.SessionNotFound',
  });
  await palimpsest.sync({ session, messages: [user('One.')] });
  expect(await palimpsest.sync({ session, messages: [] })).toMatchObject({
    ...{ stored: null, known: 0, edited: null },
    context: { messages: [user('One.')] },
  });
});

test('what a context shows in place of a missing result is known to other processes too', async () => {
  const session = 'shown-elsewhere';
  const elsewhere = await stack.elsewhere();
  const call = { id: 'c', type: 'function', function: { name: 'look', arguments: '{}' } };
  const said = [user('Look.'), { role: 'assistant', content: null, tool_calls: [call] }] as Messages;
  await palimpsest.sync({ session, messages: said });
  // Another process answers the context, in which the call has a result that nobody sent.
  const { context } = await elsewhere.sync<Json>({ session, messages: [] });
  expect(context.messages).toHaveLength(3);
  const result = { role: 'tool', tool_call_id: 'c', content: 'Found.' };
  const { stored } = await palimpsest.sync({ session, messages: [...context.messages, result] as Messages });
  expect(stored).toMatchObject({ fromSeq: 3, throughSeq: 3 });
  expect(await replayed(session)).toEqual([...said, result]);
});

test.each(['sync', 'appendTurn'] as const)(
  'what a context shows in place of a missing result is no message, after %s',
  async (by) => {
    const session = `read-after-${by}`;
    const call = { id: 'c', type: 'function', function: { name: 'look', arguments: '{}' } };
    const said = [user('Look.'), { role: 'assistant', content: null, tool_calls: [call] }] as ChatMessage[];
    if (by === 'sync') await palimpsest.sync({ session, messages: said });
    else await palimpsest.appendTurn({ session, turnId: 't', messages: said });
    const { messages } = await palimpsest.context<Json>({ session });
    expect(messages).toHaveLength(3);
    const result = { role: 'tool', tool_call_id: 'c', content: 'Found.' };
    const list = [...messages, result] as Messages;
    expect((await palimpsest.sync({ session, messages: list })).throughSeq).toBe(3);
    expect(await replayed(session)).toEqual([...said, result]);
  },
);

describe('a list that says the same in another form', () => {
  test.each<[string, FormatName, Json[], Json[]]>([
    [
      'cache marks that moved',
      'anthropic',
      [
        { role: 'user', content: [{ type: 'text', text: 'One.', cache_control: { type: 'ephemeral' } }] },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'look', input: { order: 1 } }] },
      ],
      [
        { role: 'user', content: 'One.' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'look', input: { order: 1 } }] },
      ],
    ],
    [
      'arguments that were written anew, and no text for an empty one',
      'openai-chat',
      [
        {
          ...{ role: 'assistant', content: '' },
          tool_calls: [
            { id: 'a', type: 'function', function: { name: 'look', arguments: '{ "b": 1, "a": 2 }' } },
          ],
        },
      ],
      [
        {
          ...{ role: 'assistant', content: null },
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'look', arguments: '{"a":2,"b":1}' } }],
        },
      ],
    ],
    [
      'one text in a list of parts',
      'openai-responses',
      [{ role: 'user', content: 'One.' }],
      [{ role: 'user', content: [{ type: 'input_text', text: 'One.' }] }],
    ],
  ])('%s', async (name, format, first, second) => {
    const session = `same-${name}`;
    await palimpsest.sync({ session, format, messages: first });
    const next = { role: 'user', content: 'Two.' };
    const messages = [...second, next] as Messages;
    expect(await palimpsest.sync({ session, messages })).toMatchObject({ known: first.length, edited: null });
    expect(await replayed(session)).toEqual([...first, next]);
  });

  test('other arguments are another list', async () => {
    const call = (args: string): ChatMessage => ({
      ...{ role: 'assistant', content: null },
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'look', arguments: args } }],
    });
    await palimpsest.sync({ session: 'same-not', messages: [call('{"a":1}')] });
    const other = palimpsest.sync({ session: 'same-not', messages: [call('{"a":2}')] });
    expect(await failure(other)).toMatchObject({ type: 'Store.ListEdited' });
  });
});

test('whether the context is the list', async () => {
  const session = 'unchanged';
  const list = [user('One.'), assistant('Two.'), user('Three.')];
  const whole = await palimpsest.sync({ session, messages: list, policy: { contextWindow: 4_000 } });
  expect(whole).toMatchObject({ unchanged: true, throughSeq: 3 });
  expect(await palimpsest.sync({ session, messages: list })).toMatchObject({
    unchanged: true,
    throughSeq: 3,
  });
  const part = await palimpsest.sync({ session, messages: [...list.slice(-2), user('Four.')] });
  expect(part).toMatchObject({ unchanged: false, throughSeq: 4 });
  const long = [...list, user('Four.'), assistant('word '.repeat(5_000)), user('Five.')];
  expect(await palimpsest.sync({ session, messages: long })).toMatchObject({
    unchanged: false,
    throughSeq: 6,
  });
});

test('the context of a list is not read back as long as it has every message of it', async () => {
  const session = 'sizes';
  const sizes = async (messages: ChatMessage[], asked: Partial<SyncRequest> = {}) => {
    const { unchanged, context } = await palimpsest.syncSizes({ session, messages, ...asked });
    return { unchanged, isRead: context.messages !== undefined };
  };
  const list = [user('One.'), assistant('Two.'), user('Three.')];
  const policy = { contextWindow: 4_000 };
  expect(await sizes(list, { policy })).toEqual({ unchanged: true, isRead: true });
  const longer = [...list, assistant('Four.'), user('Five.')];
  expect(await sizes(longer)).toEqual({ unchanged: true, isRead: false });
  expect(await sizes([...longer, user('Six.')])).toEqual({ unchanged: true, isRead: false });
  const edited = [...longer.slice(1), user('Six.'), user('Seven.')];
  expect(await sizes(edited, { onEdit: 'append' })).toEqual({ unchanged: false, isRead: true });
  expect(await sizes([...edited, user('Eight.')])).toEqual({ unchanged: false, isRead: true });
  const other = [user('One.'), assistant('word '.repeat(2_000)), user('Three.')];
  expect(await sizes(other, { onEdit: 'fork', policy })).toEqual({ unchanged: true, isRead: true });
  const tooLong = [...other, assistant('word '.repeat(2_000)), user('Five.')];
  expect(await sizes(tooLong)).toEqual({ unchanged: false, isRead: true });
});

describe('a list for which the log has other messages', () => {
  const asks: ChatMessage = {
    ...{ role: 'assistant', content: null },
    tool_calls: ['search_history', 'look'].map((name) => ({
      ...{ id: name, type: 'function' },
      function: { name, arguments: '{}' },
    })),
  };
  const found: ChatMessage = { role: 'tool', tool_call_id: 'search_history', content: 'Found.' };
  const shown = { ...asks, tool_calls: asks.tool_calls!.slice(1) };
  const seen: ChatMessage = { role: 'tool', tool_call_id: 'look', content: 'Seen.' };
  const logged = [user('One.'), asks, found, seen];
  const list = [user('One.'), shown, seen];
  const instead = { at: 1, items: 1, messages: [asks, found] };

  test('is stored with them, and known from then on', async () => {
    const session = 'instead';
    await palimpsest.sync({ session, messages: list.slice(0, 1) });
    const first = await palimpsest.sync({ session, messages: list, instead });
    expect(first).toMatchObject({ known: 1, throughSeq: 4, edited: null, unchanged: false });
    expect(first.context.messages).toEqual(logged);
    // A repeated call, and the next one, which no longer has the others.
    expect((await palimpsest.sync({ session, messages: list, instead })).stored).toBeNull();
    const more = [...list, assistant('Done.'), user('Two.')];
    expect(await palimpsest.sync({ session, messages: more })).toMatchObject({ known: 3, throughSeq: 6 });
    expect(await replayed(session)).toEqual([...logged, ...more.slice(3)]);
  });

  test('is recognized if the others were stored before', async () => {
    const session = 'instead-stored';
    await palimpsest.sync({ session, messages: list.slice(0, 1) });
    await palimpsest.appendTurn({ session, turnId: 'answer', messages: [asks, found] });
    const next = await palimpsest.sync({ session, messages: list, instead });
    expect(next).toMatchObject({ known: 2, edited: null, stored: { fromSeq: 4 } });
    expect(await replayed(session)).toEqual(logged);
  });

  test('is refused if the items are not in the list', async () => {
    const call = palimpsest.sync({
      session: 'instead-wrong',
      messages: list,
      instead: { ...instead, items: 3 },
    });
    expect(await failure(call)).toMatchObject({ type: 'Input.Invalid', path: 'instead.items' });
  });
});

describe('at once', () => {
  test('the same list is stored once', async () => {
    const session = 'at-once';
    const messages = [user('One.'), assistant('Two.'), user('Three.')];
    await palimpsest.sync({ session, messages: messages.slice(0, 1) });
    await Promise.all(Array.from({ length: 8 }, () => palimpsest.sync({ session, messages })));
    expect(await replayed(session)).toEqual(messages);
  });

  test('of two lists that part, one is stored and the other refused', async () => {
    const session = 'at-once-parted';
    const begin = [user('One.')];
    await palimpsest.sync({ session, messages: begin });
    const calls = ['A', 'B'].map((name) =>
      palimpsest.sync({ session, messages: [...begin, assistant(name)] }),
    );
    const ended = await Promise.allSettled(calls);
    expect(ended.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(await replayed(session)).toHaveLength(2);
  });

  test('forks of the same edit are one fork', async () => {
    const session = 'at-once-fork';
    const begin = [user('One.'), assistant('Two.')];
    await palimpsest.sync({ session, messages: begin });
    const messages = [user('One.'), assistant('Other.')];
    const made = await Promise.all(
      Array.from({ length: 4 }, () => palimpsest.sync({ session, messages, onEdit: 'fork' })),
    );
    expect(new Set(made.map((one) => one.session))).toEqual(new Set(['at-once-fork~1']));
    expect(await replayed('at-once-fork~1')).toEqual(messages);
  });
});

describe('branches of a session at once', () => {
  const original = [user('One.'), assistant('Two.')];
  const edited = [user('One.'), assistant('Other.')];

  /** A session that goes on in its fork. */
  async function parted(session: string) {
    await palimpsest.sync({ session, messages: original });
    await palimpsest.sync({ session, messages: edited, onEdit: 'fork' });
  }

  test('are those that there were, when their lists are sent again', async () => {
    const session = 'branches-again';
    await parted(session);
    const made = await Promise.all(
      Array.from({ length: 8 }, async (_, index) => {
        const isOriginal = index % 2 === 0;
        const messages = isOriginal ? original : edited;
        const { session: inUse } = await palimpsest.sync({ session, messages, onEdit: 'fork' });
        return inUse === session ? isOriginal : !isOriginal;
      }),
    );
    expect(made).not.toContain(false);
    expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(2);
  });

  test('get what is new in their lists', async () => {
    const session = 'branches-more';
    await parted(session);
    const lists = [original, edited].map((list, index) => [...list, user(`List ${index}.`)]);
    await Promise.all(
      [...lists, ...lists].map((messages) => palimpsest.sync({ session, messages, onEdit: 'fork' })),
    );
    expect(await replayed(session)).toEqual(lists[0]);
    expect(await replayed(`${session}~1`)).toEqual(lists[1]);
    expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(2);
  });
});

describe('a session that a fork moves at the same time', () => {
  const begin = [user('One.'), assistant('Two.')];

  /** Lets each call begin while the session's row is locked, one after the other, then all of them go on. */
  async function inOrder(
    session: string,
    ...calls: (() => Promise<unknown>)[]
  ): Promise<PromiseSettledResult<unknown>[]> {
    const owner = new pg.Client(stack.ownerUrl);
    await owner.connect();
    const waiting = async () => {
      const { rowCount } = await owner.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      );
      return rowCount;
    };
    try {
      await owner.query('begin');
      await owner.query('select from palimpsest.sessions where session_id = $1 for update', [session]);
      const begun: Promise<unknown>[] = [];
      for (const call of calls) {
        begun.push(call());
        await expect.poll(waiting).toBe(begun.length);
      }
      await owner.query('rollback');
      return await Promise.allSettled(begun);
    } finally {
      await owner.end();
    }
  }

  test('stores what comes after the fork in the fork', async () => {
    const session = 'moved-before';
    await palimpsest.sync({ session, messages: begin });
    const messages = [user('One.'), assistant('Two.'), user('Three.')];
    const fork = { session, throughSeq: 1, to: 'moved-before~1', continues: session, expectedSeq: 2 };
    const [moved, synced] = await inOrder(
      session,
      () => palimpsest.fork(fork),
      () => palimpsest.sync({ session, messages }),
    );
    expect(moved).toMatchObject({ status: 'fulfilled', value: { repeated: false } });
    expect(synced).toMatchObject({ status: 'fulfilled', value: { session: 'moved-before~1' } });
    expect(await replayed(session)).toEqual(begin);
    expect(await replayed('moved-before~1')).toEqual(messages);
  });

  test('goes on in a fork that was made before, and moves once', async () => {
    const session = 'moved-later';
    await palimpsest.sync({ session, messages: begin });
    const fork = { session, throughSeq: 1, to: 'moved-later~1' };
    await palimpsest.fork(fork);
    await palimpsest.appendTurn({ session: fork.to, turnId: 'more', messages: [assistant('Second.')] });
    const moving = { ...fork, continues: session, expectedSeq: 2 };
    expect(await palimpsest.fork(moving)).toMatchObject({ session: fork.to, repeated: false });
    expect(await palimpsest.fork(moving)).toMatchObject({ session: fork.to, repeated: true });
    const { context } = await palimpsest.sync({ session, messages: [] });
    expect(context.messages).toEqual([user('One.'), assistant('Second.')]);
    expect(await failure(palimpsest.fork({ ...moving, to: 'moved-later~2' }))).toMatchObject({
      ...{ type: 'Store.StaleAppend', path: 'continues' },
    });
  });

  test('is not moved if it was stored to before', async () => {
    const session = 'moved-after';
    await palimpsest.sync({ session, messages: begin });
    const messages = [...begin, user('Three.')];
    const fork = { session, throughSeq: 1, to: 'moved-after~1', continues: session, expectedSeq: 2 };
    const [synced, moved] = await inOrder(
      session,
      () => palimpsest.sync({ session, messages }),
      () => palimpsest.fork(fork),
    );
    expect(synced).toMatchObject({ status: 'fulfilled', value: { session } });
    expect(moved).toMatchObject({ reason: { type: 'Store.StaleAppend', path: 'expectedSeq' } });
    expect(await failure(palimpsest.status({ session: 'moved-after~1' }))).toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });
});
