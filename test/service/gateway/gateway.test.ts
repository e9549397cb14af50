/** The gateway as HTTP: what passes unchanged, what is stored, and every kind of fault on either side. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { brotliCompressSync, gunzipSync, gzipSync } from 'node:zlib';
import OpenAI from 'openai';
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import type { RunningGateway } from '../../../src/gateway/server.js';
import type { GatewaySettings } from '../../../src/gateway/settings.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import {
  type Answered,
  assistant,
  bodyOf,
  completions,
  gatewayOf,
  type Headers,
  key,
  replayed as replayedOf,
  send,
  sessionHeaders,
  user,
  useGateways,
} from '../../support/gateway.js';
import { search } from '../../support/long-conversation.js';
import { say, startUpstream } from '../../support/upstream.js';
import { Way } from '../../support/way.js';

const bench = useGateways();

const replayed = (session: string): Promise<Json[]> => replayedOf(bench.stack, session);

/** The headers of a request but those of the connection. */
const passed = (raw: string[]): string[] =>
  raw
    .flatMap((name, index) => (index % 2 === 0 ? [`${name}: ${raw[index + 1]}`] : []))
    .filter(
      (line) =>
        !/^(?:host|connection|keep-alive|content-length|transfer-encoding|accept-encoding):/i.test(line),
    );

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
    expect(await replayed('known')).toHaveLength(2);
    const { sessions } = await bench.stack.palimpsest.sessions();
    expect(sessions.map(({ session }) => session)).toEqual(['known']);
  });
});

describe('with a session', () => {
  test.each<[string, object, Headers]>([
    [completions, { messages: [{ role: 'system', content: 'Be.' }, user('One.')] }, {}],
    [
      '/v1/messages',
      {
        system: 'Be.',
        max_tokens: 5,
        messages: [
          { role: 'user', content: [{ type: 'text', text: 'One.', cache_control: { type: 'ephemeral' } }] },
        ],
      },
      {},
    ],
    ['/v1/responses', { instructions: 'Be.', input: 'One.' }, {}],
    [
      '/v1/responses',
      {
        input: [
          { role: 'developer', content: 'Be.' },
          { role: 'user', content: 'One.' },
        ],
      },
      { 'x-palimpsest-recovery': 'off' },
    ],
  ])(
    'a request to %s that needs no shortening is byte for byte the same as a direct one',
    async (path, fields, more) => {
      const { address } = await bench.gateway();
      const body = JSON.stringify({ model: 'gpt-4o', temperature: 1, ...fields }, null, 3).replace(
        '1,',
        '1.00,',
      );
      const session = `same-${path}-${JSON.stringify(more).length}`;
      const headers = sessionHeaders(session, more);
      const through = await send(`${address}${path}`, { body, headers });
      const {
        'x-palimpsest-session': _session,
        'x-palimpsest-key': _key,
        'x-palimpsest-recovery': _off,
        ...own
      } = headers;
      const direct = await send(`${bench.upstream.url}${path}`, { body, headers: own });
      const [first, second] = bench.upstream.requests;
      expect(first?.bytes.toString()).toBe(second?.bytes.toString());
      expect(passed(first!.rawHeaders)).toEqual(passed(second!.rawHeaders));
      expect(through.headers['x-palimpsest-bypassed']).toBeUndefined();
      const plain = ({ bytes }: Answered) => bytes.toString().replaceAll(/answer-\d+/g, 'answer');
      expect(plain(through)).toBe(plain(direct));
      expect(await replayed(session)).toHaveLength(1);
    },
  );

  describe('a conversation that the context shows in another form passes byte for byte:', () => {
    const calls = (...ids: string[]): object => ({
      ...{ role: 'assistant', content: null },
      tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'look', arguments: '{}' } })),
    });
    const result = (id: string, content: string): object => ({ role: 'tool', tool_call_id: id, content });
    const called = (id: string): object => ({
      type: 'function_call',
      call_id: id,
      name: 'look',
      arguments: '{}',
    });
    const output = (id: string): object => ({
      type: 'function_call_output',
      call_id: id,
      output: `Of ${id}.`,
    });
    const used = ['1', '2'].map((id) => ({ type: 'tool_use', id, name: 'look', input: {} }));
    const toolResults = ['2', '1'].map((id) => ({ type: 'tool_result', tool_use_id: id, content: 'Seen.' }));
    const chat = (messages: object[]) => ({ messages });
    const claude = (messages: object[]) => ({ max_tokens: 5, messages });
    const said = [user('One.'), assistant('Two.')];

    test.each<[string, string, { messages: object[] } | { input: object[] }]>([
      ['an empty question', completions, chat([...said, user('')])],
      ['no parts', completions, chat([...said, { role: 'user', content: [] }])],
      ['white space', completions, chat([user('One.'), assistant('  '), user('\n')])],
      ['no content', completions, chat([user('One.'), { role: 'assistant' }, user('Two.')])],
      ['an empty result', completions, chat([user('One.'), calls('1'), result('1', '')])],
      [
        'results in another order',
        completions,
        chat([user('One.'), calls('1', '2'), result('2', 'b'), result('1', 'a')]),
      ],
      [
        'a call id twice',
        completions,
        chat([user('One.'), calls('1'), result('1', 'a'), calls('1'), result('1', 'b')]),
      ],
      ['a result without its call', completions, chat([user('One.'), result('1', 'a')])],
      ['two questions', '/v1/messages', claude([user('One.'), user('Two.')])],
      [
        'a later instruction',
        '/v1/messages',
        claude([...said, { role: 'system', content: 'Be.' }, user('On.')]),
      ],
      [
        'results of Anthropic in another order',
        '/v1/messages',
        claude([user('One.'), { role: 'assistant', content: used }, { role: 'user', content: toolResults }]),
      ],
      [
        'outputs in another order',
        '/v1/responses',
        { input: [user('One.'), called('1'), called('2'), output('2'), output('1')] },
      ],
    ])('%s', async (title, path, fields) => {
      const { address } = await bench.gateway();
      const list = 'input' in fields ? fields.input : fields.messages;
      const session = `form-${title.replaceAll(' ', '-')}`;
      const first = JSON.stringify({ model: 'gpt-4o', ...fields });
      const next = [...list, assistant('Hello.'), user('Next.')];
      const second = JSON.stringify({
        model: 'gpt-4o',
        ...fields,
        ['input' in fields ? 'input' : 'messages']: next,
      });
      for (const body of [first, second]) {
        const given = await send(`${address}${path}`, { body, headers: sessionHeaders(session) });
        expect(given.headers).not.toHaveProperty('x-palimpsest-bypassed');
        expect(given.headers).not.toHaveProperty('x-palimpsest-session');
      }
      expect(bench.upstream.requests.map(({ bytes }) => bytes.toString())).toEqual([first, second]);
      expect(await replayed(session)).toEqual(next);
    });
  });

  test('it may stand in a field of the body', async () => {
    const { address } = await bench.gateway({ sessionField: 'metadata.thread' });
    const headers = { 'content-type': 'application/json', 'x-palimpsest-key': key };
    const body = bodyOf([user('One.')], { metadata: { thread: 'in-body' } });
    await send(`${address}${completions}`, { body, headers });
    await send(`${address}${completions}`, { body: bodyOf([user('Other.')], { metadata: {} }), headers });
    await send(`${address}${completions}`, { body: 'no JSON', headers });
    expect(await replayed('in-body')).toEqual([user('One.')]);
    expect(bench.upstream.requests.map(({ bytes }) => bytes.toString())).toEqual([
      body,
      bodyOf([user('Other.')], { metadata: {} }),
      'no JSON',
    ]);
  });

  test('an answer is stored with the next request, and its usage is learnt', async () => {
    const { address } = await bench.gateway();
    bench.upstream.reply(() => ({ text: 'Two.', usage: { input: 5_000, output: 3 } }));
    const first = [user(`One. ${'word '.repeat(3_000)}`)];
    const headers = sessionHeaders('usage');
    const { json } = await send(`${address}${completions}`, { body: bodyOf(first), headers });
    expect(await replayed('usage')).toEqual(first);
    const next = [...first, json.choices?.[0]?.message, user('Three.')];
    await send(`${address}${completions}`, { body: bodyOf(next), headers });
    expect(await replayed('usage')).toEqual(next);
    const status = await bench.stack.palimpsest.status({ session: 'usage' });
    expect(JSON.stringify(status)).toContain('"samples":1');
  });

  test('the last answer is stored after a while, and the client may repeat it in another form', async () => {
    const { address } = await bench.gateway({ answerAfterMs: 20 });
    const headers = sessionHeaders('last');
    await send(`${address}${completions}`, { body: bodyOf([user('One.')]), headers });
    await expect.poll(() => replayed('last')).toHaveLength(2);
    const [, answer] = await replayed('last');
    expect(answer).toMatchObject({ role: 'assistant', content: 'Hello.', refusal: null });
    const list = [
      user('One.'),
      { role: 'assistant', content: [{ type: 'text', text: 'Hello.' }], name: 'bot' },
      user('Two.'),
    ];
    const second = await send(`${address}${completions}`, { body: bodyOf(list), headers });
    expect(second.headers['x-palimpsest-session']).toBeUndefined();
    // Its own answer may have followed already.
    expect((await replayed('last')).slice(0, 3)).toEqual([user('One.'), answer, user('Two.')]);
  });

  test('also if the model called a tool of ours that the client answers', async () => {
    const { address } = await bench.gateway({ answerAfterMs: 20 });
    const headers = sessionHeaders('own-search', { 'x-palimpsest-recovery': 'off' });
    bench.upstream.reply(() => ({ text: 'Hello.', calls: [search] }));
    await send(`${address}${completions}`, { body: bodyOf([user('One.')]), headers });
    await expect.poll(() => replayed('own-search')).toHaveLength(2);
    const called = { name: search.name, arguments: JSON.stringify(search.args, null, 1) };
    const list = [
      user('One.'),
      {
        ...{ role: 'assistant', content: [{ type: 'text', text: 'Hello.' }], name: 'bot' },
        tool_calls: [{ id: search.id, type: 'function', function: called }],
      },
      { role: 'tool', tool_call_id: search.id, content: 'No such tool.' },
    ];
    bench.upstream.reply(() => ({ text: 'Sorry.' }));
    for (const more of [[], [assistant('Sorry.'), user('Two.')]]) {
      const { headers: given } = await send(`${address}${completions}`, {
        ...{ body: bodyOf([...list, ...more]), headers },
      });
      expect(given['x-palimpsest-session']).toBeUndefined();
    }
    expect(await replayed('own-search')).toMatchObject([
      ...[{ role: 'user' }, { role: 'assistant', refusal: null }, { role: 'tool' }],
      ...[{ content: 'Sorry.' }, { content: 'Two.' }],
    ]);
  });

  test('the last answers are stored when the gateway stops', async () => {
    const { address } = await bench.gateway();
    for (const stream of [false, true])
      await send(`${address}${completions}`, {
        body: bodyOf([user('One.')], { stream }),
        headers: sessionHeaders(`stop-${stream}`),
      });
    await bench.gateways.splice(0)[0]?.close();
    for (const stream of [false, true])
      expect(await replayed(`stop-${stream}`)).toMatchObject([
        user('One.'),
        { role: 'assistant', content: 'Hello.' },
      ]);
  });

  test('a repeated request is no edit, whichever answer the client goes on with', async () => {
    const { address } = await bench.gateway();
    const headers = sessionHeaders('repeated');
    const body = bodyOf([user('One.')]);
    bench.upstream.reply(() => ({ text: 'First.' }));
    await send(`${address}${completions}`, { body, headers });
    bench.upstream.reply(() => ({ text: 'Second.' }));
    await send(`${address}${completions}`, { body, headers });
    const next = [user('One.'), assistant('First.'), user('Two.')];
    const { headers: given } = await send(`${address}${completions}`, { body: bodyOf(next), headers });
    expect(given['x-palimpsest-bypassed']).toBeUndefined();
    expect(await replayed('repeated')).toEqual(next);
  });

  test('the beginning of an answer passes with the request, and is stored with the answer', async () => {
    const { address } = await bench.gateway();
    const headers = sessionHeaders('begun');
    const first = [user('One.')];
    const begun = bodyOf([...first, assistant('It')]);
    await send(`${address}/v1/messages`, { body: begun, headers });
    expect(bench.upstream.requests[0]?.bytes.toString()).toBe(begun);
    const next = [...first, assistant('It is.'), user('Two.')];
    await send(`${address}/v1/messages`, { body: bodyOf(next), headers });
    expect(await replayed('begun')).toEqual(next);
  });

  test('an item that never passed here stays a reference', async () => {
    const { address } = await bench.gateway();
    const unknown = { type: 'item_reference', id: 'msg_of-before' };
    const input = [{ role: 'user', content: 'One.' }, unknown, { role: 'user', content: 'Two.' }];
    const body = JSON.stringify({ model: 'gpt-4o', input });
    const given = await send(`${address}/v1/responses`, { body, headers: sessionHeaders('unknown-item') });
    expect(given.headers['x-palimpsest-bypassed']).toBeUndefined();
    expect(bench.upstream.requests[0]?.bytes.toString()).toBe(body);
    expect(await replayed('unknown-item')).toEqual(input);
  });

  test('a conversation that the provider holds passes, and says why', async () => {
    const { address } = await bench.gateway();
    const body = JSON.stringify({ model: 'gpt-4o', input: 'Two.', previous_response_id: 'resp_1' });
    const given = await send(`${address}/v1/responses`, { body, headers: sessionHeaders('held') });
    expect(given.headers['x-palimpsest-bypassed']).toBe('Input.Invalid');
    expect(bench.upstream.requests[0]?.bytes.toString()).toBe(body);
  });
});

describe('a list that is not the session and more', () => {
  const dialog = [user('One.'), assistant('Two.'), user('Three.'), assistant('Four.'), user('Five.')];
  const edited = [...dialog.slice(0, 2), user('Another.')];

  async function begun(session: string): Promise<string> {
    const { address } = await bench.gateway();
    await send(`${address}${completions}`, { body: bodyOf(dialog), headers: sessionHeaders(session) });
    return address;
  }

  test('goes on in a fork', async () => {
    const address = await begun('edited');
    const headers = sessionHeaders('edited');
    const fork = await send(`${address}${completions}`, { body: bodyOf(edited), headers });
    expect(fork.headers['x-palimpsest-session']).toBe('edited~1');
    const more = [...edited, assistant('Hello.'), user('More.')];
    const next = await send(`${address}${completions}`, { body: bodyOf(more), headers });
    expect(next.headers['x-palimpsest-session']).toBe('edited~1');
    // The answer that no request of the session has any more is stored in it.
    await expect.poll(() => replayed('edited')).toMatchObject([...dialog, assistant('Hello.')]);
    expect(await replayed('edited~1')).toEqual(more);
  });

  test('passes without the session if it has nothing of it', async () => {
    const address = await begun('other');
    const title = bodyOf([user('Write a title.')]);
    const given = await send(`${address}${completions}`, { body: title, headers: sessionHeaders('other') });
    expect(given).toMatchObject({ status: 200, headers: { 'x-palimpsest-bypassed': 'Store.ListEdited' } });
    expect(bench.upstream.requests.at(-1)?.bytes.toString()).toBe(title);
    expect(await replayed('other')).toEqual(dialog);
  });

  test('is refused or appended if the client says so', async () => {
    const address = await begun('said');
    const refuse = sessionHeaders('said', { 'x-palimpsest-on-edit': 'refuse' });
    const openai = new OpenAI({
      baseURL: `${address}/v1`,
      apiKey: 'provider',
      defaultHeaders: refuse as Record<string, string>,
    });
    const sent = bench.upstream.requests.length;
    const refused = openai.chat.completions.create({ model: 'gpt-4o', messages: edited as never });
    await expect(refused).rejects.toMatchObject({
      ...{ status: 409, code: 'Store.ListEdited' },
      message: expect.stringContaining('x-palimpsest-on-edit'),
    });
    // The SDK does not repeat it.
    expect(bench.upstream.requests.length).toBe(sent);
    const append = sessionHeaders('said', { 'x-palimpsest-on-edit': 'append' });
    await send(`${address}${completions}`, { body: bodyOf(edited), headers: append });
    expect(await replayed('said')).toEqual([...dialog, user('Another.')]);
  });

  test('two requests of one session at once are both answered', async () => {
    const address = await begun('at-once');
    const list = [...dialog, assistant('Six.')];
    const bodies = ['A', 'B'].map((name) => bodyOf([...list, user(name)]));
    const same = bodyOf([...list, user('A')]);
    const answers = await Promise.all(
      [...bodies, same].map((body) =>
        send(`${address}${completions}`, { body, headers: sessionHeaders('at-once') }),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(answers.map(({ json }) => json.choices?.[0]?.message.content)).toEqual([
      'Hello.',
      'Hello.',
      'Hello.',
    ]);
  });
});

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
    expect(await replayed('tenants')).toEqual([user('Ours.')]);
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
    expect(await replayed('hangs')).toEqual([user('One.')]);
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
      expect(await replayed(`squeezed-${encoding}`)).toEqual([user('One.'), ...stored]);
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
      expect(await replayed(session)).toMatchObject([user('One.'), { role: 'assistant', content: text }]);
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
      expect(await replayed(session)).toEqual([user('One.')]);
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

  test('of a gateway that stops gets its answer', async () => {
    let answer = (): void => undefined;
    bench.upstream.reply(async (received, response) => {
      await new Promise<void>((resolve) => (answer = resolve));
      await say({ text: 'Late.' }, received, response);
    });
    const running = await bench.gateway();
    const call = send(`${running.address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('stopping'),
    });
    await expect.poll(() => bench.upstream.requests.length).toBe(1);
    const closing = running.close();
    answer();
    expect((await call).json.choices?.[0]?.message.content).toBe('Late.');
    await closing;
    bench.gateways.splice(0);
    expect(await replayed('stopping')).toHaveLength(2);
  });
});

describe('the database is away', () => {
  async function cutOff(
    settings: Partial<GatewaySettings> = {},
  ): Promise<[RunningGateway, () => Promise<void>]> {
    const { host } = new URL(bench.stack.databaseUrl);
    const way = new Way(host);
    const port = await way.open();
    const databaseUrl = Object.assign(new URL(bench.stack.databaseUrl), {
      host: `127.0.0.1:${port}`,
    }).toString();
    const { temporal, queuePrefix } = bench.stack;
    const palimpsest = await Palimpsest.connect({ databaseUrl, temporal, tenant: queuePrefix, queuePrefix });
    const started = await gatewayOf(
      { ...bench.stack, palimpsest },
      { upstreams: { scripted: bench.upstream.url }, ...settings },
    );
    bench.gateways.push(started);
    way.cut();
    return [started, () => palimpsest.close()];
  }

  test('the request passes unchanged, and the answer says so', async () => {
    const [{ address }, close] = await cutOff();
    const body = bodyOf([user('One.')]);
    const given = await send(`${address}${completions}`, { body, headers: sessionHeaders('away') });
    expect(given).toMatchObject({ status: 200, headers: { 'x-palimpsest-bypassed': 'Store.Unavailable' } });
    expect(bench.upstream.requests[0]?.bytes.toString()).toBe(body);
    await close();
  });

  test('or the request is refused, if the operator wants that', async () => {
    const [{ address }, close] = await cutOff({ onFailure: 'refuse' });
    const given = await send(`${address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('away'),
    });
    expect(given).toMatchObject({ status: 503, json: { error: { code: 'Store.Unavailable' } } });
    expect(bench.upstream.requests).toEqual([]);
    await close();
  });

  test('a session that takes too long passes as well', async () => {
    const palimpsest = {
      ...bench.stack.palimpsest,
      forTenant: () => ({ sync: () => new Promise(() => undefined) }),
    };
    const started = await gatewayOf(
      { ...bench.stack, palimpsest: palimpsest as never },
      { upstreams: { scripted: bench.upstream.url }, storeTimeoutMs: 30 },
    );
    bench.gateways.push(started);
    const given = await send(`${started.address}${completions}`, {
      body: bodyOf([user('One.')]),
      headers: sessionHeaders('slow'),
    });
    expect(given).toMatchObject({ status: 200, headers: { 'x-palimpsest-bypassed': 'Store.Unavailable' } });
  });
});
