/** `palimpsest gateway` as a process: its options, its metrics, its start without a database, its end. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { freePort } from '../../../src/runtime/ports.js';
import { ask } from '../../support/api.js';
import { CliProcess, runCli, stackEnv } from '../../support/cli.js';
import { startStack, type Stack } from '../../support/stack.js';
import { startUpstream, type UpstreamServer } from '../../support/upstream.js';
import { Way } from '../../support/way.js';

let stack: Stack;
let upstream: UpstreamServer;
const running: CliProcess[] = [];

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

async function started(env: NodeJS.ProcessEnv = {}): Promise<{ cli: CliProcess; address: string }> {
  const args = ['gateway', '--port', '0', '--upstream', `scripted=${upstream.url}`];
  const cli = new CliProcess(args, { ...stackEnv(stack), ...env });
  running.push(cli);
  await cli.shows(/gateway is listening/);
  return { cli, address: /http:\/\/127\.0\.0\.1:\d+/.exec(cli.stdout)?.[0] ?? '' };
}

const body = { model: 'gpt-4o', messages: [{ role: 'user', content: 'One.' }] };
const send = (address: string, session: string) =>
  ask(address, '/v1/chat/completions', { body, headers: { 'x-palimpsest-session': session } });

test('a request on this machine needs no token; the last answer is stored at the end', async () => {
  const status = `127.0.0.1:${await freePort()}`;
  const { cli, address } = await started({ PALIMPSEST_METRICS_ADDRESS: status });
  expect((await send(address, 'by-command')).status).toBe(200);
  expect((await ask(address, '/v1/models')).status).toBe(200);
  expect((await ask(`http://${status}`, '/readyz')).json).toMatchObject({ ready: true, postgres: null });
  const { text } = await ask(`http://${status}`, '/metrics');
  expect(text).toMatch(
    /palimpsest_gateway_requests_total\{upstream="scripted",endpoint="chat",status="200"\} 1/,
  );
  expect(text).toMatch(
    /palimpsest_gateway_requests_total\{upstream="scripted",endpoint="none",status="200"\} 1/,
  );
  expect(text).toMatch(/palimpsest_gateway_own_seconds_count\{endpoint="chat"\} 1/);
  cli.child.kill('SIGTERM');
  expect(await cli.ended).toMatchObject({ code: 0 });
  const { entries } = await stack.palimpsest.forTenant('default').context({ session: 'by-command' });
  expect(entries).toHaveLength(2);
  // Nothing that was said or named is in the log.
  expect(cli.stdout + cli.stderr).not.toMatch(/by-command|One\.|Hello\./);
});

test('without a database it starts, passes requests, and uses the database once it is there', async () => {
  const url = new URL(stack.databaseUrl);
  const way = new Way(url.host);
  const port = await freePort();
  const away = Object.assign(url, { host: `127.0.0.1:${port}` }).toString();
  const { address } = await started({ DATABASE_URL: away });
  const first = await send(address, 'before');
  expect({ status: first.status, by: first.headers.get('x-palimpsest-bypassed') }).toEqual({
    ...{ status: 200, by: 'Store.Unavailable' },
  });
  await way.open(port);
  await expect
    .poll(async () => (await send(address, 'after')).headers.get('x-palimpsest-bypassed'))
    .toBeNull();
  way.cut();
});

test.each<[string, string[], NodeJS.ProcessEnv, RegExp]>([
  ['no upstream', [], {}, /PALIMPSEST_GATEWAY_UPSTREAMS/],
  ['an upstream with its version', ['--upstream', 'a=https://api.openai.com/v1'], {}, /without \/v1/],
  ['an upstream that is no address', ['--upstream', 'a=ftp://x'], {}, /base URL of a provider/],
  [
    'an upstream without a name',
    ['--upstream', 'https://api.openai.com'],
    {},
    /--upstream needs a name and an address/,
  ],
  [
    'an upstream without an address',
    [],
    { PALIMPSEST_GATEWAY_UPSTREAMS: 'openai' },
    /PALIMPSEST_GATEWAY_UPSTREAMS\.openai is not the base URL/,
  ],
  [
    'a name with two addresses',
    ['--upstream', 'a=https://a.example', '--upstream', 'a=https://b.example'],
    {},
    /UPSTREAMS\.a has several addresses/,
  ],
  ['a name that is a version', ['--upstream', 'v1=https://api.openai.com'], {}, /name of an upstream/],
  [
    'a key for no upstream',
    ['--upstream', 'a=https://a.example'],
    { PALIMPSEST_GATEWAY_KEYS: 'b:secret' },
    /gateway\.keys names b/,
  ],
  [
    'a key that is none',
    ['--upstream', 'a=https://a.example'],
    { PALIMPSEST_GATEWAY_KEYS: 'short-secret' },
    /PALIMPSEST_GATEWAY_KEYS must have the form upstream:key/,
  ],
  [
    'a key that is empty',
    ['--upstream', 'a=https://a.example'],
    { PALIMPSEST_GATEWAY_KEYS: 'a:' },
    /PALIMPSEST_GATEWAY_KEYS.* must not be empty/,
  ],
  ['an API', ['--url', 'http://127.0.0.1:1'], {}, /not over HTTP/],
])('%s is refused', async (_, args, env, named) => {
  const { code, stderr } = await runCli(['gateway', '--port', '0', ...args], { ...stackEnv(stack), ...env });
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(named) });
  expect(stderr).not.toContain('secret');
});

test('its help has no options of an API', async () => {
  const help = async (command: string) => (await runCli([command, '--help'], {})).stdout;
  expect(await help('gateway')).not.toMatch(/--url|--token/);
  expect(await help('status')).toMatch(/--url.*--token/s);
});
