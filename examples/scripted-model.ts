/**
 * A model endpoint on this machine in the form of OpenAI chat completions, with a small window. Like OpenAI, it refuses longer
 * requests with `context_length_exceeded`. It answers as a scripted agent, which knows only the messages of the request, and as
 * a summarizer that copies facts.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';

interface Message {
  role: string;
  content?: string | null;
  tool_calls?: { id: string; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
}

interface Request {
  model: string;
  messages: Message[];
  tools?: object[];
  max_tokens?: number;
  max_completion_tokens?: number;
}

export interface ScriptedModel {
  /** Base URL, ending in `/v1`. */
  url: string;
  requests: number;
  /** Requests that did not fit. */
  refused: number;
  /** Tokens of the largest request that was answered, its output limit included. */
  largest: number;
  close(): Promise<void>;
}

export const agentModel = 'scripted-agent';
export const summarizerModel = 'scripted-summarizer';

/** Milliseconds of an answer. */
const delay = { [agentModel]: 10, [summarizerModel]: 150 };

/** `windows`: tokens of each model's window. */
export async function startScriptedModel(windows: {
  agent: number;
  summarizer: number;
}): Promise<ScriptedModel> {
  const model: ScriptedModel = { url: '', requests: 0, refused: 0, largest: 0, close };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const asked = JSON.parse(Buffer.concat(chunks).toString()) as Request;
      const isAgent = asked.model === agentModel;
      setTimeout(
        () => {
          const { status, body } = isAgent ? agent(asked) : summarizer(asked);
          response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
        },
        delay[isAgent ? agentModel : summarizerModel],
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  model.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  return model;

  function agent(asked: Request): { status: number; body: object } {
    model.requests++;
    const used = promptTokens(asked) + outputLimit(asked);
    if (used > windows.agent) {
      model.refused++;
      return tooLong(windows.agent, used);
    }
    model.largest = Math.max(model.largest, used);
    return answered(asked, `agent-${model.requests}`, nextStep(asked.messages));
  }

  function summarizer(asked: Request): { status: number; body: object } {
    const used = promptTokens(asked) + outputLimit(asked);
    if (used > windows.summarizer) return tooLong(windows.summarizer, used);
    const content = notesOn(asked.messages.at(-1)?.content ?? '');
    return answered(asked, 'summary', { role: 'assistant', content });
  }

  async function close(): Promise<void> {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }
}

/** As OpenAI's cookbook counts: texts, and a few tokens around each message, call and tool. */
function promptTokens({ messages, tools = [] }: Request): number {
  const ofMessage = ({ role, content, tool_calls = [] }: Message): number =>
    3 +
    countTokens(role) +
    countTokens(content ?? '') +
    tool_calls.reduce(
      (sum, { function: { name, arguments: given } }) => sum + 3 + countTokens(name + given),
      0,
    );
  const ofTools = tools.reduce<number>((sum, tool) => sum + countTokens(JSON.stringify(tool)), 0);
  return 3 + ofTools + messages.reduce((sum, message) => sum + ofMessage(message), 0);
}

function outputLimit({ max_completion_tokens, max_tokens }: Request): number {
  return max_completion_tokens ?? max_tokens ?? 0;
}

function tooLong(window: number, used: number): { status: number; body: object } {
  const message = `This model's maximum context length is ${window} tokens. However, you requested ${used} tokens.`;
  const error = {
    message,
    type: 'invalid_request_error',
    param: 'messages',
    code: 'context_length_exceeded',
  };
  return { status: 400, body: { error } };
}

function answered(asked: Request, id: string, message: Message): { status: number; body: object } {
  const prompt = promptTokens(asked);
  const completion = countTokens(JSON.stringify(message));
  return {
    status: 200,
    body: {
      ...{ id, object: 'chat.completion', created: Math.floor(Date.now() / 1_000), model: asked.model },
      choices: [
        { index: 0, message, finish_reason: message.tool_calls ? 'tool_calls' : 'stop', logprobs: null },
      ],
      usage: {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt + completion,
      },
    },
  };
}

/** The agent's next action, which depends only on the messages of the request. */
function nextStep(messages: readonly Message[]): Message {
  const at = messages.findLastIndex(({ role }) => role === 'user');
  const request = messages[at]?.content ?? '';
  const results = messages
    .slice(at + 1)
    .flatMap(({ role, content }) => (role === 'tool' ? [content ?? ''] : []));
  const shipment = /shipment (\d+)/.exec(request)?.[1] ?? '0';
  if (request.startsWith('Check'))
    return results.length > 0
      ? says(`Shipment ${shipment} is complete; ${results.length} record(s) read, nothing is missing.`)
      : calls(
          ['get_shipment', { shipment: Number(shipment) }],
          ...(Number(shipment) % 4 === 0 ? [['get_route', { shipment: Number(shipment) }] as Call] : []),
        );
  const seal = messages.map(({ content }) => sealIn(content ?? '', shipment)).find((found) => found !== null);
  if (seal) return says(`Shipment ${shipment} left under seal ${seal}.`);
  // Searches for an evicted detail, then reads it word for word.
  if (results.length === 0)
    return calls(['search_history', { query: `shipment ${shipment} seal`, role: 'tool', limit: 3 }]);
  const hit = /"message":(\d+)/.exec(results[0] ?? '')?.[1];
  if (results.length === 1 && hit) return calls(['get_tool_response', { message: Number(hit) }]);
  return says(`The seal of shipment ${shipment} is not in the records.`);
}

/** A record as the tool gave it, or the same within the answer of a recovery tool. */
function sealIn(text: string, shipment: string): string | null {
  const record = new RegExp(`shipment ${shipment}\\b[^]{0,80}?seal (SL-[0-9A-F]{8})`).exec(text);
  return record?.[1] ?? null;
}

type Call = [name: string, given: object];
let made = 0;

function calls(...wanted: Call[]): Message {
  const tool_calls = wanted.map(([name, given]) => {
    return { id: `call_${++made}`, type: 'function', function: { name, arguments: JSON.stringify(given) } };
  });
  return { role: 'assistant', content: null, tool_calls };
}

function says(content: string): Message {
  return { role: 'assistant', content };
}

/** Notes on the record: the checks, without the seals. The state stays unchanged. */
function notesOn(prompt: string): string {
  const record = prompt.slice(prompt.indexOf('<record '));
  const shipments = [
    ...new Set([...record.matchAll(/shipment (\d+)/gi)].map(([, number]) => Number(number))),
  ];
  const seqs = [...record.matchAll(/^<[0-9a-f]{4}>(\d+) /gm)].map(([, seq]) => Number(seq));
  const checked = `Shipments ${shipments.join(', ')} checked one by one, complete, nothing is missing`;
  const noted = shipments.length > 0 ? checked : 'Begun: the warehouse';
  return ['## Notes', `- ${noted} [m${seqs[0] ?? 1}-${seqs.at(-1) ?? 1}]`, '## State', '- none'].join('\n');
}
