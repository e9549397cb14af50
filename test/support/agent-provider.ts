/**
 * A provider for agents on 127.0.0.1, with a small window: chat completions, Responses and Anthropic messages. Its model answers
 * every question after two calls at once. Like a provider, it refuses requests that are not valid or exceed the window.
 */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Json } from '../../src/conversation/message.js';
import { anthropic } from '../../src/formats/anthropic.js';
import type { RequestFormat } from '../../src/formats/format.js';
import { openaiChat } from '../../src/formats/openai-chat.js';
import { openaiResponses } from '../../src/formats/openai-responses.js';
import { counterFor } from '../../src/tokens/counter.js';

export type Item = Record<string, Json>;

export interface AgentProvider {
  /** Base URL, ending in `/v1`. */
  readonly url: string;
  /** The items of every question, result and answer, in order, as the agent sent them and the model answered. */
  readonly said: Item[];
  readonly requests: number;
  /** Why requests were refused. */
  readonly refused: string[];
  /** Tokens of the largest request. */
  readonly largest: number;
  close(): Promise<void>;
}

/** A call of the agent's tools: name and arguments. */
export type Call = readonly [name: string, input: Record<string, Json>];

interface Dialect {
  format: RequestFormat;
  /** Field of the request with the messages. */
  list: string;
  isResult(item: Item): boolean;
  calls(calls: Call[], number: number): Item[];
  text(text: string, number: number): Item[];
  body(items: Item[], usage: { input: number; output: number }, number: number): object;
}

const idOf = (number: number, index: number): string => `call_${number}_${index}`;

const dialects: Record<string, Dialect> = {
  '/v1/chat/completions': {
    format: openaiChat,
    list: 'messages',
    isResult: ({ role }) => role === 'tool',
    calls: (calls, number) => [
      {
        ...{ role: 'assistant', content: null },
        tool_calls: calls.map(([name, input], index) => ({
          ...{ id: idOf(number, index), type: 'function' },
          function: { name, arguments: JSON.stringify(input) },
        })),
      },
    ],
    text: (text) => [{ role: 'assistant', content: text }],
    body: ([message], { input, output }, number) => ({
      ...{ id: `chatcmpl-${number}`, object: 'chat.completion', created: 1_700_000_000, model: 'scripted' },
      choices: [{ index: 0, message, finish_reason: message?.tool_calls ? 'tool_calls' : 'stop' }],
      usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output },
    }),
  },
  '/v1/responses': {
    format: openaiResponses,
    list: 'input',
    isResult: ({ type }) => type === 'function_call_output',
    calls: (calls, number) => [
      { type: 'reasoning', id: `rs_${number}`, summary: [{ type: 'summary_text', text: 'Look.' }] },
      ...calls.map(([name, input], index) => ({
        ...{ type: 'function_call', id: `fc_${number}_${index}`, call_id: idOf(number, index) },
        ...{ name, arguments: JSON.stringify(input), status: 'completed' },
      })),
    ],
    text: (text, number) => [
      {
        ...{ type: 'message', id: `msg_${number}`, role: 'assistant', status: 'completed' },
        content: [{ type: 'output_text', text, annotations: [] }],
      },
    ],
    body: (output, usage, number) => ({
      ...{
        id: `resp_${number}`,
        object: 'response',
        created_at: 1_700_000_000,
        status: 'completed',
        model: 'scripted',
      },
      ...{ output, parallel_tool_calls: true, tool_choice: 'auto', tools: [] },
      usage: {
        ...{
          input_tokens: usage.input,
          output_tokens: usage.output,
          total_tokens: usage.input + usage.output,
        },
        ...{ input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } },
      },
    }),
  },
  '/v1/messages': {
    format: anthropic,
    list: 'messages',
    isResult: ({ content }) => JSON.stringify(content).includes('"tool_result"'),
    calls: (calls, number) => [
      {
        role: 'assistant',
        content: calls.map(([name, input], index) => ({
          type: 'tool_use',
          id: idOf(number, index),
          name,
          input,
        })),
      },
    ],
    text: (text) => [{ role: 'assistant', content: [{ type: 'text', text }] }],
    body: ([message], { input, output }, number) => ({
      ...{ id: `msg_${number}`, type: 'message', model: 'scripted', stop_sequence: null, ...message },
      stop_reason: JSON.stringify(message).includes('"tool_use"') ? 'tool_use' : 'end_turn',
      usage: { input_tokens: input, output_tokens: output },
    }),
  },
};

/** `calls` returns the calls that the model makes for its n-th question, from 1. */
export async function startAgentProvider(
  window: number,
  calls: (question: number) => Call[],
): Promise<AgentProvider> {
  const counter = counterFor('o200k_base');
  const said: Item[] = [];
  const refused: string[] = [];
  let [requests, questions, largest] = [0, 0, 0];

  function answer(path: string, asked: Item): { status: number; body: object } {
    const dialect = dialects[path];
    if (!dialect) return { status: 404, body: { error: { message: `There is no ${path}.` } } };
    requests++;
    const { [dialect.list]: list, system, instructions } = asked;
    const items = list as Item[];
    const tokens = tokensOf([list ?? null, system ?? null, instructions ?? null]);
    largest = Math.max(largest, tokens);
    const given = system ?? instructions;
    const faults = dialect.format.violations({
      messages: items,
      ...(given === undefined ? {} : { system: given! }),
    });
    if (tokens > window) faults.push(`${tokens} tokens exceed the window of ${window}`);
    if (faults.length > 0) {
      refused.push(...faults);
      return { status: 400, body: { error: { type: 'invalid_request_error', message: faults.join('; ') } } };
    }
    const from = items.findLastIndex((item) => !dialect.isResult(item)) + 1;
    const isQuestion = from === items.length;
    if (isQuestion) questions++;
    said.push(...(isQuestion ? items.slice(-1) : items.slice(from)));
    const made = isQuestion
      ? dialect.calls(calls(questions), requests)
      : dialect.text(`Answer ${questions}.`, requests);
    said.push(...made);
    return { status: 200, body: dialect.body(made, { input: tokens, output: tokensOf(made) }, requests) };
  }

  /** Tokens of everything that the model reads. */
  function tokensOf(value: Json | undefined): number {
    if (typeof value === 'string') return counter.count(value);
    if (value === null || typeof value !== 'object') return 0;
    const read = Array.isArray(value)
      ? value
      : Object.entries(value).map(([name, each]) => (unread.has(name) ? null : each));
    return read.reduce<number>((sum, each) => sum + tokensOf(each), 0);
  }

  const server = createServer((incoming, response) => {
    void readJson(incoming).then((asked) => {
      const { status, body } = answer(incoming.url ?? '', asked);
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    ...{ said, refused },
    get requests() {
      return requests;
    },
    get largest() {
      return largest;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Fields that a model does not read. */
const unread = new Set(['id', 'type', 'role', 'status', 'call_id', 'tool_call_id', 'tool_use_id']);

async function readJson(incoming: IncomingMessage): Promise<Item> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  return JSON.parse(Buffer.concat(pieces).toString('utf8')) as Item;
}
