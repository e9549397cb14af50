/** Runs of the Agents SDK that take another way than question, calls and answer: every item is stored once all the same. */
import {
  Agent,
  type AgentInputItem,
  handoff,
  MemorySession,
  RunState,
  type Session,
  tool,
} from '@openai/agents';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PalimpsestSession } from '../../../src/adapters/openai-agents.js';
import type { PalimpsestClient } from '../../../src/contract/client.js';
import type { Json } from '../../../src/conversation/message.js';
import { called, comparable, type Item, said, ScriptedApi } from '../../support/agents-api.js';
import { type ApiStack, startApiStack } from '../../support/api.js';
import { storedItems } from '../../support/sessions.js';

const policy = { contextWindow: 4_000 };

let server: ApiStack;
let client: PalimpsestClient;

beforeAll(async () => {
  server = await startApiStack();
  client = server.stack.palimpsest;
});

afterAll(() => server.stop());

async function replayed(session: string): Promise<Json[]> {
  const { session: inUse } = await client.sync({ session, messages: [] });
  return (await storedItems(client, inUse)).map(comparable);
}

const lookWith = (execute: () => string) =>
  tool({
    name: 'look',
    description: 'Looks at an order.',
    strict: false,
    parameters: {
      ...{ type: 'object', properties: { order: { type: 'number' } }, required: ['order'] },
      additionalProperties: true,
    },
    execute: async () => execute(),
  });
const look = lookWith(() => `It was shipped. ${'Detail. '.repeat(40)}`);

type Options = { session: Session; callModelInputFilter?: PalimpsestSession['callModelInputFilter'] };

/** Plays with the SDK's own session, then with one of Palimpsest and its filter, and returns the items of both. */
async function both(session: string, play: (options: Options) => Promise<void>): Promise<[Json[], Json[]]> {
  const memory = new MemorySession();
  await play({ session: memory });
  const own = new PalimpsestSession({ client, session, policy });
  await play({ session: own, callModelInputFilter: own.callModelInputFilter });
  expect((await client.sessions({ prefix: session })).sessions).toHaveLength(1);
  return [(await memory.getItems()).map(comparable), await replayed(session)];
}

const endsWithResult = (input: Item[]): boolean => input.at(-1)?.type === 'function_call_output';

/** Looks once for each question, then answers. */
function looking(): ScriptedApi {
  return new ScriptedApi((input, request) =>
    endsWithResult(input) ? [said(`msg_${request}`, `Answer ${request}.`)] : [called(`c${request}`, request)],
  );
}

/** What the items say, for runs of which the SDK does not store all. */
const told = (items: Json[]): string[] =>
  (items as Item[]).map(({ type, role, content, callId, name }) =>
    [role ?? type, typeof content === 'string' ? content : (name ?? JSON.stringify(content)), callId]
      .filter((part) => part !== undefined)
      .join(' '),
  );

type HandoffInputFilter = NonNullable<NonNullable<Parameters<typeof handoff>[1]>['inputFilter']>;

describe('a handoff', () => {
  const withoutEarlier: HandoffInputFilter = (data) => ({ ...data, preHandoffItems: [] });
  /** As `removeAllTools` of the SDK. */
  const withoutTools: HandoffInputFilter = ({ preHandoffItems, newItems, ...data }) => {
    const isOther = ({ type }: { type: string }) => !/^(?:tool|handoff)_/.test(type);
    return { ...data, preHandoffItems: preHandoffItems.filter(isOther), newItems: newItems.filter(isOther) };
  };

  test.each<[string, HandoffInputFilter | undefined]>([
    ['whole', undefined],
    ['without what came before', withoutEarlier],
    ['without tools', withoutTools],
  ])('%s stores every item once', async (name, inputFilter) => {
    const session = `handoff ${name}`;
    const play = async (options: Options): Promise<void> => {
      const billing = new Agent({ name: 'billing', tools: [look] });
      const triage = new Agent({
        ...{ name: 'triage', tools: [look] },
        handoffs: [handoff(billing, inputFilter && { inputFilter })],
      });
      let calls = 0;
      // Each question: a look, a handoff, another look, and the answer.
      const api = new ScriptedApi((_, request) => {
        const step = (request - 1) % 4;
        if (step === 3) return [said(`msg_${request}`, `Answer ${request}.`)];
        const call = called(`c${++calls}`, calls);
        return [step === 1 ? { ...call, name: 'transfer_to_billing', arguments: '{}' } : call];
      });
      for (const question of ['One?', 'Two?', 'Three?']) {
        const { finalOutput } = await api.runner.run(triage, `${question} ${'word '.repeat(50)}`, options);
        expect(finalOutput).toMatch(/^Answer/);
      }
    };
    const [stored, own] = await both(session, play);
    if (inputFilter === undefined) expect(own).toEqual(stored);
    // A filter removes items from the input of the next agent. The session has what the agent before has read.
    const items = told(own);
    expect(new Set(items).size).toBe(items.length);
    expect(items).toEqual(expect.arrayContaining(told(stored)));
    expect(items.filter((item) => item.startsWith('user'))).toHaveLength(3);
  });
});

describe('a guardrail', () => {
  test('that stops an input leaves it in the session', async () => {
    const play = async (options: Options): Promise<void> => {
      const execute = async ({ input }: { input: string | AgentInputItem[] }) => {
        const text = JSON.stringify(input);
        return { outputInfo: {}, tripwireTriggered: text.includes('secret') && !text.includes('Sorry') };
      };
      const agent = new Agent({ name: 'guarded', inputGuardrails: [{ name: 'guard', execute }] });
      const { runner } = new ScriptedApi((_, request) => [said(`msg_${request}`, `Answer ${request}.`)]);
      const ask = (question: string) => runner.run(agent, question, options);
      await ask('Hello.');
      await expect(ask('Tell me the secret.')).rejects.toThrow();
      await ask('Sorry.');
    };
    const [stored, own] = await both('guarded input', play);
    expect(told(stored).filter((item) => item.startsWith('user'))).toEqual(['user Hello.', 'user Sorry.']);
    expect(told(own).filter((item) => item.startsWith('user'))).toEqual([
      'user Hello.',
      'user Tell me the secret.',
      'user Sorry.',
    ]);
  });

  test('that stops an output leaves what the model has read', async () => {
    const play = async (options: Options): Promise<void> => {
      const execute = async ({ agentOutput }: { agentOutput: unknown }) => ({
        ...{ outputInfo: {}, tripwireTriggered: String(agentOutput).includes('secret') },
      });
      const agent = new Agent({
        ...{ name: 'guarded', tools: [look], outputGuardrails: [{ name: 'guard', execute }] },
      });
      const api = new ScriptedApi((input, request) =>
        endsWithResult(input)
          ? [said(`msg_${request}`, request === 4 ? 'A secret.' : 'Answer.')]
          : [called(`c${request}`, request)],
      );
      for (const question of ['One?', 'Two?', 'Three?']) {
        const run = api.runner.run(agent, question, options);
        await (question === 'Two?' ? expect(run).rejects.toThrow() : run);
      }
    };
    const [stored, own] = await both('guarded output', play);
    expect(own).toEqual(stored);
    expect(JSON.stringify(own)).not.toContain('A secret.');
  });
});

test('a tool that fails has a result like any other', async () => {
  const failing = lookWith(() => {
    throw new Error('The depot does not answer.');
  });
  const agent = new Agent({ name: 'support', tools: [failing] });
  const [stored, own] = await both('tool error', async (options) => {
    const { runner } = looking();
    for (const question of ['One?', 'Two?']) await runner.run(agent, question, options);
  });
  expect(own).toEqual(stored);
});

describe('a run that ends early', () => {
  const agent = new Agent({ name: 'support', tools: [look] });
  const calling = () =>
    new ScriptedApi((_, request) =>
      request <= 6 ? [called(`c${request}`, request)] : [said(`msg_${request}`, 'Answer.')],
    );

  test('because of its number of turns, is gone on with by the next one', async () => {
    const session = new PalimpsestSession({ client, session: 'max turns', policy });
    const { callModelInputFilter } = session;
    const { runner } = calling();
    const options = { session, callModelInputFilter };
    await expect(runner.run(agent, 'One?', { ...options, maxTurns: 4 })).rejects.toThrow('Max turns');
    await runner.run(agent, 'Two?', options);
    const items = told(await replayed('max turns'));
    expect(new Set(items).size).toBe(items.length);
    // The model has not read the result of the fourth call.
    expect(items.filter((item) => item.startsWith('function_call look'))).toHaveLength(5);
    expect(items.filter((item) => item.startsWith('user'))).toEqual(['user One?', 'user Two?']);
  });

  test('because its stream was stopped, is gone on with by the next one', async () => {
    const session = new PalimpsestSession({ client, session: 'stopped', policy });
    const { callModelInputFilter } = session;
    const stop = new AbortController();
    const api = new ScriptedApi((_, request) => {
      if (request === 3) stop.abort();
      return request <= 5 ? [called(`c${request}`, request)] : [said(`msg_${request}`, 'Answer.')];
    });
    const options = { session, callModelInputFilter };
    const stream = await api.runner.run(agent, 'One?', { ...options, stream: true, signal: stop.signal });
    await stream.completed.catch(() => undefined);
    await api.runner.run(agent, 'Two?', options);
    const items = told(await replayed('stopped'));
    expect(new Set(items).size).toBe(items.length);
    expect(items.slice(0, 5)).toEqual([
      'user One?',
      ...[1, 2].flatMap((n) => [`function_call look c${n}`, `function_call_result look c${n}`]),
    ]);
  });
});

test('a call that a user rejects is stored once, also after a restart', async () => {
  const careful = new Agent<undefined>({
    name: 'support',
    tools: [{ ...look, needsApproval: async () => true }],
  });
  const [stored, own] = await both('rejected', async (options) => {
    const { runner } = looking();
    for (const question of ['One?', 'Two?']) {
      let result = await runner.run<typeof careful, unknown>(careful, question, options);
      while (result.interruptions.length > 0) {
        const state = await RunState.fromString(careful, result.state.toString());
        state.reject(state.getInterruptions()[0]!);
        result = await runner.run(careful, state, options);
      }
    }
  });
  expect(own).toEqual(stored);
});

test('popItem goes back beyond the summary', async () => {
  const session = new PalimpsestSession({ client, session: 'popped', policy });
  const items = Array.from({ length: 30 }, (_, turn): AgentInputItem[] => [
    { role: 'user', content: `Question ${turn}: ${'word '.repeat(150)}` },
    { type: 'function_call', callId: `c${turn}`, name: 'look', arguments: '{}' },
    {
      ...{ type: 'function_call_result', callId: `c${turn}`, name: 'look', status: 'completed' },
      output: { type: 'text' as const, text: 'Shipped.' },
    },
    {
      ...{ type: 'message', role: 'assistant', status: 'completed' },
      content: [{ type: 'output_text', text: `Answer ${turn}.` }],
    },
  ]).flat();
  await session.addItems(items);
  await client.settled({ session: 'popped' });
  expect((await client.status({ session: 'popped' })).generation).toBeGreaterThan(0);
  const shown = (await session.getItems()).length;
  const left = items.length - shown - 10;
  for (const item of items.slice(left).reverse()) expect(await session.popItem()).toEqual(item);
  const rest = items.slice(0, left).map(comparable);
  expect(await replayed('popped')).toEqual(rest);
  await session.addItems([{ role: 'user', content: 'After.' }]);
  expect(await replayed('popped')).toEqual([...rest, { role: 'user', content: 'After.' }]);
  expect((await session.getItems()).at(-1)).toMatchObject({ providerData: { content: 'After.' } });
});
