/** The gateway, and PostgreSQL behind it, under SIGKILL: requests are answered all the same, and sessions go on. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
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

test('a gateway that is killed between an answer and the next request', async () => {
  const palimpsest = stack.palimpsest.forTenant('default');
  await palimpsest.configureTenant({ policy: { contextWindow: window } });
  const started = async (): Promise<{
    cli: CliProcess;
    ask: (messages: readonly object[]) => ReturnType<typeof send>;
  }> => {
    const args = ['gateway', '--port', '0', '--upstream', `scripted=${upstream.url}`];
    const cli = new CliProcess(args, stackEnv(stack));
    running.push(cli);
    await cli.shows(/gateway is listening/);
    const address = /http:\/\/127\.0\.0\.1:\d+/.exec(cli.stdout)?.[0] ?? '';
    const { 'x-palimpsest-key': _key, ...headers } = sessionHeaders('killed');
    return {
      cli,
      ask: (messages) => send(`${address}${completions}`, { body: bodyOf(messages, { tools }), headers }),
    };
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
    const { cli, ask } = await started();
    const { json, headers } = await ask(messages);
    expect(headers).not.toHaveProperty('x-palimpsest-session');
    cli.child.kill('SIGKILL');
    await cli.ended;
    const { content, tool_calls: calls } = json.choices![0]!.message;
    messages.push({ role: 'assistant', content, ...(calls ? { tool_calls: calls } : {}) }, next);
  }
  const { ask } = await started();
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
  const open = async (port = 0) => {
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
