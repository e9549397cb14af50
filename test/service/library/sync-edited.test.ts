/** `sync` with lists that callers have changed: shortened, edited, or moved from a context. Nothing is stored twice. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Synced, SyncRequest } from '../../../src/contract/sync.js';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { failure } from '../../conformance/case.js';
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
const system = (content: string): ChatMessage => ({ role: 'system', content });
const policy = { contextWindow: 4_000 };

const turnsFrom = (first: number, count: number): ChatMessage[] =>
  Array.from({ length: count }, (_, index) => first + index).flatMap((turn) => [
    user(`Question ${turn}: ${'word '.repeat(150)}`),
    assistant(`Answer ${turn}.`),
  ]);

const replayed = (session: string): Promise<Json[]> => storedItems(palimpsest, session);

const contextOf = async (session: string): Promise<ChatMessage[]> =>
  (await palimpsest.context<ChatMessage>({ session })).messages;

/** A session whose context begins with a summary, and which no list has been synchronized with. Returns its log. */
async function compacted(session: string, begin: ChatMessage[] = []): Promise<ChatMessage[]> {
  const messages = [...begin, ...turnsFrom(1, 30)];
  await palimpsest.appendTurn({ session, turnId: 'begin', messages, policy });
  await palimpsest.settled({ session });
  expect((await palimpsest.status({ session })).generation).toBeGreaterThan(0);
  return messages;
}

const sync = (session: string, messages: ChatMessage[], onEdit?: SyncRequest['onEdit']): Promise<Synced> =>
  palimpsest.sync({ session, messages, ...(onEdit && { onEdit }) });

const next = user('And now?');

describe('a list that begins with a summary', () => {
  test('from a read of the context, is gone on with after its tail', async () => {
    const log = await compacted('head-read');
    const context = await contextOf('head-read');
    expect(context.length).toBeLessThan(log.length);
    const synced = await sync('head-read', [...context, next]);
    expect(synced).toMatchObject({ known: context.length, edited: null, throughSeq: log.length + 1 });
    expect(await replayed('head-read')).toEqual([...log, next]);
  });

  test('of an earlier generation, is gone on with after its tail', async () => {
    const log = await compacted('head-earlier');
    const context = await contextOf('head-earlier');
    const more = turnsFrom(31, 30);
    await palimpsest.appendTurn({ session: 'head-earlier', turnId: 'more', messages: more });
    await palimpsest.settled({ session: 'head-earlier' });
    expect((await contextOf('head-earlier'))[0]).not.toEqual(context[0]);
    const list = [...context, ...more, next];
    expect(await sync('head-earlier', list)).toMatchObject({ known: list.length - 1, edited: null });
    expect(await replayed('head-earlier')).toEqual([...log, ...more, next]);
  });

  test('of a restored generation, is gone on with after its tail', async () => {
    const log = await compacted('head-restored');
    const first = await contextOf('head-restored');
    const more = turnsFrom(31, 30);
    await palimpsest.appendTurn({ session: 'head-restored', turnId: 'more', messages: more });
    await palimpsest.settled({ session: 'head-restored' });
    await palimpsest.restore({ session: 'head-restored', generation: 1 });
    const context = await contextOf('head-restored');
    expect(context[0]).toEqual(first[0]);
    expect(await sync('head-restored', [...context, next])).toMatchObject({ edited: null });
    expect(await replayed('head-restored')).toEqual([...log, ...more, next]);
  });

  test('of a fork, is gone on with after its tail', async () => {
    const log = await compacted('head-forked');
    const throughSeq = log.length - 1;
    await palimpsest.fork({ session: 'head-forked', throughSeq, to: 'head-fork' });
    const context = await contextOf('head-fork');
    expect(context.length).toBeLessThan(throughSeq);
    // The fork has the summary of its origin.
    const ofOrigin = (await contextOf('head-forked')).slice(0, -1);
    for (const list of [context, ofOrigin, [...ofOrigin, assistant('Another answer.'), next]])
      expect(await sync('head-fork', list)).toMatchObject({ edited: null });
    expect(await replayed('head-fork')).toEqual([
      ...log.slice(0, throughSeq),
      assistant('Another answer.'),
      next,
    ]);
  });

  test('and goes on with the newest messages only, is gone on with after them', async () => {
    const log = await compacted('head-window', [system('Be brief.')]);
    const context = await contextOf('head-window');
    const list = [...context.slice(0, 3), ...context.slice(-3), next];
    expect(await sync('head-window', list)).toMatchObject({ known: 6, edited: null });
    expect(await replayed('head-window')).toEqual([...log, next]);
  });

  test('after other instructions, is answered by option', async () => {
    const log = await compacted('head-instructions', [system('Be brief.')]);
    const context = await contextOf('head-instructions');
    const list = [system('Be exact.'), ...context.slice(1), next];
    expect(await failure(sync('head-instructions', list))).toMatchObject({
      ...{ type: 'Store.ListEdited', details: { commonSeq: 0, lastSeq: log.length } },
    });
    await expect(sync('head-instructions', list)).rejects.toMatchObject({
      hint: expect.stringMatching(/'fork' or 'append'\. .*sync of an empty list/),
    });
    // A fork that ends where both part would have the summary without its messages.
    await expect(sync('head-instructions', list, 'fork')).rejects.toMatchObject({
      ...{ type: 'Store.ListEdited', hint: expect.stringContaining('a summary or shortened messages') },
    });
    expect(await sync('head-instructions', list, 'append')).toMatchObject({
      ...{ known: 0, stored: { fromSeq: log.length + 1, throughSeq: log.length + 2 } },
    });
    expect(await sync('head-instructions', list)).toMatchObject({ stored: null, edited: null });
    expect(await replayed('head-instructions')).toEqual([...log, system('Be exact.'), next]);
    expect(await failure(palimpsest.status({ session: 'head-instructions~1' }))).toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });

  test('and has an edit after it, goes on from there in a fork', async () => {
    const log = await compacted('head-edited');
    const context = await contextOf('head-edited');
    const list = [...context.slice(0, -2), user('Another question.')];
    const forked = await sync('head-edited', list, 'fork');
    expect(forked).toMatchObject({ session: 'head-edited~1', edited: { commonSeq: log.length - 2 } });
    expect(await replayed('head-edited~1')).toEqual([...log.slice(0, -2), user('Another question.')]);
  });

  describe('of a branch that is not in use, and has an edit after it', () => {
    /** Two branches with summaries. Returns the context of the second; the first one is in use. */
    async function branched(session: string): Promise<ChatMessage[]> {
      await compacted(session);
      const { context: first } = await palimpsest.sync<ChatMessage>({ session, messages: [] });
      const other = [user('Something else.'), ...turnsFrom(101, 30)];
      await palimpsest.sync({ session, messages: other, onEdit: 'fork' });
      const branch = `${session}~1`;
      await palimpsest.settled({ session: branch });
      expect((await palimpsest.status({ session: branch })).generation).toBeGreaterThan(0);
      const { messages: context } = (await palimpsest.sync<ChatMessage>({ session, messages: [] })).context;
      await sync(session, [...context, user('One.')]);
      await sync(session, [...context, user('One.'), assistant('First.'), user('Two.')]);
      const back = await sync(session, [...first.messages, next], 'fork');
      expect(back).toMatchObject({ session, stored: { fromSeq: 61, throughSeq: 61 } });
      return context;
    }

    test('goes on from there in a fork of that branch', async () => {
      const session = 'branch-edited';
      const context = await branched(session);
      const list = [...context, user('One.'), assistant('First.'), user('Another two.')];
      expect(await sync(session, list, 'fork')).toMatchObject({ session: `${session}~2` });
      const log = await replayed(`${session}~1`);
      expect(await replayed(`${session}~2`)).toEqual([...log.slice(0, -1), user('Another two.')]);
    });

    test('is refused if nothing of the list is known: its summary is not stored', async () => {
      const session = 'branch-unknown';
      const context = await branched(session);
      const list = [user('Before all.'), ...context, user('Three.')];
      for (const onEdit of ['fork', 'append'] as const)
        expect(await failure(sync(session, list, onEdit))).toMatchObject({ type: 'Store.ListEdited' });
      expect(await failure(palimpsest.status({ session: `${session}~2` }))).toMatchObject({
        type: 'Store.SessionNotFound',
      });
    });
  });

  test('and has shortened messages after an edit, is refused whatever the option', async () => {
    const session = 'head-shortened';
    const log = turnsFrom(1, 8).map((message, index) =>
      index === 5 ? assistant(`Long answer: ${'detail '.repeat(4_000)}`) : message,
    );
    await palimpsest.appendTurn({
      session,
      turnId: 'begin',
      messages: log,
      policy: { ...policy, enabled: true },
    });
    const context = await contextOf(session);
    const shortened = context.findIndex(({ content }) => String(content).includes('characters left out'));
    expect(shortened).toBeGreaterThan(1);
    const list = context.map((message, index) => (index === shortened - 1 ? user('Edited.') : message));
    for (const onEdit of ['fork', 'append'] as const)
      expect(await failure(sync(session, [...list, next], onEdit))).toMatchObject({
        type: 'Store.ListEdited',
      });
    // Before the edit, the same context is known.
    expect(await sync(session, [...context, next])).toMatchObject({ known: context.length, edited: null });
    expect(await replayed(session)).toEqual([...log, next]);
  });

  test('is not imitated: a user who repeats it says something new', async () => {
    const log = await compacted('head-repeated');
    const context = await contextOf('head-repeated');
    const imitation = user(String(context[0]!.content));
    const list = [...context, imitation, assistant('I see.'), user('plm:1:2')];
    expect(await sync('head-repeated', list)).toMatchObject({ known: context.length, edited: null });
    expect(await replayed('head-repeated')).toEqual([...log, ...list.slice(-3)]);
    expect(await sync('head-imitated', [imitation, next])).toMatchObject({ known: 0, throughSeq: 2 });
  });
});

describe('a list of the newest messages', () => {
  const log = turnsFrom(1, 4);

  test('may have the instructions before them', async () => {
    await sync('window-instructions', [system('Be brief.'), ...log]);
    const list = [system('Be brief.'), ...log.slice(-2), next];
    expect(await sync('window-instructions', list)).toMatchObject({ known: 3, edited: null });
    expect(await replayed('window-instructions')).toEqual([system('Be brief.'), ...log, next]);
  });

  test('is recognized again when the same messages are the newest ones once more', async () => {
    const session = 'window-repeated';
    const pair = [user('Go on.'), assistant('Done.')];
    const first = [user('Begin.'), assistant('Ready.'), ...pair];
    await sync(session, first);
    await sync(session, [...pair, user('And that?')]);
    await sync(session, [...pair, user('And that?'), assistant('Yes.'), ...pair]);
    await sync(session, [...pair, user('The end.')]);
    expect(await replayed(session)).toEqual([
      ...first,
      user('And that?'),
      assistant('Yes.'),
      ...pair,
      user('The end.'),
    ]);
  });
});

describe('a list that begins with a message that the log has under its id', () => {
  const human = (id: string, content: string): Json => ({ type: 'human', data: { id, content } });
  const log = ['a', 'b', 'c', 'd'].map((id) => human(id, `Message ${id}.`));
  const sent = (session: string, messages: Json[], onEdit?: SyncRequest['onEdit']) =>
    palimpsest.sync({ session, format: 'langchain', messages, ...(onEdit && { onEdit }) });

  test('and says something else, parts from the log before it', async () => {
    const session = 'named-edited';
    await sent(session, log);
    const list = [human('c', 'Edited.'), human('e', 'And now?')];
    expect(await failure(sent(session, list))).toMatchObject({
      ...{ type: 'Store.ListEdited', details: { known: 0, commonSeq: 2, lastSeq: 4 } },
    });
    const forked = await sent(session, list, 'fork');
    expect(forked).toMatchObject({ session: `${session}~1`, known: 0, edited: { commonSeq: 2, lastSeq: 4 } });
    expect(await replayed(`${session}~1`)).toEqual([...log.slice(0, 2), ...list]);
    expect(await sent(session, list, 'fork')).toMatchObject({ session: `${session}~1`, stored: null });
    expect(await replayed(session)).toEqual(log);
  });

  test('and is edited later, parts from the log there', async () => {
    const session = 'named-later';
    await sent(session, log);
    const list = [log[1]!, human('c', 'Edited.')];
    expect(await sent(session, list, 'fork')).toMatchObject({ known: 1, edited: { commonSeq: 2 } });
    expect(await replayed(`${session}~1`)).toEqual([...log.slice(0, 2), list[1]]);
  });

  test('and is edited, is appended without what the log has', async () => {
    const session = 'named-append';
    await sent(session, log);
    const list = [human('c', 'Edited.'), log[3]!, human('e', 'And now?')];
    for (let time = 1; time <= 2; time++) await sent(session, list, 'append');
    expect(await replayed(session)).toEqual([...log, list[0], list[2]]);
  });
});

test('a list is compared with a session whose context does not fit', async () => {
  const session = 'too-large';
  const log = [user('One.'), assistant('Two.'), user('many words '.repeat(10_000))];
  const first = palimpsest.sync({ session, messages: log, policy });
  expect(await failure(first)).toMatchObject({ type: 'Budget.Unreachable' });
  expect(await failure(sync(session, [next]))).toMatchObject({
    ...{ type: 'Store.ListEdited', details: { commonSeq: 0, lastSeq: 3 } },
  });
  expect(await sync(session, [next], 'append')).toMatchObject({ stored: { fromSeq: 4, throughSeq: 4 } });
  expect(await replayed(session)).toEqual([...log, next]);
});

describe("with onEdit 'append'", () => {
  test('an edited message is appended, and those after it are not', async () => {
    const log = turnsFrom(1, 4);
    await sync('append-middle', log);
    const list = log.map((message, index) => (index === 2 ? user('Edited.') : message));
    for (let time = 1; time <= 2; time++) await sync('append-middle', [...list, next], 'append');
    expect(await replayed('append-middle')).toEqual([...log, user('Edited.'), next]);
  });

  test('a list without its middle adds only what is new', async () => {
    const log = turnsFrom(1, 4);
    await sync('append-shortened', log);
    const synced = await sync('append-shortened', [...log.slice(0, 2), ...log.slice(-2), next], 'append');
    expect(synced).toMatchObject({ known: 2, edited: { commonSeq: 2, lastSeq: 8 } });
    expect(await replayed('append-shortened')).toEqual([...log, next]);
  });

  test('other instructions are appended once', async () => {
    const log = [system('Be brief.'), ...turnsFrom(1, 3)];
    await sync('append-instructions', log);
    const list = [system('Be exact.'), ...log.slice(1), next];
    for (let time = 1; time <= 2; time++) await sync('append-instructions', list, 'append');
    expect(await replayed('append-instructions')).toEqual([...log, system('Be exact.'), next]);
  });

  test('a single message is that of the log if it has the same id', async () => {
    const session = 'append-ids';
    const human = (id: string, content: string): Json => ({ type: 'human', data: { id, content } });
    const sent = (messages: Json[]) =>
      palimpsest.sync({
        session,
        format: 'langchain',
        messages: messages,
        onEdit: 'append',
      });
    await sent(['a', 'b', 'c', 'd'].map((id) => human(id, `Message ${id}.`)));
    // `b` is edited, `c` is the same, the id `d` is used for another content, and `e` says what `c` said.
    await sent([
      human('a', 'Message a.'),
      human('b', 'Edited.'),
      human('c', 'Message c.'),
      human('d', 'Other.'),
      human('e', 'Message c.'),
    ]);
    const texts = (await replayed(session)).map(
      (item) => (item as { data: { content: string } }).data.content,
    );
    expect(texts).toEqual([
      ...['a', 'b', 'c', 'd'].map((id) => `Message ${id}.`),
      ...['Edited.', 'Other.', 'Message c.'],
    ]);
  });

  test('messages that the log has under their ids in another order are not appended again', async () => {
    const session = 'append-order';
    const human = (id: string): Json => ({ type: 'human', data: { id, content: `Message ${id}.` } });
    const sent = (ids: string) =>
      palimpsest.sync({ session, format: 'langchain', messages: [...ids].map(human), onEdit: 'append' });
    for (const ids of ['ab', 'abc', 'abde', 'adebf', 'adebf']) await sent(ids);
    expect(await replayed(session)).toEqual([...'abcdef'].map(human));
  });

  test('all of many writers at once are stored', async () => {
    const session = 'append-at-once';
    await sync(session, [user('Begin.')]);
    const names = Array.from({ length: 12 }, (_, index) => `Writer ${index}.`);
    await Promise.all(names.map((name) => sync(session, [user('Begin.'), assistant(name)], 'append')));
    const texts = (await replayed(session)).map((item) => (item as unknown as ChatMessage).content);
    expect(texts.slice(1).sort()).toEqual(names.sort());
  });

  test.each([
    ['one process', 1],
    ['two processes', 2],
  ])('all that eight callers of %s store turn by turn is in the log once', async (_, processes) => {
    const session = `append-turns-${processes}`;
    const others = await Promise.all(Array.from({ length: processes - 1 }, () => stack.elsewhere()));
    const clients = [palimpsest, ...others];
    const said: string[][] = [];
    const callers = Array.from({ length: 8 }, async (_unused, caller) => {
      const client = clients[caller % processes]!;
      let held: ChatMessage[] = [];
      for (let turn = 1; turn <= 12; turn++) {
        const names = ['Question', 'Answer'].map(
          (name) => `${name} ${turn} of ${caller}: ${'word '.repeat(40)}`,
        );
        said.push(names);
        const messages = [...held, user(names[0]!), assistant(names[1]!)];
        const { context } = await client.sync<ChatMessage>({ session, messages, policy, onEdit: 'append' });
        held = context.messages;
      }
    });
    await Promise.all(callers);
    const log = (await replayed(session)).map((item) => (item as unknown as ChatMessage).content as string);
    expect([...log].sort()).toEqual(said.flat().sort());
    for (const [question = '', answer] of said) expect(log[log.indexOf(question) + 1]).toBe(answer);
  });
});

test('a list that cannot be stored makes no fork, also of a session that goes on in one', async () => {
  const session = 'refused-fork';
  const wrongRole = { role: 'nobody', content: 'Hello.' } as unknown as ChatMessage;
  const foreign = { type: 'human', data: { content: 'Hello.' } } as unknown as ChatMessage;
  const refused = (request: Pick<SyncRequest, 'messages' | 'format'>) =>
    expect(palimpsest.sync({ session, onEdit: 'fork', ...request })).rejects;
  const forks = async () => (await palimpsest.sessions({ prefix: session })).sessions.length;
  await sync(session, [user('One.'), assistant('Two.')]);
  for (const count of [1, 2]) {
    await refused({ messages: [user('Edited.'), wrongRole] }).toMatchObject({
      ...{ type: 'Input.Invalid', path: 'messages[1].role' },
    });
    await refused({ messages: [foreign], format: 'langchain' }).toMatchObject({
      ...{ type: 'Input.Invalid', path: 'format' },
      message: expect.stringContaining(`session ${session} `),
    });
    expect(await forks()).toBe(count);
    await sync(session, [user('One.'), assistant(`Another ${count}.`)], 'fork');
  }
});
