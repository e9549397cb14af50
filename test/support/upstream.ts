/** A provider for tests of the gateway: a real HTTP server on 127.0.0.1 with scripted answers, which keeps what it received. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Json } from '../../src/conversation/message.js';
import { counterFor } from '../../src/tokens/counter.js';

/** A message, an item, a block, a call or a tool: the fields that tests read, of any interface. */
export interface Part {
  id?: string;
  type?: string;
  role?: string;
  name?: string;
  call_id?: string;
  tool_call_id?: string;
  tool_use_id?: string;
  arguments?: string;
  function?: { name: string; arguments: string };
  content?: Json;
  tool_calls?: Part[];
}

interface Body {
  model?: string;
  stream?: boolean;
  messages?: Part[];
  input?: Part[];
  system?: Json;
  instructions?: Json;
  tools?: Part[];
  tool_choice?: { type?: string };
}

export interface Received {
  method: string;
  url: string;
  rawHeaders: string[];
  headers: IncomingMessage['headers'];
  bytes: Buffer;
  /** The body, empty if it is no JSON. */
  body: Body;
  /** The client closed the connection before the answer was sent. */
  aborted: boolean;
}

export interface Said {
  text?: string;
  /** Only of responses: a reasoning item before each of the others. */
  reasons?: boolean;
  calls?: { id: string; name: string; args: object }[];
  /** @default the counted tokens */
  usage?: { input: number; output: number };
}

/** Answers a request itself, or says what the model says. */
export type UpstreamScript = (
  received: Received,
  response: ServerResponse,
) => Said | undefined | void | Promise<Said | undefined | void>;

export interface UpstreamServer {
  /** `http://127.0.0.1:PORT` */
  url: string;
  requests: Received[];
  /** Items of all its answers to responses, by their ids. */
  items: Map<string, Part>;
  reply(script: UpstreamScript): void;
  close(): Promise<void>;
}

export async function startUpstream(
  first: UpstreamScript = () => ({ text: 'Hello.' }),
): Promise<UpstreamServer> {
  const requests: Received[] = [];
  const items = new Map<string, Part>();
  let script = first;
  const serve = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    const { method = '', url = '', rawHeaders, headers } = incoming;
    let body: Body = {};
    try {
      body = JSON.parse(bytes.toString('utf8')) as Body;
    } catch {
      // Not every request has JSON.
    }
    const received = { method, url, rawHeaders, headers, bytes, body, aborted: false };
    requests.push(received);
    response.once('close', () => (received.aborted = !response.writableFinished));
    const said = await script(received, response);
    if (said) for (const item of await say(said, received, response)) items.set(item.id!, item);
  };
  const server = createServer((incoming, response) => void serve(incoming, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    items,
    reply: (next) => (script = next),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const counter = counterFor('o200k_base');

/** Tokens of all texts in a value. */
export function tokensOf(value: unknown): number {
  if (typeof value === 'string') return counter.count(value);
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce<number>((sum, inner) => sum + tokensOf(inner), 0);
}

/**
 * Sends what the model says in the form of the interface that was called, as a stream if one was asked for. Resolves to the items of an
 * answer to responses.
 */
export async function say(said: Said, { url, body }: Received, response: ServerResponse): Promise<Part[]> {
  const { input, output } = said.usage ?? { input: tokensOf(body), output: tokensOf(said) };
  const { model = 'none', tools = [] } = body;
  const frame = { input, output, model, id: `answer-${++answers}`, tools };
  const { whole, events } = answerAt(url.split('?')[0] ?? '', said, frame);
  const { output: items = [] } = whole as { output?: Part[] };
  if (body.stream !== true) {
    const text = JSON.stringify(whole);
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
    });
    response.end(text);
    return items;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  for (const event of events) {
    response.write(event);
    // Each event comes in a packet of its own.
    await new Promise((resolve) => setImmediate(resolve));
  }
  response.end();
  return items;
}

let answers = 0;

interface Frame {
  input: number;
  output: number;
  model: string;
  id: string;
  /** Those of the request, which responses repeat. */
  tools?: readonly object[];
}

type Told = Required<Omit<Said, 'usage'>>;

/** An answer as a whole, and as the events of its stream, in the form of the interface at this path. */
export function answerAt(path: string, said: Said, frame: Frame): { whole: object; events: string[] } {
  const make = path.endsWith('/chat/completions') ? chat : path.endsWith('/responses') ? responses : messages;
  return make({ text: '', calls: [], reasons: false, ...said }, frame);
}

/** A text in pieces of a few characters. */
const pieces = (text: string): string[] => text.match(/[^]{1,12}/g) ?? [];

function chat({ text, calls }: Told, { input, output, model, id }: Frame) {
  const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output };
  const reason = calls.length > 0 ? 'tool_calls' : 'stop';
  const base = { id, created: 1_700_000_000, model, system_fingerprint: 'fp' };
  const toolCalls = calls.map(({ id: call, name, args }) => ({
    ...{ id: call, type: 'function' },
    function: { name, arguments: JSON.stringify(args) },
  }));
  const message = {
    ...{ role: 'assistant', content: text === '' ? null : text, refusal: null, annotations: [] },
    ...(calls.length > 0 ? { tool_calls: toolCalls } : {}),
  };
  const chunk = (delta: object, finish: string | null = null) => ({
    ...{ ...base, object: 'chat.completion.chunk', usage: null },
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  });
  const chunks = [
    chunk({ role: 'assistant', content: text === '' ? null : '', refusal: null }),
    ...pieces(text).map((content) => chunk({ content })),
    ...toolCalls.flatMap((call, index) => [
      chunk({ tool_calls: [{ index, ...call, function: { ...call.function, arguments: '' } }] }),
      ...pieces(call.function.arguments).map((part) =>
        chunk({ tool_calls: [{ index, function: { arguments: part } }] }),
      ),
    ]),
    chunk({}, reason),
    { ...base, object: 'chat.completion.chunk', choices: [], usage },
  ];
  const choices = [{ index: 0, message, logprobs: null, finish_reason: reason }];
  return {
    whole: { ...base, object: 'chat.completion', choices, usage },
    events: [...chunks.map((one) => `data: ${JSON.stringify(one)}\n\n`), 'data: [DONE]\n\n'],
  };
}

type Event = { type: string; [field: string]: unknown };

const event = (data: Event): string => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;

function messages({ text, calls }: Told, { input, output, model, id }: Frame) {
  const content = [
    ...(text === '' ? [] : [{ type: 'text', text }]),
    ...calls.map(({ id: call, name, args }) => ({ type: 'tool_use', id: call, name, input: args })),
  ];
  const reason = calls.length > 0 ? 'tool_use' : 'end_turn';
  const usage = { input_tokens: input, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 };
  const frame = { id, type: 'message', role: 'assistant', model };
  const whole = {
    ...{ ...frame, content, stop_reason: reason, stop_sequence: null },
    usage: { ...usage, output_tokens: output },
  };
  const blocks = content.flatMap((block, index): Event[] => {
    const isText = block.type === 'text';
    const deltas =
      'text' in block
        ? pieces(block.text).map((part) => ({ type: 'text_delta', text: part }))
        : pieces(JSON.stringify(block.input)).map((part) => ({
            type: 'input_json_delta',
            partial_json: part,
          }));
    const begun = isText ? { type: 'text', text: '' } : { ...block, input: {} };
    return [
      { type: 'content_block_start', index, content_block: begun },
      ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
      { type: 'content_block_stop', index },
    ];
  });
  const message = { ...whole, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } };
  const end = { delta: { stop_reason: reason, stop_sequence: null }, usage: { output_tokens: output } };
  const all = [
    { type: 'message_start', message },
    { type: 'ping' },
    ...blocks,
    { type: 'message_delta', ...end },
    { type: 'message_stop' },
  ];
  return { whole, events: all.map(event) };
}

function responses({ text, calls, reasons }: Told, { input, output, model, id, tools = [] }: Frame) {
  const part = { type: 'output_text', text, annotations: [], logprobs: [] };
  const said = [
    ...(text === ''
      ? []
      : [{ id: `msg_${id}`, type: 'message', role: 'assistant', status: 'completed', content: [part] }]),
    ...calls.map(({ id: call, name, args }, index) => ({
      ...{ id: `fc_${id}_${index}`, type: 'function_call', status: 'completed' },
      ...{ call_id: call, name, arguments: JSON.stringify(args) },
    })),
  ];
  const reasoning = (at: number) => ({
    ...{ id: `rs_${id}_${at}`, type: 'reasoning', encrypted_content: `thought-${id}-${at}` },
    summary: [{ type: 'summary_text', text: 'It has to be there.' }],
  });
  const items = reasons ? said.flatMap((item, at) => [reasoning(at), item]) : said;
  const usage = {
    ...{ input_tokens: input, output_tokens: output, total_tokens: input + output },
    ...{ input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } },
  };
  const base = {
    ...{ id, object: 'response', created_at: 1_700_000_000, model, error: null, incomplete_details: null },
    ...{ instructions: null, metadata: {}, parallel_tool_calls: true, temperature: 1, tool_choice: 'auto' },
    ...{ tools, top_p: 1 },
  };
  const whole = { ...base, status: 'completed', output: items, usage };
  const open = { ...base, status: 'in_progress', output: [], usage: null };
  const told = items.flatMap((item, index): Event[] => {
    const at = { output_index: index, item_id: item.id };
    if ('summary' in item) {
      const [whole] = item.summary;
      const told = { ...at, summary_index: 0 };
      return [
        { type: 'response.output_item.added', output_index: index, item: { ...item, summary: [] } },
        { type: 'response.reasoning_summary_part.added', ...told, part: { ...whole, text: '' } },
        { type: 'response.reasoning_summary_text.delta', ...told, delta: whole?.text },
        { type: 'response.reasoning_summary_text.done', ...told, text: whole?.text },
        { type: 'response.reasoning_summary_part.done', ...told, part: whole },
        { type: 'response.output_item.done', output_index: index, item },
      ];
    }
    const begun = 'content' in item ? { ...item, content: [] } : { ...item, arguments: '' };
    const inner: Event[] =
      'content' in item
        ? [
            { type: 'response.content_part.added', ...at, content_index: 0, part: { ...part, text: '' } },
            ...pieces(text).map((delta) => ({
              ...{ type: 'response.output_text.delta', ...at, content_index: 0, delta, logprobs: [] },
            })),
            { type: 'response.output_text.done', ...at, content_index: 0, text, logprobs: [] },
            { type: 'response.content_part.done', ...at, content_index: 0, part },
          ]
        : [
            ...pieces(item.arguments).map((delta) => ({
              ...{ type: 'response.function_call_arguments.delta', ...at, delta },
            })),
            {
              type: 'response.function_call_arguments.done',
              ...at,
              arguments: item.arguments,
              name: item.name,
            },
          ];
    return [
      { type: 'response.output_item.added', output_index: index, item: begun },
      ...inner,
      { type: 'response.output_item.done', output_index: index, item },
    ];
  });
  const all: Event[] = [
    { type: 'response.created', response: open },
    { type: 'response.in_progress', response: open },
    ...told,
    { type: 'response.completed', response: whole },
  ];
  return {
    whole,
    events: all.map((one, number) => event({ ...one, sequence_number: number })),
  };
}
