/** Calls of Mastra's agents that take another way than question, calls and answer: every message is stored once all the same. */
import { describe, expect, test } from 'vitest';
import { PalimpsestProcessor } from '../../../src/adapters/mastra.js';
import {
  agentWith,
  called,
  type Item,
  loaded,
  lookingTwice,
  mastra,
  policy,
  saidBy,
  ScriptedModel,
  text,
  window,
  useMastraServer,
} from '../../support/mastra-agent.js';

const { stack, connect, replayed } = useMastraServer();

const sessionsOf = async (prefix: string): Promise<string[]> =>
  (await stack().palimpsest.sessions({ prefix })).sessions.map(({ session }) => session);

interface Generated {
  text: string;
  finishReason: string;
  response: { messages: Item[] };
}

/** Messages in the form that Mastra takes and returns. */
type List = { role: string; content: unknown }[];

const asks = async (agent: { generate(list: never): Promise<unknown> }, list: List): Promise<Generated> =>
  (await agent.generate(list as never)) as Generated;

describe.skipIf('why' in mastra)('calls with the whole list', () => {
  test('are recognized for 30 turns, in new processes and through compactions', async () => {
    const model = lookingTwice();
    const list: List = [];
    for (let turn = 1; turn <= 30; turn++) {
      const agent = agentWith(model, { client: await connect(), session: 'whole', policy });
      list.push({ role: 'user', content: `Question ${turn}: ${'word '.repeat(100)}` });
      const { text: answer, response } = await asks(agent, list);
      expect(answer).toBe(`Answer ${turn}.`);
      list.push(...(response.messages as unknown as List));
      if (turn % 10 === 0) await stack().palimpsest.settled({ session: 'whole' });
    }
    expect(await replayed('whole')).toEqual(model.said.map(saidBy));
    expect(model.refused).toEqual([]);
    expect(model.largest).toBeLessThanOrEqual(window);
    expect((await stack().palimpsest.status({ session: 'whole' })).generation).toBeGreaterThan(0);
  });

  /** Two turns, then another second question. */
  async function edited(session: string, options: { memory?: boolean }): Promise<unknown> {
    const client = await connect();
    const agent = agentWith(lookingTwice(), { client, session, policy, ...options });
    const first = { role: 'user', content: 'One?' };
    const { response } = await asks(agent, [first]);
    const begin = [first, ...(response.messages as unknown as List)];
    await asks(agent, [...begin, { role: 'user', content: 'Two?' }]);
    return asks(agent, [...begin, { role: 'user', content: 'Another two?' }]);
  }

  test('are refused if they are edited, unless an option says that the list is whole', async () => {
    await expect(edited('edited-refused', {})).rejects.toThrow('are not its messages and new ones');
    expect(await replayed('edited-refused')).toHaveLength(8);
  });

  test('go on in a fork if they are edited, and the option says that the list is whole', async () => {
    await edited('edited-fork', { memory: false });
    expect(await sessionsOf('edited-fork')).toEqual(['edited-fork', 'edited-fork~1']);
    const questions = (items: string[]) => items.filter((item) => item.startsWith('["user"'));
    expect(questions(await replayed('edited-fork')).join()).toMatch(/One.*Two/);
    expect(questions(await replayed('edited-fork~1')).join()).toMatch(/One.*Another two/);
  });
});

describe.skipIf('why' in mastra)('a tripwire', () => {
  async function guarded(session: string, guard: object, place: 'input' | 'output') {
    const model = lookingTwice();
    const client = await connect();
    const processor = new PalimpsestProcessor({ client, session, policy });
    const agent = agentWith(
      model,
      { client, session, policy },
      {
        inputProcessors: [...(place === 'input' ? [guard] : []), processor],
        outputProcessors: [...(place === 'output' ? [guard] : []), processor],
      },
    );
    for (const question of ['One?', 'The secret?', 'Three?']) await agent.generate(question);
    return (await replayed(session)).join('\n');
  }
  interface Guarded {
    messages: unknown;
    abort(reason: string): never;
  }
  const guardOf = (method: string, sought: string) => ({
    ...{ id: 'guard', name: 'guard' },
    [method]: ({ messages, abort }: Guarded) =>
      JSON.stringify(messages).includes(sought) ? abort('No.') : messages,
  });

  test('before a question leaves nothing of it', async () => {
    const log = await guarded('trip-input', guardOf('processInput', 'secret'), 'input');
    expect(log).not.toContain('secret');
    expect(log.match(/"user"/g)).toHaveLength(2);
  });

  test('after an answer leaves what the model has read', async () => {
    const log = await guarded('trip-output', guardOf('processOutputResult', 'Answer 2.'), 'output');
    expect(log).not.toContain('Answer 2.');
    expect(log.match(/"user"/g)).toHaveLength(3);
    expect(log).toContain('Answer 3.');
  });
});

describe.skipIf('why' in mastra)('a call', () => {
  test('whose tool fails has a result like any other', async () => {
    const model = lookingTwice();
    const execute = async () => {
      throw new Error('The depot does not answer.');
    };
    const agent = agentWith(model, { client: await connect(), session: 'failed', policy }, {}, {}, execute);
    for (const question of ['One?', 'Two?']) await agent.generate(question);
    expect(await replayed('failed')).toHaveLength(8);
    expect((await replayed('failed')).join()).toContain('The depot does not answer.');
    expect(model.refused).toEqual([]);
  });

  test('that ends at its number of steps is gone on with by the next one', async () => {
    let order = 0;
    const model = new ScriptedModel(() => [called(`c${++order}`, order)]);
    const agent = agentWith(model, { client: await connect(), session: 'limited', policy });
    for (const question of ['One?', 'Two?']) await agent.generate(question, { maxSteps: 3 });
    const items = await replayed('limited');
    expect(new Set(items).size).toBe(items.length);
    expect(items).toHaveLength(2 * (1 + 3 * 2));
    expect(model.refused).toEqual([]);
  });

  test('with the same question as before is another question', async () => {
    const agent = agentWith(lookingTwice(), { client: await connect(), session: 'same', policy });
    for (let time = 1; time <= 3; time++) await agent.generate('ok');
    expect(await replayed('same')).toHaveLength(12);
  });
});

describe.skipIf('why' in mastra)('agents of an agent', () => {
  test('have sessions of their own', async () => {
    let asked = 0;
    const helper = agentWith(
      lookingTwice(),
      { client: await connect(), policy },
      { id: 'helper', name: 'helper', description: 'Looks at orders.' },
    );
    const model = new ScriptedModel((isQuestion) => {
      if (!isQuestion) return [text(`Answer ${asked}.`)];
      const input = JSON.stringify({ prompt: `Look at ${++asked}.` });
      return [{ type: 'tool-call', toolCallId: `s${asked}`, toolName: 'agent-helper', input }];
    });
    const agent = agentWith(model, { client: await connect(), policy }, { agents: { helper } });
    const memory = { thread: 'outer', resource: 'user-1' };
    for (const question of ['One?', 'Two?']) await agent.generate(question, { memory });
    expect(await replayed('outer')).toEqual(model.said.map(saidBy));
    const [own, ...others] = await sessionsOf('outer');
    expect(own).toBe('outer');
    expect(others).toHaveLength(2);
  });

  test('in a network are stored without the choice of the agents', async () => {
    const { MockMemory } = await loaded('memory/index.js');
    const helper = agentWith(
      lookingTwice(),
      { client: await connect(), session: 'helper', policy },
      { id: 'helper', name: 'helper', description: 'Looks at orders.' },
    );
    let choices = 0;
    const model = new ScriptedModel(() => {
      const reasons = { selectionReason: 'It can.', completionReason: 'It is done.', finalResult: 'Done.' };
      const choice =
        choices++ === 0
          ? { primitiveId: 'helper', primitiveType: 'agent', prompt: 'Look.', isComplete: false }
          : { primitiveId: 'none', primitiveType: 'none', prompt: '', isComplete: true };
      return [text(JSON.stringify({ ...choice, ...reasons }))];
    });
    const client = await connect();
    const memory = new MockMemory({ options: { lastMessages: 10 } });
    const agent = agentWith(model, { client, session: 'router', policy }, { agents: { helper }, memory });
    const network = await agent.network('One?', { memory: { thread: 'net', resource: 'user-1' } });
    const events = new Set<string>();
    for await (const { type } of network) events.add(type);
    expect(events).toContain('network-execution-event-finish');
    expect((await replayed('helper')).join()).toContain('Answer 1.');
    expect(await sessionsOf('router')).toEqual([]);
  });
});
