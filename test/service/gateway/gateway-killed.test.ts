/** The gateway, and PostgreSQL behind it, under SIGKILL: requests are answered all the same, and sessions go on. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, type ModelMessage, streamText } from 'ai';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { openaiChat } from '../../../src/formats/openai-chat.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { startPostgres, stopPostgres } from '../../../src/runtime/postgres.js';
import { migrate } from '../../../src/store/connection/migrate.js';
import { passwordsFor, urlsFor } from '../../../src/store/connection/roles.js';
import { CliProcess, stackEnv } from '../../support/cli.js';
import {
  assistant,
  bodyOf,
  completions,
  gatewayOf,
  type Headers,
  replayed,
  send,
  sessionHeaders,
  user,
} from '../../support/gateway.js';
import { leashServers } from '../../support/leash.js';
import { list, look, lookTool, search, window } from '../../support/long-conversation.js';
import { startStack, type Stack } from '../../support/stack.js';
import { answerAt, startUpstream, type UpstreamServer } from '../../support/upstream.js';
import { Way } from '../../support/way.js';

let stack: Stack;
let upstream: UpstreamServer;
const running: CliProcess[] = [];
const tools = [{ type: 'function', function: lookTool }];

beforeAll(async () => {
  stack = await startStack({ worker: false });
  upstream = await startUpstream();
});

afterEach(async () => {
  for (const { child } of running) child.kill('SIGKILL');
  await Promise.all(running.splice(0).map(({ ended }) => ended));
  upstream.requests.splice(0);
});

afterAll(async () => {
  await upstream?.close();
  await stack?.stop();
});

/** A gateway in its own process. */
async function started(): Promise<{ address: string; kill: () => Promise<unknown> }> {
  const args = ['gateway', '--port', '0', '--upstream', `scripted=${upstream.url}`];
  const cli = new CliProcess(args, stackEnv(stack));
  running.push(cli);
  await cli.shows(/gateway is listening/);
  return {
    address: /http:\/\/127\.0\.0\.1:\d+/.exec(cli.stdout)?.[0] ?? '',
    kill: () => {
      cli.child.kill('SIGKILL');
      return cli.ended;
    },
  };
}

/** On a loopback address, the callers of this machine need no token. */
function withoutToken(session: string): Headers {
  const { 'x-palimpsest-key': _key, ...headers } = sessionHeaders(session);
  return headers;
}

test.each([true, false])(
  'the AI SDK names an answer after the gateway was killed (stream: %s)',
  async (stream) => {
    const session = `killed-named-${stream}`;
    const messages: ModelMessage[] = [];
    let said = 0;
    upstream.reply(() => ({ text: `Answer ${++said}.` }));
    for (const content of ['One.', 'Two.', 'Three.']) {
      const { address, kill } = await started();
      const openai = createOpenAI({
        ...{ baseURL: `${address}/v1`, apiKey: 'provider' },
        headers: { 'x-palimpsest-session': session },
      });
      messages.push({ role: 'user', content });
      const request = { model: openai('gpt-4o'), messages, maxRetries: 0 };
      const { response } = stream ? streamText(request) : await generateText(request);
      messages.push(...(await response).messages);
      await kill();
    }
    const named = upstream.requests.at(-1)!.body.input!.filter(({ type }) => type === 'item_reference');
    expect(named).toHaveLength(2);
    const log = await replayed({ ...stack, palimpsest: stack.palimpsest.forTenant('default') }, session);
    expect(log.map((item) => /(One|Two|Three|Answer \d)\./.exec(JSON.stringify(item))?.[0])).toEqual([
      'One.',
      'Answer 1.',
      'Two.',
      'Answer 2.',
      'Three.',
      'Answer 3.',
    ]);
  },
);

test('the AI SDK names no answer whose stream breaks off', async () => {
  upstream.reply(({ url }, response) => {
    const { events } = answerAt(url, { text: 'It is.' }, { input: 1, output: 1, model: 'm', id: 'cut' });
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(events.slice(0, -1).join(''), () => response.destroy());
  });
  const { address } = await started();
  const openai = createOpenAI({
    ...{ baseURL: `${address}/v1`, apiKey: 'provider' },
    headers: { 'x-palimpsest-session': 'cut-off' },
  });
  const request = { model: openai('gpt-4o'), prompt: 'Is it?', maxRetries: 0 };
  const { response } = streamText({ ...request, onError: () => undefined });
  const outcome = await Promise.resolve(response).then(
    ({ messages }) => JSON.stringify(messages),
    (error: unknown) => String(error),
  );
  expect(outcome).not.toContain('msg_cut');
});

test.each([
  { path: '/v1/messages', field: 'messages', more: { max_tokens: 500 } },
  { path: '/v1/responses', field: 'input', more: { store: false } },
])('a client of $path repeats an answer after the gateway was killed', async ({ path: at, field, more }) => {
  const session = `killed-${at}`;
  upstream.reply(() => ({ text: 'It is.' }));
  const list: object[] = [];
  for (const next of [user('One.'), user('Two.')]) {
    const { address, kill } = await started();
    list.push(next);
    const body = JSON.stringify({ model: 'gpt-4o', [field]: list, ...more });
    const { status, headers } = await send(`${address}${at}`, { body, headers: withoutToken(session) });
    expect({ status, ...headers }).toMatchObject({ status: 200 });
    expect(headers).not.toHaveProperty('x-palimpsest-session');
    await kill();
    list.push(assistant('It is.'));
  }
  const log = await replayed({ ...stack, palimpsest: stack.palimpsest.forTenant('default') }, session);
  // The last answer was in no request.
  expect(log).toEqual(list.slice(0, -1));
});

test('a gateway that is killed between an answer and the next request', async () => {
  const palimpsest = stack.palimpsest.forTenant('default');
  await palimpsest.configureTenant({ policy: { contextWindow: window } });
  const asking = async () => {
    const { address, kill } = await started();
    const headers = withoutToken('killed');
    const ask = (messages: readonly object[]) =>
      send(`${address}${completions}`, { body: bodyOf(messages, { tools }), headers });
    return { kill, ask };
  };
  let said = 0;
  upstream.reply(() => {
    said++;
    if (said === 1) return { text: 'I look it up. ', calls: [search] };
    if (said === 3) return { calls: [{ ...search, id: 'call-again' }, look] };
    return { text: `Answer ${said}.` };
  });
  const messages: object[] = [...list];
  // After an answer with a search; then between the client's call and its result.
  for (const next of [user('Thanks.'), { role: 'tool', tool_call_id: 'call-look', content: 'Seen.' }]) {
    const { kill, ask } = await asking();
    const { json, headers } = await ask(messages);
    expect(headers).not.toHaveProperty('x-palimpsest-session');
    await kill();
    const { content, tool_calls: calls } = json.choices![0]!.message;
    messages.push({ role: 'assistant', content, ...(calls ? { tool_calls: calls } : {}) }, next);
  }
  const { ask } = await asking();
  const { status, headers } = await ask(messages);
  expect({ status, ...headers }).not.toHaveProperty('x-palimpsest-bypassed');
  expect(headers).not.toHaveProperty('x-palimpsest-session');
  expect(await replayed({ ...stack, palimpsest: palimpsest }, 'killed')).toEqual(messages);
  for (const { body } of upstream.requests)
    expect(openaiChat.violations({ messages: JSON.parse(JSON.stringify(body.messages)) })).toEqual([]);
});

test('a database that is killed before a search, and comes back', async () => {
  const dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-gateway-')));
  const way = { now: new Way('') };
  const open = async (port?: number) => {
    const { url, pid } = await startPostgres({ dataDir, log: () => {} });
    way.now = new Way(new URL(url).host);
    return { url, pid, port: await way.now.open(port) };
  };
  const { url, pid, port } = await open();
  await migrate(url, { roles: passwordsFor(url) });
  const owner = Object.assign(new URL(url), { host: `127.0.0.1:${port}` }).toString();
  const { temporal, queuePrefix } = stack;
  const palimpsest = await Palimpsest.connect({
    ...{ databaseUrl: urlsFor(owner).databaseUrl, temporal, tenant: queuePrefix, queuePrefix },
  });
  await palimpsest.configureTenant({ policy: { contextWindow: window } });
  const gateway = await gatewayOf({ ...stack, palimpsest }, { upstreams: { scripted: upstream.url } });
  const ask = (messages: readonly object[], stream: boolean) =>
    send(`${gateway.address}${completions}`, {
      body: bodyOf(messages, { tools, stream }),
      headers: sessionHeaders('database-killed'),
    });
  upstream.reply(({ url: at }, response) => {
    const isFirst = upstream.requests.length === 1;
    if (isFirst) {
      process.kill(pid, 'SIGKILL');
      way.now.cut();
    }
    const said = isFirst ? { text: 'I look it up. ', calls: [search] } : { text: 'It is not known.' };
    const { events } = answerAt(at, said, { input: 1, output: 1, model: 'm', id: 'a' });
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(events.join(''));
  });
  const { bytes } = await ask(list, true);
  expect(bytes.toString()).toContain('[DONE]');
  expect(upstream.requests[1]!.body.messages!.at(-1)).toMatchObject({
    ...{ role: 'tool', tool_call_id: 'call-search' },
    content: expect.stringContaining('cannot be read now'),
  });
  const next = [...list, assistant('I look it up. It is not known.'), user('Thanks.')];
  upstream.reply(() => ({ text: 'Welcome.' }));
  const away = await ask(next, false);
  expect(away).toMatchObject({ status: 200, headers: { 'x-palimpsest-bypassed': 'Store.Unavailable' } });
  expect(upstream.requests.at(-1)!.body.messages).toEqual(next);
  await open(port);
  const more = [...next, assistant('Welcome.'), user('One more thing.')];
  const back = await ask(more, false);
  expect(back.headers).not.toHaveProperty('x-palimpsest-bypassed');
  expect(back.headers).not.toHaveProperty('x-palimpsest-session');
  // The log has the search with its failure, and everything that was said meanwhile, once.
  const log = await replayed({ ...stack, palimpsest }, 'database-killed');
  expect(log.slice(list.length)).toMatchObject([
    { role: 'assistant', content: 'I look it up. ' },
    { role: 'tool', tool_call_id: 'call-search' },
    ...[assistant('It is not known.'), user('Thanks.'), assistant('Welcome.'), user('One more thing.')],
  ]);
  await gateway.close();
  await palimpsest.close();
  way.now.cut();
  await stopPostgres(dataDir);
  rmSync(dataDir, { recursive: true, force: true });
});
