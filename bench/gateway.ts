/**
 * Measures the cost of the gateway: the time to the first bytes of a stream, of the same requests to a provider directly and
 * through the gateway, alternately, so that both run under the same load.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { ChatMessage } from '../src/conversation/message.js';
import { agentTurn } from './conversation.js';
import { deploy, type Deployment } from './deployment.js';
import { figure, median, type BenchResult, type Figure } from './figures.js';
import type { Servers } from './servers.js';

const key = 'bench';
const rounds = 5;
/** Requests before all processes have compiled their hot code; not counted. */
const warmUpRounds = 3;
const callsPerRound = 40;
/** Between two requests: a model takes longer, and what a turn sets off in Temporal and the worker ends within it. */
const pauseMs = 50;
/** Milliseconds; the median through the gateway must not be further above the direct one. */
const bar = 10;

interface Size {
  name: string;
  /** Messages before the first request; every request has two more. */
  history: (seed: number) => ChatMessage[];
  /** Tokens of each further message. */
  tokens: number;
  /** A session is left after so many requests. */
  requests: number;
}

const turns = (count: number, tokens: number) => (seed: number) =>
  Array.from({ length: count }, (_, index) => agentTurn(tokens, seed * 1_000 + index)).flat();

const sizes: readonly Size[] = [
  { name: 'up to 40 messages of 60 tokens', history: () => [], tokens: 60, requests: 20 },
  { name: '120 to 160 messages of 200 tokens', history: turns(20, 200), tokens: 200, requests: 20 },
];

export async function gateway(servers: Servers): Promise<BenchResult> {
  const deployment = await deploy(servers);
  const provider = await startProvider();
  const { port } = provider.address() as AddressInfo;
  const direct = `http://127.0.0.1:${port}`;
  const child = await startGatewayProcess(servers, deployment, direct);
  const agent = new Agent({ keepAlive: true });
  try {
    const figures: Figure[] = [];
    for (const size of sizes)
      figures.push(...(await measure(size, { direct, gateway: child.address }, agent)));
    return {
      figures,
      notes: [
        'One client; a streamed chat completion with a session, to a provider on this machine that answers at once and through the ' +
          `gateway in turns, ${pauseMs} ms after one another, the gateway in its own process. Medians of ${callsPerRound} requests, ` +
          `${rounds} rounds; the sessions are below their trigger. The first request of a session, which stores its history, is not counted.`,
      ],
    };
  } finally {
    agent.destroy();
    child.process.disconnect();
    await once(child.process, 'exit');
    provider.close();
    provider.closeAllConnections();
    await deployment.close();
  }
}

async function measure(
  { name, history, tokens, requests }: Size,
  addresses: { direct: string; gateway: string },
  agent: Agent,
): Promise<Figure[]> {
  const kept: Record<'direct' | 'gateway' | 'more', number[]> = { direct: [], gateway: [], more: [] };
  let seed = 0;
  let list: ChatMessage[] = [];
  for (let round = 0; round < warmUpRounds + rounds; round++) {
    const seen: Record<'direct' | 'gateway', number[]> = { direct: [], gateway: [] };
    for (let call = 0; call < callsPerRound; call++, seed++) {
      const session = `${name}, ${Math.floor(seed / requests)}`;
      const isFirst = seed % requests === 0;
      if (isFirst) list = history(seed + 1);
      const [question, , , , , answer] = agentTurn(tokens, seed + 1);
      if (question) list.push(question);
      const body = JSON.stringify({ model: 'gpt-4.1', stream: true, messages: list });
      const headers = {
        'content-type': 'application/json',
        'x-palimpsest-session': session,
        'x-palimpsest-key': key,
      };
      const times = {
        direct: await firstBytes(addresses.direct, body, headers, agent),
        gateway: await firstBytes(addresses.gateway, body, headers, agent),
      };
      if (!isFirst) for (const way of ['direct', 'gateway'] as const) seen[way].push(times[way]);
      if (answer) list.push(answer);
    }
    if (round < warmUpRounds) continue;
    const [one, other] = [median(seen.direct), median(seen.gateway)];
    kept.direct.push(one);
    kept.gateway.push(other);
    kept.more.push(other - one);
  }
  return [
    figure('gateway', `first bytes, ${name}, direct`, 'ms', kept.direct),
    figure('gateway', `first bytes, ${name}, through the gateway`, 'ms', kept.gateway),
    figure('gateway', `first bytes, ${name}, more through the gateway`, 'ms', kept.more, bar),
  ];
}

/** Milliseconds until the first bytes of the answer's body. */
async function firstBytes(
  address: string,
  body: string,
  headers: Record<string, string>,
  agent: Agent,
): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, pauseMs));
  const start = performance.now();
  const request = httpRequest(`${address}/v1/chat/completions`, { method: 'POST', headers, agent });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  await once(response, 'readable');
  const took = performance.now() - start;
  const bypassed = response.headers['x-palimpsest-bypassed'];
  if (response.statusCode !== 200 || bypassed !== undefined)
    throw new Error(`the request ended with ${response.statusCode}, ${String(bypassed)}`);
  await once(response.resume(), 'end');
  return took;
}

/** A provider that streams the same short answer at once. */
async function startProvider(): Promise<Server> {
  const chunk = (delta: object, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: 'c', model: 'gpt-4.1', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const events = [chunk({ role: 'assistant', content: 'Done.' }), chunk({}, 'stop'), 'data: [DONE]\n\n'];
  const server = createServer((incoming, response) => {
    incoming.resume().once('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const event of events) response.write(event);
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

async function startGatewayProcess(
  servers: Servers,
  { databaseUrl, tenant }: Deployment,
  upstream: string,
): Promise<{ address: string; process: ChildProcess }> {
  const library = { databaseUrl, temporal: { address: servers.temporalAddress }, queuePrefix: tenant };
  const sha256 = createHash('sha256').update(key).digest('hex');
  const gateway = { port: 0, upstreams: { provider: upstream }, tokens: [{ tenant, sha256 }] };
  const child = fork(fileURLToPath(new URL('gateway-process.ts', import.meta.url)), {
    execArgv: ['--import', 'tsx'],
    env: { ...process.env, GATEWAY: JSON.stringify({ library, gateway }) },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const ended = once(child, 'exit').then(() => {
    throw new Error('the gateway process ended');
  });
  const [address] = (await Promise.race([once(child, 'message'), ended])) as [string];
  ended.catch(() => undefined);
  return { address, process: child };
}
