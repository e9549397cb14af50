/**
 * An agent that runs for 100 turns on a model with a window of 6,000 tokens, and never exceeds it.
 *
 *   npm run example                  over the HTTP API (`palimpsest/http`)
 *   npm run example -- --library     over the library, without the API
 *
 * In a project that has the package installed: `node node_modules/palimpsest/dist/examples/agent-loop.js`. Everything runs on
 * this machine: embedded PostgreSQL and Temporal (or those that DATABASE_URL and TEMPORAL_ADDRESS name), a worker, the API, and a
 * scripted model that refuses requests over its window (scripted-model.ts). The imports from `#src` start services that run
 * elsewhere in production.
 */
import { createHash, randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import OpenAI from 'openai';
import type { PolicyInput } from 'palimpsest';
import { callRecoveryTool, HttpPalimpsest, recoveryTools, type PalimpsestClient } from 'palimpsest/http';
import { startApi } from '#src/api/server.js';
import { openServers } from '#src/cli/servers/servers.js';
import { openStack } from '#src/cli/servers/stack.js';
import { readConfig } from '#src/config/config.js';
import { makeDataFolder } from '#src/runtime/home.js';
import { agentModel, startScriptedModel, summarizerModel } from './scripted-model.js';

type ChatMessage = OpenAI.ChatCompletionMessageParam;

const window = 6_000;
const outputTokens = 300;
const system =
  'You check shipments of a warehouse. Earlier parts of this conversation may be summarized: search_history and ' +
  'get_tool_response find every original.';

const ownTools = [
  tool('get_shipment', 'Reads the record of a shipment.'),
  tool('get_route', 'Reads the route of a shipment.'),
];
const tools: OpenAI.ChatCompletionTool[] = [...ownTools, ...recoveryTools];

/** The policy has the model's window and the overhead of every request. */
const policy: PolicyInput = {
  ...{
    model: agentModel,
    contextWindow: window,
    reservedOutputTokens: outputTokens,
    tokenizer: 'o200k_base',
  },
  overhead: { tools: tools.map((each) => ({ ...each })) },
};

const { values: flags } = parseArgs({
  options: { library: { type: 'boolean', default: false }, turns: { type: 'string', default: '100' } },
});
const model = await startScriptedModel({ agent: window, summarizer: 32_000 });
const openai = new OpenAI({ apiKey: 'none', baseURL: model.url, maxRetries: 0 });
/** Everything that was appended, to be found again at the end. */
const sent: string[] = [];
const session = `example/${randomUUID()}`;
const { palimpsest, close } = await start();
try {
  await run(Number(flags.turns));
} finally {
  await close();
  await model.close();
}

/** One turn of the agent: the loop of an agent platform with Palimpsest. */
async function converse(turn: number, request: string): Promise<string> {
  const asked: ChatMessage[] = [{ role: 'user', content: request }];
  const first: ChatMessage[] = turn === 1 ? [{ role: 'system', content: system }] : [];
  await append(`request-${turn}`, [...first, ...asked]);
  for (;;) {
    // Always valid, always within the window, whether a compaction is running or not.
    const { messages } = await palimpsest.context<ChatMessage>({ session });
    const { id, choices, usage } = await openai.chat.completions.create({
      ...{ model: agentModel, messages, tools, max_completion_tokens: outputTokens },
    });
    const answer = choices[0]!.message;
    const { content, tool_calls = [] } = answer;
    const results = await Promise.all(tool_calls.map(resultOf));
    await append(id, [answer, ...results], usage);
    if (results.length === 0) return content ?? '';
  }
}

async function append(
  turnId: string,
  messages: ChatMessage[],
  usage?: OpenAI.CompletionUsage,
): Promise<void> {
  await palimpsest.appendTurn({
    ...{ session, turnId, policy, messages },
    at: new Date().toISOString(),
    ...(usage ? { usage } : {}),
  });
  sent.push(...messages.map((message) => JSON.stringify(message)));
}

async function resultOf(call: OpenAI.ChatCompletionMessageToolCall): Promise<ChatMessage> {
  if (call.type !== 'function') throw new Error(`a ${call.type} call was not offered`);
  const { name, arguments: given } = call.function;
  const own = ownTools.some((each) => each.function.name === name);
  const content = own
    ? recordOf(name, (JSON.parse(given) as { shipment: number }).shipment)
    : await callRecoveryTool(palimpsest, session, name, given);
  return { role: 'tool', tool_call_id: call.id, content };
}

/** Each tenth turn asks for a detail of a shipment that was checked long ago. */
async function run(turns: number): Promise<void> {
  const began = Date.now();
  let generation = 0;
  let recalled = 0;
  for (let turn = 1; turn <= turns; turn++) {
    const asks = turn > 20 && turn % 10 === 0;
    const shipment = asks ? turn - 18 : turn;
    const said = await converse(
      turn,
      asks ? `Under which seal did shipment ${shipment} leave?` : `Check shipment ${shipment}.`,
    );
    if (asks && !said.includes(sealOf(shipment))) throw new Error(`turn ${turn}: ${said}`);
    recalled += Number(asks);
    generation = await report(turn, generation);
  }
  await palimpsest.settled({ session });
  generation = await report(turns, generation);
  const logged: string[] = [];
  for await (const { message } of palimpsest.replay({ session })) logged.push(JSON.stringify(message));
  const lost = sent.filter((message, index) => logged[index] !== message).length;
  const numbers = [
    `${turns} turns, ${model.requests} requests in ${((Date.now() - began) / 1_000).toFixed(1)} s`,
    `${generation} compactions`,
    `largest request ${model.largest} of ${window} tokens, ${model.refused} refused`,
    `${recalled} old details recalled`,
    `${logged.length} messages replayed, ${lost} differ`,
  ];
  process.stdout.write(`${numbers.join(' · ')}\n`);
  if (model.refused > 0 || lost > 0 || logged.length !== sent.length) process.exitCode = 1;
}

/** A line for each compaction that was committed since. */
async function report(turn: number, seen: number): Promise<number> {
  const { generation } = await palimpsest.context({ session });
  if (generation === seen) return seen;
  for (const made of await palimpsest.compactions({ session })) {
    if (made.generation <= seen) continue;
    const { tokensBefore, tokensAfter, evicted, method } = made;
    process.stdout.write(
      `turn ${String(turn).padStart(3)}  generation ${String(made.generation).padStart(2)}  ` +
        `${tokensBefore} → ${tokensAfter} tokens, ${evicted} messages evicted (${method})\n`,
    );
  }
  return generation;
}

function recordOf(name: string, shipment: number): string {
  if (name === 'get_route')
    return Array.from(
      { length: 8 },
      (_, stop) => `stop ${stop + 1}: depot ${(shipment * 7 + stop * 13) % 97}`,
    ).join('\n');
  const items = Array.from(
    { length: 18 },
    (_, index) =>
      `item ${index + 1}: article ${(shipment * 131 + index * 17) % 9_973}, ${(index * 7) % 12} pieces`,
  );
  return [`shipment ${shipment} left under seal ${sealOf(shipment)}`, ...items].join('\n');
}

function sealOf(shipment: number): string {
  return `SL-${createHash('sha256').update(`seal ${shipment}`).digest('hex').slice(0, 8).toUpperCase()}`;
}

function tool(name: string, description: string) {
  const parameters = {
    ...{ type: 'object', properties: { shipment: { type: 'integer' } } },
    ...{ required: ['shipment'], additionalProperties: false },
  };
  return { type: 'function' as const, function: { name, description, parameters } };
}

/** The services that run elsewhere in production: servers, a worker, the API. */
async function start(): Promise<{ palimpsest: PalimpsestClient; close: () => Promise<void> }> {
  const say = (line: string) => void process.stdout.write(`${line}\n`);
  const config = readConfig({
    ...process.env,
    ...{ OPENAI_API_KEY: 'none', OPENAI_BASE_URL: model.url, PALIMPSEST_SUMMARY_MODEL: summarizerModel },
    // A separate deployment, also next to an `npm start` on the same servers.
    PALIMPSEST_QUEUE_PREFIX: `example-${process.pid}`,
  });
  makeDataFolder(config.dataDir);
  const stack = await openStack(openServers(config, say), config, policy, new AbortController(), {
    say,
    api: false,
  });
  if (flags.library) return stack;
  const api = await startApi({ port: 0 }, stack.palimpsest);
  say(`API         ${api.address}`);
  const over = await HttpPalimpsest.connect({ url: api.address });
  return {
    palimpsest: over,
    async close() {
      await over.close();
      await api.close();
      await stack.close();
    },
  };
}
