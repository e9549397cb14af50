/** The steps for the AI SDK, with versions 5 and 6 of the package `ai` and a scripted model. */
import * as version6 from 'ai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { palimpsest as steps6, type StepOptions } from '../../../src/adapters/ai-sdk.js';
import type { Json } from '../../../src/conversation/message.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { failure } from '../../conformance/case.js';
import { modelFor, plain, type Prompt, toolsFor, versions } from '../../support/ai-sdk-agent.js';
import { type RestartedClients, startRestartedClients } from '../../support/restarted-clients.js';
import { requestOf, ShipmentModel } from '../../support/shipment-agent.js';

const window = 6_000;
const outputTokens = 300;
const policy = { contextWindow: window, reservedOutputTokens: outputTokens };
const system = 'You check shipments of a warehouse.';

let clients: RestartedClients;
let palimpsest: Palimpsest;

beforeAll(async () => {
  clients = await startRestartedClients();
  ({ palimpsest } = clients.stack);
});

afterAll(() => clients.stop());

/** One turn of an application: what it gets from its user, and the answer. */
type Application = (
  options: Omit<StepOptions, 'policy'>,
  script: ShipmentModel,
  text: string,
) => Promise<{ answer: string; said: readonly unknown[] }>;

/** It keeps the messages of the SDK. */
function agentWith(name: string, sdk: typeof version6, steps: typeof steps6): Application {
  const list: version6.ModelMessage[] = [];
  return async (options, script, text) => {
    list.push({ role: 'user', content: text });
    const result = await sdk.generateText({
      ...{ model: modelFor(name, script), system, messages: list, stopWhen: sdk.stepCountIs(10) },
      ...steps({ ...options, policy, tools: toolsFor(sdk) }),
    });
    list.push(...result.response.messages);
    return {
      answer: result.text,
      said: [list.at(-1 - result.response.messages.length), ...result.response.messages],
    };
  };
}

/** It keeps the messages of a chat, as `useChat` does. */
function chatWith(name: string, sdk: typeof version6, steps: typeof steps6): Application {
  const chat: version6.UIMessage[] = [];
  return async (options, script, text) => {
    chat.push({ id: `u-${chat.length}`, role: 'user', parts: [{ type: 'text', text }] });
    const tools = toolsFor(sdk);
    const messages = await sdk.convertToModelMessages(chat, { tools });
    const result = sdk.streamText({
      ...{ model: modelFor(name, script), system, messages, stopWhen: sdk.stepCountIs(10) },
      ...steps({ ...options, policy, tools }),
    });
    let last: version6.UIMessage | undefined;
    for await (const message of sdk.readUIMessageStream({ stream: result.toUIMessageStream() }))
      last = message;
    chat.push(plain({ ...last, id: `a-${chat.length}` }) as unknown as version6.UIMessage);
    const response = await result.response;
    return { answer: await result.text, said: [messages.at(-1), ...response.messages] };
  };
}

/** A model with one answer. */
function answering(name: string, text: string): version6.LanguageModel {
  const isOld = name === '5';
  const model = {
    specificationVersion: isOld ? 'v2' : 'v3',
    ...{ provider: 'scripted', modelId: 'scripted', supportedUrls: {} },
    doGenerate: async () => ({
      content: [{ type: 'text', text }],
      finishReason: isOld ? 'stop' : { unified: 'stop', raw: 'stop' },
      usage: isOld
        ? { inputTokens: 10, outputTokens: 2, totalTokens: 12 }
        : { inputTokens: { total: 10 }, outputTokens: { total: 2 } },
      warnings: [],
    }),
  };
  return model as unknown as version6.LanguageModel;
}

/** The texts of a session's log. */
async function textsOf(session: string): Promise<string[]> {
  const items = (await clients.replayed(session)) as unknown as { content: string | { text: string }[] }[];
  return items.map(({ content }) =>
    typeof content === 'string' ? content : content.map(({ text }) => text).join(''),
  );
}

describe.each(versions)('version %s', (name, sdk, steps) => {
  test.each([
    ['generateText, and a list of model messages', agentWith],
    ['streamText, and the messages of a chat', chatWith],
  ])(
    '%s: 100 turns on a small window through restarts, every message stored once',
    async (kind, application) => {
      const session = `hundred-${name}-${kind.split(',')[0]}`;
      const script = new ShipmentModel(window, outputTokens);
      const turnOf = application(name, sdk, steps);
      const said: unknown[] = [];
      let client: StepOptions['client'] = palimpsest;
      for (let turn = 1; turn <= 100; turn++) {
        const { text, expects } = requestOf(turn);
        if (turn % 10 === 5) client = await clients.connect();
        const made = await turnOf({ client, session }, script, text);
        expect(made.answer).toContain(expects);
        said.push(...made.said);
      }
      await palimpsest.settled({ session });
      const replay = await clients.replayed(session);
      const { generation, calibration } = await palimpsest.status({ session });
      console.log({ name, kind, generation, messages: replay.length, ...script });
      expect(replay).toEqual(plain(said));
      expect(generation).toBeGreaterThan(2);
      expect(script.refused).toBe(0);
      expect(script.largest).toBeLessThanOrEqual(window);
      // Reports that come soon after a compaction do not count.
      expect(calibration.samples).toBeGreaterThan(10);
      expect(calibration.overhead).toBeGreaterThan(500);
      expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(1);
    },
  );

  test('a regenerated answer goes on in a fork', async () => {
    const session = `regenerated-${name}`;
    const model = modelFor(name, new ShipmentModel(window, outputTokens));
    const ask = async (...texts: [role: 'user' | 'assistant', content: string][]) => {
      const messages = texts.map(([role, content]) => ({ role, content }));
      await sdk.generateText({ model, messages, ...steps({ client: palimpsest, session, policy }) });
    };
    await ask(['user', 'One.']);
    await ask(['user', 'One.'], ['assistant', 'Noted: One.'], ['user', 'Two.']);
    await ask(['user', 'One.'], ['assistant', 'Noted: One.'], ['user', 'Three.']);
    const told = async (id: string) =>
      (await clients.replayed(id)).map((item) => (item as { content: Json }).content);
    expect(await told(session)).toHaveLength(4);
    expect((await told(`${session}~1`)).filter((content) => typeof content === 'string')).toEqual([
      'One.',
      'Three.',
    ]);
    expect((await palimpsest.policy({ session })).policy).toEqual({ ...policy, recovery: 'none' });
  });

  test('bytes and addresses are stored as text, and reach the model', async () => {
    const session = `bytes-${name}`;
    const image = Uint8Array.from({ length: 70_000 }, (_, index) => index % 251);
    const prompts: unknown[] = [];
    const script = new ShipmentModel(1_000_000, outputTokens);
    const model = modelFor(name, script) as unknown as {
      doGenerate: (options: { prompt: Prompt[] }) => unknown;
    };
    const { doGenerate } = model;
    model.doGenerate = (options) => {
      prompts.push(options.prompt);
      return doGenerate(options);
    };
    await sdk.generateText({
      model: model as unknown as version6.LanguageModel,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'What is this?' },
            { type: 'file', data: image, mediaType: 'image/png' },
          ],
        },
      ],
      ...steps({ client: palimpsest, session }),
    });
    const [sent] = (prompts[0] as { role: string; content: { data?: unknown }[] }[]).filter(
      ({ role }) => role === 'user',
    );
    expect(JSON.stringify(sent)).toContain(Buffer.from(image).toString('base64'));
    expect(await clients.replayed(session)).toHaveLength(2);
  });

  test('the answer is stored if the steps end with a call', async () => {
    const session = `ended-${name}`;
    const script = new ShipmentModel(window, outputTokens);
    const list: version6.ModelMessage[] = [{ role: 'user', content: 'Check shipment 3.' }];
    const options = { client: palimpsest, session, policy };
    const result = await sdk.generateText({
      ...{ model: modelFor(name, script), messages: list },
      ...steps({ ...options, tools: toolsFor(sdk) }),
    });
    expect(await clients.replayed(session)).toEqual(plain([...list, ...result.response.messages]));
    expect(result.response.messages).toHaveLength(2);
  });

  test('one object may serve several calls, one after the other', async () => {
    const session = `several-${name}`;
    const script = new ShipmentModel(window, outputTokens);
    const memory = steps({ client: palimpsest, session, policy, tools: toolsFor(sdk) });
    const list: version6.ModelMessage[] = [];
    for (const shipment of [1, 2, 3]) {
      list.push({ role: 'user', content: `Check shipment ${shipment}.` });
      const stopWhen = sdk.stepCountIs(5);
      const made = await sdk.generateText({
        model: modelFor(name, script),
        messages: list,
        stopWhen,
        ...memory,
      });
      list.push(...made.response.messages);
    }
    expect(await clients.replayed(session)).toEqual(plain(list));
  });

  test('the session may be the memory', async () => {
    const session = `memory-${name}`;
    const script = new ShipmentModel(window, outputTokens);
    const ask = async (prompt: string) => {
      const stopWhen = sdk.stepCountIs(5);
      const options = { client: palimpsest, session, policy, memory: true, tools: toolsFor(sdk) };
      return (await sdk.generateText({ model: modelFor(name, script), prompt, stopWhen, ...steps(options) }))
        .text;
    };
    for (const turn of [1, 2, 1, 3, 4, 5, 6, 7, 8])
      expect(await ask(`Check shipment ${turn}.`)).toContain(`Shipment ${turn} is complete`);
    await palimpsest.settled({ session });
    expect(await ask('Under which seal did shipment 2 leave?')).toMatch(/^Shipment 2 left under seal SL-/);
    const roles = (await clients.replayed(session)).map((item) => (item as { role: string }).role);
    expect(roles.filter((role) => role === 'user')).toHaveLength(10);
    expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(1);
  });

  test('calls at once with the session as their memory store their messages in one session', async () => {
    const session = `at-once-${name}`;
    const turns = [1, 2, 3];
    let asked = 0;
    let goOn = () => {};
    const all = new Promise<void>((resolve) => (goOn = resolve));
    const used = new Set<string>();
    const ask = async (prompt: string) => {
      const options = { client: palimpsest, session, policy, memory: true };
      const memory = steps({ ...options, onSync: (synced) => used.add(synced.session) });
      const prepareStep: typeof memory.prepareStep = async (step) => {
        const prepared = await memory.prepareStep(step);
        if (++asked === turns.length) goOn();
        await all;
        return prepared;
      };
      const model = modelFor(name, new ShipmentModel(window, outputTokens));
      await sdk.generateText({ model, prompt, ...memory, prepareStep });
    };
    await Promise.all(turns.map((turn) => ask(`Thank you for shipment ${turn}.`)));
    expect([...used]).toEqual([session]);
    expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(1);
    const roles = (await clients.replayed(session)).map((item) => (item as { role: string }).role);
    expect(roles.sort()).toEqual([...turns.map(() => 'assistant'), ...turns.map(() => 'user')]);
  });

  test('all that eight callers at once ask their memory and are answered is in the log once', async () => {
    const session = `many-at-once-${name}`;
    const used = [palimpsest, await clients.stack.elsewhere()];
    const said: string[] = [];
    const callers = Array.from({ length: 8 }, async (_, caller) => {
      const client = used[caller % used.length]!;
      for (let turn = 1; turn <= 6; turn++) {
        const prompt = `Thank you, ${caller}, for ${turn}.`;
        const model = answering(name, `You are welcome, ${caller}, for ${turn}.`);
        const memory = steps({ client, session, policy, memory: true });
        const { text } = await sdk.generateText({ model, prompt, maxRetries: 0, ...memory });
        said.push(prompt, text);
      }
    });
    await Promise.all(callers);
    expect((await textsOf(session)).sort()).toEqual(said.sort());
  });

  test.each([
    ['as the memory', true],
    ['without a memory', false],
  ])('a turn that broke off goes on from the context, with the session %s', async (kind, memory) => {
    const session = `broke-off-${kind}-${name}`;
    const options = { client: palimpsest, session, policy, tools: toolsFor(sdk) };
    const script = new ShipmentModel(window, outputTokens);
    const model = modelFor(name, script);
    await sdk.generateText({ model, prompt: 'Check shipment 1.', ...steps({ ...options, memory: true }) });
    const before = await clients.replayed(session);
    expect(before.map((item) => (item as { role: string }).role)).toEqual(['user', 'assistant', 'tool']);
    const { messages } = await palimpsest.context<version6.ModelMessage>({ session, format: 'ai-sdk' });
    const { text, response } = await sdk.generateText({ model, messages, ...steps({ ...options, memory }) });
    expect(text).toContain('Shipment 1 is complete');
    expect(await clients.replayed(session)).toEqual([...before, ...(plain(response.messages) as Json[])]);
    expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(1);
  });

  test.each([
    ['text', ''],
    ['list of parts', []],
    ['part', [{ type: 'text' as const, text: '' }]],
  ])('an empty question, as a %s, is stored', async (kind, content) => {
    const session = `empty-${kind}-${name}`;
    for (const question of [content, 'Hello.', content]) {
      const memory = steps({ client: palimpsest, session, policy, memory: true });
      const model = answering(name, 'You are welcome.');
      await sdk.generateText({ model, messages: [{ role: 'user', content: question }], ...memory });
    }
    const answer = 'You are welcome.';
    expect(await textsOf(session)).toEqual(['', answer, 'Hello.', answer, '', answer]);
  });

  test('a step that was not prepared is refused', async () => {
    const { onStepFinish } = steps({ client: palimpsest, session: 'not-prepared' });
    const step = { response: { modelId: 'm', messages: [] }, usage: { inputTokens: 1, outputTokens: 1 } };
    expect(await failure(onStepFinish(step))).toMatchObject({ type: 'Input.Invalid', path: 'prepareStep' });
  });
});

test('a step needs one request', async () => {
  const session = 'one-request';
  let asked = 0;
  const client = {
    ...{ toolResponse: palimpsest.toolResponse, search: palimpsest.search, expand: palimpsest.expand },
    sync: ((request: Parameters<Palimpsest['sync']>[0]) => {
      asked++;
      return palimpsest.sync(request);
    }) as Palimpsest['sync'],
  };
  const script = new ShipmentModel(window, outputTokens);
  await version6.generateText({
    ...{ model: modelFor('6', script), prompt: 'Check shipment 1.', stopWhen: version6.stepCountIs(5) },
    ...steps6({ client, session, policy, tools: toolsFor(version6) }),
  });
  expect(script.requests).toBe(2);
  expect(asked).toBe(3);
});

test('approvals of version 6 are stored once', async () => {
  const session = 'approvals';
  const script = new ShipmentModel(window, outputTokens);
  const tools = Object.fromEntries(
    Object.entries(toolsFor(version6)).map(([name, one]) => [name, { ...one, needsApproval: true }]),
  ) as version6.ToolSet;
  let chat: version6.UIMessage[] = [];
  const run = async () => {
    const result = version6.streamText({
      ...{ model: modelFor('6', script), stopWhen: version6.stepCountIs(5) },
      messages: await version6.convertToModelMessages(chat, { tools }),
      ...steps6({ client: palimpsest, session, policy, tools }),
    });
    const last = chat.at(-1);
    const message = last?.role === 'assistant' ? last : undefined;
    let made: version6.UIMessage | undefined;
    for await (const next of version6.readUIMessageStream({ message, stream: result.toUIMessageStream() }))
      made = next;
    chat = [...(message ? chat.slice(0, -1) : chat), plain(made) as unknown as version6.UIMessage];
  };
  for (const shipment of [1, 2]) {
    chat.push({
      id: `u-${shipment}`,
      role: 'user',
      parts: [{ type: 'text', text: `Check shipment ${shipment}.` }],
    });
    await run();
    const answer = chat.at(-1)!;
    for (const part of answer.parts)
      if ('approval' in part && part.approval)
        Object.assign(part, { state: 'approval-responded', approval: { ...part.approval, approved: true } });
    await run();
  }
  const roles = (await clients.replayed(session)).map((item) => (item as { role: string }).role);
  expect((await palimpsest.sessions({ prefix: session })).sessions).toHaveLength(1);
  expect(roles.filter((role) => role === 'user')).toHaveLength(2);
  expect(roles).toEqual([
    'user',
    'assistant',
    'tool',
    'tool',
    'assistant',
    'user',
    'assistant',
    'tool',
    'tool',
    'assistant',
  ]);
});
