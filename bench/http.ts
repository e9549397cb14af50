/**
 * Measures the cost of HTTP: the same appends and contexts through the library in this process, and through the HTTP client and
 * an API process, alternately, so that both run under the same load.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { PalimpsestClient } from '../src/contract/client.js';
import { parseExact } from '../src/conversation/json.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { HttpPalimpsest } from '../src/http-client/index.js';
import type { PolicyInput } from '../src/policy/schema.js';
import { agentTurn } from './conversation.js';
import { deploy, type Deployment } from './deployment.js';
import { figure, median, timed, type BenchResult, type Figure } from './figures.js';
import type { Servers } from './servers.js';

export const token = 'bench';
const policy: PolicyInput = { contextWindow: 1_000_000 };
/** A session is left after so many turns, so that contexts stay of one size. */
const turnsPerSession = 20;
const rounds = 5;
/** Requests before both processes have compiled their hot code; not counted. */
const warmUpRounds = 4;
const callsPerRound = 60;

interface Size {
  name: string;
  messages: (seed: number) => ChatMessage[];
}

const sizes: readonly Size[] = [
  {
    name: '2 messages of 60 tokens',
    messages: (seed) => agentTurn(60, seed).filter((_, at) => at % 5 === 0),
  },
  { name: '6 messages, 20 kB', messages: (seed) => agentTurn(600, seed) },
];

export async function http(servers: Servers): Promise<BenchResult> {
  const deployment = await deploy(servers);
  const api = await startApiProcess(servers, deployment);
  try {
    const client = await HttpPalimpsest.connect({ url: api.address, token });
    const figures: Figure[] = [];
    for (const size of sizes) figures.push(...(await measure(deployment.palimpsest, client, size)));
    return {
      figures: [...figures, await roundTrip(api.address), ...parsing()],
      notes: [
        'One agent; appends and contexts by library and HTTP in turns, the API with its own connections in its own process. ' +
          `Medians of ${callsPerRound} calls, ${rounds} rounds.`,
      ],
    };
  } finally {
    api.process.disconnect();
    await once(api.process, 'exit');
    await deployment.close();
  }
}

async function measure(library: PalimpsestClient, client: PalimpsestClient, size: Size): Promise<Figure[]> {
  const appends: Record<'library' | 'http' | 'ratio', number[]> = { library: [], http: [], ratio: [] };
  const contexts: typeof appends = { library: [], http: [], ratio: [] };
  let seed = 1;
  for (let round = 0; round < warmUpRounds + rounds; round++) {
    const seen = { library: [[], []] as number[][], http: [[], []] as number[][] };
    for (let call = 0; call < callsPerRound; call++, seed++) {
      for (const [way, by] of [['library', library] as const, ['http', client] as const]) {
        const session = `${size.name}, ${way}, ${Math.floor(seed / turnsPerSession)}`;
        const turn = { session, turnId: `t-${seed}`, messages: size.messages(seed), policy };
        seen[way][0]?.push(await timed(() => by.appendTurn(turn)));
        seen[way][1]?.push(await timed(() => by.context({ session })));
      }
    }
    if (round < warmUpRounds) continue;
    for (const [index, kept] of [appends, contexts].entries()) {
      const [own, other] = [median(seen.library[index] ?? []), median(seen.http[index] ?? [])];
      kept.library.push(own);
      kept.http.push(other);
      kept.ratio.push(other / own);
    }
  }
  return [
    ...rows(`append of ${size.name}`, appends),
    ...rows(`context of up to ${turnsPerSession} turns of ${size.name}`, contexts),
  ];
}

function rows(what: string, { library, http: overHttp, ratio }: Record<string, number[]>): Figure[] {
  return [
    figure('http', `${what}, library`, 'ms', library ?? []),
    figure('http', `${what}, HTTP`, 'ms', overHttp ?? []),
    figure('http', `${what}, HTTP against library`, '×', ratio ?? []),
  ];
}

/** What any request costs that asks for nothing. */
async function roundTrip(address: string): Promise<Figure> {
  const medians: number[] = [];
  for (let round = 0; round <= rounds; round++) {
    const times: number[] = [];
    for (let call = 0; call < callsPerRound; call++)
      times.push(await timed(() => fetch(`${address}/healthz`).then((answer) => answer.text())));
    medians.push(median(times));
  }
  return figure('http', 'a request that asks for nothing (/healthz)', 'ms', medians.slice(1));
}

/** Measures the cost of reading a body exactly. */
function parsing(): Figure[] {
  const text = JSON.stringify({ turnId: 't-1', messages: sizes[1]?.messages(7) });
  const read = (parse: (body: string) => unknown) =>
    Array.from({ length: rounds + 1 }, () => {
      const start = performance.now();
      for (let run = 0; run < 500; run++) parse(text);
      return (performance.now() - start) / 500;
    }).slice(1);
  return [
    figure('http', 'the 20 kB body read exactly', 'ms', read(parseExact)),
    figure('http', 'the 20 kB body read by JSON.parse', 'ms', read(JSON.parse)),
  ];
}

export async function startApiProcess(
  servers: Servers,
  { databaseUrl, tenant }: Deployment,
): Promise<{ address: string; process: ChildProcess }> {
  const library = { databaseUrl, temporal: { address: servers.temporalAddress }, queuePrefix: tenant };
  const sha256 = createHash('sha256').update(token).digest('hex');
  const child = fork(fileURLToPath(new URL('api-process.ts', import.meta.url)), {
    execArgv: ['--import', 'tsx'],
    env: { ...process.env, API: JSON.stringify({ library, api: { port: 0, tokens: [{ tenant, sha256 }] } }) },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const ended = once(child, 'exit').then(() => {
    throw new Error('the API process ended');
  });
  const [address] = (await Promise.race([once(child, 'message'), ended])) as [string];
  ended.catch(() => undefined);
  return { address, process: child };
}
