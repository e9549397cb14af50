/** Requests and answers pass unchanged, to the upstreams of the list alone, with every fault of an upstream. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { brotliCompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import {
  assistant,
  bodyOf,
  completions,
  type Headers,
  passed,
  replayed,
  send,
  sessionHeaders,
  user,
  useGateways,
} from '../../support/gateway.js';
import { startUpstream } from '../../support/upstream.js';

const bench = useGateways();

describe('without a session', () => {
  const body =
    '{ "model":"gpt-4o",\n "temperature": 1.0, "n":1e0, "messages" : [ {"role":"user","content":"H\\u00e9" } ] }';

  test.each([completions, '/v1/messages', '/v1/responses', '/v1/embeddings?x=1&y=%2F', '/v1/files/a%20b'])(
    'a request to %s passes unchanged, and so does its answer',
    async (path) => {
      bench.upstream.reply((_, response) => {
        response
          .writeHead(201, 'Made', ['X-One', '1', 'X-One', '2', 'Content-Type', 'text/x'])
          .end('answer\n');
      });
      const { address } = await bench.gateway();
      const headers = {
        'content-type': 'application/json',
        'X-Own': ['a', 'b'],
        authorization: 'Bearer provider',
      };
      const through = await send(`${address}${path}`, { body, headers });
      const direct = await send(`${bench.upstream.url}${path}`, { body, headers });
      const [first, second] = bench.upstream.requests;
      expect(first?.bytes).toEqual(second?.bytes);
      expect(first?.url).toBe(path);
      expect(passed(first!.rawHeaders)).toEqual(passed(second!.rawHeaders));
      expect({ ...through, rawHeaders: passed(through.rawHeaders) }).toMatchObject({
        ...{ status: 201, bytes: direct.bytes },
        rawHeaders: passed(direct.rawHeaders).map((line) =>
          line.startsWith('Date') ? expect.any(String) : line,
        ),
      });
    },
  );

  test('every method and a body without length pass', async () => {
    const { address } = await bench.gateway();
    bench.upstream.reply(({ method, url, bytes }, response) => {
      response.end(`${method} ${url} ${bytes.length}`);
    });
    for (const method of ['GET', 'DELETE', 'PUT', 'PATCH', 'OPTIONS'])
      expect((await send(`${address}/v1/models`, { method })).bytes.toString()).toBe(
        `${method} /v1/models 0`,
      );
    expect((await send(`${address}/v1/models`, { method: 'HEAD' })).status).toBe(200);
    const chunked = { body: 'x'.repeat(100_000), headers: { 'transfer-encoding': 'chunked' } };
    expect((await send(`${address}/v1/files`, chunked)).bytes.toString()).toBe('POST /v1/files 100000');
  });

  test('nothing is stored, also if the same conversation has a session elsewhere', async () => {
    const { address } = await bench.gateway();
    await send(`${address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('known'),
    });
    await send(`${address}${completions}`, {
      body: bodyOf([user('One.'), assistant('Two.'), user('Three.')]),
    });
    await bench.gateways.splice(0)[0]?.close();
    expect(await replayed(bench.stack, 'known')).toHaveLength(2);
    const { sessions } = await bench.stack.palimpsest.sessions();
    expect(sessions.map(({ session }) => session)).toEqual(['known']);
  });
});

describe('only the upstreams of the list are reached', () => {
  test.each<[string, { path?: string; headers?: Headers }, number]>([
    ['an absolute target', { path: 'http://169.254.169.254/latest/meta-data' }, 400],
    ['a target that begins with two slashes', { path: '//169.254.169.254/v1/models' }, 404],
    ['a path that climbs', { path: '/scripted/../v1/models' }, 400],
    ['a path that climbs, encoded', { path: '/v1/%2e%2E/admin' }, 400],
    ['an unknown name', { path: '/metadata/v1/models' }, 404],
    ['another host', { path: '/v1/models', headers: { host: '169.254.169.254' } }, 200],
    [
      'headers that name another host',
      {
        path: '/v1/models',
        headers: {
          ...{
            'x-forwarded-host': 'evil.example',
            forwarded: 'host=evil.example',
            'x-original-url': 'http://evil.example/',
          },
          'x-rewrite-url': '/admin',
        },
      },
      200,
    ],
    [
      'a header of ours that is none',
      { path: '/v1/models', headers: { 'x-palimpsest-upstream': 'evil' } },
      400,
    ],
  ])('%s', async (_, { path, headers = {} }, status) => {
    const { address } = await bench.gateway();
    const given = await send(address, { method: 'GET', headers, ...(path ? { path } : {}) });
    expect(given.status).toBe(status);
    const [received] = bench.upstream.requests;
    if (status !== 200) expect(received).toBeUndefined();
    else
      expect(received).toMatchObject({
        url: '/v1/models',
        headers: { host: new URL(bench.upstream.url).host },
      });
    expect(JSON.stringify(received?.rawHeaders ?? [])).not.toContain('x-palimpsest');
  });

  test('a redirect is the client’s to follow', async () => {
    bench.upstream.reply(
      (_, response) => void response.writeHead(302, { location: 'http://169.254.169.254/' }).end(),
    );
    const { address } = await bench.gateway();
    const given = await send(`${address}/v1/models`, { method: 'GET' });
    expect(given).toMatchObject({ status: 302, headers: { location: 'http://169.254.169.254/' } });
  });

  test('each name leads to its own upstream, and a base path stays in front', async () => {
    const other = await startUpstream((_, response) => void response.end('other'));
    const { address } = await bench.gateway({
      upstreams: { scripted: bench.upstream.url, other: `${other.url}/api` },
    });
    expect((await send(`${address}/other/v1/models?a=1`, { method: 'GET' })).bytes.toString()).toBe('other');
    expect(other.requests[0]?.url).toBe('/api/v1/models?a=1');
    await send(`${address}/scripted/v1/models`, { method: 'GET' });
    await send(`${address}/v1/models`, { method: 'GET' });
    expect(bench.upstream.requests.map(({ url }) => url)).toEqual(['/v1/models', '/v1/models']);
    await other.close();
  });
});

describe('headers of a connection', () => {
  test('stay with the connection, in both directions', async () => {
    bench.upstream.reply((_, response) => {
      response.writeHead(200, [
        'Connection',
        'X-Hop, keep-alive',
        'X-Hop',
        '1',
        'Keep-Alive',
        'timeout=9',
        'Trailer',
        'X-T',
        'X-End',
        '2',
        'X-Palimpsest-Bypassed',
        'forged',
      ]);
      response.end('{}');
    });
    const { address } = await bench.gateway();
    const headers = {
      ...{ connection: 'x-mine, keep-alive', 'x-mine': '1', te: 'trailers', 'keep-alive': 'timeout=3' },
      ...{ 'proxy-authorization': 'Basic abc', upgrade: 'h2c', expect: '100-continue', 'x-yours': '2' },
    };
    const given = await send(`${address}/v1/models`, { method: 'POST', body: '{}', headers });
    expect(passed(bench.upstream.requests[0]!.rawHeaders)).toEqual(['x-yours: 2']);
    const names = given.rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
    expect(names).toContain('x-end');
    for (const name of ['x-hop', 'trailer', 'x-palimpsest-bypassed']) expect(names).not.toContain(name);
  });
});

describe('the upstream', () => {
  test.each<[number, object, Headers]>([
    [
      429,
      { error: { message: 'Slow down', code: 'rate_limit_exceeded' } },
      { 'retry-after': '7', 'x-ratelimit-remaining-tokens': '0' },
    ],
    [400, { error: { message: 'No such model', code: 'model_not_found' } }, { 'x-request-id': 'req_1' }],
    [500, { error: { message: 'Sorry' } }, {}],
    [529, { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }, {}],
  ])('answers %i: it passes unchanged, and nothing is repeated', async (status, body, headers) => {
    const text = JSON.stringify(body, null, 1);
    bench.upstream.reply(
      (_, response) =>
        void response.writeHead(status, { ...headers, 'content-type': 'application/json' }).end(text),
    );
    const { address } = await bench.gateway();
    const given = await send(`${address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders(`fails-${status}`),
    });
    expect(given).toMatchObject({ status, headers });
    expect(given.bytes.toString()).toBe(text);
    expect(bench.upstream.requests).toHaveLength(1);
  });

  test('is away: the client is told, and may repeat the request', async () => {
    const { address } = await bench.gateway({ upstreams: { gone: 'http://127.0.0.1:1' } });
    const given = await send(`${address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('gone'),
    });
    expect(given).toMatchObject({
      status: 502,
      json: { error: { code: 'Llm.Unavailable' } },
      headers: { 'x-should-retry': 'true' },
    });
  });

  test('hangs before its answer, and within it', async () => {
    const { address } = await bench.gateway({ upstreamTimeoutMs: 150 });
    bench.upstream.reply(() => undefined);
    const body = bodyOf([user('One.')], { stream: true });
    const silent = await send(`${address}${completions}`, { body, headers: sessionHeaders('hangs') });
    expect(silent).toMatchObject({ status: 504, json: { error: { code: 'Llm.Unavailable' } } });
    bench.upstream.reply((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"choices":[]}\n\n');
    });
    await expect(
      send(`${address}${completions}`, { body, headers: sessionHeaders('hangs') }),
    ).rejects.toThrow();
    // Nothing of it counts as an answer.
    await bench.gateways.splice(0)[0]?.close();
    expect(await replayed(bench.stack, 'hangs')).toEqual([user('One.')]);
  });

  test('does not accept the connection', async () => {
    const program =
      "const server = require('net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => console.log(server.address().port));";
    const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
    const port = Number(String((await once(child.stdout, 'data'))[0]));
    child.kill('SIGSTOP');
    const waiting = Array.from({ length: 8 }, () => connect(port, '127.0.0.1').on('error', () => undefined));
    try {
      await once(waiting[0]!, 'connect');
      const upstreams = { full: `http://127.0.0.1:${port}` };
      const { address } = await bench.gateway({ upstreams, upstreamTimeoutMs: 150 });
      const given = await send(`${address}${completions}`, {
        body: bodyOf([user('One.')]),
        headers: sessionHeaders('full'),
      });
      expect(given).toMatchObject({ status: 504, json: { error: { code: 'Llm.Unavailable' } } });
    } finally {
      for (const socket of waiting) socket.destroy();
      child.kill('SIGKILL');
    }
  });

  test('breaks off within its answer: so does the answer of the client', async () => {
    bench.upstream.reply((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
      response.write('{"choices":', () => response.destroy());
    });
    const lines: string[] = [];
    const { address } = await bench.gateway({ log: pino({}, { write: (line) => lines.push(line) }) });
    const call = send(`${address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('breaks'),
    });
    await expect(call).rejects.toThrow();
    // A client that goes away is no warning.
    expect(lines.map((line) => JSON.parse(line) as Json)).toContainEqual(
      expect.objectContaining({ level: 40, upstream: expect.any(String), reason: expect.any(String) }),
    );
  });

  test('sends its first bytes at once', async () => {
    let goOn = (): void => undefined;
    bench.upstream.reply(async (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"choices":[{"index":0,"delta":{"content":"A"}}]}\n\n');
      await new Promise<void>((resolve) => (goOn = resolve));
      response.end('data: [DONE]\n\n');
    });
    const { address } = await bench.gateway();
    const request = httpRequest(`${address}${completions}`, {
      method: 'POST',
      headers: sessionHeaders('first-bytes'),
    });
    request.end(bodyOf([user('One.')], { stream: true }));
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    const [bytes] = (await once(response, 'data')) as [Buffer];
    expect(bytes.toString()).toContain('"A"');
    goOn();
    await once(response.resume(), 'end');
  });

  test.each<[string, (text: string) => Buffer]>([
    ['gzip', (text) => gzipSync(text)],
    ['br', (text) => brotliCompressSync(text)],
    ['unheard-of', (text) => Buffer.from(text)],
  ])(
    'compresses its answer with %s: the same bytes pass, and the answer is stored',
    async (encoding, compress) => {
      const answer = {
        model: 'm',
        choices: [{ index: 0, message: assistant('Squeezed.'), finish_reason: 'stop' }],
      };
      const bytes = compress(JSON.stringify(answer));
      bench.upstream.reply(
        (_, response) =>
          void response
            .writeHead(200, { 'content-type': 'application/json', 'content-encoding': encoding })
            .end(bytes),
      );
      const { address } = await bench.gateway();
      const headers = sessionHeaders(`squeezed-${encoding}`, { 'accept-encoding': 'gzip, br' });
      const given = await send(`${address}${completions}`, { body: bodyOf([user('One.')]), headers });
      expect(given.headers['content-encoding']).toBe(encoding);
      expect(given.bytes).toEqual(bytes);
      expect(bench.upstream.requests[0]?.headers['accept-encoding']).toBe('gzip, br');
      await bench.gateways.splice(0)[0]?.close();
      const stored = encoding === 'unheard-of' ? [] : [assistant('Squeezed.')];
      expect(await replayed(bench.stack, `squeezed-${encoding}`)).toEqual([user('One.'), ...stored]);
    },
  );

  test('answers with a megabyte, at once and as a compressed stream', async () => {
    const text = 'All about it. '.repeat(80_000);
    const { address } = await bench.gateway();
    bench.upstream.reply(() => ({ text, usage: { input: 10, output: 10 } }));
    const whole = await send(`${address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('large'),
    });
    expect(whole.json.choices?.[0]?.message.content).toBe(text);
    bench.upstream.reply((_, response) => {
      const chunk = (delta: object, finish: string | null = null) =>
        `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
      const stream = gzipSync(
        `${chunk({ role: 'assistant', content: text })}${chunk({}, 'stop')}data: [DONE]\n\n`,
      );
      response
        .writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' })
        .end(stream);
    });
    const streamed = await send(`${address}${completions}`, {
      body: bodyOf([user('One.')], { stream: true }),
      headers: sessionHeaders('large-stream'),
    });
    expect(gunzipSync(streamed.bytes).toString()).toContain(text);
    await bench.gateways.splice(0)[0]?.close();
    for (const session of ['large', 'large-stream'])
      expect(await replayed(bench.stack, session)).toMatchObject([
        user('One.'),
        { role: 'assistant', content: text },
      ]);
  });
});
