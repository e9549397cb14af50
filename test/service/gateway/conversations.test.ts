/** Long conversations through the gateway with the providers' own SDKs: nothing is stored twice, and every request fits. */
import { createOpenAI } from '@ai-sdk/openai';
import Anthropic from '@anthropic-ai/sdk';
import { generateText, jsonSchema, type ModelMessage, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { anthropic } from '../../../src/formats/anthropic.js';
import { openaiChat } from '../../../src/formats/openai-chat.js';
import { openaiResponses } from '../../../src/formats/openai-responses.js';
import type { RunningGateway } from '../../../src/gateway/server.js';
import type { GatewayRequest } from '../../../src/gateway/settings.js';
import { gatewayOf, key } from '../../support/gateway.js';
import { startStack, type Stack } from '../../support/stack.js';
import {
  type Part,
  type Received,
  type Said,
  startUpstream,
  tokensOf,
  type UpstreamServer,
} from '../../support/upstream.js';
import { storedItems } from '../../support/sessions.js';

const window = 8_000;
const turns = 100;
const system = 'You are an agent that looks after orders. '.repeat(10);

let stack: Stack;
let upstream: UpstreamServer;

beforeAll(async () => {
  stack = await startStack();
  await stack.palimpsest.configureTenant({ policy: { contextWindow: window } });
  upstream = await startUpstream();
});

afterAll(async () => {
  await upstream?.close();
  await stack?.stop();
});

const replayed = async (session: string): Promise<object[]> =>
  (await storedItems(stack.palimpsest, session)) as object[];

const question = (turn: number): string => `Question ${turn}: ${`what of order ${turn * 7}? `.repeat(25)}`;
const found = (order: number): string => `Order ${order}: ${'shipped, signed for and paid. '.repeat(8)}`;

/** The list with the items that it names by their ids, as the provider reads it. */
const listOf = <Item extends object>(list: readonly Item[]): (Item | Part)[] =>
  list.map((item) => {
    const { type, id = '' } = item as Part;
    return type === 'item_reference' ? upstream.items.get(id)! : item;
  });

/** What the provider would refuse in a request. */
function faultsOf({ url, body }: Received): string[] {
  const list = listOf(body.messages ?? body.input ?? []) as Json[];
  if (url.endsWith('/chat/completions')) return openaiChat.violations({ messages: list });
  if (url.endsWith('/responses')) return openaiResponses.violations({ messages: list });
  return anthropic.violations({ messages: list, system: body.system });
}

/** The model looks at two orders in each turn, and sometimes searches its history, alone or together with other calls. */
function script(sizes: number[], searches: string[], faults: string[]) {
  return (received: Received): Said => {
    const { body } = received;
    faults.push(...faultsOf(received));
    const list = listOf(body.messages ?? body.input ?? []);
    sizes.push(tokensOf([list, body.system, body.instructions, body.tools]));
    const last = JSON.stringify(list.at(-1));
    const asked = /Question (\d+):/.exec(last)?.[1];
    const offered = JSON.stringify(body.tools ?? []).includes('search_history');
    const call = (name: string, id: string, args: object) => ({ id, name, args });
    if (asked !== undefined) {
      const turn = Number(asked);
      if (offered && turn % 10 === 4) {
        searches.push(`s-${turn}`);
        return { text: 'I look it up.', calls: [call('search_history', `s-${turn}`, { query: 'order 21' })] };
      }
      const looks = [1, 2].map((n) => call('look', `l-${turn}-${n}`, { order: turn * n }));
      if (!offered || turn % 10 !== 7) return { calls: looks };
      searches.push(`m-${turn}`);
      return { text: 'Both.', calls: [call('search_history', `m-${turn}`, { query: 'order 14' }), ...looks] };
    }
    if (last.includes('hits') && !last.includes('Order ')) {
      const turn = Number(/"(?:tool_call_id|tool_use_id|call_id)":"s-(\d+)"/.exec(last)?.[1]);
      return { calls: [1, 2].map((n) => call('look', `l-${turn}-${n}`, { order: turn * n })) };
    }
    return { text: `All is well with it, and it took ${list.length} messages. ${'So it is. '.repeat(10)}` };
  };
}

interface Client<Item> {
  /** Sends the list and returns the answer's items, with the ids and orders of its calls. */
  ask(list: Item[], streamed: boolean): Promise<{ items: Item[]; calls: { id: string; order: number }[] }>;
  question(text: string): Item;
  results(results: { id: string; text: string }[]): Item[];
}

type ClientOf<Item> = (gateway: RunningGateway, session: string) => Client<Item>;

const orderIn = (args: string): number => (JSON.parse(args) as { order: number }).order;

const headers = (session: string) => ({ 'x-palimpsest-session': session, 'x-palimpsest-key': key });

const chatClient: ClientOf<OpenAI.ChatCompletionMessageParam> = (gateway, session) => {
  const openai = new OpenAI({
    ...{ baseURL: `${gateway.address}/v1`, apiKey: 'provider', maxRetries: 0 },
    defaultHeaders: headers(session),
  });
  const tools = [lookTool].map((one) => ({ type: 'function' as const, function: one }));
  return {
    async ask(list, streamed) {
      const request = {
        model: 'gpt-4o',
        tools,
        messages: [{ role: 'system' as const, content: system }, ...list],
      };
      const completion = streamed
        ? await openai.chat.completions
            .stream({ ...request, stream_options: { include_usage: true } })
            .finalChatCompletion()
        : await openai.chat.completions.create(request);
      const { role, content, tool_calls: calls } = completion.choices[0]!.message;
      const made = (calls ?? []).flatMap((one) => (one.type === 'function' ? [one] : []));
      return {
        items: [{ role, content, ...(made.length > 0 ? { tool_calls: made.map(plainCall) } : {}) }],
        calls: made.map((one) => ({ id: one.id, order: orderIn(one.function.arguments) })),
      };
    },
    question: (content) => ({ role: 'user', content }),
    results: (results) => results.map(({ id, text }) => ({ role: 'tool', tool_call_id: id, content: text })),
  };
};

const lookTool = {
  name: 'look',
  description: 'Looks at an order.',
  parameters: { type: 'object' as const, properties: { order: { type: 'number' as const } } },
};

const plainCall = ({
  id,
  function: { name, arguments: args },
}: OpenAI.ChatCompletionMessageFunctionToolCall) => ({
  ...{ id, type: 'function' as const },
  function: { name, arguments: args },
});

const messagesClient: ClientOf<Anthropic.MessageParam> = (gateway, session) => {
  const client = new Anthropic({
    ...{ baseURL: gateway.address, apiKey: 'provider', maxRetries: 0 },
    defaultHeaders: headers(session),
  });
  const { parameters: input_schema, ...tool } = lookTool;
  return {
    async ask(list, streamed) {
      const request = {
        ...{ model: 'claude-test', max_tokens: 500, system, messages: list },
        tools: [{ ...tool, input_schema }],
      };
      const message = streamed
        ? await client.messages.stream(request).finalMessage()
        : await client.messages.create(request);
      const { role, content } = message;
      return {
        items: [{ role, content }],
        calls: content.flatMap((block) =>
          block.type === 'tool_use'
            ? [{ id: block.id, order: (block.input as { order: number }).order }]
            : [],
        ),
      };
    },
    question: (content) => ({ role: 'user', content }),
    results: (results) => [
      {
        role: 'user',
        content: results.map(({ id, text }) => ({ type: 'tool_result', tool_use_id: id, content: text })),
      },
    ],
  };
};

const responsesClient =
  (store: boolean): ClientOf<OpenAI.Responses.ResponseInputItem> =>
  (gateway, session) => {
    const openai = new OpenAI({
      ...{ baseURL: `${gateway.address}/v1`, apiKey: 'provider', maxRetries: 0 },
      defaultHeaders: headers(session),
    });
    return {
      async ask(list, streamed) {
        const request = {
          ...{ model: 'gpt-4o', instructions: system, input: list, store },
          tools: [{ type: 'function' as const, strict: false, ...lookTool }],
        };
        const { output } = streamed
          ? await openai.responses.stream(request).finalResponse()
          : await openai.responses.create(request);
        // As it came, without what the SDK adds.
        const items = JSON.parse(
          JSON.stringify(output, (name, value: unknown) => (name.startsWith('parsed') ? undefined : value)),
        ) as OpenAI.Responses.ResponseInputItem[];
        const named = output.flatMap(({ id }) => (id ? [{ type: 'item_reference' as const, id }] : []));
        return {
          items: store ? named : items,
          calls: output.flatMap((item) =>
            item.type === 'function_call' ? [{ id: item.call_id, order: orderIn(item.arguments) }] : [],
          ),
        };
      },
      question: (content) => ({ role: 'user', content }),
      results: (results) =>
        results.map(({ id, text }) => ({ type: 'function_call_output', call_id: id, output: text })),
    };
  };

/** Names items of the provider by their ids, as the package does on its own. */
const aiSdkClient: ClientOf<ModelMessage> = (gateway, session) => {
  const openai = createOpenAI({
    ...{ baseURL: `${gateway.address}/v1`, apiKey: 'provider' },
    headers: headers(session),
  });
  const inputSchema = jsonSchema<{ order: number }>(lookTool.parameters);
  const tools = { look: tool({ description: lookTool.description, inputSchema }) };
  return {
    async ask(messages, streamed) {
      const request = { model: openai('gpt-4o'), system, tools, messages, maxRetries: 0 };
      const { response, toolCalls } = streamed ? streamText(request) : await generateText(request);
      return {
        items: (await response).messages,
        calls: (await toolCalls).map(({ toolCallId: id, input }) => ({
          id,
          order: (input as { order: number }).order,
        })),
      };
    },
    question: (content) => ({ role: 'user', content }),
    results: (results) => [
      {
        role: 'tool',
        content: results.map(({ id, text }) => ({
          ...{ type: 'tool-result', toolCallId: id, toolName: 'look' },
          output: { type: 'text', value: text },
        })),
      },
    ],
  };
};

/** Items without recovery calls and their results. */
function withoutRecovery(items: readonly object[]): Part[] {
  const isOurs = ({ id, call_id: call, tool_call_id: answered, tool_use_id: used }: Part): boolean =>
    [id, call, answered, used].some((one) => /^[ms]-\d+$/.test(one ?? ''));
  return items.flatMap((item: Part) => {
    if (isOurs(item)) return [];
    const { tool_calls: calls = [], content, ...rest } = item;
    const blocks = Array.isArray(content) ? content.filter((block) => !isOurs(block as Part)) : content;
    if (Array.isArray(blocks) && blocks.length === 0) return [];
    return [{ ...rest, content: blocks ?? null, tool_calls: calls.filter((call) => !isOurs(call)) }];
  });
}

describe('a long conversation with searches and restarts', () => {
  test('chat completions', () => converse('long-chat', chatClient));
  test('messages', () => converse('long-messages', messagesClient));
  test('responses', () => converse('long-responses', responsesClient(false)));
  test('responses that the client names by their ids', () => converse('long-stored', responsesClient(true)));
  test('the AI SDK with its model of OpenAI', async () => {
    const before = upstream.requests.length;
    await converse('long-ai-sdk', aiSdkClient);
    const sent = upstream.requests.slice(before).flatMap(({ body }) => body.input ?? []);
    expect(sent.filter(({ type }) => type === 'item_reference').length).toBeGreaterThan(10);
  });
});

async function converse<Item extends object>(session: string, clientOf: ClientOf<Item>): Promise<void> {
  const sizes: number[] = [];
  const searches: string[] = [];
  const faults: string[] = [];
  const requests: GatewayRequest[] = [];
  upstream.reply(script(sizes, searches, faults));
  const settings = {
    upstreams: { scripted: upstream.url },
    observe: (request: GatewayRequest) => requests.push(request),
  };
  let gateway = await gatewayOf(stack, settings);
  let client = clientOf(gateway, session);
  const list: Item[] = [];
  const texts: string[] = [];
  for (let turn = 1; turn <= turns; turn++) {
    list.push(client.question(question(turn)));
    for (;;) {
      const { items, calls } = await client.ask(list, turn % 2 === 0);
      list.push(...items);
      texts.push(JSON.stringify(items));
      if (calls.length === 0) break;
      list.push(...client.results(calls.map(({ id, order }) => ({ id, text: found(order) }))));
    }
    if (turn % 5 === 0) await stack.palimpsest.settled({ session });
    if (turn % 25 !== 0) continue;
    await gateway.close();
    gateway = await gatewayOf(stack, settings);
    client = clientOf(gateway, session);
  }
  await gateway.close();
  const log = await replayed(session);
  const searched = JSON.stringify(log).match(/"name":"search_history"/g) ?? [];
  expect(searches.length).toBeGreaterThan(10);
  expect(searched).toHaveLength(searches.length);
  // The client never saw a search.
  expect(texts.join('')).not.toContain('search_history');
  // What the model said before a search, in one answer with what followed, is two messages of the log.
  const plain = (items: readonly object[]) =>
    JSON.stringify(withoutRecovery(items)).match(/Question \d+:|l-\d+-\d|All is well/g);
  expect(plain(log)).toEqual(plain(listOf(list)));
  expect(faults).toEqual([]);
  expect(requests.filter(({ bypassed, status }) => bypassed !== null || status !== 200)).toEqual([]);
  expect(requests.reduce((sum, { recovered }) => sum + recovered, 0)).toBe(searches.length);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(window);
  expect((await stack.palimpsest.status({ session })).generation).toBeGreaterThan(3);
}
