/** Access to sessions, and every fault of a client. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import {
  bodyOf,
  completions,
  type Headers,
  key,
  passed,
  replayed,
  send,
  sessionHeaders,
  user,
  useGateways,
} from '../../support/gateway.js';
import { say } from '../../support/upstream.js';

const bench = useGateways();

describe('access', () => {
  test('is needed for a session, and refused without touching the upstream', async () => {
    const { address } = await bench.gateway();
    const { 'x-palimpsest-key': _key, ...without } = sessionHeaders('secret');
    for (const headers of [without, { ...without, 'x-palimpsest-key': 'wrong' }]) {
      const {
        status,
        json,
        headers: given,
      } = await send(`${address}${completions}`, { body: bodyOf([user('One.')]), headers });
      expect({ status, code: json.error?.code }).toEqual({ status: 401, code: 'Api.Unauthorized' });
      expect(json.error?.message).toContain('x-palimpsest-key');
      expect(json.error?.message).not.toContain('Authorization');
      expect(given['x-should-retry']).toBe('false');
    }
    const ofAnthropic = await send(`${address}/v1/messages`, {
      body: bodyOf([user('One.')]),
      headers: without,
    });
    expect(ofAnthropic.json).toMatchObject({ type: 'error', error: { type: 'Api.Unauthorized' } });
    expect(bench.upstream.requests).toEqual([]);
  });

  test.each<[Headers, string]>([
    [{ 'x-palimpsest-session': 'x'.repeat(300) }, 'headers.x-palimpsest-session'],
    [{ 'x-palimpsest-on-edit': 'keep' }, 'x-palimpsest-on-edit'],
    [{ 'x-palimpsest-recovery': 'maybe' }, 'x-palimpsest-recovery'],
    [
      { 'X-Palimpsest-Sesion': 'right' },
      'no header x-palimpsest-sesion. Its headers are x-palimpsest-session, ',
    ],
  ])('headers %j are refused', async (wrong, named) => {
    const { address } = await bench.gateway();
    const { status, json } = await send(`${address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('wrong', wrong),
    });
    expect(status).toBe(400);
    expect(json.error?.message).toContain(named);
    expect(bench.upstream.requests).toEqual([]);
  });

  test('is checked before the body is read', async () => {
    const { address } = await bench.gateway();
    const headers = sessionHeaders('slow-body', { 'x-palimpsest-key': 'wrong', 'content-length': '1000000' });
    const request = httpRequest(`${address}${completions}`, { method: 'POST', headers });
    request.on('error', () => undefined).flushHeaders();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    expect(response.statusCode).toBe(401);
    request.destroy();
  });

  test('the key names the tenant: the same session of two tenants is two sessions', async () => {
    const sha256 = createHash('sha256').update('key-of-another').digest('hex');
    const own = createHash('sha256').update(key).digest('hex');
    const tokens = [
      { tenant: bench.stack.queuePrefix, sha256: own },
      { tenant: 'another', sha256 },
    ];
    const { address } = await bench.gateway({ tokens });
    await send(`${address}${completions}`, {
      body: bodyOf([user('Ours.')]),
      headers: sessionHeaders('tenants'),
    });
    const headers = sessionHeaders('tenants', { 'x-palimpsest-key': 'key-of-another' });
    await send(`${address}${completions}`, { body: bodyOf([user('Theirs.')]), headers });
    expect(await replayed(bench.stack, 'tenants')).toEqual([user('Ours.')]);
    const { messages } = await bench.stack.palimpsest.forTenant('another').context({ session: 'tenants' });
    expect(messages).toEqual([user('Theirs.')]);
  });

  test('nobody uses the key of the configuration without access', async () => {
    const { address } = await bench.gateway({ keys: { scripted: 'operator-secret' } });
    const body = bodyOf([user('One.')]);
    for (const path of [completions, '/v1/models', '/scripted/v1/files'])
      expect((await send(`${address}${path}`, { body })).status).toBe(401);
    expect(bench.upstream.requests).toEqual([]);
    const sent: [Headers, string[]][] = [
      [{ authorization: 'Bearer mine' }, ['Authorization: Bearer operator-secret']],
      [{ 'x-api-key': 'mine' }, ['x-api-key: operator-secret']],
      [{}, ['Authorization: Bearer operator-secret']],
    ];
    for (const [own, wanted] of sent) {
      await send(`${address}${completions}`, { body, headers: { ...own, 'x-palimpsest-key': key } });
      const lines = passed(bench.upstream.requests.at(-1)!.rawHeaders);
      expect(lines).toEqual(wanted);
    }
  });
});

describe('the client', () => {
  test.each([{ stream: true }, { stream: false }])(
    'disconnects (%j): the request to the upstream ends',
    async ({ stream }) => {
      bench.upstream.reply((_, response) => {
        if (stream)
          response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"choices":[]}\n\n');
      });
      const { address } = await bench.gateway();
      const session = `leaves-${stream}`;
      const request = httpRequest(`${address}${completions}`, {
        method: 'POST',
        headers: sessionHeaders(session),
      });
      request.on('error', () => undefined).end(bodyOf([user('One.')], { stream }));
      await expect.poll(() => bench.upstream.requests.length).toBe(1);
      request.destroy();
      await expect.poll(() => bench.upstream.requests[0]?.aborted).toBe(true);
      await bench.gateways.splice(0)[0]?.close();
      expect(await replayed(bench.stack, session)).toEqual([user('One.')]);
    },
  );

  test('sends more than the limit, or an encoded body', async () => {
    const { address } = await bench.gateway({ bodyLimitBytes: 10_000 });
    const large = bodyOf([user('x'.repeat(20_000))]);
    const given = await send(`${address}${completions}`, {
      body: large,
      headers: sessionHeaders('too-large'),
    });
    expect(given).toMatchObject({ status: 413, json: { error: { code: 'Input.TooLarge' } } });
    const encoded = sessionHeaders('too-large', { 'content-encoding': 'gzip' });
    const zipped = await send(`${address}${completions}`, {
      body: gzipSync(bodyOf([user('One.')])),
      headers: encoded,
    });
    expect(zipped.status).toBe(415);
    expect(zipped.json.error?.message).not.toContain('API');
    // Without a session there is no limit.
    expect((await send(`${address}${completions}`, { body: large })).status).toBe(200);
  });

  test('is refused while others use all places', async () => {
    let answer = (): void => undefined;
    bench.upstream.reply(async (received, response) => {
      await new Promise<void>((resolve) => (answer = resolve));
      await say({ text: 'Late.' }, received, response);
    });
    const { address } = await bench.gateway({ maxInFlight: 1 });
    const first = send(`${address}${completions}`, { body: bodyOf([user('One.')]) });
    await expect.poll(() => bench.upstream.requests.length).toBe(1);
    const second = await send(`${address}${completions}`, { body: bodyOf([user('One.')]) });
    expect(second).toMatchObject({
      ...{ status: 503, json: { error: { code: 'Api.Overloaded' } }, headers: { 'x-should-retry': 'true' } },
    });
    answer();
    expect((await first).status).toBe(200);
    bench.upstream.reply(() => ({ text: 'Hello.' }));
    expect((await send(`${address}${completions}`, { body: bodyOf([user('One.')]) })).status).toBe(200);
  });

  test('sends what is no list of messages: the provider judges it', async () => {
    const { address } = await bench.gateway();
    for (const body of [
      '{"model":"m"}',
      '{"messages":[{"role":"judge"}]}',
      '{"messages":',
      '{"messages":[],"messages":[]}',
    ]) {
      const given = await send(`${address}${completions}`, { body, headers: sessionHeaders('odd') });
      expect(given).toMatchObject({ status: 200, headers: { 'x-palimpsest-bypassed': 'Input.Invalid' } });
      expect(bench.upstream.requests.at(-1)?.bytes.toString()).toBe(body);
    }
    const strict = await bench.gateway({ onFailure: 'refuse' });
    const given = await send(`${strict.address}${completions}`, {
      body: '{"messages":[{"role":"judge"}]}',
      headers: sessionHeaders('odd'),
    });
    expect(given).toMatchObject({ status: 400, json: { error: { code: 'Input.Invalid' } } });
    expect(given.json.error?.message).toContain('messages[0].role');
  });

  test('of a gateway that stops gets its answer, and a new request is refused', async () => {
    let answer = (): void => undefined;
    bench.upstream.reply(async (received, response) => {
      await new Promise<void>((resolve) => (answer = resolve));
      await say({ text: 'Late.' }, received, response);
    });
    const running = await bench.gateway();
    const { hostname, port } = new URL(running.address);
    const begun = connect(Number(port), hostname);
    begun.write(`GET ${completions} HTTP/1.1\r\nhost: ${hostname}\r\n`);
    const call = send(`${running.address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('stopping'),
    });
    await expect.poll(() => bench.upstream.requests.length).toBe(1);
    const closing = running.close();
    begun.write('\r\n');
    const refused = await text(begun);
    expect(refused).toMatch(/^HTTP\/1.1 503 .*"code":"Api.Unavailable"/s);
    for (const header of ['retry-after: 1', 'connection: close']) expect(refused).toContain(header);
    answer();
    expect((await call).json.choices?.[0]?.message.content).toBe('Late.');
    await closing;
    bench.gateways.splice(0);
    expect(await replayed(bench.stack, 'stopping')).toHaveLength(2);
  });
});
