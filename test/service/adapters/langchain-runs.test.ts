/** Runs of LangChain that take another way than question, calls and answer: every message is stored once all the same. */
import {
  AIMessage,
  type BaseMessage,
  HumanMessage,
  RemoveMessage,
  ToolMessage,
} from '@langchain/core/messages';
import type { ChatResult } from '@langchain/core/outputs';
import {
  Command,
  END,
  interrupt,
  MemorySaver,
  MessagesAnnotation,
  START,
  StateGraph,
} from '@langchain/langgraph';
import { type AgentMiddleware, createAgent, createMiddleware, tool } from 'langchain';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type MiddlewareOptions, palimpsestMiddleware } from '../../../src/adapters/langchain.js';
import type { Json } from '../../../src/conversation/message.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { ScriptedChat, stored, tools } from '../../support/langchain-agent.js';
import { type RestartedClients, startRestartedClients } from '../../support/restarted-clients.js';
import { recordOf, requestOf, ShipmentModel } from '../../support/shipment-agent.js';

const policy = { contextWindow: 6_000, reservedOutputTokens: 300 };

let clients: RestartedClients;
let palimpsest: Palimpsest;

beforeAll(async () => {
  clients = await startRestartedClients();
  ({ palimpsest } = clients.stack);
});

afterAll(() => clients.stop());

const newScript = (): ShipmentModel => new ShipmentModel(6_000, 300);
const thread = (thread_id: string) => ({ configurable: { thread_id } });
const says = (content: string) => ({ messages: [new HumanMessage(content)] });

interface Built extends Partial<MiddlewareOptions> {
  model?: ScriptedChat;
  checkpointer?: MemorySaver;
  shipmentTool?: (typeof tools)[number];
  others?: AgentMiddleware[];
}

/** A new adapter in a new agent, as after a restart of the process. */
function build({
  model = new ScriptedChat(newScript()),
  checkpointer = new MemorySaver(),
  shipmentTool = tools[0]!,
  others = [],
  ...options
}: Built = {}) {
  const middleware = [...others, palimpsestMiddleware({ client: palimpsest, policy, ...options })];
  return createAgent({ model, tools: [shipmentTool, tools[1]!], checkpointer, middleware });
}

interface CallConfig {
  toolCall?: { id?: string };
}

/** A tool in place of the one that reads shipments. */
const shipments = (read: (input: { shipment: number }, config: CallConfig) => unknown) =>
  tool(read, {
    name: 'get_shipment',
    description: 'Reads a shipment.',
    schema: tools[0]!.schema,
  }) as (typeof tools)[number];

type Said = { type: string; data: { content: Json; tool_calls?: { name: string }[]; status?: string } };

const itemsOf = async (session: string): Promise<Said[]> =>
  (await clients.replayed(session)) as unknown as Said[];
const typesOf = async (session: string): Promise<string[]> =>
  (await itemsOf(session)).map(({ type }) => type);
const sessionsOf = async (prefix: string): Promise<string[]> =>
  (await palimpsest.sessions({ prefix })).sessions.map(({ session }) => session);

const checked = ['human', 'ai', 'tool', 'tool', 'ai'];

describe('a tool', () => {
  test('that fails has a result like any other', async () => {
    const failing = shipments(() => {
      throw new Error('The depot does not answer.');
    });
    const checkpointer = new MemorySaver();
    await build({ shipmentTool: failing, checkpointer }).invoke(says('Check shipment 1.'), thread('failed'));
    await build({ checkpointer }).invoke(says('Check shipment 2.'), thread('failed'));
    expect(await typesOf('failed')).toEqual([...checked, ...checked]);
    expect((await itemsOf('failed'))[2]?.data).toMatchObject({ status: 'error' });
    expect(await sessionsOf('failed')).toEqual(['failed']);
  });

  test.each([
    ['updates the state', {}],
    ['ends the run', { goto: END }],
  ])('that %s with a command has its result stored once', async (name, more) => {
    const session = `command ${name}`;
    const commanding = shipments(({ shipment }, { toolCall }) => {
      const content = recordOf('get_shipment', shipment);
      const messages = [new ToolMessage({ content, tool_call_id: toolCall?.id ?? '' })];
      return new Command({ update: { messages }, ...more });
    });
    const agent = build({ shipmentTool: commanding });
    for (const shipment of [1, 2]) await agent.invoke(says(`Check shipment ${shipment}.`), thread(session));
    const { values } = (await agent.graph.getState(thread(session))) as {
      values: { messages: BaseMessage[] };
    };
    expect(await clients.replayed(session)).toEqual(stored(values.messages));
    expect(await sessionsOf(session)).toEqual([session]);
  });

  test('that interrupts is resumed by another process', async () => {
    const asking = shipments(({ shipment }) => `shipment ${shipment}: ${String(interrupt('Really?'))}`);
    const checkpointer = new MemorySaver();
    await build({ shipmentTool: asking, checkpointer }).invoke(says('Check shipment 1.'), thread('asked'));
    const client = await clients.connect();
    const again = build({ shipmentTool: asking, checkpointer, client });
    await again.invoke(new Command({ resume: 'yes' }), thread('asked'));
    expect(await typesOf('asked')).toEqual(checked);
    expect((await itemsOf('asked'))[2]?.data.content).toBe('shipment 1: yes');
  });
});

test('a run whose events are streamed stores what the state has', async () => {
  const agent = build();
  const names = new Set<string>();
  for (const shipment of [1, 2])
    for await (const { event } of agent.streamEvents(says(`Check shipment ${shipment}.`), {
      ...thread('events'),
      version: 'v2',
    }))
      names.add(event);
  expect(names).toContain('on_chat_model_stream');
  const { values } = (await agent.graph.getState(thread('events'))) as {
    values: { messages: BaseMessage[] };
  };
  expect(await clients.replayed('events')).toEqual(stored(values.messages));
});

describe('other middleware that removes messages', () => {
  /** Keeps the newest four messages, and perhaps the first one. */
  const trimming = (keepsFirst: boolean) =>
    createMiddleware({
      name: 'Trimming',
      beforeModel({ messages }) {
        if (messages.length < 10) return undefined;
        const kept = [...(keepsFirst ? messages.slice(0, 1) : []), ...messages.slice(-4)];
        return { messages: [new RemoveMessage({ id: '__remove_all__' }), ...kept] };
      },
    });

  test.each<[string, boolean, MiddlewareOptions['onEdit']]>([
    ['the oldest ones', false, 'fork'],
    ['those in the middle, with append', true, 'append'],
  ])('(%s) removes them from the state only', async (name, keepsFirst, onEdit) => {
    const session = `trimmed ${name}`;
    const agent = build({ others: [trimming(keepsFirst)], onEdit });
    for (let shipment = 1; shipment <= 6; shipment++)
      await agent.invoke(says(`Check shipment ${shipment}.`), thread(session));
    expect(await typesOf(session)).toEqual(Array.from({ length: 6 }, () => checked).flat());
    expect(await sessionsOf(session)).toEqual([session]);
  });

  test('the newest ones, makes a fork without them', async () => {
    const session = 'removed';
    const agent = build();
    for (const shipment of [1, 2]) await agent.invoke(says(`Check shipment ${shipment}.`), thread(session));
    const { values } = (await agent.graph.getState(thread(session))) as {
      values: { messages: BaseMessage[] };
    };
    const removed = values.messages.slice(-5).map(({ id }) => new RemoveMessage({ id: id! }));
    await agent.graph.updateState(thread(session), { messages: removed });
    await agent.invoke(says('Check shipment 3.'), thread(session));
    const asked = async (id: string) =>
      (await itemsOf(id)).flatMap(({ type, data }) => (type === 'human' ? [data.content] : []));
    expect(await asked(session)).toEqual(['Check shipment 1.', 'Check shipment 2.']);
    expect(await asked(`${session}~1`)).toEqual(['Check shipment 1.', 'Check shipment 3.']);
  });
});

describe('an agent within a graph', () => {
  test('as a node shares the messages of the graph, and fits its window', async () => {
    const session = 'node';
    const script = newScript();
    const checkpointer = new MemorySaver();
    const graphWith = (client: MiddlewareOptions['client']) => {
      const middleware = [palimpsestMiddleware({ client, policy })];
      const agent = createAgent({ model: new ScriptedChat(script), tools, middleware });
      return new StateGraph(MessagesAnnotation)
        .addNode('agent', agent.graph)
        .addEdge(START, 'agent')
        .addEdge('agent', END)
        .compile({ checkpointer });
    };
    let graph = graphWith(palimpsest);
    let messages: BaseMessage[] = [];
    for (let turn = 1; turn <= 30; turn++) {
      if (turn % 10 === 5) graph = graphWith(await clients.connect());
      if (turn % 5 === 0) await palimpsest.settled({ session });
      const { text, expects } = requestOf(turn);
      ({ messages } = await graph.invoke(says(text), thread(session)));
      expect(messages.at(-1)?.text).toContain(expects);
    }
    expect(await clients.replayed(session)).toEqual(stored(messages));
    expect((await palimpsest.status({ session })).generation).toBeGreaterThan(0);
    expect(script.refused).toBe(0);
    expect(await sessionsOf(session)).toEqual([session]);
  });

  test('in a tool has a session for each call of the tool', async () => {
    const session = 'tool';
    const inner = createAgent({
      model: new ScriptedChat(newScript()),
      tools,
      middleware: [palimpsestMiddleware({ client: palimpsest, policy })],
    });
    const delegating = shipments(async ({ shipment }) => {
      const { messages } = await inner.invoke(says(`Check shipment ${shipment + 100}.`));
      return messages.at(-1)?.text ?? '';
    });
    const agent = build({ shipmentTool: delegating });
    for (const shipment of [1, 2]) await agent.invoke(says(`Check shipment ${shipment}.`), thread(session));
    expect(await typesOf(session)).toEqual([...checked, ...checked]);
    const [own, ...calls] = await sessionsOf(session);
    expect(own).toBe(session);
    expect(calls).toHaveLength(2);
    for (const call of calls) {
      expect(call).toMatch(/^tool:[0-9a-f-]{36}$/);
      expect(await typesOf(call)).toEqual(checked);
    }
  });
});

/** A model whose messages are made of content blocks, as with `outputVersion: 'v1'`. */
class BlockChat extends ScriptedChat {
  override async _generate(...given: Parameters<ScriptedChat['_generate']>): Promise<ChatResult> {
    const { generations } = await super._generate(...given);
    const { text, message } = generations[0]!;
    const { tool_calls: calls = [], usage_metadata, response_metadata } = message as AIMessage;
    const answer = new AIMessage({
      contentBlocks: [
        { type: 'reasoning', reasoning: 'Let me see.' },
        ...(text === '' ? [] : [{ type: 'text' as const, text }]),
        ...calls.map(({ id, name, args }) => ({ type: 'tool_call' as const, id, name, args })),
      ],
      usage_metadata,
      response_metadata: { ...response_metadata, output_version: 'v1' },
    });
    return { generations: [{ text, message: answer }] };
  }
}

test('messages of content blocks keep their content', async () => {
  const session = 'blocks';
  const script = newScript();
  const checkpointer = new MemorySaver();
  let agent = build({ model: new BlockChat(script), checkpointer });
  for (let turn = 1; turn <= 24; turn++) {
    if (turn % 10 === 5)
      agent = build({ model: new BlockChat(script), checkpointer, client: await clients.connect() });
    const { text, expects } = requestOf(turn);
    const question = new HumanMessage({ contentBlocks: [{ type: 'text', text }] });
    const { messages } = await agent.invoke({ messages: [question] }, thread(session));
    expect(messages.at(-1)?.text).toContain(expects);
  }
  await palimpsest.settled({ session });
  const items = await itemsOf(session);
  expect(items.slice(0, 5).map(({ type }) => type)).toEqual(checked);
  expect(items[0]?.data.content).toEqual([{ type: 'text', text: 'Check shipment 1.' }]);
  expect(items[4]?.data.content).toEqual([
    { type: 'reasoning', reasoning: 'Let me see.' },
    { type: 'text', text: expect.stringContaining('Shipment 1 is complete') },
  ]);
  expect(items.filter(({ type }) => type === 'human')).toHaveLength(24);
  expect((await palimpsest.status({ session })).generation).toBeGreaterThan(0);
  expect(script.refused).toBe(0);
  expect(await sessionsOf(session)).toEqual([session]);
});
