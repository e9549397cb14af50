/** Conversations with a session: the messages that are stored, and those that are sent on. */
import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { itemDigest } from '../../../src/formats/list-digest.js';
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
  passed,
  replayed,
  send,
  sessionHeaders,
  user,
  useGateways,
} from '../../support/gateway.js';
import { search } from '../../support/long-conversation.js';
import { Way } from '../../support/way.js';

const bench = useGateways();

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
      // An answer of the Responses API can be named, so it is stored before it ends.
      const stored = path === '/v1/responses' ? 2 : 1;
      expect(await replayed(bench.stack, session)).toHaveLength(stored);
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
      // An answer of the Responses API is stored in the provider's form.
      const shown = (item: unknown) => (path === '/v1/responses' ? itemDigest(item as Json) : item);
      const log = await replayed(bench.stack, session);
      expect(log.slice(0, next.length).map(shown)).toEqual(next.map(shown));
    });
  });

  test('it may stand in a field of the body', async () => {
    const { address } = await bench.gateway({ sessionField: 'metadata.thread' });
    const headers = { 'content-type': 'application/json', 'x-palimpsest-key': key };
    const body = bodyOf([user('One.')], { metadata: { thread: 'in-body' } });
    await send(`${address}${completions}`, { body, headers });
    await send(`${address}${completions}`, { body: bodyOf([user('Other.')], { metadata: {} }), headers });
    await send(`${address}${completions}`, { body: 'no JSON', headers });
    expect(await replayed(bench.stack, 'in-body')).toEqual([user('One.')]);
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
    expect(await replayed(bench.stack, 'usage')).toEqual(first);
    const next = [...first, json.choices?.[0]?.message, user('Three.')];
    await send(`${address}${completions}`, { body: bodyOf(next), headers });
    expect(await replayed(bench.stack, 'usage')).toEqual(next);
    const status = await bench.stack.palimpsest.status({ session: 'usage' });
    expect(JSON.stringify(status)).toContain('"samples":1');
  });

  test('the last answer is stored after a while, and the client may repeat it in another form', async () => {
    const { address } = await bench.gateway({ answerAfterMs: 20 });
    const headers = sessionHeaders('last');
    await send(`${address}${completions}`, { body: bodyOf([user('One.')]), headers });
    await expect.poll(() => replayed(bench.stack, 'last')).toHaveLength(2);
    const [, answer] = await replayed(bench.stack, 'last');
    expect(answer).toMatchObject({ role: 'assistant', content: 'Hello.', refusal: null });
    const list = [
      user('One.'),
      { role: 'assistant', content: [{ type: 'text', text: 'Hello.' }], name: 'bot' },
      user('Two.'),
    ];
    const second = await send(`${address}${completions}`, { body: bodyOf(list), headers });
    expect(second.headers['x-palimpsest-session']).toBeUndefined();
    // Its own answer may have followed already.
    expect((await replayed(bench.stack, 'last')).slice(0, 3)).toEqual([user('One.'), answer, user('Two.')]);
  });

  test('also if the model called a tool of ours that the client answers', async () => {
    const { address } = await bench.gateway({ answerAfterMs: 20 });
    const headers = sessionHeaders('own-search', { 'x-palimpsest-recovery': 'off' });
    bench.upstream.reply(() => ({ text: 'Hello.', calls: [search] }));
    await send(`${address}${completions}`, { body: bodyOf([user('One.')]), headers });
    await expect.poll(() => replayed(bench.stack, 'own-search')).toHaveLength(2);
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
    expect(await replayed(bench.stack, 'own-search')).toMatchObject([
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
      expect(await replayed(bench.stack, `stop-${stream}`)).toMatchObject([
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
    expect(await replayed(bench.stack, 'repeated')).toEqual(next);
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
    expect(await replayed(bench.stack, 'begun')).toEqual(next);
  });

  test('an item that never passed here stays a reference', async () => {
    const { address } = await bench.gateway();
    const unknown = { type: 'item_reference', id: 'msg_of-before' };
    const input = [{ role: 'user', content: 'One.' }, unknown, { role: 'user', content: 'Two.' }];
    const body = JSON.stringify({ model: 'gpt-4o', input });
    const given = await send(`${address}/v1/responses`, { body, headers: sessionHeaders('unknown-item') });
    expect(given.headers['x-palimpsest-bypassed']).toBeUndefined();
    expect(bench.upstream.requests[0]?.bytes.toString()).toBe(body);
    expect((await replayed(bench.stack, 'unknown-item')).slice(0, input.length)).toEqual(input);
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
    await expect.poll(() => replayed(bench.stack, 'edited')).toMatchObject([...dialog, assistant('Hello.')]);
    expect(await replayed(bench.stack, 'edited~1')).toEqual(more);
  });

  test('passes without the session if it has nothing of it', async () => {
    const address = await begun('other');
    const title = bodyOf([user('Write a title.')]);
    const given = await send(`${address}${completions}`, { body: title, headers: sessionHeaders('other') });
    expect(given).toMatchObject({ status: 200, headers: { 'x-palimpsest-bypassed': 'Store.ListEdited' } });
    expect(bench.upstream.requests.at(-1)?.bytes.toString()).toBe(title);
    expect(await replayed(bench.stack, 'other')).toEqual(dialog);
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
    expect(await replayed(bench.stack, 'said')).toEqual([...dialog, user('Another.')]);
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
      forTenant: () => ({ syncSizes: () => new Promise(() => undefined) }),
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
