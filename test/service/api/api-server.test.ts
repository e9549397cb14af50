/** The API as an operator's process: its limits, its log, its callers, and its shutdown. */
import { connect } from 'node:net';
import { Writable } from 'node:stream';
import { pino, type Logger } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApi } from '../../../src/api/server.js';
import { openPool } from '../../support/pool.js';
import { ask, digestOf, startApiStack, type ApiStack } from '../../support/api.js';
import { dialogue } from '../../support/dialogue.js';

const secret = 'the launch code is 0000';
const hello = [{ role: 'user', content: secret }];

/** Everything logged, a line an entry. */
function recorder(): { log: Logger; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const sink = new Writable({
    write: (chunk: Buffer, _encoding, done) => (
      lines.push(JSON.parse(chunk.toString()) as (typeof lines)[0]),
      done()
    ),
  });
  return { log: pino({ level: 'trace' }, sink), lines };
}

describe('a running API', () => {
  const { log, lines } = recorder();
  let server: ApiStack;
  beforeAll(async () => {
    server = await startApiStack({ log, requestTimeoutMs: 1_000, maxInFlight: 3 });
    await server.ask('/v1/sessions/s/turns', { body: { turnId: 't', messages: hello } });
  });
  afterAll(() => server.stop());

  test('logs each request by its route, never texts, tokens, ids or queries', async () => {
    lines.length = 0;
    await server.ask('/v1/sessions/s/search', { body: { query: 'launch code' } });
    await server.ask('/v1/sessions/s/tool-response?callId=launch-code');
    await server.ask('/v1/sessions/s/turns', { body: `{"turnId":"x","messages":"${secret}"` });
    await server.ask('/v1/sessions/s/status', { token: secret.replaceAll(' ', '-') });
    await server.ask(`/${secret}`);
    await expect.poll(() => lines.length).toBe(5);
    expect(lines[0]).toMatchObject({
      ...{ msg: 'request', method: 'POST', route: '/v1/sessions/:session/search', status: 200 },
      ...{ ms: expect.any(Number), tenant: server.stack.queuePrefix },
    });
    expect(lines[1]).toMatchObject({ status: 400, failure: 'Input.Invalid' });
    expect(lines[3]).toMatchObject({ status: 401, tenant: null });
    expect(lines[4]).toMatchObject({ status: 404, route: null });
    expect(JSON.stringify(lines)).not.toMatch(/launch|0000|Bearer/);
  });

  test('uses a harmless request id and answers with it', async () => {
    const { headers } = await server.ask('/v1/sessions', { headers: { 'x-request-id': 'trace-17' } });
    expect(headers.get('x-request-id')).toBe('trace-17');
    const other = await server.ask('/v1/sessions', { headers: { 'x-request-id': 'a b{}' } });
    expect(other.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  });

  test('stores turns exactly', async () => {
    const text = '{"role":"user","content":"\\ud83d\\ude00 \\u0000 \\ud800","b":1,"a":{"__proto__":{"x":1}}}';
    const body = `{"turnId":"exact","messages":[${text}]}`;
    expect((await server.ask('/v1/sessions/exact/turns', { body })).status).toBe(200);
    const { text: line } = await server.ask('/v1/sessions/exact/replay');
    expect(line).toContain(JSON.stringify(JSON.parse(text)));
  });

  test('a tenant sees its own sessions only', async () => {
    const token = 'other-token';
    const tenant = `other-of-${server.stack.queuePrefix}`;
    const api = await startApi(
      { port: 0, tokens: [{ tenant, sha256: digestOf(token) }] },
      server.stack.palimpsest,
    );
    const other = (path: string, body?: never) => ask(api.address, path, { token, body });
    try {
      for (const path of [
        'context',
        'status',
        'replay',
        'export',
        'archive',
        'policy',
        'compactions',
        'timeline',
        'history',
        'pins',
      ])
        expect([path, (await other(`/v1/sessions/s/${path}`)).status]).toEqual([path, 404]);
      expect((await other('/v1/sessions')).json).toEqual({ sessions: [], next: null });
      await other('/v1/sessions/s/turns', {
        turnId: 't',
        messages: [{ role: 'user', content: 'mine' }],
      } as never);
      expect((await server.ask('/v1/sessions/s/replay')).text).not.toContain('mine');
    } finally {
      await api.close();
    }
  });

  test('refuses more concurrent requests than its limit', async () => {
    await server.stack.palimpsest.pause({ session: 's' });
    // Waits of a session whose workflow is asleep end at once; three that hold their places: bodies that do not end.
    const slow = [1, 2, 3].map(() => unfinished(server, '/v1/sessions/s/turns'));
    await expect.poll(() => server.api.load().requests).toBe(3);
    const { status, json, headers } = await server.ask('/v1/sessions');
    expect([status, headers.get('retry-after')]).toEqual([429, '1']);
    expect(json).toMatchObject({ failure: 'Tenant.LimitReached', details: { limit: 'requests', most: 3 } });
    expect((await server.ask('/healthz')).status).toBe(200);
    await Promise.all(slow.map(({ end }) => end()));
    await expect.poll(async () => (await server.ask('/v1/sessions')).status).toBe(200);
  });

  test('a request that does not arrive in time ends with 408, headers that are too large with 431', async () => {
    const { answer } = unfinished(server, '/v1/sessions/s/turns');
    expect(await answer).toMatch(/^HTTP\/1.1 408 .*application\/problem\+json.*"failure":"Input.Invalid"/s);
    const { answer: large } = unfinished(server, '/v1/sessions', `x-large: ${'x'.repeat(20_000)}\r\n`);
    expect(await large).toMatch(/^HTTP\/1.1 431 .*"path":"headers"/s);
    const { answer: other } = unfinished(server, '/v1/sessions', 'no header\r\n');
    expect(await other).toMatch(/^HTTP\/1.1 400 .*application\/problem\+json/s);
  });

  test('a page of another site gets no permission to read', async () => {
    const { headers } = await server.ask('/v1/sessions', { headers: { origin: 'https://evil.example' } });
    expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
    const preflight = await server.ask('/v1/sessions', {
      method: 'OPTIONS',
      headers: { origin: 'https://evil.example' },
    });
    expect(preflight.status).toBe(405);
  });

  test('a replay that fails in the middle ends with its problem and a broken connection', async () => {
    const pool = openPool(server.stack.databaseUrl);
    try {
      for (const [index, messages] of dialogue(3).entries())
        await server.ask('/v1/sessions/damaged/turns', {
          body: { turnId: `t-${index}`, messages: messages as never },
        });
      await pool.query(
        'alter table palimpsest.messages disable trigger all, drop constraint messages_sha256',
      );
      await pool.query(
        `update palimpsest.messages set body = '{"role":"user","content":"forged"}' where session_id = 'damaged' and seq = 4`,
      );
    } finally {
      await pool.end();
    }
    const response = await fetch(`${server.api.address}/v1/sessions/damaged/replay`, {
      headers: { authorization: `Bearer ${server.token}` },
    });
    expect(response.status).toBe(200);
    const { text, whole } = await readAll(response);
    const lines = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.map(({ seq }) => seq)).toEqual([1, 2, 3, undefined]);
    expect(lines[3]).toMatchObject({ problem: { failure: 'Store.Corrupt', status: 500 } });
    expect(whole).toBe(false);
    expect((await server.ask('/v1/sessions/damaged/messages?fromSeq=4')).json).toMatchObject({
      failure: 'Store.Corrupt',
    });
  });
});

async function readAll(response: Response): Promise<{ text: string; whole: boolean }> {
  let text = '';
  try {
    for await (const chunk of response.body!) text += Buffer.from(chunk as Uint8Array).toString();
    return { text, whole: true };
  } catch {
    return { text, whole: false };
  }
}

/** A request whose body never ends, on a separate connection. */
function unfinished(server: ApiStack, path: string, more = '') {
  const { hostname, port } = new URL(server.api.address);
  const socket = connect(Number(port), hostname);
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
  socket.on('error', () => {});
  const answer = new Promise<string>((resolve) => socket.on('close', () => resolve(text)));
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${server.token}\r\n` +
      `content-type: application/json\r\ncontent-length: 100\r\n${more}\r\n{"turnId"`,
  );
  return { answer, end: () => (socket.destroy(), answer) };
}

describe('a shutdown', () => {
  test('lets requests in progress finish, refuses new ones, and reports it', async () => {
    const server = await startApiStack({ shutdownGraceMs: 20_000 });
    try {
      const { ask: call } = server;
      for (const [index, messages] of dialogue(12).entries())
        await call('/v1/sessions/s/turns', {
          body: {
            turnId: `t-${index}`,
            messages: messages as never,
            ...(index > 0 ? {} : { policy: { contextWindow: 4_000 } }),
          },
        });
      const { model } = server.stack;
      model.hold();
      const compacting = call('/v1/sessions/s/compact', { method: 'POST' });
      await model.waitForRequests(1);
      const closed = server.api.close();
      expect((await call('/readyz')).json).toMatchObject({ ready: false, ending: true });
      const refused = await call('/v1/sessions');
      expect(refused.status).toBe(503);
      expect(refused.json).toMatchObject({ failure: 'Api.Unavailable' });
      expect(['connection', 'retry-after'].map((name) => refused.headers.get(name))).toEqual(['close', '1']);
      model.release();
      expect((await compacting).json).toMatchObject({ generation: 1 });
      await closed;
      await expect(call('/healthz')).rejects.toThrow();
    } finally {
      await server.stop();
    }
  });

  test('aborts requests that take longer than the grace time', async () => {
    const server = await startApiStack({ shutdownGraceMs: 200 });
    const { answer } = unfinished(server, '/v1/sessions/s/turns');
    await expect.poll(() => server.api.load().requests).toBe(1);
    await server.api.close();
    expect(await answer).toBe('');
    await server.stop();
  });
});

describe('settings', () => {
  const service = { forTenant: () => expect.fail(), readiness: () => expect.fail() } as never;

  test.each([
    ['a host that others reach, without tokens', { host: '0.0.0.0', requireToken: false }, 'requireToken'],
    ['a token in the clear', { tokens: [{ tenant: 'a', sha256: 'secret' }] }, 'tokens[0].sha256'],
    ['a token of nobody', { tokens: [{ tenant: '', sha256: digestOf('x') }] }, 'tokens[0].tenant'],
    ['a host of nobody', { host: '203.0.113.7', tokens: [{ tenant: 'a', sha256: digestOf('x') }] }, 'host'],
  ])('%s is refused', async (_, settings, path) => {
    await expect(startApi({ port: 0, ...settings }, service)).rejects.toMatchObject({
      type: 'Input.Invalid',
      path,
    });
  });

  test('a port in use is refused', async () => {
    const first = await startApi({ port: 0 }, service);
    const port = Number(new URL(first.address).port);
    await expect(startApi({ port }, service)).rejects.toMatchObject({ path: 'port' });
    await first.close();
  });

  test('without tokens only this machine is served, as the tenant `default`, by no other name and for no other site', async () => {
    const tenants: string[] = [];
    const local = {
      forTenant: (tenant: string) => (
        tenants.push(tenant),
        { sessions: async () => ({ sessions: [], next: null }) }
      ),
    };
    const api = await startApi({ port: 0 }, local as never);
    const { port } = new URL(api.address);
    const status = async (headers: string) => {
      const socket = connect(Number(port), '127.0.0.1');
      socket.end(`GET /v1/sessions HTTP/1.1\r\nconnection: close\r\n${headers}\r\n\r\n`);
      let text = '';
      for await (const chunk of socket) text += String(chunk);
      return Number(text.split(' ')[1]);
    };
    try {
      expect(await status(`host: localhost:${port}`)).toBe(200);
      expect(await status(`host: evil.example:${port}`)).toBe(403);
      expect(await status(`host: 127.0.0.1\r\norigin: https://evil.example`)).toBe(403);
      expect(await status(`host: 127.0.0.1\r\norigin: null`)).toBe(403);
      expect(tenants).toEqual(['default']);
    } finally {
      await api.close();
    }
  });
});
