/** Agents of Mastra with a scripted model. The package is installed outside of the checkout. */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll } from 'vitest';
import { palimpsestMemory, type PalimpsestMemoryOptions } from '../../src/adapters/mastra.js';
import type { Json } from '../../src/conversation/message.js';
import { aiSdk } from '../../src/formats/ai-sdk.js';
import { HttpPalimpsest } from '../../src/http-client/client.js';
import { counterFor } from '../../src/tokens/counter.js';
import { type ApiStack, startApiStack } from './api.js';
import { installed, run } from './tools.js';
import { storedItems } from './sessions.js';

export type Item = Record<string, Json>;

export const mastra = await installed('mastra-core-1.71.0', (folder) =>
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
  stream(question: string, options?: object): Promise<{ text: Promise<string> }>;
  network(question: string, options: object): Promise<AsyncIterable<{ type: string }>>;
  approveToolCallGenerate(call: object): Promise<Answer>;
}

/** What the test uses of Mastra's modules. */
export interface Module {
  Agent: new (options: object) => Agent;
  Mastra: new (options: object) => { getAgent(name: string): Agent };
  MockMemory: new (options: object) => object;
  InMemoryStore: new () => object;
  createTool: (options: object) => object;
}

export const loaded = (name: string): Promise<Module> => {
  const folder = 'folder' in mastra ? mastra.folder : '';
  const file = path.join(folder, 'node_modules', '@mastra', 'core', 'dist', name);
  return import(pathToFileURL(file).href) as Promise<Module>;
};

const modules =
  'folder' in mastra
    ? { agents: await loaded('agent/index.js'), tools: await loaded('tools/index.js') }
    : null;

export const window = 4_000;
export const policy = { contextWindow: window };
const counter = counterFor('o200k_base');

/** A model of the AI SDK that answers as `answer` says, and refuses prompts that are not valid or exceed the window. */
export class ScriptedModel {
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

export const called = (id: string, order: number): Item => ({
  ...{ type: 'tool-call', toolCallId: id, toolName: 'look' },
  input: JSON.stringify({ order }),
});
export const text = (said: string): Item => ({ type: 'text', text: said });

/** Each question is answered after two calls at once. */
export function lookingTwice(): ScriptedModel {
  let turn = 0;
  return new ScriptedModel((isQuestion) => {
    if (!isQuestion) return [text(`Answer ${turn}.`)];
    turn++;
    return [called(`a${turn}`, turn), called(`b${turn}`, turn + 1_000)];
  });
}

export function agentWith(
  model: ScriptedModel,
  options: PalimpsestMemoryOptions,
  more: object = {},
  tool: object = {},
  execute = async ({ order }: { order: number }) => `Order ${order} shipped. ${'Detail. '.repeat(40)}`,
) {
  if (modules === null) throw new Error('Mastra is not installed.');
  const look = modules.tools.createTool({
    ...{ id: 'look', description: 'Looks at an order.' },
    inputSchema: {
      ...{ type: 'object', properties: { order: { type: 'number' } }, required: ['order'] },
      additionalProperties: false,
    },
    ...tool,
    execute,
  });
  const instructions = 'You answer questions about orders.';
  return new modules.agents.Agent({
    ...{ id: 'support', name: 'support', instructions, model, tools: { look } },
    ...palimpsestMemory(options),
    ...more,
  });
}

/** What a message says, without what Mastra adds for its own use. */
export function saidBy({ role, content }: Item): string {
  const parts = (content as Item[]).map(({ type, text: said, toolCallId, toolName, input, output }) => [
    ...[type, said, toolCallId, toolName],
    ...[typeof input === 'string' ? JSON.parse(input) : input, output],
  ]);
  return JSON.stringify([role, parts]);
}

/** An API for all tests of a file, if Mastra is installed. Call it at the top of the file. */
export function useMastraServer() {
  let server: ApiStack;
  beforeAll(async () => {
    if ('folder' in mastra) server = await startApiStack();
  });
  afterAll(async () => {
    if ('folder' in mastra) await server.stop();
  });
  return {
    /** The stack of the API. */
    stack: () => server.stack,
    connect: () => HttpPalimpsest.connect({ url: server.api.address, token: server.token }),
    /** The messages of a session, as they were stored. */
    async replayed(session: string): Promise<string[]> {
      return (await storedItems(server.stack.palimpsest, session)).map((item) => saidBy(item as Item));
    },
  };
}
