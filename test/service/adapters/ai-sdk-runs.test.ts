/** Runs of the AI SDK that take another way than question, calls and answer: every message is stored once all the same. */
import type * as version6 from 'ai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { modelFor, plain, toolsFor, versions } from '../../support/ai-sdk-agent.js';
import { type RestartedClients, startRestartedClients } from '../../support/restarted-clients.js';
import { ShipmentModel } from '../../support/shipment-agent.js';

const policy = { contextWindow: 6_000, reservedOutputTokens: 300 };

let clients: RestartedClients;
let client: Palimpsest;

beforeAll(async () => {
  clients = await startRestartedClients();
  client = clients.stack.palimpsest;
});

afterAll(() => clients.stop());

type Part = { type: string; [field: string]: unknown };
type Chat = version6.UIMessage[];

const says = (text: string): Part => ({ type: 'text', text });
const calls = (id: string, toolName: string, input: string, more: object = {}): Part => ({
  ...{ type: 'tool-call', toolCallId: id, toolName, input },
  ...more,
});
const isOwnCall = ({ type, providerExecuted }: Part): boolean =>
  type === 'tool-call' && providerExecuted !== true;

/** A model that says what the test tells it to, request by request. At the request `stopsAt`, it waits, or its stream breaks. */
function scripted(name: string, answers: Part[][], stopsAt?: { request: number; breaks: boolean }) {
  const isOld = name === '5';
  let request = 0;
  const next = () => {
    const content = answers[request++] ?? [says('The end.')];
    const reason = content.some(isOwnCall) ? 'tool-calls' : 'stop';
    return {
      content,
      ...(isOld
        ? { finishReason: reason, usage: { inputTokens: 10, outputTokens: 2, totalTokens: 12 } }
        : {
            finishReason: { unified: reason, raw: reason },
            usage: { inputTokens: { total: 10 }, outputTokens: { total: 2 } },
          }),
    };
  };
  const model = {
    specificationVersion: isOld ? 'v2' : 'v3',
    ...{ provider: 'scripted', modelId: 'scripted', supportedUrls: {} },
    doGenerate: async () => ({ ...next(), warnings: [] }),
    async doStream({ abortSignal }: { abortSignal?: AbortSignal }) {
      const { content, ...end } = next();
      const stops = request === stopsAt?.request;
      const stream = new ReadableStream({
        start(controller) {
          controller.enqueue({ type: 'stream-start', warnings: [] });
          for (const { type, ...part } of content)
            if (type !== 'text') controller.enqueue({ type, ...part });
            else {
              controller.enqueue({ type: 'text-start', id: 't' });
              controller.enqueue({ type: 'text-delta', id: 't', delta: part.text });
              if (!stops) controller.enqueue({ type: 'text-end', id: 't' });
            }
          if (!stops) {
            controller.enqueue({ type: 'finish', ...end });
            controller.close();
          } else if (stopsAt.breaks) controller.error(new Error('The connection broke.'));
          else abortSignal?.addEventListener('abort', () => controller.error(abortSignal.reason));
        },
      });
      return { stream };
    },
  };
  return model as unknown as version6.LanguageModel;
}

describe.each(versions)('version %s', (name, sdk, steps) => {
  /** An application with a chat. Each question is answered by `streamText`, with a new object of the adapter. */
  class Application {
    readonly chat: Chat = [];

    constructor(
      private readonly session: string,
      private readonly model: version6.LanguageModel,
      private readonly tools = toolsFor(sdk),
    ) {}

    async asks(text: string, options: { signal?: AbortSignal; shown?: (text: string) => void } = {}) {
      this.chat.push({ id: `u-${this.chat.length}`, role: 'user', parts: [{ type: 'text', text }] });
      await this.answers(options);
    }

    /** Adds to the answer that the chat has, or adds an answer. */
    async answers({
      signal,
      shown,
    }: { signal?: AbortSignal; shown?: (text: string) => void } = {}): Promise<void> {
      const result = sdk.streamText({
        model: this.model,
        messages: await sdk.convertToModelMessages(this.chat, {
          tools: this.tools,
          ignoreIncompleteToolCalls: true,
        }),
        ...{ stopWhen: sdk.stepCountIs(5), abortSignal: signal, onError: () => undefined },
        ...steps({ client, session: this.session, policy, tools: this.tools }),
      });
      const before = this.chat.at(-1);
      const message = before?.role === 'assistant' ? before : undefined;
      const stream = result.toUIMessageStream({ onError: () => 'It failed.' });
      let last: version6.UIMessage | undefined;
      for await (const read of sdk.readUIMessageStream({ message, stream })) {
        last = read;
        shown?.(read.parts.map((part) => ('text' in part ? part.text : '')).join(''));
      }
      if (message) this.chat.pop();
      this.chat.push(plain({ ...last, id: `a-${this.chat.length}` }) as unknown as version6.UIMessage);
    }

    async log(): Promise<string[]> {
      const items = (await clients.replayed(this.session)) as unknown as {
        role: string;
        content: string | Part[];
      }[];
      return items.map(({ role, content }) =>
        typeof content === 'string'
          ? role
          : [role, ...content.map(({ type, text }) => text ?? type)].join(' '),
      );
    }

    /** The session and its forks. */
    async sessions(): Promise<string[]> {
      return (await client.sessions({ prefix: this.session })).sessions.map(({ session }) => session);
    }
  }

  const look = calls('c1', 'get_shipment', '{"shipment":1}');
  const looked = ['user Check shipment 1.', 'assistant tool-call', 'tool tool-result'];

  test('an answer that was stopped is stored with the next question, as the chat has it', async () => {
    const model = scripted(name, [[look], [says('It is on its way')], [says('Yes.')]], {
      request: 2,
      breaks: false,
    });
    const application = new Application(`stopped-${name}`, model);
    const user = new AbortController();
    await application.asks('Check shipment 1.', {
      signal: user.signal,
      shown: (text) => void (text.endsWith('on its way') && user.abort()),
    });
    expect(await application.log()).toEqual(looked);
    await application.asks('And now?');
    await application.asks('Bye.');
    expect(await application.log()).toEqual([
      ...looked,
      ...['assistant It is on its way', 'user And now?', 'assistant Yes.', 'user Bye.', 'assistant The end.'],
    ]);
    expect(await application.sessions()).toEqual([`stopped-${name}`]);
  });

  test('an answer whose stream broke leaves the steps before it', async () => {
    const model = scripted(name, [[look], [says('It is')], [says('Yes.')]], { request: 2, breaks: true });
    const application = new Application(`broke-${name}`, model);
    await application.asks('Check shipment 1.');
    await application.asks('And now?');
    expect(await application.log()).toEqual([...looked, 'user And now?', 'assistant Yes.']);
    expect(await application.sessions()).toEqual([`broke-${name}`]);
  });

  test('calls that the provider answers are stored with their results', async () => {
    const searched = (id: string): Part[] => [
      says('I search.'),
      calls(id, 'web_search', '{"query":"x"}', { providerExecuted: true }),
      {
        ...{ type: 'tool-result', toolCallId: id, toolName: 'web_search', providerExecuted: true },
        result: { found: id },
      },
    ];
    const search = {
      ...{
        type: name === '5' ? 'provider-defined' : 'provider',
        id: 'scripted.web_search',
        name: 'web_search',
      },
      ...{ args: {}, inputSchema: sdk.jsonSchema({ type: 'object' }), outputSchema: sdk.jsonSchema({}) },
    };
    const tools = { ...toolsFor(sdk), web_search: search as unknown as version6.Tool };
    const model = scripted(name, [
      [...searched('w1'), says('Found.')],
      [...searched('w2'), look],
      [says('Both.')],
    ]);
    const application = new Application(`provider-${name}`, model, tools);
    for (const question of ['One?', 'Two?', 'Three?']) await application.asks(question);
    expect(await application.log()).toEqual([
      ...['user One?', 'assistant I search. tool-call tool-result Found.'],
      ...[
        'user Two?',
        'assistant I search. tool-call tool-result tool-call',
        'tool tool-result',
        'assistant Both.',
      ],
      ...['user Three?', 'assistant The end.'],
    ]);
    expect(await application.sessions()).toEqual([`provider-${name}`]);
  });

  test('dynamic tools, tools that do not exist, and inputs that are not JSON', async () => {
    const any = sdk.dynamicTool({
      description: 'Returns values that JSON does not have.',
      inputSchema: sdk.jsonSchema({ type: 'object' }),
      execute: async () => ({ at: new Date(0), missing: undefined, score: NaN }),
    });
    const wrong = [
      calls('c1', 'any', '{}'),
      calls('c2', 'none', '{"a":1}'),
      calls('c3', 'get_shipment', '{"shi'),
    ];
    const application = new Application(`dynamic-${name}`, scripted(name, [wrong, [says('Hm.')]]), {
      ...toolsFor(sdk),
      any,
    });
    for (const question of ['One?', 'Two?', 'Three?']) await application.asks(question);
    expect(await application.log()).toEqual([
      ...['user One?', 'assistant tool-call tool-call tool-call', 'tool tool-result tool-result tool-result'],
      ...['assistant Hm.', 'user Two?', 'assistant The end.', 'user Three?', 'assistant The end.'],
    ]);
    expect(await application.sessions()).toEqual([`dynamic-${name}`]);
  });

  test('without onStepFinish, the next step stores the answer', async () => {
    const session = `unfinished-${name}`;
    const model = modelFor(name, new ShipmentModel(6_000, 300));
    const list: version6.ModelMessage[] = [];
    for (const shipment of [1, 2]) {
      list.push({ role: 'user', content: `Check shipment ${shipment}.` });
      const { prepareStep, tools } = steps({ client, session, policy, tools: toolsFor(sdk) });
      const stopWhen = sdk.stepCountIs(5);
      const { response } = await sdk.generateText({ model, messages: list, stopWhen, prepareStep, tools });
      list.push(...response.messages);
    }
    expect(await clients.replayed(session)).toEqual(plain(list.slice(0, -1)));
  });

  test.runIf(name === '6')('calls that a user denies, also in part', async () => {
    const tools = Object.fromEntries(
      Object.entries(toolsFor(sdk)).map(([tool, one]) => [tool, { ...one, needsApproval: true }]),
    ) as version6.ToolSet;
    const asked = [look, calls('c2', 'get_route', '{"shipment":1}')];
    const application = new Application('denied', scripted(name, [asked, [says('As you wish.')]]), tools);
    await application.asks('Check shipment 1.');
    for (const part of application.chat.at(-1)!.parts)
      if ('approval' in part && part.approval) {
        const approved = part.type === 'tool-get_shipment';
        Object.assign(part, {
          state: 'approval-responded',
          approval: { ...part.approval, approved, reason: 'No.' },
        });
      }
    await application.answers();
    await application.asks('Bye.');
    const log = await application.log();
    expect(log.map((line) => line.split(' ')[0])).toEqual([
      ...['user', 'assistant', 'tool', 'tool', 'assistant'],
      ...['user', 'assistant'],
    ]);
    expect(await application.sessions()).toEqual(['denied']);
  });

  test.runIf(name === '6')('one object serves an agent of the SDK', async () => {
    const session = 'loop-agent';
    const agent = new sdk.ToolLoopAgent({
      model: modelFor(name, new ShipmentModel(6_000, 300)),
      ...steps({ client, session, policy, tools: toolsFor(sdk) }),
    });
    const list: version6.ModelMessage[] = [];
    for (const shipment of [1, 2, 3]) {
      list.push({ role: 'user', content: `Check shipment ${shipment}.` });
      const { text, response } = await agent.generate({ messages: list });
      expect(text).toContain(`Shipment ${shipment} is complete`);
      list.push(...response.messages);
    }
    expect(await clients.replayed(session)).toEqual(plain(list));
  });
});
