/** `palimpsest/openai-agents` with the Agents SDK and a scripted Responses API. */
import {
  Agent,
  type AgentInputItem,
  MemorySession,
  OpenAIChatCompletionsModel,
  RunState,
  type Session,
  tool,
} from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PalimpsestSession } from '../../../src/adapters/openai-agents.js';
import type { PalimpsestClient } from '../../../src/contract/client.js';
import type { Json } from '../../../src/conversation/message.js';
import { HttpPalimpsest } from '../../../src/http-client/client.js';
import { called, comparable, type Item, said, ScriptedApi, thought } from '../../support/agents-api.js';
import { type ApiStack, startApiStack } from '../../support/api.js';
import { storedItems } from '../../support/sessions.js';

let server: ApiStack;
let client: PalimpsestClient;

beforeAll(async () => {
  server = await startApiStack();
  client = server.stack.palimpsest;
});

afterAll(() => server.stop());

const connect = (): Promise<PalimpsestClient> =>
  HttpPalimpsest.connect({ url: server.api.address, token: server.token });

const policy = { contextWindow: 4_000 };

/** Each question is answered after two calls at once. */
function lookingTwice(): ScriptedApi {
  let turn = 0;
  return new ScriptedApi((input) => {
    if (input.at(-1)?.type === 'function_call_output') return [said(`msg_${turn}`, `Answer ${turn}.`)];
    turn++;
    return [thought(`rs_${turn}`), called(`a${turn}`, turn), called(`b${turn}`, turn + 1_000)];
  });
}

const look = tool({
  name: 'look',
  description: 'Looks at an order.',
  parameters: {
    ...{ type: 'object', properties: { order: { type: 'number' } }, required: ['order'] },
    additionalProperties: true,
  },
  strict: false,
  execute: (input) => `Order ${(input as { order: number }).order} shipped. ${'Detail. '.repeat(40)}`,
});
const agent = new Agent({ name: 'support', tools: [look] });
const question = (turn: number): string => `Question ${turn}: ${'word '.repeat(100)}`;

/** The items of a session as they were added. */
async function replayed(session: string): Promise<Json[]> {
  const { session: inUse } = await client.sync({ session, messages: [] });
  return (await storedItems(client, inUse)).map(comparable);
}

async function play(
  turns: number,
  sessionOf: (turn: number) => Promise<{ session: Session }>,
): Promise<ScriptedApi> {
  const api = lookingTwice();
  for (let turn = 1; turn <= turns; turn++)
    await api.runner.run(agent, question(turn), await sessionOf(turn));
  return api;
}

describe.each([
  ['with the filter', true],
  ['without the filter', false],
])('100 turns on a small window, %s', (name, filtered) => {
  test('store what the SDK stores, and every request fits', async () => {
    const memory = new MemorySession();
    await play(100, async () => ({ session: memory }));
    const options = { session: `turns-${name}`, policy };
    let session = new PalimpsestSession({ client, ...options });
    const api = await play(100, async (turn) => {
      // A process that is started again has a new client and a new session.
      if (turn % 10 === 0) session = new PalimpsestSession({ client: await connect(), ...options });
      if (turn % 25 === 0) await client.settled(options);
      const { callModelInputFilter } = session;
      return { session, ...(filtered ? { callModelInputFilter } : {}) };
    });
    expect(await replayed(options.session)).toEqual((await memory.getItems()).map(comparable));
    expect(api.inputs).toHaveLength(200);
    if (filtered) expect(api.largest).toBeLessThanOrEqual(policy.contextWindow);
    expect((await client.status(options)).generation).toBeGreaterThan(3);
  });
});

describe('a run of 60 calls', () => {
  /** Calls until it has looked at 60 orders. The API fails once at each request in `failing`. */
  function lookingOften(failing: number[] = []): ScriptedApi {
    let order = 0;
    return new ScriptedApi((_, request) => {
      if (failing.includes(request)) throw new Error('The connection broke.');
      order++;
      return order > 60 ? [said('msg_1', 'All shipped.')] : [called(`c${order}`, order)];
    });
  }

  test('fits the window, and stores what the SDK stores', async () => {
    const memory = new MemorySession();
    await lookingOften().runner.run(agent, 'All orders?', { session: memory, maxTurns: null });
    const session = new PalimpsestSession({ client, session: 'long', policy });
    const { callModelInputFilter } = session;
    const api = lookingOften();
    const { finalOutput } = await api.runner.run(agent, 'All orders?', {
      ...{ session, callModelInputFilter, maxTurns: null },
    });
    expect(finalOutput).toBe('All shipped.');
    expect(api.inputs).toHaveLength(61);
    expect(api.largest).toBeLessThanOrEqual(policy.contextWindow);
    expect(await replayed('long')).toEqual((await memory.getItems()).map(comparable));
  });

  test('is continued after a failure, by other objects and without its input', async () => {
    const memory = new MemorySession();
    await lookingOften().runner.run(agent, 'All orders?', { session: memory, maxTurns: null });
    const api = lookingOften([10, 40]);
    let input: string | AgentInputItem[] = 'All orders?';
    let failures = 0;
    for (let ended = false; !ended; input = []) {
      const session = new PalimpsestSession({ client: await connect(), session: 'broken', policy });
      const { callModelInputFilter } = session;
      const run = api.runner.run(agent, input, { session, callModelInputFilter, maxTurns: null });
      ended = await run.then(
        () => true,
        () => false,
      );
      if (!ended) failures++;
    }
    expect(failures).toBe(2);
    expect(api.largest).toBeLessThanOrEqual(policy.contextWindow);
    expect(await replayed('broken')).toEqual((await memory.getItems()).map(comparable));
  });

  test('is streamed', async () => {
    const memory = new MemorySession();
    await play(3, async () => ({ session: memory }));
    const session = new PalimpsestSession({ client, session: 'streamed', policy });
    const { callModelInputFilter } = session;
    const api = lookingTwice();
    for (let turn = 1; turn <= 3; turn++) {
      const stream = await api.runner.run(agent, question(turn), {
        session,
        callModelInputFilter,
        stream: true,
      });
      await stream.completed;
    }
    expect(await replayed('streamed')).toEqual((await memory.getItems()).map(comparable));
  });

  test('goes on from a saved state, after an approval', async () => {
    const careful = new Agent<undefined>({
      name: 'support',
      tools: [{ ...look, needsApproval: async () => true }],
    });
    async function approved(options: () => Promise<{ session: Session }>): Promise<void> {
      const api = lookingTwice();
      for (let turn = 1; turn <= 3; turn++) {
        let result = await api.runner.run<typeof careful, unknown>(careful, question(turn), await options());
        while (result.interruptions.length > 0) {
          const state = await RunState.fromString(careful, result.state.toString());
          state.approve(state.getInterruptions()[0]!);
          result = await api.runner.run(careful, state, await options());
        }
      }
    }
    const memory = new MemorySession();
    await approved(async () => ({ session: memory }));
    await approved(async () => {
      const session = new PalimpsestSession({ client: await connect(), session: 'approved', policy });
      return { session, callModelInputFilter: session.callModelInputFilter };
    });
    expect(await replayed('approved')).toEqual((await memory.getItems()).map(comparable));
  });
});

describe('at once', () => {
  const other = (name: string): ScriptedApi =>
    new ScriptedApi((input) => {
      const mine = input.filter(({ call_id: id }) => String(id).startsWith(name)).length / 2;
      return mine < 5 ? [called(`${name}${mine}`, mine)] : [said(`msg_${name}`, `${name} is done.`)];
    });

  test.each(['one session object', 'two session objects'])(
    'two runs with %s store every item once',
    async (which) => {
      const options = { client, session: `at-once-${which}`, policy };
      const first = new PalimpsestSession(options);
      await first.addItems([{ role: 'user', content: 'Begin.' }]);
      const sessions = [first, which === 'one session object' ? first : new PalimpsestSession(options)];
      await Promise.all(
        sessions.map(async (session, index) => {
          const { callModelInputFilter } = session;
          const name = `run${index}-`;
          await other(name).runner.run(agent, `Question of ${name}`, { session, callModelInputFilter });
        }),
      );
      const items = (await replayed(options.session)) as Item[];
      const keys = items.map(({ type, callId, content }) => JSON.stringify([type, callId ?? content]));
      expect(new Set(keys).size).toBe(keys.length);
      expect(keys).toHaveLength(1 + 2 * (1 + 5 * 2 + 1));
    },
  );

  test('twelve runs, half of them as in other processes, store every item once', async () => {
    const clients = await Promise.all(Array.from({ length: 6 }, connect));
    const options = { session: 'crowd', policy: { contextWindow: 100_000 } };
    const first = new PalimpsestSession({ client, ...options });
    await Promise.all(
      Array.from({ length: 12 }, async (_, index) => {
        const own = clients[(index - 1) / 2];
        const session = own ? new PalimpsestSession({ client: own, ...options }) : first;
        const { callModelInputFilter } = session;
        await other(`run${index}-`).runner.run(agent, `Question ${index}`, { session, callModelInputFilter });
      }),
    );
    expect(await replayed('crowd')).toHaveLength(12 * (1 + 5 * 2 + 1));
  });
});

describe('a session whose context ends with', () => {
  const user = (content: string): AgentInputItem => ({ role: 'user', content });
  const reasoning: AgentInputItem = {
    ...{ type: 'reasoning', id: 'rs_1' },
    content: [{ type: 'input_text', text: 'Hm.' }],
  };
  const answer: AgentInputItem = {
    ...{ type: 'message', role: 'assistant', id: 'msg_1', status: 'completed' },
    content: [{ type: 'output_text', text: 'Hello.' }],
  };

  test.each<[name: string, added: AgentInputItem[][], pops: number]>([
    ['a lone reasoning item', [[user('One.')], [reasoning]], 0],
    ['what popItem left of a response', [[user('One.')], [reasoning, answer]], 1],
  ])('%s takes more items', async (name, added, pops) => {
    const session = new PalimpsestSession({ client, session: `ends with ${name}`, policy });
    for (const items of added) await session.addItems(items);
    for (let pop = 0; pop < pops; pop++) await session.popItem();
    await session.addItems([user('Two.')]);
    await session.addItems([user('Three.')]);
    const expected = [user('One.'), reasoning, user('Two.'), user('Three.')];
    expect(await replayed(`ends with ${name}`)).toEqual(expected.map(comparable));
  });

  const large = `Read: ${'word '.repeat(6_000)}`;

  test.each(['library', 'HTTP'])(
    'a question beyond the window goes on, with the client of %s',
    async (kind) => {
      const name = `large-${kind}`;
      const session = new PalimpsestSession({
        client: kind === 'HTTP' ? await connect() : client,
        ...{ session: name, policy },
      });
      const { callModelInputFilter } = session;
      const api = lookingTwice();
      const ask = (input: string | AgentInputItem[]) =>
        api.runner.run(agent, input, { session, callModelInputFilter });
      await ask('Hello?');
      await expect(ask(large)).rejects.toMatchObject({ type: 'Budget.Unreachable' });
      await expect(ask([])).rejects.toMatchObject({ type: 'Budget.Unreachable' });
      expect((await ask('And now?')).finalOutput).toBe('Answer 2.');
      expect(api.largest).toBeLessThanOrEqual(policy.contextWindow);
      const asked = ((await replayed(name)) as Item[]).filter(({ role }) => role === 'user');
      expect(asked.map(({ content }) => content)).toEqual(['Hello?', large, 'And now?']);
      await session.addItems([user(large)]).catch((error: unknown) => error);
      expect(await session.popItem()).toEqual(user(large));
      await session.addItems([user(large)]).catch((error: unknown) => error);
      await session.clearSession();
      expect(await session.getItems()).toEqual([]);
    },
  );
});

describe('popItem', () => {
  const dialog = ['One.', 'Two.', 'Three.'].map((content): AgentInputItem => ({ role: 'user', content }));
  const opened = async (session: string, items: AgentInputItem[] = dialog): Promise<PalimpsestSession> => {
    const opened = new PalimpsestSession({ client, session, policy });
    await opened.addItems(items);
    return opened;
  };
  const again = async (session: string): Promise<PalimpsestSession> =>
    new PalimpsestSession({ client: await connect(), session });

  test('removes the last item, also for the next process', async () => {
    const session = await opened('pop-restart');
    expect(await session.popItem()).toEqual(dialog[2]);
    const restarted = await again('pop-restart');
    expect(await restarted.getItems()).toMatchObject(
      dialog.slice(0, 2).map((item) => ({ providerData: item })),
    );
    expect(await restarted.popItem()).toEqual(dialog[1]);
    expect(await replayed('pop-restart')).toEqual(dialog.slice(0, 1));
    expect(await restarted.popItem()).toEqual(dialog[0]);
    expect(await restarted.popItem()).toBeUndefined();
    expect(await restarted.getItems()).toEqual([]);
    expect(await storedItems(client, 'pop-restart')).toEqual(dialog);
  });

  test('of several callers at once removes as many items, each once', async () => {
    await opened('pop-twice');
    const popped = await Promise.all(
      [await again('pop-twice'), await again('pop-twice')].map((one) => one.popItem()),
    );
    const texts = popped.map((item) => (item && 'content' in item ? item.content : item));
    expect(texts.sort()).toEqual(['Three.', 'Two.']);
    expect(await replayed('pop-twice')).toEqual(dialog.slice(0, 1));
  });

  test('of several callers at once removes each item of a response once', async () => {
    const items: AgentInputItem[] = [
      { role: 'user', content: 'One.' },
      { type: 'reasoning', id: 'rs_1', content: [{ type: 'input_text', text: 'Hm.' }] },
      ...[1, 2].map((n): AgentInputItem => ({
        type: 'function_call',
        callId: `c${n}`,
        name: 'look',
        arguments: '{}',
      })),
    ];
    const session = await opened('pop-response', items);
    const popped = await Promise.all([session.popItem(), (await again('pop-response')).popItem()]);
    const ids = popped.map((item) => (item?.type === 'function_call' ? item.callId : item));
    expect(ids.sort()).toEqual(['c1', 'c2']);
    expect(await replayed('pop-response')).toEqual(items.slice(0, 2));
    expect(await session.popItem()).toEqual(items[1]);
  });

  test('then an answer again: the session has the new one', async () => {
    const session = await opened('pop-append');
    await session.popItem();
    await session.addItems([{ role: 'user', content: 'Third.' }]);
    const api = lookingTwice();
    const { callModelInputFilter } = session;
    await api.runner.run(agent, 'And?', { session, callModelInputFilter });
    const texts = ((await replayed('pop-append')) as Item[]).filter(({ role }) => role === 'user');
    expect(texts.map(({ content }) => content)).toEqual(['One.', 'Two.', 'Third.', 'And?']);
    expect(JSON.stringify(api.inputs)).not.toContain('Three.');
  });

  test('and addItems at once lose nothing', async () => {
    const added = Array.from({ length: 12 }, (_, n): AgentInputItem => ({
      role: 'user',
      content: `Item ${n}.`,
    }));
    await opened('pop-race');
    const clients = await Promise.all([1, 2, 3].map(() => again('pop-race')));
    const popped: (AgentInputItem | undefined)[] = [];
    await Promise.all([
      ...added.map((item, n) => clients[n % 3]!.addItems([item])),
      ...clients.map(async (one) => {
        for (let n = 0; n < 4; n++) popped.push(await one.popItem());
      }),
    ]);
    const left = (await replayed('pop-race')) as unknown as AgentInputItem[];
    const byText = (items: (AgentInputItem | undefined)[]) =>
      items.map((item) => JSON.stringify(item)).sort();
    expect(byText([...left, ...popped.filter((item) => item !== undefined)])).toEqual(
      byText([...dialog, ...added]),
    );
  });

  test('and then addItems in another process stores no removed item again', async () => {
    const one = await opened('pop-elsewhere');
    await (await again('pop-elsewhere')).popItem();
    await one.addItems([{ role: 'user', content: 'Third.' }]);
    expect(await replayed('pop-elsewhere')).toEqual([
      ...dialog.slice(0, 2),
      { role: 'user', content: 'Third.' },
    ]);
  });

  test('makes a list of the log before it stale', async () => {
    const session = await opened('pop-stale');
    const before = await client.sync({ session: 'pop-stale', messages: [] });
    await session.popItem();
    const messages = [...before.context.messages, { role: 'user', content: 'Third.' }] as AgentInputItem[];
    const stale = { session: 'pop-stale', messages, expectedSession: before.session };
    await expect(client.sync(stale)).rejects.toMatchObject({
      ...{ type: 'Store.ListEdited', path: 'expectedSession' },
    });
    expect(await replayed('pop-stale')).toEqual(dialog.slice(0, 2));
  });

  test('of a session that does not exist returns nothing', async () => {
    expect(await (await again('pop-none')).popItem()).toBeUndefined();
  });
});

describe('a session', () => {
  test.each<[path: string, options: object]>([
    ['client', { session: 's-1' }],
    ['client', { client: {}, session: 's-1' }],
    ['session', { client: 'as it is' }],
    ['session', { client: 'as it is', session: '' }],
    ['recoveryTools', { client: 'as it is', session: 's-1', recoveryTools: 'yes' }],
    ['polcy', { client: 'as it is', session: 's-1', polcy: {} }],
  ])('is refused a wrong %s', (path, given: { client?: unknown }) => {
    const make = () =>
      Reflect.construct(PalimpsestSession, [given.client === 'as it is' ? { ...given, client } : given]);
    const hint = 'Known options: client, session, policy, recoveryTools.';
    expect(make).toThrow(expect.objectContaining({ type: 'Input.Invalid', path, hint }));
  });

  test('refuses a model of the Chat Completions API', async () => {
    const openAIClient = new OpenAI({ apiKey: 'none' });
    const model = new OpenAIChatCompletionsModel(openAIClient, 'gpt-5');
    const session = new PalimpsestSession({ client, session: 'chat', policy });
    const { callModelInputFilter } = session;
    const { runner } = lookingTwice();
    const run = runner.run(agent.clone({ model }), 'Hello?', { session, callModelInputFilter });
    await expect(run).rejects.toMatchObject({ type: 'Input.Invalid', path: 'model' });
  });

  test.each<[path: string, items: unknown]>([
    ['items', 'Hello.'],
    ['items[1]', [{ role: 'user', content: 'Hello.' }, null]],
    ['items[0]', ['Hello.']],
  ])('refuses wrong %s', async (path, items) => {
    const session = new PalimpsestSession({ client, session: 'wrong-items', policy });
    const added = session.addItems(items as AgentInputItem[]);
    await expect(added).rejects.toMatchObject({ type: 'Input.Invalid', path });
    expect(await session.getItems()).toEqual([]);
  });

  test.each<[name: string, item: AgentInputItem]>([
    ['message', { role: 'user', content: '' }],
    ['text', { role: 'user', content: [{ type: 'input_text', text: '' }] }],
    ['answer', { role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: '' }] }],
  ])('that begins with an empty %s goes on', async (name, empty) => {
    const id = `empty-${name}`;
    const added: AgentInputItem[] = [
      empty,
      { role: 'user', content: 'One.' },
      { role: 'user', content: 'Two.' },
    ];
    for (const item of added) await new PalimpsestSession({ client, session: id, policy }).addItems([item]);
    expect(await replayed(id)).toEqual(added.map(comparable));
    const session = new PalimpsestSession({ client: await connect(), session: id, policy });
    const { callModelInputFilter } = session;
    await lookingTwice().runner.run(agent, 'Three.', { session, callModelInputFilter });
    expect((await replayed(id))[3]).toMatchObject({ role: 'user', content: 'Three.' });
  });

  test('has the empty question of its first run', async () => {
    const session = new PalimpsestSession({ client, session: 'empty-run', policy });
    const { callModelInputFilter } = session;
    for (const text of ['', 'Hello.'])
      await lookingTwice().runner.run(agent, text, { session, callModelInputFilter });
    const asked = (await replayed('empty-run')).filter((item) => (item as { role?: string }).role === 'user');
    expect(asked).toMatchObject(['', 'Hello.'].map((content) => ({ role: 'user', content })));
  });

  test('names the fork in which it goes on, and so does its status', async () => {
    const session = new PalimpsestSession({ client, session: 'moved', policy });
    expect(await session.sessionInUse()).toBe('moved');
    await session.addItems([{ role: 'user', content: 'One.' }]);
    expect((await client.status({ session: 'moved' })).continuedIn).toBeNull();
    await session.popItem();
    const inUse = await session.sessionInUse();
    expect(inUse).not.toBe('moved');
    expect((await client.status({ session: 'moved' })).continuedIn).toBe(inUse);
    expect((await client.status({ session: inUse })).messages).toBe(0);
  });

  test('is empty after clearSession, and its log stays', async () => {
    const session = new PalimpsestSession({ client, session: 'cleared', policy });
    await session.clearSession();
    await session.addItems([{ role: 'user', content: 'One.' }]);
    await session.clearSession();
    expect(await session.getItems()).toEqual([]);
    await session.addItems([{ role: 'user', content: 'Two.' }]);
    expect(await replayed('cleared')).toEqual([{ role: 'user', content: 'Two.' }]);
    expect((await client.status({ session: 'cleared' })).messages).toBe(1);
  });

  test('answers its newest items and its id', async () => {
    const session = new PalimpsestSession({ client, session: 'limited', policy });
    expect(await session.getItems()).toEqual([]);
    const items = ['One.', 'Two.'].map((content): AgentInputItem => ({ role: 'user', content }));
    await session.addItems(items);
    await session.addItems(items.slice(1));
    expect(await session.getItems(2)).toMatchObject([{ providerData: items[1] }, { providerData: items[1] }]);
    expect(await session.getItems(0)).toEqual([]);
    expect(await session.getSessionId()).toBe('limited');
  });

  test.each(['run', 'stream'])(
    'has each item of a %s once, if the filter is that of another object',
    async (kind) => {
      const memory = new MemorySession();
      await play(3, async () => ({ session: memory }));
      const options = { client: await connect(), session: `two objects in a ${kind}`, policy };
      const api = lookingTwice();
      for (let turn = 1; turn <= 3; turn++) {
        const session = new PalimpsestSession(options);
        const { callModelInputFilter } = new PalimpsestSession(options);
        const given = { session, callModelInputFilter };
        if (kind === 'run') await api.runner.run(agent, question(turn), given);
        else await (await api.runner.run(agent, question(turn), { ...given, stream: true })).completed;
      }
      expect(await replayed(options.session)).toEqual((await memory.getItems()).map(comparable));
      expect(api.largest).toBeLessThanOrEqual(policy.contextWindow);
    },
  );

  test.each(['run', 'stream'])('takes the question of a %s again after it', async (kind) => {
    const session = new PalimpsestSession({ client, session: `asked twice in a ${kind}`, policy });
    const given = { session, callModelInputFilter: session.callModelInputFilter };
    const asked: AgentInputItem = { type: 'message', role: 'user', content: 'Go on.' };
    const { runner } = new ScriptedApi(() => [said('msg_1', 'Done.')]);
    for (let turn = 1; turn <= 2; turn++) {
      if (kind === 'run') await runner.run(agent, [asked], given);
      else await (await runner.run(agent, [asked], { ...given, stream: true })).completed;
      await session.addItems([asked]);
    }
    const roles = (await replayed(`asked twice in a ${kind}`)).map((item) => (item as Item).role);
    expect(roles).toEqual(['user', 'assistant', 'user', 'user', 'assistant', 'user']);
  });

  test('whose history a callback cuts stores nothing twice', async () => {
    const session = new PalimpsestSession({ client, session: 'cut', policy });
    const { callModelInputFilter } = session;
    const api = lookingTwice();
    const memory = new MemorySession();
    await play(3, async () => ({ session: memory }));
    for (let turn = 1; turn <= 3; turn++)
      await api.runner.run(agent, question(turn), {
        ...{ session, callModelInputFilter },
        sessionInputCallback: (history, input) => [...history.slice(-1), ...input],
      });
    expect(await replayed('cut')).toEqual((await memory.getItems()).map(comparable));
  });

  test('stores binary data of tools as URLs, as the SDK does', async () => {
    const picture = tool({
      ...{ name: 'look', description: 'Takes a picture.', parameters: z.object({ order: z.number() }) },
      execute: async () => ({
        type: 'image' as const,
        image: { data: new Uint8Array([1, 2, 3]), mediaType: 'image/png' },
      }),
    });
    const photographer = new Agent({ name: 'photographer', tools: [picture] });
    const memory = new MemorySession();
    const session = new PalimpsestSession({ client, session: 'binary', policy });
    const { callModelInputFilter } = session;
    await lookingTwice().runner.run(photographer, 'Look.', { session: memory });
    await lookingTwice().runner.run(photographer, 'Look.', { session, callModelInputFilter });
    expect(await replayed('binary')).toEqual((await memory.getItems()).map(comparable));
  });

  test('has tools for its agent that read what was evicted', async () => {
    const session = new PalimpsestSession({ client, session: 'tools', policy, recoveryTools: true });
    await session.addItems([{ role: 'user', content: 'The code is INV-4711.' }]);
    const { knobs } = await client.status({ session: 'tools' });
    expect(Number(knobs.find(({ path }) => path === 'overhead')?.value)).toBeGreaterThan(500);
    await session.popItem();
    await session.addItems([{ role: 'user', content: 'The code is INV-4712.' }]);
    const api = new ScriptedApi((input) =>
      input.at(-1)?.type === 'function_call_output'
        ? [said('msg_1', 'Found.')]
        : [{ ...called('s1', 1), name: 'search_history', arguments: '{"query":"INV-4712"}' }],
    );
    const searcher = new Agent({ name: 'searcher', tools: session.recoveryTools });
    await api.runner.run(searcher, 'Which code?', {
      session,
      callModelInputFilter: session.callModelInputFilter,
    });
    expect(String(api.inputs.at(-1)?.at(-1)?.output)).toContain('INV-4712');
  });
});
