/**
 * Answers that no request has repeated yet: which process stores them, in which words a client goes on with them, and what does not
 * happen to them.
 */
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import {
  assistant,
  completions,
  bodyOf,
  gatewayOf,
  type Headers,
  replayed,
  send,
  sessionHeaders,
  user,
  useGateways,
} from '../../support/gateway.js';
import { list, look, lookTool, search, window } from '../../support/long-conversation.js';
import type { Said } from '../../support/upstream.js';
import { Way } from '../../support/way.js';

const bench = useGateways({ worker: false, contextWindow: window });

/** Says one after the other. */
function inTurn(...answers: Said[]): void {
  let next = 0;
  bench.upstream.reply(() => answers[Math.min(next++, answers.length - 1)] ?? { text: 'Nothing.' });
}

/** The list and its answer, as clients hold it that keep only what was said. */
interface Client {
  path: string;
  field: 'messages' | 'input';
  more: object;
  said(text: string): object;
}

const clients: Client[] = [
  { path: completions, field: 'messages', more: {}, said: (content) => ({ role: 'assistant', content }) },
  {
    ...{ path: '/v1/messages', field: 'messages', more: { max_tokens: 500 } },
    said: (text) => ({ role: 'assistant', content: [{ type: 'text', text }] }),
  },
  {
    ...{ path: '/v1/responses', field: 'input', more: { store: false } },
    said: (content) => ({ role: 'assistant', content }),
  },
];

const requestOf = ({ field, more }: Client, items: readonly object[], stream = false): string =>
  JSON.stringify({ model: 'gpt-4o', stream, [field]: items, ...more });

describe.each(clients)('a client of $path whose answer another process has stored', (client) => {
  const ask = async (session: string, items: readonly object[], stream = false, more: Headers = {}) => {
    const { address } = await bench.gateway();
    const body = requestOf(client, items, stream);
    return send(`${address}${client.path}`, { body, headers: sessionHeaders(session, more) });
  };

  test.each([false, true])('goes on in its session after a search (stream: %s)', async (stream) => {
    const session = `searched-${client.path}-${stream}`;
    inTurn({ text: 'I look it up. ', calls: [search] }, { text: 'It is vermilion.' }, { text: 'Welcome.' });
    await ask(session, list, stream);
    await bench.stopped();
    const answer = client.said(stream ? 'I look it up. It is vermilion.' : 'It is vermilion.');
    const next = await ask(session, [...list, answer, { role: 'user', content: 'Thanks.' }]);
    expect(next.headers).not.toHaveProperty('x-palimpsest-session');
    expect(next.headers).not.toHaveProperty('x-palimpsest-bypassed');
    // The model still knows what it has found.
    const { body } = bench.upstream.requests.at(-1)!;
    expect(JSON.stringify((body.messages ?? body.input)?.slice(-6))).toContain('call-search');
    await bench.stopped();
    const log = JSON.stringify(await replayed(bench.stack, session));
    expect(log.match(/It is vermilion\./g)).toHaveLength(1);
    expect(log).toContain('Thanks.');
    expect(log).toContain('Welcome.');
  });

  test('goes on in its session in its own words, whatever it does with edited lists', async () => {
    for (const mode of ['fork', 'append', 'refuse']) {
      const session = `words-${client.path}-${mode}`;
      inTurn({ text: 'It is\n vermilion. ' }, { text: 'Welcome.' });
      const first = [{ role: 'user', content: 'Which colour?' }];
      await ask(session, first);
      await bench.stopped();
      const next = [...first, client.said('It is vermilion.'), { role: 'user', content: 'Thanks.' }];
      const { status, headers } = await ask(session, next, false, { 'x-palimpsest-on-edit': mode });
      expect({ status, fork: headers['x-palimpsest-session'] }).toEqual({ status: 200, fork: undefined });
      await bench.stopped();
      expect(await replayed(bench.stack, session)).toHaveLength(4);
    }
  });

  test('goes on in a fork if it has changed the answer', async () => {
    const session = `changed-${client.path}`;
    inTurn({ text: 'It is vermilion.' }, { text: 'Welcome.' });
    const first = [{ role: 'user', content: 'Which colour?' }];
    await ask(session, first);
    await bench.stopped();
    const next = [...first, client.said('It is blue.'), { role: 'user', content: 'Thanks.' }];
    expect((await ask(session, next)).headers['x-palimpsest-session']).toBe(`${session}~1`);
  });
});

test('a call together with the client’s calls is known to another process', async () => {
  inTurn({ calls: [search, look] }, { text: 'Done.' });
  const tools = [{ type: 'function', function: lookTool }];
  const { address } = await bench.gateway({ answerAfterMs: 20 });
  const headers = sessionHeaders('mixed');
  const { json } = await send(`${address}${completions}`, { body: bodyOf(list, { tools }), headers });
  const { content, tool_calls: calls } = json.choices![0]!.message;
  await expect.poll(() => replayed(bench.stack, 'mixed')).toHaveLength(list.length + 2);
  const other = await bench.gateway();
  const next = [
    ...list,
    { role: 'assistant', content, tool_calls: calls },
    { role: 'tool', tool_call_id: 'call-look', content: 'Seen.' },
  ];
  const given = await send(`${other.address}${completions}`, { body: bodyOf(next, { tools }), headers });
  expect(given.headers['x-palimpsest-session']).toBeUndefined();
  expect(bench.upstream.requests[1]!.body.messages!.slice(-3)).toMatchObject([
    { role: 'assistant', tool_calls: [{ id: 'call-search' }, { id: 'call-look' }] },
    { role: 'tool', tool_call_id: 'call-search' },
    { role: 'tool', tool_call_id: 'call-look' },
  ]);
});

test('both answers of a conversation that parts are stored', async () => {
  bench.upstream.reply(({ body }) => ({ text: `To ${String(body.messages!.at(-1)!.content)}` }));
  const { address } = await bench.gateway();
  const headers = sessionHeaders('parts');
  const ask = (messages: readonly object[]) =>
    send(`${address}${completions}`, { body: bodyOf(messages), headers });
  await ask([user('One')]);
  const shared = [user('One'), assistant('To One')];
  await Promise.all(['A', 'B'].map((name) => ask([...shared, user(name)])));
  await bench.stopped();
  const ends = await Promise.all(
    ['parts', 'parts~1'].map(async (session) => (await replayed(bench.stack, session)).slice(2)),
  );
  expect(ends.map((end) => end.map((item) => (item as { content: Json }).content)).sort()).toEqual([
    ['A', 'To A'],
    ['B', 'To B'],
  ]);
});

describe.each(clients)('two conversations on $path that alternate on one session', (client) => {
  // The client drops white space of an answer, so that the log has it in other words.
  test.each([1, 2])('are two sessions, through %i gateways', async (count) => {
    bench.upstream.reply(({ body }) => {
      const last = (body.messages ?? body.input)!.at(-1) as { content: string };
      return { text: ` To ${JSON.stringify(last.content)}\n\n` };
    });
    const started = await Promise.all(
      Array.from({ length: count }, () => bench.gateway({ answerAfterMs: 20 })),
    );
    const session = `alternate-${count}-${client.path}`;
    const used = new Set<string>();
    const turn = async (items: readonly object[], name: string, number: number) => {
      const asked = [...items, { role: 'user', content: name }];
      const { address } = started[number % count]!;
      const { bytes, headers } = await send(`${address}${client.path}`, {
        body: requestOf(client, asked),
        headers: sessionHeaders(session),
      });
      expect(headers).not.toHaveProperty('x-palimpsest-bypassed');
      expect(bytes.toString()).toContain('To ');
      used.add(String(headers['x-palimpsest-session'] ?? session));
      return [...asked, client.said(`To ${JSON.stringify(name)}`)];
    };
    let one = await turn([], 'Begin', 0);
    let other = one;
    for (let number = 0; number < 4; number++) {
      one = await turn(one, `A${number}`, number);
      other = await turn(other, `B${number}`, number + 1);
    }
    expect([...used].sort()).toEqual([session, `${session}~1`]);
    await bench.stopped();
    for (const id of used) expect(await replayed(bench.stack, id)).toHaveLength(10);
  });
});

test('an answer that cannot be stored now is stored later', async () => {
  const way = new Way(new URL(bench.stack.databaseUrl).host);
  const port = await way.open();
  const databaseUrl = Object.assign(new URL(bench.stack.databaseUrl), {
    host: `127.0.0.1:${port}`,
  }).toString();
  const { temporal, queuePrefix } = bench.stack;
  const palimpsest = await Palimpsest.connect({ databaseUrl, temporal, tenant: queuePrefix, queuePrefix });
  const lines: string[] = [];
  const started = await gatewayOf(
    { ...bench.stack, palimpsest },
    {
      ...{ upstreams: { scripted: bench.upstream.url }, answerAfterMs: 50 },
      log: pino({}, { write: (line) => lines.push(line) }),
    },
  );
  bench.gateways.push(started);
  bench.upstream.reply(() => {
    way.cut();
    return { text: 'Two.' };
  });
  await send(`${started.address}${completions}`, {
    body: bodyOf([user('One.')]),
    headers: sessionHeaders('later'),
  });
  await expect.poll(() => lines.join('')).toContain('an answer was not stored');
  const line = lines.find((one) => one.includes('an answer was not stored'))!;
  expect(JSON.parse(line)).toMatchObject({ session: 'later', failure: 'Store.Unavailable' });
  expect(line).not.toContain('undefined');
  await way.open(port);
  await expect.poll(() => replayed(bench.stack, 'later')).toHaveLength(2);
  await bench.stopped();
  way.cut();
  await palimpsest.close();
});

test('the end of the gateway waits for an answer that is being stored', async () => {
  const order: string[] = [];
  let goOn: () => void = () => undefined;
  const waits = new Promise<void>((resolve) => (goOn = resolve));
  let begun = false;
  const client = bench.stack.palimpsest.forTenant(bench.stack.queuePrefix);
  const slow: Partial<typeof client> = {
    syncSizes: (request) => client.syncSizes(request),
    policy: (request) => client.policy(request),
    appendTurn: async (turn) => {
      begun = true;
      await waits;
      const stored = await client.appendTurn(turn);
      order.push('stored');
      return stored;
    },
  };
  const palimpsest = { ...bench.stack.palimpsest, forTenant: () => slow };
  const started = await gatewayOf(
    { ...bench.stack, palimpsest: palimpsest as never },
    { upstreams: { scripted: bench.upstream.url }, answerAfterMs: 1 },
  );
  inTurn({ text: 'Two.' });
  await send(`${started.address}${completions}`, {
    body: bodyOf([user('One.')]),
    headers: sessionHeaders('waits'),
  });
  await expect.poll(() => begun).toBe(true);
  const closed = started.close().then(() => order.push('closed'));
  goOn();
  await closed;
  expect(order).toEqual(['stored', 'closed']);
});
