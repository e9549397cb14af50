/** The middleware for LangChain, with the packages `langchain` and `@langchain/langgraph` and a scripted model. */
import { AIMessageChunk, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { Command, MemorySaver } from '@langchain/langgraph';
import { type AgentMiddleware, createAgent, humanInTheLoopMiddleware } from 'langchain';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { palimpsestMiddleware, type MiddlewareOptions } from '../../../src/adapters/langchain.js';
import type { Json } from '../../../src/conversation/message.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { failure } from '../../conformance/case.js';
import { ScriptedChat, seen, stored, tools } from '../../support/langchain-agent.js';
import { type RestartedClients, startRestartedClients } from '../../support/restarted-clients.js';
import { requestOf, ShipmentModel } from '../../support/shipment-agent.js';

const window = 6_000;
const outputTokens = 300;
const policy = { contextWindow: window, reservedOutputTokens: outputTokens };
const systemPrompt = 'You check shipments of a warehouse.';

let clients: RestartedClients;
let palimpsest: Palimpsest;

beforeAll(async () => {
  clients = await startRestartedClients();
  ({ palimpsest } = clients.stack);
});

afterAll(() => clients.stop());

interface Built extends Partial<MiddlewareOptions> {
  script?: ShipmentModel;
  checkpointer?: MemorySaver;
  version?: 'v1' | 'v2';
  /** Middleware before that of Palimpsest. */
  others?: AgentMiddleware[];
}

/** A new adapter in a new agent, as after a restart of the process. */
function build({ script, checkpointer, version = 'v2', others = [], ...options }: Built = {}) {
  const middleware = [...others, palimpsestMiddleware({ client: palimpsest, policy, ...options })];
  const model = new ScriptedChat(script ?? new ShipmentModel(window, outputTokens));
  return createAgent({ model, tools, systemPrompt, middleware, checkpointer, version });
}

const thread = (thread_id: string) => ({ configurable: { thread_id } });
const says = (content: string) => ({ messages: [new HumanMessage(content)] });

/** Type and first line of each item of a session. */
async function told(session: string): Promise<string[]> {
  return (await clients.replayed(session)).map((item) => {
    const { type, data } = item as { type: string; data: { content: Json; tool_calls?: { name: string }[] } };
    const calls = (data.tool_calls ?? []).map(({ name }) => ` ${name}()`).join('');
    return `${type}: ${String(data.content).split('\n', 1)[0]}${calls}`;
  });
}

describe.each(['v1', 'v2'] as const)('an agent (%s) on a small window', (version) => {
  test('runs for 100 turns through restarts, and every message is stored once', async () => {
    const session = `hundred-${version}`;
    const script = new ShipmentModel(window, outputTokens);
    const checkpointer = new MemorySaver();
    const said: BaseMessage[] = [];
    let agent = build({ script, checkpointer, version });
    let longest = 0;
    let replacements = 0;
    for (let turn = 1; turn <= 100; turn++) {
      const { text, expects } = requestOf(turn);
      if (turn % 10 === 5) agent = build({ client: await clients.connect(), script, checkpointer, version });
      const human = new HumanMessage(text);
      said.push(human);
      const updates = await agent.stream(
        { messages: [human] },
        { ...thread(session), streamMode: 'updates' },
      );
      for await (const update of updates)
        for (const [node, made] of Object.entries(update as Record<string, { messages?: BaseMessage[] }>)) {
          const messages = made?.messages ?? [];
          if (node.startsWith('PalimpsestMiddleware')) replacements += Number(messages.length > 0);
          else said.push(...messages);
        }
      expect(seen(said.at(-1)!).text).toContain(expects);
      longest = Math.max(longest, (await stateOf(agent, session)).length);
    }
    await palimpsest.settled({ session });
    const replay = await clients.replayed(session);
    expect(replay).toEqual(stored(said));
    const { generation, calibration } = await palimpsest.status({ session });
    console.log({
      version,
      generation,
      longest,
      replacements,
      messages: replay.length,
      calibration,
      ...script,
    });
    expect(generation).toBeGreaterThan(2);
    expect(script.refused).toBe(0);
    expect(script.largest).toBeLessThanOrEqual(window);
    expect(longest).toBeLessThan(100);
    // Reports that come soon after a compaction do not count.
    expect(calibration.samples).toBeGreaterThan(10);
    expect(calibration.overhead).toBeGreaterThan(500);
  });
});

async function stateOf(agent: ReturnType<typeof build>, session: string): Promise<BaseMessage[]> {
  const { values } = (await agent.graph.getState(thread(session))) as { values: { messages: BaseMessage[] } };
  return values.messages;
}

describe('an interrupt', () => {
  const approval = () =>
    humanInTheLoopMiddleware({
      interruptOn: { get_shipment: { allowedDecisions: ['approve', 'edit', 'reject'] }, get_route: false },
    });
  const shipment = (number: number) => ({ name: 'get_shipment', args: { shipment: number } });
  const answered = (decision: object) => new Command({ resume: { decisions: [decision] } });

  test.each([
    [{ type: 'approve' }, 'tool: shipment 7 left under seal'],
    [{ type: 'edit', editedAction: shipment(8) }, 'tool: shipment 8 left under seal'],
    [{ type: 'reject', message: 'Not now.' }, 'tool: Not now.'],
  ])('is gone on with after a restart: %j', async (decision, result) => {
    const session = `interrupt-${decision.type}`;
    const checkpointer = new MemorySaver();
    const first = build({ checkpointer, others: [approval()] });
    const paused = await first.invoke(says('Check shipment 7.'), thread(session));
    expect(paused).toHaveProperty('__interrupt__');
    const second = build({ client: await clients.connect(), checkpointer, others: [approval()] });
    const { messages } = await second.invoke(answered(decision), thread(session));
    const items = await told(session);
    expect(items.filter((item) => item.startsWith('ai:  get'))).toHaveLength(1);
    expect(items).toContainEqual(expect.stringContaining(result));
    expect(items.at(-1)).toContain('Shipment 7 is complete');
    expect(await clients.replayed(session)).toEqual(stored(messages));
    expect(await palimpsest.sessions({ prefix: session })).toMatchObject({ sessions: [{ session }] });
  });

  test('that is never answered leaves a valid conversation', async () => {
    const session = 'interrupt-left';
    const checkpointer = new MemorySaver();
    const agent = build({ checkpointer, others: [approval()] });
    await agent.invoke(says('Check shipment 7.'), thread(session));
    await build({ checkpointer }).invoke(says('Thank you, that is all.'), thread(session));
    expect(await told(session)).toEqual([
      'human: Check shipment 7.',
      'ai:  get_shipment() get_route()',
      'human: Thank you, that is all.',
      'ai: Noted: Thank you, that is all.',
    ]);
    const state = await stateOf(agent, session);
    expect(state.map(({ type }) => type)).toEqual(['human', 'ai', 'tool', 'tool', 'human', 'ai']);
  });
});

/** A checkpointer as a process leaves it that ended before its last checkpoints were written. */
function copyOf(saver: MemorySaver): MemorySaver {
  const copy = new MemorySaver();
  copy.storage = structuredClone(saver.storage);
  copy.writes = structuredClone(saver.writes);
  return copy;
}

describe('a list that is not the session and more', () => {
  test('comes from lost checkpoints, and goes on in a fork', async () => {
    const session = 'lost-checkpoint';
    const checkpointer = new MemorySaver();
    const script = new ShipmentModel(window, outputTokens);
    const agent = build({ script, checkpointer });
    await agent.invoke(says('Check shipment 1.'), thread(session));
    const before = copyOf(checkpointer);
    await agent.invoke(says('Check shipment 2.'), thread(session));
    const again = build({ client: await clients.connect(), script, checkpointer: before });
    await again.invoke(says('Check shipment 3.'), thread(session));
    const { messages } = await again.invoke(says('Check shipment 4.'), thread(session));
    expect(await clients.replayed(`${session}~1`)).toEqual(stored(messages));
    expect((await told(session)).at(-1)).toContain('Shipment 2 is complete');
  });

  test('comes from an earlier checkpoint, and goes on in a fork, where the tools read', async () => {
    const session = 'time-travel';
    const checkpointer = new MemorySaver();
    const agent = build({ checkpointer });
    await agent.invoke(says('Check shipment 1.'), thread(session));
    const { config } = (await agent.graph.getState(thread(session))) as { config: object };
    await agent.invoke(says('Check shipment 2.'), thread(session));
    await agent.invoke(says('Check shipment 3.'), config);
    const calls: string[] = [];
    const watched = new Proxy(palimpsest, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        if (name !== 'search') return typeof value === 'function' ? value.bind(target) : value;
        return (request: { session: string }) => {
          calls.push(request.session);
          return palimpsest.search(request as Parameters<typeof palimpsest.search>[0]);
        };
      },
    });
    const restarted = build({ client: watched, checkpointer });
    await restarted.invoke(says('Under which seal did shipment 2 leave?'), thread(session));
    expect(calls).toEqual([`${session}~1`]);
    expect((await told(`${session}~1`)).filter((item) => item.startsWith('human'))).toEqual([
      'human: Check shipment 1.',
      'human: Check shipment 3.',
      'human: Under which seal did shipment 2 leave?',
    ]);
  });

  test('is refused if the option says so', async () => {
    const session = 'refused';
    const checkpointer = new MemorySaver();
    const agent = build({ checkpointer, onEdit: 'refuse' });
    await agent.invoke(says('One.'), thread(session));
    const before = copyOf(checkpointer);
    await agent.invoke(says('Two.'), thread(session));
    const edited = build({ checkpointer: before, onEdit: 'refuse' }).invoke(says('Three.'), thread(session));
    expect(await failure(edited)).toMatchObject({ type: 'Store.ListEdited' });
  });
});

test('without a checkpointer, the session is the memory', async () => {
  const session = 'memory';
  const ask = async (text: string, id?: string) => {
    const agent = build({ session, memory: true });
    const { messages } = await agent.invoke({ messages: [new HumanMessage({ content: text, id })] });
    return messages.at(-1)!.text;
  };
  for (let turn = 1; turn <= 12; turn++)
    expect(await ask(`Check shipment ${turn}.`)).toContain(`Shipment ${turn} is complete`);
  await palimpsest.settled({ session });
  expect(await ask('Under which seal did shipment 2 leave?')).toMatch(/^Shipment 2 left under seal SL-/);
  // The first request once more is another message; a request that is sent again under its id is not.
  await ask('Check shipment 1.', 'again');
  await ask('Check shipment 1.', 'again');
  const items = await told(session);
  expect(items.filter((item) => item === 'human: Check shipment 1.')).toHaveLength(2);
  expect(items.filter((item) => item.startsWith('human'))).toHaveLength(14);
  expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(1);
});

test('a thread that is moved fits the window from its first request on', async () => {
  const session = 'moved';
  const checkpointer = new MemorySaver();
  const wide = new ShipmentModel(1_000_000, outputTokens);
  const plain = createAgent({ model: new ScriptedChat(wide), tools, systemPrompt, checkpointer });
  for (let turn = 1; turn <= 20; turn++) await plain.invoke(says(`Check shipment ${turn}.`), thread(session));
  const before = (await plain.graph.getState(thread(session))) as { values: { messages: BaseMessage[] } };
  const script = new ShipmentModel(window, outputTokens);
  const agent = build({ script, checkpointer, policy: { ...policy, overhead: 1_000 } });
  await agent.invoke(says('Check shipment 21.'), thread(session));
  expect(script).toMatchObject({ refused: 0 });
  const earlier = stored(before.values.messages);
  expect(earlier).toHaveLength(100);
  expect((await clients.replayed(session)).slice(0, 100)).toEqual(earlier);
  await palimpsest.settled({ session });
  await agent.invoke(says('Check shipment 22.'), thread(session));
  expect(script).toMatchObject({ refused: 0 });
  expect((await stateOf(agent, session)).length).toBeLessThan(80);
});

test('answers in chunks are stored as the messages that LangChain makes of them', async () => {
  const session = 'streamed';
  const agent = build({ checkpointer: new MemorySaver() });
  const texts: string[] = [];
  for (const turn of [1, 2, 3])
    for await (const [message] of await agent.stream(says(`Check shipment ${turn}.`), {
      ...thread(session),
      streamMode: 'messages',
    }))
      if (AIMessageChunk.isInstance(message)) texts.push(message.text);
  expect(texts.length).toBeGreaterThan(20);
  expect(await clients.replayed(session)).toEqual(stored(await stateOf(agent, session)));
  expect(await told(session)).toHaveLength(15);
});

test('an agent without recovery tools has a context that does not name them', async () => {
  const session = 'no-tools';
  const script = new ShipmentModel(window, outputTokens);
  const asked: unknown[] = [];
  const answer = script.answer.bind(script);
  script.answer = (messages, tools) => {
    asked.push(tools);
    return answer(messages, tools);
  };
  const agent = build({ script, recoveryTools: false, checkpointer: new MemorySaver() });
  await agent.invoke(says('Check shipment 1.'), thread(session));
  expect(JSON.stringify(asked)).not.toContain('search_history');
  const { policy: own } = await palimpsest.policy({ session });
  expect(own).toEqual({ ...policy, recovery: 'none' });
});

test('a run without a thread and without a session is refused', async () => {
  await expect(build().invoke(says('Hello.'))).rejects.toMatchObject({
    ...{ type: 'Input.Invalid', path: 'session' },
    hint: expect.stringContaining('thread_id'),
  });
});
