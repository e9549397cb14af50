import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { afterAll, afterEach, beforeAll } from 'vitest';
import type { ChatMessage, Json } from '../../src/conversation/message.js';
import { type RunningGateway, startGateway } from '../../src/gateway/server.js';
import type { GatewaySettings } from '../../src/gateway/settings.js';
import { startStack, type Stack } from './stack.js';
import { startUpstream, type UpstreamServer } from './upstream.js';
import { storedItems } from './sessions.js';

export const key = 'key-of-palimpsest';

/** A gateway for a stack, whose tenant has the key. */
export async function gatewayOf(stack: Stack, settings: GatewaySettings): Promise<RunningGateway> {
  const sha256 = createHash('sha256').update(key).digest('hex');
  const tokens = [{ tenant: stack.queuePrefix, sha256 }];
  return startGateway({ port: 0, tokens, ...settings }, stack.palimpsest);
}

/** A stack and an upstream for all tests of a file, and gateways that close after each test. */
export interface GatewayBench {
  readonly stack: Stack;
  readonly upstream: UpstreamServer;
  /** Those that are closed after the test. */
  readonly gateways: RunningGateway[];
  gateway(settings?: Partial<GatewaySettings>): Promise<RunningGateway>;
  /** Closes them. */
  stopped(): Promise<unknown>;
}

/** Call it at the top of a file. `contextWindow`: that of the tenant's policy. */
export function useGateways({
  worker = true,
  contextWindow,
}: { worker?: boolean; contextWindow?: number } = {}): GatewayBench {
  const gateways: RunningGateway[] = [];
  let stack: Stack | undefined;
  let upstream: UpstreamServer | undefined;
  const bench: GatewayBench = {
    gateways,
    get stack() {
      return stack!;
    },
    get upstream() {
      return upstream!;
    },
    async gateway(settings) {
      const started = await gatewayOf(bench.stack, {
        upstreams: { scripted: bench.upstream.url },
        ...settings,
      });
      gateways.push(started);
      return started;
    },
    stopped: () => Promise.all(gateways.splice(0).map((gateway) => gateway.close())),
  };
  beforeAll(async () => {
    stack = await startStack({ worker });
    if (contextWindow !== undefined) await stack.palimpsest.configureTenant({ policy: { contextWindow } });
    upstream = await startUpstream();
  });
  afterEach(async () => {
    await bench.stopped();
    upstream?.reply(() => ({ text: 'Hello.' }));
    upstream?.requests.splice(0);
  });
  afterAll(async () => {
    await upstream?.close();
    await stack?.stop();
  });
  return bench;
}

export interface Answered {
  status: number;
  rawHeaders: string[];
  headers: IncomingMessage['headers'];
  bytes: Buffer;
  json: Answer;
}

/** The fields of answers and errors that are read. */
interface Answer {
  id?: string;
  choices?: { message: ChatMessage }[];
  error?: { code: string; message: string };
}

export type Headers = Record<string, string | string[]>;

/** A request with exactly these bytes. */
export async function send(
  url: string,
  {
    body,
    headers = {},
    method = 'POST',
    path,
  }: { body?: string | Buffer; headers?: Headers; method?: string; path?: string },
): Promise<Answered> {
  const request = httpRequest(url, { method, headers, ...(path === undefined ? {} : { path }) });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const bytes = Buffer.concat(chunks);
  let json: Answer = {};
  try {
    json = JSON.parse(bytes.toString('utf8')) as Answer;
  } catch {
    // Not every answer is JSON.
  }
  const { statusCode = 0, rawHeaders } = response;
  return { status: statusCode, rawHeaders, headers: response.headers, bytes, json };
}

export const sessionHeaders = (session: string, more: Headers = {}): Headers => ({
  ...{ 'content-type': 'application/json', authorization: 'Bearer provider' },
  ...{ 'x-palimpsest-session': session, 'x-palimpsest-key': key },
  ...more,
});

export const completions = '/v1/chat/completions';
export const user = (content: string): ChatMessage => ({ role: 'user', content });
export const assistant = (content: string): ChatMessage => ({ role: 'assistant', content });
export const bodyOf = (messages: readonly unknown[], more: object = {}): string =>
  JSON.stringify({ model: 'gpt-4o', messages, ...more });

/** The headers of a request but those of the connection. */
export const passed = (raw: string[]): string[] =>
  raw
    .flatMap((name, index) => (index % 2 === 0 ? [`${name}: ${raw[index + 1]}`] : []))
    .filter(
      (line) =>
        !/^(?:host|connection|keep-alive|content-length|transfer-encoding|accept-encoding):/i.test(line),
    );

/** The items of a session as they were stored. */
export async function replayed({ palimpsest }: Stack, session: string): Promise<Json[]> {
  // An exported chat message has the time of its turn.
  const withoutTime = (item: Json): Json => {
    const { at: _at, ...said } = item as { at?: Json };
    return said;
  };
  return (await storedItems(palimpsest, session)).map(withoutTime);
}
