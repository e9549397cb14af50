import { createHash, randomUUID } from 'node:crypto';
import type { Json } from '../../src/conversation/message.js';
import { type RunningApi, startApi } from '../../src/api/server.js';
import type { ApiService, ApiSettings } from '../../src/api/settings.js';
import { startStack, type Stack, type StackOptions } from './stack.js';

/** A request to the HTTP API of a stack. */
export interface Asked {
  method?: string;
  /** Sent as JSON, except that a text or bytes are sent unchanged. */
  body?: Json | Buffer | undefined;
  headers?: Record<string, string>;
  /** @default the token of the stack's tenant; null: none */
  token?: string | null;
}

export interface Answered {
  status: number;
  headers: Headers;
  text: string;
  /** Parsed if it is JSON. */
  json: Json;
}

export type Ask = (path: string, asked?: Asked) => Promise<Answered>;

export interface ApiStack {
  stack: Stack;
  api: RunningApi;
  token: string;
  ask: Ask;
  stop(): Promise<void>;
}

export const digestOf = (token: string): string => createHash('sha256').update(token).digest('hex');

/** Starts a stack whose tenant has a token, and its API. `settings` may contain further tokens. */
export async function startApiStack(
  settings: ApiSettings = {},
  options: StackOptions = {},
  served: (stack: Stack) => ApiService = ({ palimpsest }) => palimpsest,
): Promise<ApiStack> {
  const stack = await startStack(options);
  const token = randomUUID();
  const { tokens = [], ...rest } = settings;
  const own = { tenant: stack.queuePrefix, sha256: digestOf(token) };
  const api = await startApi({ port: 0, ...rest, tokens: [own, ...tokens] }, served(stack));
  return {
    stack,
    api,
    token,
    ask: (path, asked) => ask(api.address, path, { token, ...asked }),
    async stop() {
      await api.close();
      await stack.stop();
    },
  };
}

export async function ask(
  address: string,
  path: string,
  { method, body, headers = {}, token = null }: Asked = {},
): Promise<Answered> {
  const raw = typeof body === 'string' || Buffer.isBuffer(body);
  const response = await fetch(`${address}${path}`, {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: raw ? new Uint8Array(Buffer.from(body)) : JSON.stringify(body) }),
  });
  const text = await response.text();
  const isJson = /[/+]json/.test(response.headers.get('content-type') ?? '');
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: isJson ? (JSON.parse(text) as Json) : null,
  };
}
