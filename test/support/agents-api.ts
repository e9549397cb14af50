/** A scripted Responses API behind the runner of OpenAI's Agents SDK. */
import { OpenAIProvider, Runner } from '@openai/agents';
import OpenAI from 'openai';
import type { Json } from '../../src/conversation/message.js';
import { openaiResponses } from '../../src/formats/openai-responses.js';
import { counterFor } from '../../src/tokens/counter.js';

const counter = counterFor('o200k_base');

export type Item = Record<string, Json>;

/** A Responses API that checks every request as the provider does, and asks `answer` for its answer. */
export class ScriptedApi {
  readonly inputs: Item[][] = [];
  readonly runner: Runner;
  largest = 0;

  constructor(answer: (input: Item[], request: number) => Item[]) {
    const openAIClient = new OpenAI({
      apiKey: 'none',
      maxRetries: 0,
      fetch: async (_, request) => {
        const { input, stream } = JSON.parse(String(request?.body)) as { input: Item[]; stream?: boolean };
        const violations = openaiResponses.violations({ messages: input });
        this.inputs.push(input);
        this.largest = Math.max(this.largest, tokensOf(input));
        if (violations.length > 0)
          return Response.json({ error: { message: violations.join() } }, { status: 400 });
        const output = answer(input, this.inputs.length) as Json;
        const response = { id: `resp_${this.inputs.length}`, object: 'response', output, usage: null };
        if (!stream) return Response.json(response);
        const event = JSON.stringify({ type: 'response.completed', response });
        return new Response(`event: response.completed\ndata: ${event}\n\n`, {
          headers: { 'content-type': 'text/event-stream' },
        });
      },
    });
    const modelProvider = new OpenAIProvider({ openAIClient });
    this.runner = new Runner({ modelProvider, tracingDisabled: true });
  }
}

/** Tokens of everything that the model reads. */
function tokensOf(value: Json): number {
  if (typeof value === 'string') return counter.count(value);
  if (value === null || typeof value !== 'object') return 0;
  const read = Array.isArray(value)
    ? value
    : ['content', 'text', 'name', 'arguments', 'output', 'summary'].map((name) => value[name] ?? null);
  return read.reduce<number>((sum, each) => sum + tokensOf(each), 0);
}

export const said = (id: string, text: string): Item => ({
  ...{ type: 'message', id, role: 'assistant', status: 'completed' },
  content: [{ type: 'output_text', text, annotations: [], logprobs: [] }],
});

export const thought = (id: string): Item => ({
  type: 'reasoning',
  id,
  summary: [{ type: 'summary_text', text: 'Look.' }],
});

export const called = (id: string, order: number): Item => ({
  ...{ type: 'function_call', id: `fc_${id}`, call_id: id, name: 'look', status: 'completed' },
  arguments: JSON.stringify({ order }),
});

/** An item without the id of a call, which the SDK removes before it stores the call. */
export function comparable(item: unknown): Json {
  const { id, ...rest } = JSON.parse(JSON.stringify(item)) as Item;
  const isCall = rest.type === 'function_call' || rest.type === 'function_call_result';
  return id === undefined || isCall ? rest : { id, ...rest };
}
