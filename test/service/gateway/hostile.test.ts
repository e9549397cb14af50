/** Requests that try to reach what they must not reach, and bodies that are refused before they have arrived. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { GatewaySettings } from '../../../src/gateway/settings.js';
import { PalimpsestError } from '../../../src/errors.js';
import {
  bodyOf,
  completions,
  gatewayOf,
  type Headers,
  key,
  replayed,
  send,
  sessionHeaders,
  user,
  useGateways,
} from '../../support/gateway.js';

const bench = useGateways({ worker: false });

describe('a body that looks like a request stays a body', () => {
  const smuggled = 'POST /v1/admin HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n';
  const framings = {
    chunked: `Transfer-Encoding: chunked\r\n\r\n${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`,
    'with a length that belongs to the connection': `Connection: Content-Length\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`,
  };

  test.each(
    ['GET', 'DELETE', 'OPTIONS', 'HEAD', 'POST'].flatMap((method) =>
      Object.entries(framings).map(([how, rest]): [string, string, string] => [method, how, rest]),
    ),
  )('%s %s', async (method, _, rest) => {
    const { address } = await bench.gateway();
    const { port, host } = new URL(address);
    const socket = connect(Number(port), '127.0.0.1');
    socket.write(`${method} /v1/models HTTP/1.1\r\nHost: ${host}\r\n${rest}`);
    await once(socket, 'data');
    socket.destroy();
    // The next request uses the same connection to the upstream.
    await send(`${address}/v1/next`, { method: 'GET' });
    expect(bench.upstream.requests.map(({ method, url }) => `${method} ${url}`)).toEqual([
      `${method} /v1/models`,
      'GET /v1/next',
    ]);
    expect(bench.upstream.requests[0]!.bytes.toString()).toBe(smuggled);
  });
});

describe('a client that still sends its body gets its answer', () => {
  const size = 12_000_000;

  /** Sends the pieces of a body for as long as the connection lasts, and only then reads the answer. */
  async function sendFirst(
    address: string,
    headers: Headers,
    most = size,
  ): Promise<{ status: number; sent: number }> {
    const { host, port } = new URL(address);
    const socket = connect(Number(port), '127.0.0.1').on('error', () => undefined);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${String(value)}\r\n`);
    const isChunked = headers['content-length'] === undefined;
    const framing = isChunked ? 'transfer-encoding: chunked\r\n' : '';
    socket.write(`POST ${completions} HTTP/1.1\r\nhost: ${host}\r\n${framing}${lines.join('')}\r\n`);
    const piece = 'x'.repeat(100_000);
    let sent = 0;
    for (; sent < most && !socket.destroyed; sent += piece.length)
      if (!socket.write(isChunked ? `${piece.length.toString(16)}\r\n${piece}\r\n` : piece))
        await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), closed]);
    const [text] = sent < most ? [''] : ((await once(socket, 'data')) as [Buffer]);
    socket.destroy();
    return { status: Number(/^HTTP\/1.1 (\d+)/.exec(String(text))?.[1] ?? 0), sent };
  }

  test.each<[string, Partial<GatewaySettings>, Headers, number]>([
    ['that is too large', { bodyLimitBytes: 1_000_000 }, sessionHeaders('large'), 413],
    [
      'whose length says that it is too large',
      { bodyLimitBytes: 1_000_000 },
      sessionHeaders('large', { 'content-length': String(size) }),
      413,
    ],
    ['without access', {}, sessionHeaders('secret', { 'x-palimpsest-key': 'wrong' }), 401],
    ['to an upstream that is away', { upstreams: { gone: 'http://127.0.0.1:1' } }, {}, 502],
  ])('%s', async (_, settings, headers, status) => {
    const { address } = await bench.gateway(settings);
    expect(await sendFirst(address, headers)).toEqual({ status, sent: size });
  });

  test('unless it never ends', async () => {
    const { address } = await bench.gateway({ bodyLimitBytes: 1_000_000, maxBodyBytes: 2_000_000 });
    const { sent } = await sendFirst(address, sessionHeaders('endless'), Infinity);
    expect(sent).toBeGreaterThan(2_000_000);
  });
});

describe('the session', () => {
  test.each([
    '../../etc/passwd',
    'a/b?c=d#e',
    '%2e%2e%2f',
    '__proto__',
    'constructor',
    "'; drop table palimpsest.sessions; --",
    '$1',
    '*',
  ])('%s is a name like any other', async (session) => {
    const { address } = await bench.gateway();
    const messages = [user(`One of ${session}.`)];
    const { status } = await send(`${address}${completions}`, {
      body: bodyOf(messages),
      headers: sessionHeaders(session),
    });
    expect(status).toBe(200);
    expect(await replayed(bench.stack, session)).toEqual(messages);
  });

  test.each(['x-palimpsest-session', 'x-palimpsest-on-edit', 'x-palimpsest-recovery'])(
    'is not read from several headers %s',
    async (name) => {
      const { address } = await bench.gateway();
      const { status, json } = await send(`${address}${completions}`, {
        body: bodyOf([user('One.')]),
        headers: sessionHeaders('one', { [name]: ['fork', 'append'] }),
      });
      expect(status).toBe(400);
      expect(json.error?.message).toContain(name);
      expect(bench.upstream.requests).toEqual([]);
    },
  );
});

test('keys of a prototype are keys like any other', async () => {
  const { address } = await bench.gateway();
  const item = '{"role":"user","content":"One.","__proto__":{"role":"system"},"constructor":{"a":1}}';
  const body = `{"__proto__":{"messages":[]},"model":"gpt-4o","messages":[${item}]}`;
  const given = await send(`${address}${completions}`, { body, headers: sessionHeaders('prototype') });
  expect(given.headers['x-palimpsest-bypassed']).toBeUndefined();
  expect(bench.upstream.requests[0]?.bytes.toString()).toBe(body);
  expect(JSON.stringify(await replayed(bench.stack, 'prototype'))).toBe(`[${item}]`);
  expect(Object.keys(Object.prototype)).toEqual([]);
});

test.each([
  ['a key twice', '{"model":"m","messages":[{"role":"user","role":"system","content":"One."}]}'],
  ['the list twice', '{"messages":[],"messages":[{"role":"user","content":"One."}]}'],
  [
    'a large number in a message',
    '{"messages":[{"role":"user","content":"One.","own":1234567890123456789}]}',
  ],
  [
    'a large number in a tool',
    '{"tools":[{"maximum":9223372036854775807}],"messages":[{"role":"user","content":"One."}]}',
  ],
  ['deep nesting', `{"messages":[{"role":"user","content":${'['.repeat(200_000)}${']'.repeat(200_000)}}]}`],
  ['half a surrogate pair as bytes', Buffer.from([0x7b, 0xed, 0xa0, 0x80, 0x7d])],
])('%s is the provider’s to judge', async (_, body) => {
  const { address } = await bench.gateway();
  bench.upstream.reply((_, response) => void response.end('{}'));
  const given = await send(`${address}${completions}`, { body, headers: sessionHeaders('odd') });
  expect(given).toMatchObject({ status: 200, headers: { 'x-palimpsest-bypassed': 'Input.Invalid' } });
  expect(bench.upstream.requests[0]?.bytes.equals(Buffer.from(body))).toBe(true);
});

test.each([
  ['a large number', '"seed":1234567890123456789'],
  ['many digits', '"temperature":0.12345678901234567890'],
  ['a key twice', '"user":"a","user":"b"'],
])('%s beside the conversation does not matter', async (title, field) => {
  const { address } = await bench.gateway();
  const body = `{"model":"m",${field},"messages":[{"role":"user","content":"One."}]}`;
  const session = `beside-${title.replaceAll(' ', '-')}`;
  const given = await send(`${address}${completions}`, { body, headers: sessionHeaders(session) });
  expect(given.headers).not.toHaveProperty('x-palimpsest-bypassed');
  expect(bench.upstream.requests[0]?.bytes.toString()).toBe(body);
  expect(await replayed(bench.stack, session)).toEqual([{ role: 'user', content: 'One.' }]);
});

test('a failure of the database tells the client no address', async () => {
  const away = () =>
    Promise.reject(new PalimpsestError('Store.Unavailable', 'connect ECONNREFUSED 10.1.2.3:5432'));
  const palimpsest = { ...bench.stack.palimpsest, forTenant: () => ({ syncSizes: away }) };
  const started = await gatewayOf(
    { ...bench.stack, palimpsest: palimpsest as never },
    { upstreams: { scripted: bench.upstream.url }, onFailure: 'refuse' },
  );
  bench.gateways.push(started);
  const { status, bytes } = await send(`${started.address}${completions}`, {
    body: bodyOf([user('One.')]),
    headers: sessionHeaders('away', { 'x-palimpsest-key': key }),
  });
  expect(status).toBe(503);
  expect(bytes.toString()).toContain('Store.Unavailable');
  expect(bytes.toString()).not.toContain('10.1.2.3');
});
