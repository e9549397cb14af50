/** The middleware for LangChain with a checkpointer that has lost its threads, and with runs at once. */
import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, type BaseMessage, HumanMessage, RemoveMessage } from '@langchain/core/messages';
import type { ChatResult } from '@langchain/core/outputs';
import { MemorySaver } from '@langchain/langgraph';
import { createAgent } from 'langchain';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type MiddlewareOptions, palimpsestMiddleware } from '../../../src/adapters/langchain.js';
import type { PalimpsestClient } from '../../../src/contract/client.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { failure } from '../../conformance/case.js';
import { type RestartedClients, startRestartedClients } from '../../support/restarted-clients.js';

let clients: RestartedClients;
let palimpsest: Palimpsest;

beforeAll(async () => {
  clients = await startRestartedClients();
  ({ palimpsest } = clients.stack);
});

afterAll(() => clients.stop());

/** Answers with the number of messages that it was asked with. */
class Counting extends BaseChatModel {
  constructor(private readonly asked: () => Promise<void> = () => Promise.resolve()) {
    super({});
  }

  _llmType(): string {
    return 'counting';
  }

  override bindTools() {
    return this.withConfig({});
  }

  async _generate(messages: BaseMessage[]): Promise<ChatResult> {
    await this.asked();
    const text = `Asked with ${messages.length}.`;
    return { generations: [{ text, message: new AIMessage(text) }] };
  }
}

interface Built extends Partial<MiddlewareOptions> {
  model?: Counting;
  checkpointer?: MemorySaver | undefined;
}

/** A new agent, as after a restart of the process. */
function build({ model = new Counting(), checkpointer, ...options }: Built = {}) {
  const middleware = [palimpsestMiddleware({ client: palimpsest, ...options })];
  return createAgent({ model, tools: [], middleware, checkpointer });
}

const thread = (thread_id: string) => ({ configurable: { thread_id } });
const says = (content: string) => ({ messages: [new HumanMessage(content)] });

/** The texts of a session. */
async function told(session: string): Promise<string[]> {
  const items = (await clients.replayed(session)) as unknown as { data: { content: string } }[];
  return items.map(({ data }) => data.content);
}

const sessionsOf = async (prefix: string): Promise<string[]> =>
  (await palimpsest.sessions({ prefix })).sessions.map(({ session }) => session);

describe('a checkpointer that has lost the thread', () => {
  test.each(['Hello again.', 'Hello.'])('the session goes on with the new message: %s', async (content) => {
    const session = `lost-${content.length}`;
    const begin = build({ checkpointer: new MemorySaver() });
    await begin.invoke(says('Hello.'), thread(session));
    await begin.invoke(says('Again.'), thread(session));
    for (const [client, known] of [
      [palimpsest, 4],
      [await clients.connect(), 6],
      [await clients.connect(), 8],
    ] satisfies [PalimpsestClient, number][]) {
      const agent = build({ client, checkpointer: new MemorySaver() });
      const { messages } = await agent.invoke(says(content), thread(session));
      expect(messages).toHaveLength(known + 2);
      expect(messages.at(-1)!.text).toBe(`Asked with ${known + 1}.`);
    }
    expect(await told(session)).toEqual([
      ...['Hello.', 'Asked with 1.', 'Again.', 'Asked with 3.'],
      ...[5, 7, 9].flatMap((count) => [content, `Asked with ${count}.`]),
    ]);
    expect(await sessionsOf(session)).toEqual([session]);
  });

  test('a message that is sent again under its id is stored once', async () => {
    const session = 'lost-again';
    const message = new HumanMessage({ id: 'm-2', content: 'Again.' });
    const begin = build({ checkpointer: new MemorySaver() });
    await begin.invoke(says('Hello.'), thread(session));
    const broken = build({
      checkpointer: new MemorySaver(),
      model: new Counting(() => Promise.reject(new Error('away'))),
    });
    await expect(broken.invoke({ messages: [message] }, thread(session))).rejects.toThrow('away');
    await build({ checkpointer: new MemorySaver() }).invoke({ messages: [message] }, thread(session));
    expect(await told(session)).toEqual(['Hello.', 'Asked with 1.', 'Again.', 'Asked with 3.']);
  });

  describe('and sends a message that is evicted', () => {
    /** A thread whose context lacks the question `q-2`. Returns its log. */
    async function evicted(session: string): Promise<string[]> {
      const agent = build({ checkpointer: new MemorySaver(), policy: { contextWindow: 6_000 } });
      for (let number = 1; number <= 12; number++) {
        const content = `Question ${number}. ${'many words '.repeat(300)}`;
        await agent.invoke({ messages: [new HumanMessage({ id: `q-${number}`, content })] }, thread(session));
      }
      await palimpsest.settled({ session });
      const { messages } = await palimpsest.context({ session });
      expect(JSON.stringify(messages)).not.toContain('"q-2"');
      return told(session);
    }
    const again = (content: string) => ({ messages: [new HumanMessage({ id: 'q-2', content })] });

    test('edited, it takes the place of the earlier one in a fork', async () => {
      const session = 'evicted-edited';
      const log = await evicted(session);
      for (const next of ['Edited.', 'Edited once more.']) {
        await build({ checkpointer: new MemorySaver() }).invoke(again(next), thread(session));
        const { session: inUse } = await palimpsest.sync({ session, messages: [] });
        expect(await told(inUse)).toEqual([...log.slice(0, 2), next, 'Asked with 3.']);
      }
      expect(await told(session)).toEqual(log);
    });

    test('edited, it is stored at the end with append', async () => {
      const session = 'evicted-append';
      const log = await evicted(session);
      const agent = build({ checkpointer: new MemorySaver(), onEdit: 'append' });
      await agent.invoke(again('Edited.'), thread(session));
      expect((await told(session)).slice(0, -1)).toEqual([...log, 'Edited.']);
      expect(await sessionsOf(session)).toEqual([session]);
    });

    test('as it was, it is not stored again', async () => {
      const session = 'evicted-again';
      const log = await evicted(session);
      const repeated = again(log[2]!);
      repeated.messages.push(new HumanMessage('Again.'));
      await build({ checkpointer: new MemorySaver() }).invoke(repeated, thread(session));
      expect((await told(session)).slice(0, -1)).toEqual([...log, 'Again.']);
      expect(await sessionsOf(session)).toEqual([session]);
    });
  });

  test('is refused if the option says so', async () => {
    const session = 'lost-refused';
    await build({ checkpointer: new MemorySaver() }).invoke(says('Hello.'), thread(session));
    const agent = build({ checkpointer: new MemorySaver(), onEdit: 'refuse' });
    expect(await failure(agent.invoke(says('Again.'), thread(session)))).toMatchObject({
      type: 'Store.ListEdited',
    });
  });
});

describe('a message that is edited under its id', () => {
  const edited = { messages: [new HumanMessage({ id: 'e-1', content: 'Edited.' })] };

  /** Two turns; the id of the first question is `e-1`. */
  async function begun(session: string, options: Built = {}) {
    const agent = build({ checkpointer: new MemorySaver(), ...options });
    const first = { messages: [new HumanMessage({ id: 'e-1', content: 'Hello.' })] };
    await agent.invoke(first, thread(session));
    const { messages } = await agent.invoke(says('Again.'), thread(session));
    return { agent, messages };
  }
  const log = ['Hello.', 'Asked with 1.', 'Again.', 'Asked with 3.'];

  test('in its place, as the first one, goes on in a fork', async () => {
    const session = 'edited-in-place';
    const { agent } = await begun(session);
    const { messages } = await agent.invoke(edited, thread(session));
    const expected = ['Edited.', ...log.slice(1), 'Asked with 4.'];
    expect(messages.map(({ text }) => text)).toEqual(expected);
    expect(await told(`${session}~1`)).toEqual(expected);
    expect(await told(session)).toEqual(log);
  });

  test('without what followed, goes on in a fork', async () => {
    const session = 'edited-alone';
    const { agent, messages } = await begun(session);
    const removed = messages.slice(1).map(({ id }) => new RemoveMessage({ id: id! }));
    await agent.invoke({ messages: [...removed, ...edited.messages] }, thread(session));
    expect(await told(`${session}~1`)).toEqual(['Edited.', 'Asked with 1.']);
    expect(await told(session)).toEqual(log);
  });

  test('is stored with append, and refused with refuse', async () => {
    const { agent } = await begun('edited-append', { onEdit: 'append' });
    await agent.invoke(edited, thread('edited-append'));
    expect(await told('edited-append')).toEqual([...log, 'Edited.', 'Asked with 5.']);
    const { agent: strict } = await begun('edited-refuse', { onEdit: 'refuse' });
    expect(await failure(strict.invoke(edited, thread('edited-refuse')))).toMatchObject({
      type: 'Store.ListEdited',
    });
  });

  test('goes on in a fork if the checkpointer has lost the thread', async () => {
    const session = 'edited-lost';
    await begun(session);
    await build({ checkpointer: new MemorySaver() }).invoke(edited, thread(session));
    expect(await told(`${session}~1`)).toEqual(['Edited.', 'Asked with 1.']);
    expect(await told(session)).toEqual(log);
  });

  test('is refused by an agent whose memory is the session', async () => {
    const session = 'edited-memory';
    await begun(session, { checkpointer: undefined, session, memory: true });
    const again = build({ session, memory: true });
    expect(await failure(again.invoke(edited))).toMatchObject({
      type: 'Input.Invalid',
      path: 'messages[0].id',
    });
    expect(await told(session)).toEqual(log);
  });
});

test('a run that is repeated with the same ids stores its question once, and another answer', async () => {
  const session = 'repeated';
  const question = { messages: [new HumanMessage({ id: 'q1', content: 'Hello.' })] };
  for (let run = 1; run <= 2; run++) await build({ session, memory: true }).invoke(question);
  expect(await told(session)).toEqual(['Hello.', 'Asked with 1.', 'Asked with 2.']);
});

test('an agent with a checkpointer cannot have the session as its memory too', async () => {
  const session = 'two-memories';
  const agent = build({ checkpointer: new MemorySaver(), memory: true });
  await agent.invoke(says('Hello.'), thread(session));
  expect(await failure(agent.invoke(says('Again.'), thread(session)))).toMatchObject({
    type: 'Input.Invalid',
    path: 'memory',
  });
  expect(await told(session)).toEqual(['Hello.', 'Asked with 1.']);
  const named = build({ checkpointer: new MemorySaver(), memory: true, session });
  for (const run of ['run-1', 'run-2']) await named.invoke(says(run), thread(run));
  expect(await told(session)).toEqual([
    ...['Hello.', 'Asked with 1.'],
    ...['run-1', 'Asked with 3.', 'run-2', 'Asked with 5.'],
  ]);
});

test('replicas with checkpointers of their own share a session with append, and make forks without', async () => {
  const questions = ['One.', 'Two.', 'Three.', 'Four.', 'Five.', 'Six.'];
  const asked = async (session: string, options: Built = {}) => {
    const replicas = [0, 1].map(() => build({ checkpointer: new MemorySaver(), ...options }));
    for (const [index, question] of questions.entries())
      await replicas[index % 2]!.invoke(says(question), thread(session));
    const { session: inUse } = await palimpsest.sync({ session, messages: [] });
    return told(inUse);
  };
  const all = questions.flatMap((question, index) => [question, `Asked with ${2 * index + 1}.`]);
  expect(await asked('replicas-append', { onEdit: 'append' })).toEqual(all);
  expect(await sessionsOf('replicas-append')).toEqual(['replicas-append']);
  expect((await asked('replicas-fork')).length).toBeLessThan(all.length);
  expect((await sessionsOf('replicas-fork')).length).toBeGreaterThan(1);
});

test.each([
  ['in turn', false],
  ['at once', true],
])(
  'replicas with checkpointers of their own, %s, each have one branch, also with summaries',
  async (when, isAtOnce) => {
    const session = `branches ${when}`;
    const names = ['A', 'B'];
    const inUse = new Map<string, string>();
    const replicas = names.map((name) => ({
      name,
      agent: build({
        checkpointer: new MemorySaver(),
        policy: { contextWindow: 6_000 },
        onSync: (synced) => inUse.set(name, synced.session),
      }),
    }));
    const asked = (name: string, turn: number) => `${name} asks ${turn}. ${`word-${turn} `.repeat(150)}`;
    for (let turn = 1; turn <= 25; turn++) {
      const ask = async ({ name, agent }: (typeof replicas)[number]) => {
        await agent.invoke(says(asked(name, turn)), thread(session));
        await palimpsest.settled({ session: inUse.get(name)! });
      };
      if (isAtOnce) await Promise.all(replicas.map(ask));
      else for (const replica of replicas) await ask(replica);
    }
    expect(await sessionsOf(session)).toEqual([...inUse.values()].sort());
    for (const name of names) {
      const log = await told(inUse.get(name)!);
      const questions = log.filter((text) => !text.startsWith('Asked with'));
      // A replica that begins takes up what the thread has then.
      const own = questions.slice(questions.indexOf(asked(name, 1)));
      expect(own).toEqual(Array.from({ length: 25 }, (_, index) => asked(name, index + 1)));
      expect(questions.length - own.length).toBeLessThanOrEqual(1);
      expect((await palimpsest.compactions({ session: inUse.get(name)! })).length).toBeGreaterThan(0);
    }
  },
);

test.each([
  ['the session', () => undefined],
  ['a checkpointer', (kept: MemorySaver) => kept],
  ['a checkpointer that loses the thread', () => new MemorySaver()],
])(
  'a question follows one that was larger than the window, with %s as the memory',
  async (name, checkpointerOf) => {
    const session = `large: ${name}`;
    const kept = new MemorySaver();
    const ask = (content: string) => {
      const checkpointer = checkpointerOf(kept);
      const memory = checkpointer === undefined;
      return build({ session, memory, checkpointer, policy: { contextWindow: 8_000 } }).invoke(
        says(content),
        thread(session),
      );
    };
    const large = 'many words '.repeat(10_000);
    await ask('Hello.');
    expect(await failure(ask(large))).toMatchObject({ type: 'Budget.Unreachable' });
    await ask('Again.');
    const log = await told(session);
    expect(log).toHaveLength(5);
    expect([log[0], ...log.slice(2, 4)]).toEqual(['Hello.', large, 'Again.']);
  },
);

test('a first run without messages is refused', async () => {
  const agent = build({ checkpointer: new MemorySaver() });
  expect(await failure(agent.invoke({ messages: [] }, thread('empty')))).toMatchObject({
    type: 'Input.Invalid',
    path: 'messages',
  });
});

test('a return to the checkpoint before the first message goes on in a fork, whose id the callback gets', async () => {
  const session = 'first-edited';
  const used: string[] = [];
  const agent = build({ checkpointer: new MemorySaver(), onSync: (synced) => used.push(synced.session) });
  await agent.invoke(says('Hello.'), thread(session));
  const earlier: { config: object }[] = [];
  for await (const snapshot of agent.graph.getStateHistory(thread(session))) earlier.push(snapshot);
  expect(new Set(used)).toEqual(new Set([session]));
  await agent.invoke(says('Edited.'), earlier.at(-1)!.config);
  expect(used.at(-1)).toBe(`${session}~1`);
  expect(await told(`${session}~1`)).toEqual(['Edited.', 'Asked with 1.']);
  expect(await told(session)).toEqual(['Hello.', 'Asked with 1.']);
});

test('runs at once with the session as their memory store their messages in one session', async () => {
  const session = 'at-once';
  const texts = ['One.', 'Two.', 'Three.'];
  await build({ session, memory: true }).invoke(says('Begin.'));
  let waiting = 0;
  let goOn = () => {};
  const all = new Promise<void>((resolve) => (goOn = resolve));
  const model = new Counting(() => {
    if (++waiting === texts.length) goOn();
    return all;
  });
  await Promise.all(texts.map((text) => build({ session, memory: true, model }).invoke(says(text))));
  expect(await sessionsOf(session)).toEqual([session]);
  const log = await told(session);
  expect(log).toHaveLength(8);
  expect(log.filter((text) => texts.includes(text)).sort()).toEqual([...texts].sort());
});

test.each([
  ['the session', {}],
  ['checkpointers of their own', { memory: false, onEdit: 'append' as const }],
])('runs at once with one text store it once for each run, with %s as the memory', async (name, options) => {
  const session = `one-text: ${name}`;
  const runs = 4;
  let waiting = 0;
  let goOn = () => {};
  const all = new Promise<void>((resolve) => (goOn = resolve));
  const model = new Counting(() => {
    if (++waiting === runs) goOn();
    return all;
  });
  const ask = () => {
    const checkpointer = 'memory' in options ? new MemorySaver() : undefined;
    const agent = build({ session, memory: true, model, ...options, checkpointer });
    return agent.invoke(says('Hello.'), thread(session));
  };
  await Promise.all(Array.from({ length: runs }, ask));
  const log = await told(session);
  expect(log).toHaveLength(2 * runs);
  expect(log.filter((text) => text === 'Hello.')).toHaveLength(runs);
  expect(await sessionsOf(session)).toEqual([session]);
});

test('a run whose text another run at once has said stores nothing twice that is between', async () => {
  const session = 'one-text-between';
  const order = ['no', 'yes-1', 'yes-2'];
  let begun = 0;
  let next = 0;
  const client: PalimpsestClient = Object.create(palimpsest, {
    sync: {
      value: async (request: { messages: { data: { id?: string } }[] }) => {
        const place = order.indexOf(request.messages.at(-1)?.data.id ?? '');
        if (place >= next) await expect.poll(() => [begun, next]).toEqual([order.length, place]);
        const synced: unknown = await palimpsest.sync(request as never);
        if (request.messages.length === 0) begun++;
        if (place === next) next++;
        return synced;
      },
    },
  }) as PalimpsestClient;
  await build({ session, memory: true }).invoke(says('Begin.'));
  const model = new Counting(async () => {
    await expect.poll(() => next).toBe(order.length);
  });
  const asks = (id: string, content: string) =>
    build({ client, session, memory: true, model }).invoke({ messages: [new HumanMessage({ id, content })] });
  await Promise.all([asks('yes-1', 'yes'), asks('no', 'no'), asks('yes-2', 'yes')]);
  const log = await told(session);
  expect(log.filter((text) => text === 'Asked with 1.')).toHaveLength(1);
  expect(log.filter((text) => text === 'yes')).toHaveLength(2);
  expect(log).toHaveLength(8);
});

test('a new session counts the recovery tools that the agent has', async () => {
  const sizeOf = async (session: string, options: Partial<MiddlewareOptions>) => {
    await build({ policy: { contextWindow: 8_000 }, ...options, session }).invoke(says('Hello.'));
    return (await palimpsest.status({ session })).budget;
  };
  const without = await sizeOf('tools-none', { recoveryTools: false });
  expect(without - (await sizeOf('tools-counted', {}))).toBe(829);
  expect(await sizeOf('tools-own', { policy: { contextWindow: 8_000, overhead: 0 } })).toBe(without);
});
