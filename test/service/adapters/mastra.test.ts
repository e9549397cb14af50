/** `palimpsest/mastra` with `@mastra/core` and a scripted model. The package is installed outside of the checkout. */
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { palimpsestMemory, type PalimpsestMemoryOptions } from '../../../src/adapters/mastra.js';
import type { Json } from '../../../src/conversation/message.js';
import { aiSdk } from '../../../src/formats/ai-sdk.js';
import { originalItems } from '../../../src/formats/native.js';
import { HttpPalimpsest } from '../../../src/http-client/client.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { type ApiStack, startApiStack } from '../../support/api.js';
import { document, examplesIn } from '../../support/documents.js';
import { installed, run } from '../../support/tools.js';

type Item = Record<string, Json>;

const root = fileURLToPath(new URL('../../..', import.meta.url));
const mastra = await installed('mastra-core-1.71.0', (folder) =>
  run([
    ...(['npm', 'install', '--prefix', folder, '--no-audit', '--no-fund', '--ignore-scripts'] as const),
    ...['@mastra/core@1.71.0', 'zod@4'],
  ]),
);
if ('why' in mastra) console.log(`not run: ${mastra.why}`);

interface Answer {
  text: string;
  finishReason: string;
  runId: string;
  suspendPayload: { toolCallId: string };
}

interface Agent {
  generate(question: string, options?: object): Promise<Answer>;
  stream(question: string): Promise<{ text: Promise<string> }>;
  approveToolCallGenerate(call: object): Promise<Answer>;
}

/** What the test uses of Mastra's modules. */
interface Module {
  Agent: new (options: object) => Agent;
  Mastra: new (options: object) => { getAgent(name: string): Agent };
  MockMemory: new (options: object) => object;
  InMemoryStore: new () => object;
  createTool: (options: object) => object;
}

const loaded = (name: string): Promise<Module> => {
  const folder = 'folder' in mastra ? mastra.folder : '';
  const file = path.join(folder, 'node_modules', '@mastra', 'core', 'dist', name);
  return import(pathToFileURL(file).href) as Promise<Module>;
};

const window = 4_000;
const policy = { contextWindow: window };
const counter = counterFor('o200k_base');

let server: ApiStack;
let agents: Module;
let tools: Module;

beforeAll(async () => {
  if ('why' in mastra) return;
  server = await startApiStack();
  agents = await loaded('agent/index.js');
  tools = await loaded('tools/index.js');
});

afterAll(async () => {
  if ('folder' in mastra) await server.stop();
});

const connect = (): Promise<HttpPalimpsest> =>
  HttpPalimpsest.connect({ url: server.api.address, token: server.token });

/** A model of the AI SDK that answers as `answer` says, and refuses prompts that are not valid or exceed the window. */
class ScriptedModel {
  readonly specificationVersion = 'v2';
  readonly provider = 'scripted';
  readonly modelId = 'scripted';
  readonly supportedUrls = {};
  readonly said: Item[] = [];
  readonly refused: string[] = [];
  requests = 0;
  largest = 0;

  constructor(private readonly answer: (isQuestion: boolean, request: number) => Item[]) {}

  async doGenerate({ prompt }: { prompt: Item[] }) {
    const { content, ...rest } = this.answered(prompt);
    return { content, ...rest };
  }

  async doStream({ prompt }: { prompt: Item[] }) {
    const { content, finishReason, usage } = this.answered(prompt);
    const parts = content.flatMap((part, index): object[] => {
      if (part.type !== 'text') return [part];
      const id = String(index);
      return [
        { type: 'text-start', id },
        { type: 'text-delta', id, delta: part.text },
        { type: 'text-end', id },
      ];
    });
    const stream = ReadableStream.from([
      { type: 'stream-start', warnings: [] },
      ...parts,
      { type: 'finish', finishReason, usage },
    ]);
    return { stream };
  }

  private answered(prompt: Item[]) {
    const messages = plain(prompt).filter(({ role }) => role !== 'system');
    const tokens = tokensOf(plain(prompt));
    this.requests++;
    this.largest = Math.max(this.largest, tokens);
    this.refused.push(...aiSdk.violations({ messages }));
    if (tokens > window) this.refused.push(`${tokens} tokens`);
    if (this.refused.length > 0) throw new Error(this.refused.join());
    const from = messages.findLastIndex(({ role }) => role !== 'tool') + 1;
    const isQuestion = from === messages.length;
    const content = this.answer(isQuestion, this.requests);
    this.said.push(...messages.slice(isQuestion ? -1 : from), { role: 'assistant', content });
    const calls = content.some(({ type }) => type === 'tool-call');
    return {
      ...{ content, finishReason: calls ? ('tool-calls' as const) : ('stop' as const), warnings: [] },
      usage: { inputTokens: tokens, outputTokens: 20, totalTokens: tokens + 20 },
    };
  }
}

const plain = (value: object): Item[] => JSON.parse(JSON.stringify(value)) as Item[];

function tokensOf(value: Json): number {
  if (typeof value === 'string') return counter.count(value);
  if (value === null || typeof value !== 'object') return 0;
  const read = Array.isArray(value)
    ? value
    : Object.entries(value).map(([name, each]) => (unread.has(name) ? null : each));
  return read.reduce<number>((sum, each) => sum + tokensOf(each), 0);
}

/** Fields that a model does not read. */
const unread = new Set(['type', 'role', 'toolCallId', 'providerOptions']);

const called = (id: string, order: number): Item => ({
  ...{ type: 'tool-call', toolCallId: id, toolName: 'look' },
  input: JSON.stringify({ order }),
});
const text = (said: string): Item => ({ type: 'text', text: said });

/** Each question is answered after two calls at once. */
function lookingTwice(): ScriptedModel {
  let turn = 0;
  return new ScriptedModel((isQuestion) => {
    if (!isQuestion) return [text(`Answer ${turn}.`)];
    turn++;
    return [called(`a${turn}`, turn), called(`b${turn}`, turn + 1_000)];
  });
}

function agentWith(
  model: ScriptedModel,
  options: PalimpsestMemoryOptions,
  more: object = {},
  tool: object = {},
) {
  const look = tools.createTool({
    ...{ id: 'look', description: 'Looks at an order.' },
    inputSchema: {
      ...{ type: 'object', properties: { order: { type: 'number' } }, required: ['order'] },
      additionalProperties: false,
    },
    ...tool,
    execute: async ({ order }: { order: number }) => `Order ${order} shipped. ${'Detail. '.repeat(40)}`,
  });
  const instructions = 'You answer questions about orders.';
  return new agents.Agent({
    ...{ id: 'support', name: 'support', instructions, model, tools: { look } },
    ...palimpsestMemory(options),
    ...more,
  });
}

async function replayed(session: string): Promise<string[]> {
  const items: string[] = [];
  for await (const item of originalItems(server.stack.palimpsest.replay({ session })))
    items.push(saidBy(item as Item));
  return items;
}

/** What a message says, without what Mastra adds for its own use. */
function saidBy({ role, content }: Item): string {
  const parts = (content as Item[]).map(({ type, text: said, toolCallId, toolName, input, output }) => [
    ...[type, said, toolCallId, toolName],
    ...[typeof input === 'string' ? JSON.parse(input) : input, output],
  ]);
  return JSON.stringify([role, parts]);
}

test.each<[path: string, options: object]>([
  ['client', {}],
  ['session', { client: { sync: () => null }, session: '' }],
  ['sesion', { client: { sync: () => null }, sesion: 's-1' }],
])('palimpsestMemory refuses a wrong %s', (path, options) => {
  const make = () => Reflect.apply(palimpsestMemory, null, [options]);
  expect(make).toThrow(expect.objectContaining({ type: 'Input.Invalid', path }));
});

describe.skipIf('why' in mastra)('an agent of Mastra', () => {
  test('fits the window for 100 turns', async () => {
    const model = lookingTwice();
    let agent = agentWith(model, { client: await connect(), policy });
    for (let turn = 1; turn <= 100; turn++) {
      // A process that is started again has a new client and a new agent.
      if (turn % 10 === 0) agent = agentWith(model, { client: await connect(), policy });
      if (turn % 25 === 0) await server.stack.palimpsest.settled({ session: 'turns' });
      const memory = { thread: 'turns', resource: 'user-1' };
      const { text: answer } = await agent.generate(`Question ${turn}: ${'word '.repeat(100)}`, { memory });
      expect(answer).toBe(`Answer ${turn}.`);
    }
    expect(model.refused).toEqual([]);
    expect(await replayed('turns')).toEqual(model.said.map(saidBy));
    expect(model.requests).toBe(200);
    expect(model.largest).toBeLessThanOrEqual(window);
    expect((await server.stack.palimpsest.status({ session: 'turns' })).generation).toBeGreaterThan(3);
  });

  /** Calls until it has looked at 60 orders. Requests in `failing` fail. */
  function lookingOften(failing: number[] = []): ScriptedModel {
    let order = 0;
    return new ScriptedModel((_, request) => {
      if (failing.includes(request)) throw new Error('The connection broke.');
      order++;
      return order > 60 ? [text('All shipped.')] : [called(`c${order}`, order)];
    });
  }

  const often = { maxSteps: 100, modelSettings: { maxRetries: 0 } };

  test('fits the window within a call of 60 steps', async () => {
    const model = lookingOften();
    const agent = agentWith(model, { client: await connect(), session: 'steps', policy });
    const { text: answer } = await agent.generate('All orders?', often);
    expect(answer).toBe('All shipped.');
    expect(model.refused).toEqual([]);
    expect(await replayed('steps')).toEqual(model.said.map(saidBy));
    expect(model.largest).toBeLessThanOrEqual(window);
  });

  test('streams', async () => {
    const model = lookingTwice();
    const agent = agentWith(model, { client: await connect(), session: 'streamed', policy });
    for (let turn = 1; turn <= 3; turn++) {
      const { text: answer } = await agent.stream(`Question ${turn}?`);
      expect(await answer).toBe(`Answer ${turn}.`);
    }
    expect(await replayed('streamed')).toEqual(model.said.map(saidBy));
  });

  test('stores a question once that is asked again after a failure', async () => {
    const model = lookingOften([1]);
    const agent = agentWith(model, { client: await connect(), session: 'again', policy });
    await expect(agent.generate('All orders?', often)).rejects.toThrow('The connection broke.');
    await agent.generate('All orders?', often);
    expect(await replayed('again')).toEqual(model.said.map(saidBy));
  });

  test('goes on after an approval, in another process', async () => {
    const { Mastra } = await loaded('mastra/index.js');
    const { InMemoryStore } = await loaded('storage/index.js');
    const storage = new InMemoryStore();
    const model = lookingTwice();
    const restarted = async () => {
      const agent = agentWith(model, { client: await connect(), policy }, {}, { requireApproval: true });
      return new Mastra({ agents: { support: agent }, storage, logger: false }).getAgent('support');
    };
    const memory = { thread: 'approved', resource: 'user-1' };
    for (let turn = 1; turn <= 3; turn++) {
      let result = await (await restarted()).generate(`Question ${turn}?`, { memory });
      while (result.finishReason === 'suspended') {
        const { toolCallId } = result.suspendPayload;
        result = await (await restarted()).approveToolCallGenerate({ runId: result.runId, toolCallId });
      }
      expect(result.text).toBe(`Answer ${turn}.`);
    }
    expect(await replayed('approved')).toEqual(model.said.map(saidBy));
  });

  test('stores the messages of two calls at once', async () => {
    const answers = ['A', 'B'].map(
      (name) =>
        new ScriptedModel((_, request) =>
          request <= 5 ? [called(`${name}${request}`, request)] : [text(`${name} is done.`)],
        ),
    );
    const client = await connect();
    await Promise.all(
      answers.map((model, index) =>
        agentWith(model, { client, session: 'at-once', policy }).generate(`Question ${index}?`, often),
      ),
    );
    const stored = await replayed('at-once');
    expect(new Set(stored).size).toBe(2 * (1 + 5 * 2 + 1));
    expect(stored).toHaveLength(2 * (1 + 5 * 2 + 1));
  });

  test('goes on after a question that is larger than the window', async () => {
    const model = lookingTwice();
    const agent = agentWith(model, { client: await connect(), session: 'large', policy });
    await expect(agent.generate(`Read: ${'word '.repeat(6_000)}`)).rejects.toThrow(
      'the smallest valid context',
    );
    const { text: answer } = await agent.generate('And now?');
    expect(answer).toBe('Answer 1.');
    expect(model.refused).toEqual([]);
    expect(await replayed('large')).toHaveLength(1 + 4 + 1);
  });

  test('is refused a second history', async () => {
    const { MockMemory } = await loaded('memory/index.js');
    const options = { lastMessages: 10 };
    const memory = new MockMemory({ options });
    const model = lookingTwice();
    const of = { memory: { thread: 'second', resource: 'user-1' } };
    const agent = agentWith(model, { client: await connect(), policy }, { memory });
    await agent.generate('Question 1?', of);
    await expect(agent.generate('Question 2?', of)).rejects.toThrow('has added earlier messages');
    const alone = agentWith(
      model,
      { client: await connect(), policy },
      { memory: new MockMemory({ options: { lastMessages: false } }) },
    );
    await alone.generate('Question 2?', of);
    expect(await replayed('second')).toHaveLength(8);
  });

  test('has the types of Mastra, as the examples of its page', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'mastra-'));
    try {
      const packages = 'folder' in mastra ? path.join(mastra.folder, 'node_modules') : '';
      await symlink(packages, path.join(folder, 'node_modules'));
      const examples = examplesIn(document('docs/mastra.md')).filter(
        ({ language }) => language === 'typescript',
      );
      expect(examples).toHaveLength(3);
      for (const [index, { code }] of examples.entries())
        await writeFile(path.join(folder, `${index}.ts`), code);
      const compilerOptions = {
        ...{
          strict: true,
          exactOptionalPropertyTypes: true,
          noEmit: true,
          skipLibCheck: true,
          module: 'NodeNext',
          target: 'ES2022',
          lib: ['ES2023'],
        },
        ...{ types: ['node'], typeRoots: [path.join(root, 'node_modules', '@types')] },
        paths: {
          'palimpsest/http': [path.join(root, 'src/http-client/index.ts')],
          'palimpsest/mastra': [path.join(root, 'src/adapters/mastra.ts')],
        },
      };
      await writeFile(path.join(folder, 'package.json'), JSON.stringify({ type: 'module' }));
      await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
      await run([process.execPath, path.join(root, 'node_modules/typescript/bin/tsc'), '-p', folder]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
