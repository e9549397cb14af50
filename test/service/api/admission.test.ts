/**
 * No tenant blocks another: excessive requests take only their tenant's places, the refusal names the limit, and other tenants
 * are served. Real sockets, real locks, callers that disconnect.
 */
import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { type RunningApi, startApi } from '../../../src/api/server.js';
import type { ApiService, ApiSettings } from '../../../src/api/settings.js';
import { ask, digestOf, type Asked } from '../../support/api.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let palimpsest: Palimpsest;
let api: RunningApi;
let observer: pg.Pool;
const sockets: Socket[] = [];

/** Waits on a machine that may be busy with something else. */
const eventually = <T>(look: () => T | Promise<T>) => expect.poll(look);
const hello = [{ role: 'user', content: 'hello' }];
const turn = { body: { turnId: 't', messages: hello } };

beforeAll(async () => {
  stack = await startStack();
  const { databaseUrl, ownerUrl, temporal, queuePrefix } = stack;
  observer = new pg.Pool({ connectionString: ownerUrl, max: 1 });
  // Lock timeouts are longer than these tests, so calls end for another reason.
  const database = { lockTimeoutMs: 120_000, statementTimeoutMs: 120_000 };
  palimpsest = await Palimpsest.connect({ databaseUrl, temporal, queuePrefix, database, poolSize: 8 });
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await api.close();
});

afterAll(async () => {
  await observer.end();
  await palimpsest.close();
  await stack.stop();
});

/** Of the tenants `large` and `small`, whose names are their tokens. */
async function serve(settings: ApiSettings, service: ApiService = palimpsest): Promise<void> {
  const tokens = ['large', 'small'].map((name) => ({ tenant: tenantOf(name), sha256: digestOf(name) }));
  api = await startApi({ port: 0, tokens, shutdownGraceMs: 0, ...settings }, service);
}

const tenantOf = (name: string) => `${stack.queuePrefix}-${name}`;
const by = (token: string) => (path: string, asked?: Asked) => ask(api.address, path, { token, ...asked });

interface Raw {
  socket: Socket;
  /** The data received so far. */
  text(): string;
  status(): Promise<number>;
}

/** Sends `text` and keeps the connection. */
function raw(text: string): Raw {
  const { hostname, port } = new URL(api.address);
  const socket = connect(Number(port), hostname);
  sockets.push(socket);
  let seen = '';
  socket.on('data', (chunk) => (seen += String(chunk)));
  socket.on('error', () => undefined);
  socket.write(text);
  return {
    socket,
    text: () => seen,
    async status() {
      await eventually(() => seen).toMatch(/^HTTP/);
      return Number(seen.split(' ')[1]);
    },
  };
}

/** A turn whose body does not come. */
const slowBody = (token: string, bytes = 1_000) =>
  raw(
    `POST /v1/sessions/slow/turns HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\n` +
      `content-type: application/json\r\ncontent-length: ${bytes}\r\n\r\n{`,
  );

const limitIn = ({ json }: { json: unknown }) => (json as { details?: { limit?: string } }).details?.limit;

async function expectServed(name: string): Promise<void> {
  const call = by(name);
  const answers = await Promise.all([
    call('/v1/sessions/own/turns', turn),
    ...Array.from({ length: 6 }, () => call('/v1/sessions')),
  ]);
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
}

test('a caller may go whose chunked body nobody reads', async () => {
  const never = { sessions: () => new Promise(() => undefined) };
  await serve({}, { forTenant: () => never } as never);
  const thrown = vi.fn();
  // Node would end the process.
  process.on('uncaughtException', thrown);
  try {
    const { socket } = raw(
      `GET /v1/sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer small\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"a"`,
    );
    await eventually(() => api.load().requests).toBe(1);
    socket.destroy();
    await eventually(() => api.load().requests).toBe(0);
    await new Promise((resolve) => setImmediate(resolve));
    expect(thrown).not.toHaveBeenCalled();
  } finally {
    process.off('uncaughtException', thrown);
  }
});

describe('requests that are slow to arrive', () => {
  test("slow bodies of one tenant take only that tenant's places", async () => {
    await serve({ maxInFlight: 20, tenantRequests: 8 });
    const slow = Array.from({ length: 40 }, () => slowBody('large'));
    await eventually(() => slow.filter(({ text }) => text() !== '').length).toBe(32);
    const refused = slow.filter(({ text }) => text() !== '');
    expect(await Promise.all(refused.map(({ status }) => status()))).toEqual(refused.map(() => 429));
    expect(refused[0]?.text()).toMatch(
      /retry-after: 1.*"failure":"Tenant.LimitReached".*"limit":"requests"/s,
    );
    await expectServed('small');
    const own = await by('large')('/v1/sessions');
    expect([own.status, limitIn(own)]).toEqual([429, 'requests']);
    for (const { socket } of slow) socket.destroy();
    await eventually(async () => (await by('large')('/v1/sessions')).status).toBe(200);
    await eventually(() => api.load().requests).toBe(0);
  });

  test('the last places are reserved for tenants with few requests', async () => {
    await serve({ maxInFlight: 20, tenantRequests: 19 });
    const slow = Array.from({ length: 30 }, () => slowBody('large'));
    await eventually(() => slow.filter(({ text }) => text() !== '').length).toBe(12);
    expect((await by('small')('/v1/sessions')).status).toBe(200);
  });

  test('bodies count by Content-Length from the headers on, or as they arrive without one', async () => {
    await serve({ tenantBodyBytes: 2_000 });
    const first = slowBody('large', 1_500);
    await eventually(() => api.load().bodyBytes).toBe(1_500);
    const second = slowBody('large', 1_500);
    expect(await second.status()).toBe(429);
    expect(second.text()).toContain('"limit":"bodyBytes"');
    const chunk = `{${' '.repeat(599)}`;
    const chunked = raw(
      `POST /v1/sessions/slow/turns HTTP/1.1\r\nhost: x\r\nauthorization: Bearer large\r\n` +
        `content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n258\r\n${chunk}\r\n`,
    );
    expect(await chunked.status()).toBe(429);
    await expectServed('small');
    first.socket.destroy();
    await eventually(() => api.load().bodyBytes).toBe(0);
  });

  test('a read of a large context counts with the bodies until its answer is sent', async () => {
    await serve({ tenantBodyBytes: 300_000, maxBodyBytes: 2_000_000 });
    const long = [{ role: 'user', content: 'x'.repeat(400_000) }];
    const stored = { body: { turnId: 't', messages: long } };
    expect((await by('large')('/v1/sessions/memory/turns', stored)).status).toBe(200);
    const context = '/v1/sessions/memory/context?budget=1000000';
    expect((await by('large')(context)).status).toBe(200);
    const slow = slowBody('large', 1_500);
    await eventually(() => api.load().bodyBytes).toBe(1_500);
    const refused = await by('large')(context);
    expect([refused.status, limitIn(refused)]).toEqual([429, 'bodyBytes']);
    slow.socket.destroy();
    await eventually(async () => (await by('large')(context)).status).toBe(200);
    await eventually(() => api.load().bodyBytes).toBe(0);
  });

  test('a body that arrives byte by byte is refused, a large steady one is not', async () => {
    await serve({ requestTimeoutMs: 60_000, minBodyBytesPerSecond: 100 });
    const drops = slowBody('large');
    const dropping = setInterval(() => drops.socket.write(' '), 100);
    const body = JSON.stringify({ turnId: 'flow', messages: [{ role: 'user', content: 'x'.repeat(3_000) }] });
    const flow = slowBody('large', body.length);
    let sent = 1;
    const flowing = setInterval(() => (flow.socket.write(body.slice(sent, sent + 100)), (sent += 100)), 250);
    try {
      expect(await drops.status()).toBe(408);
      expect(await flow.status()).toBe(200);
    } finally {
      clearInterval(dropping);
      clearInterval(flowing);
    }
  });
});

describe('connections', () => {
  test('connections without a token are limited per address, and the oldest are closed', async () => {
    await serve({ unknownConnections: 20 });
    const silent = Array.from({ length: 15 }, (_, n) =>
      raw(n % 2 === 0 ? '' : 'GET /v1/sessions HTTP/1.1\r\n'),
    );
    await eventually(() => silent.filter(({ socket }) => socket.closed).length).toBe(10);
    expect(silent.slice(0, 10).every(({ socket }) => socket.closed)).toBe(true);
    await expectServed('small');
    expect(api.load().unknownConnections).toBeLessThanOrEqual(5);
  });

  test('headers must arrive in time', async () => {
    await serve({ requestTimeoutMs: 20_000, headersTimeoutMs: 300 });
    const half = raw('GET /v1/sessions HTTP/1.1\r\nhost: x\r\n');
    expect(await half.status()).toBe(408);
  });

  test('idle connections count for their tenant', async () => {
    await serve({ tenantConnections: 3 });
    const request = (token: string) =>
      raw(`GET /v1/sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\n\r\n`);
    for (let n = 0; n < 3; n++) expect(await request('large').status()).toBe(200);
    const fourth = request('large');
    expect(await fourth.status()).toBe(429);
    expect(fourth.text()).toMatch(/connection: close.*"limit":"connections"/s);
    if (!fourth.socket.closed) await once(fourth.socket, 'close');
    expect(await request('small').status()).toBe(200);
    sockets[0]?.destroy();
    await eventually(() => api.load().connections).toBe(3);
    expect(await request('large').status()).toBe(200);
  });
});

/** Locks the table that searches read, so that the test decides how long they take. */
async function lockTexts(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: stack.ownerUrl });
  await client.connect();
  await client.query('begin');
  await client.query('lock table palimpsest.message_texts in access exclusive mode');
  return client;
}

/** Searches that wait for it. Asked outside of the transaction that holds the lock: within one, this view does not change. */
async function searching(): Promise<number> {
  const { rows } = await observer.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity
     where wait_event_type = 'Lock' and query like '%message_texts%' and pid <> pg_backend_pid()`,
  );
  return rows[0]?.count ?? 0;
}

describe('connections to the database', () => {
  test('a flood of searches blocks neither appends and contexts of its tenant, nor any call of others', async () => {
    await serve({});
    for (const name of ['large', 'small']) {
      await by(name)('/v1/sessions/s/turns', turn);
      await by(name)('/v1/sessions/s/search', { body: { query: 'hello' } });
    }
    const lock = await lockTexts();
    try {
      const flood = Array.from({ length: 60 }, () =>
        by('large')('/v1/sessions/s/search', { body: { query: 'hello' } }),
      );
      await eventually(() => searching()).toBe(1);
      for (const name of ['small', 'large']) {
        const contexts = Array.from({ length: 20 }, () => by(name)('/v1/sessions/s/context'));
        expect((await Promise.all(contexts)).map(({ status }) => status)).toEqual(contexts.map(() => 200));
        await by(name)('/v1/sessions/s/turns', { body: { turnId: `during-${name}`, messages: hello } });
      }
      expect((await by('small')('/readyz')).json).toMatchObject({ ready: true });
      // Another tenant's search finds its own places; it waits for the lock as well.
      const other = by('small')('/v1/sessions/s/search', { body: { query: 'hello' } });
      await eventually(() => searching()).toBe(2);
      await eventually(() => api.load().requests).toBe(2);
      await lock.query('rollback');
      const answers = await Promise.all(flood);
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      const refused = answers.filter(({ status }) => status !== 200);
      expect(new Set(refused.map((answer) => `${answer.status} ${limitIn(answer)}`))).toEqual(
        new Set(['429 databaseConnections']),
      );
      expect((await other).status).toBe(200);
    } finally {
      await lock.end();
    }
  });

  test('a caller that disconnects ends its statement in the database', async () => {
    await serve({});
    await by('large')('/v1/sessions/s/turns', turn);
    await by('large')('/v1/sessions/s/search', { body: { query: 'hello' } });
    const lock = await lockTexts();
    try {
      const body = JSON.stringify({ query: 'hello' });
      const searches = Array.from({ length: 5 }, () =>
        raw(
          `POST /v1/sessions/s/search HTTP/1.1\r\nhost: x\r\nauthorization: Bearer large\r\n` +
            `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
        ),
      );
      await eventually(() => searching()).toBe(1);
      for (const { socket } of searches) socket.destroy();
      await eventually(() => searching()).toBe(0);
      await eventually(() => palimpsest.databaseLoad()).toEqual({ held: 0, waiting: 0 });
    } finally {
      await lock.end();
    }
    expect((await by('large')('/v1/sessions/s/search', { body: { query: 'hello' } })).status).toBe(200);
  });
});

describe('the processor', () => {
  test('a session is indexed once for any number of searches', async () => {
    await serve({});
    const messages = dialogue(100, 20).flat() as never;
    await by('large')('/v1/sessions/long/turns', { body: { turnId: 't', messages } });
    await observer.query(`create sequence palimpsest.test_writes;
      create function palimpsest.test_count() returns trigger language plpgsql security definer as $$
        begin perform nextval('palimpsest.test_writes'); return new; end $$;
      create trigger test_count before insert on palimpsest.message_texts
        for each row execute function palimpsest.test_count()`);
    const searches = Array.from({ length: 30 }, () =>
      by('large')('/v1/sessions/long/search', { body: { query: 'ledger' } }),
    );
    expect((await Promise.all(searches)).map(({ status }) => status)).toEqual(searches.map(() => 200));
    const { rows } = await observer.query(
      `select last_value::int as written, (select count(*)::int from palimpsest.message_texts where session_id = 'long') as rows
       from palimpsest.test_writes`,
    );
    expect(rows).toEqual([{ written: 200, rows: 200 }]);
  });
});

describe('waits', () => {
  test('are few for a tenant, and end with their callers', async () => {
    const ends: string[] = [];
    const service: ApiService = {
      readiness: () => palimpsest.readiness(),
      accessByToken: (token) => palimpsest.accessByToken(token),
      forTenant: (tenant) => watched(palimpsest.forTenant(tenant), ends),
    };
    await serve({ tenantWaits: 2 }, service);
    stack.model.hold();
    try {
      for (const name of ['large', 'small'])
        for (const [index, messages] of dialogue(18).entries())
          await palimpsest
            .forTenant(tenantOf(name))
            .appendTurn({ session: 'w', turnId: `t-${index}`, messages, policy: smallPolicy });
      await stack.model.waitForRequests(2);
      const settled = (token: string) =>
        raw(
          `GET /v1/sessions/w/settled?timeout=600000 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\n\r\n`,
        );
      const waiting = [settled('large'), settled('large')];
      await eventually(() => api.load().waits).toBe(2);
      for (const path of ['settled', 'context?wait=5000']) {
        const refused = await by('large')(`/v1/sessions/w/${path}`);
        expect([refused.status, limitIn(refused)]).toEqual([429, 'waits']);
      }
      expect((await by('large')('/v1/sessions/w/context')).status).toBe(200);
      expect((await by('small')('/v1/sessions/w/context?wait=50')).status).toBe(200);
      expect(ends).toEqual([]);
      for (const { socket } of waiting) socket.destroy();
      await eventually(() => ends.length).toBe(2);
      await eventually(() => api.load().waits).toBe(0);
    } finally {
      stack.model.release();
    }
  });
});

/** Notes when a wait has ended, however it ended. */
function watched(client: Palimpsest, ends: string[]): Palimpsest {
  return new Proxy(client, {
    get(target, name) {
      if (name !== 'settled') {
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? value.bind(target) : value;
      }
      return (request: Parameters<Palimpsest['settled']>[0]) =>
        target.settled(request).finally(() => ends.push(request.session));
    },
  });
}

test('pipelined requests end with their connection, and so do bodies of many chunks', async () => {
  await serve({ tenantRequests: 1_000 });
  const head = (start: string, more = '') =>
    `${start} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer large\r\n${more}\r\n`;
  const body = JSON.stringify(turn.body);
  const whole = `${head('POST /v1/sessions/s/turns', `content-type: application/json\r\ncontent-length: ${body.length}\r\n`)}${body}`;
  const chunks = `${head('POST /v1/sessions/s/turns', 'content-type: application/json\r\ntransfer-encoding: chunked\r\n')}${'1\r\n \r\n'.repeat(100_000)}`;
  for (const text of [whole.repeat(30), `${whole.repeat(3)}${chunks}`]) {
    const { socket } = raw(text);
    await eventually(() => api.load().requests).toBeGreaterThan(1);
    socket.destroy();
    await eventually(() => api.load()).toMatchObject({ requests: 0, bodyBytes: 0, connections: 0 });
  }
});
