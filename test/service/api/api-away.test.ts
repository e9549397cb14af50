/** The API while PostgreSQL or Temporal is away: the calls that still work, and the failures of the others. */
import { expect, test } from 'vitest';
import { startApi } from '../../../src/api/server.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { ask, digestOf, type Ask } from '../../support/api.js';
import { startStack } from '../../support/stack.js';
import { Way } from '../../support/way.js';

const hello = [{ role: 'user', content: 'hello' }];

test('PostgreSQL: 503 with its type, and served again when it is back', async () => {
  const stack = await startStack({ worker: false });
  const url = new URL(stack.databaseUrl);
  const way = new Way(`${url.hostname}:${url.port}`);
  const port = await way.open();
  url.hostname = '127.0.0.1';
  url.port = String(port);
  const { temporal, queuePrefix } = stack;
  const palimpsest = await Palimpsest.connect({
    databaseUrl: url.href,
    temporal,
    queuePrefix,
    tenant: queuePrefix,
  });
  const api = await startApi(
    { port: 0, tokens: [{ tenant: queuePrefix, sha256: digestOf('t') }] },
    palimpsest,
  );
  const call: Ask = (path, asked) => ask(api.address, path, { token: 't', ...asked });
  const turn = { body: { turnId: 't', messages: hello } };
  try {
    way.cut();
    const refused = await call('/v1/sessions/s/turns', turn);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
    expect(refused.json).toMatchObject({
      failure: 'Store.Unavailable',
      hint: expect.stringContaining('DATABASE_URL'),
    });
    expect((await call('/v1/sessions/s/context')).status).toBe(503);
    const ready = await call('/readyz');
    expect(ready).toMatchObject({
      status: 503,
      json: { ready: false, postgres: { type: 'Store.Unavailable' } },
    });
    expect((await call('/healthz')).status).toBe(200);
    await way.open(port);
    await expect.poll(async () => (await call('/readyz')).status).toBe(200);
    expect((await call('/v1/sessions/s/turns', turn)).json).toMatchObject({
      fromSeq: 1,
      repeated: false,
    });
  } finally {
    await api.close();
    await palimpsest.close();
    way.cut();
    await stack.stop();
  }
});

test('Temporal: turns are stored with `signalled` false, contexts are read, compactions wait', async () => {
  const stack = await startStack({ worker: false });
  const way = new Way(stack.temporal.address);
  const address = `127.0.0.1:${await way.open()}`;
  const { databaseUrl, queuePrefix } = stack;
  const palimpsest = await Palimpsest.connect({
    databaseUrl,
    temporal: { address },
    queuePrefix,
    tenant: queuePrefix,
  });
  const api = await startApi(
    { port: 0, tokens: [{ tenant: queuePrefix, sha256: digestOf('t') }] },
    palimpsest,
  );
  const call: Ask = (path, asked) => ask(api.address, path, { token: 't', ...asked });
  try {
    way.cut();
    const stored = await call('/v1/sessions/s/turns', { body: { turnId: 't', messages: hello } });
    expect(stored).toMatchObject({ status: 200, json: { signalled: false, fromSeq: 1 } });
    expect((await call('/v1/sessions/s/context')).json).toMatchObject({ messages: hello });
    expect((await call('/v1/sessions/s/status')).json).toMatchObject({ phase: 'unknown', messages: 1 });
    const refused = await call('/v1/sessions/s/compact', { method: 'POST' });
    expect(refused).toMatchObject({ status: 503, json: { failure: 'Temporal.Unavailable' } });
    const headers = { 'x-forwarded-for': '203.0.113.9' };
    const elsewhere = await call('/v1/sessions/s/compact', { method: 'POST', headers });
    expect(elsewhere.json).toMatchObject({
      failure: 'Temporal.Unavailable',
      detail: 'Temporal is not available now.',
      hint: 'Repeat the request after a moment. The log of the server has the reason.',
    });
    expect(await call('/readyz')).toMatchObject({
      status: 503,
      json: { temporal: { type: 'Temporal.Unavailable' }, postgres: null },
    });
  } finally {
    await api.close();
    await palimpsest.close();
    way.cut();
    await stack.stop();
  }
});
