/** The recovery tools over MCP, with the client of the official SDK: standard input and output, and HTTP. */
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { once } from 'node:events';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { recoveryTools } from '../../../src/contract/recovery-tools.js';
import { PalimpsestError } from '../../../src/errors.js';
import { startMcpHttp } from '../../../src/mcp/http.js';
import { type McpSettings, newMcpServer } from '../../../src/mcp/server.js';
import { startApi } from '../../../src/api/server.js';
import { CliProcess, runCli, stackEnv } from '../../support/cli.js';
import { program } from '../../support/compiled.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
const session = 'ticket';
const source = () => Promise.resolve(stack.palimpsest);

beforeAll(async () => {
  stack = await startStack();
  const call = { id: 'c-1', type: 'function', function: { name: 'look', arguments: '{}' } };
  await stack.palimpsest.appendTurn({
    ...{ session, turnId: 't-1' },
    messages: [
      { role: 'user', content: 'Which colour has the harbour?' },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c-1', content: `It is vermilion. ${'So it is. '.repeat(2_000)}` },
      { role: 'assistant', content: 'Vermilion.' },
    ],
  });
  await stack.palimpsest.appendTurn({
    session: 'other',
    turnId: 't-1',
    messages: [{ role: 'user', content: 'A secret.' }],
  });
});

afterAll(() => stack?.stop());

async function inMemory(settings: Parameters<typeof newMcpServer>[0]): Promise<Client> {
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await newMcpServer(settings).connect(theirs);
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(ours);
  return client;
}

interface Called {
  isError: boolean;
  json: Record<string, unknown>;
}

async function called(client: Client, name: string, args: Record<string, unknown>): Promise<Called> {
  const { content, isError } = await client.callTool({ name, arguments: args });
  const [{ text }] = content as [{ text: string }];
  return { isError: isError === true, json: JSON.parse(text) as Record<string, unknown> };
}

/** What every client finds in the session. */
async function reads(client: Client, named: { session?: string } = {}): Promise<void> {
  const found = await called(client, 'search_history', { ...named, query: 'harbour colour' });
  expect(found).toMatchObject({ isError: false, json: { hits: [{ message: 1, role: 'user' }] } });
  const page = await called(client, 'get_tool_response', { ...named, call_id: 'c-1', limit: 16 });
  expect(page.json).toMatchObject({ content: 'It is vermilion.', next_offset: 16 });
  const list = await called(client, 'expand_history', { ...named, from_message: 4 });
  expect(list.json).toMatchObject({ messages: [{ message: 4, text: 'Vermilion.' }], next_message: null });
}

describe('the tools', () => {
  test('of one session are those of the library, and read no other session', async () => {
    const client = await inMemory({ source, session });
    const { tools } = await client.listTools();
    expect(tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }))).toEqual(
      recoveryTools.map(({ function: { name, description, parameters } }) => ({
        name,
        description,
        inputSchema: parameters,
      })),
    );
    expect(tools.every(({ annotations }) => annotations?.readOnlyHint)).toBe(true);
    await reads(client);
    const other = await called(client, 'search_history', { session: 'other', query: 'secret' });
    expect(other).toMatchObject({ isError: true, json: { error: expect.stringContaining('session') } });
  });

  test('of any session take its id', async () => {
    const client = await inMemory({ source });
    const { tools } = await client.listTools();
    for (const { inputSchema } of tools) expect(inputSchema.required).toContain('session');
    await reads(client, { session });
    expect(
      (await called(client, 'search_history', { session: 'other', query: 'secret' })).json.hits,
    ).toHaveLength(1);
    for (const named of [{}, { session: 7 }, { session: '' }, { session: 'unknown' }])
      expect(await called(client, 'search_history', { ...named, query: 'x' })).toMatchObject({
        ...{ isError: true, json: { error: expect.any(String), hint: expect.any(String) } },
      });
  });

  test('answer mistakes and failures as errors of the call', async () => {
    const client = await inMemory({ source, session });
    for (const [name, args] of [
      ['search_history', {}],
      ['get_tool_response', { call_id: 'none' }],
      ['nothing', {}],
    ] as const)
      expect(await called(client, name, args)).toMatchObject({
        isError: true,
        json: { error: expect.any(String) },
      });
    const unknown = await called(await inMemory({ source, session: 'unknown' }), 'search_history', {
      query: 'x',
    });
    expect(unknown).toMatchObject({
      isError: true,
      json: { hint: expect.stringMatching(/^Nothing is stored under this id/) },
    });
    const away = () => Promise.reject(new PalimpsestError('Store.Unavailable', 'no database'));
    const gone = { search: away, expand: away, toolResponse: away, status: away };
    const settings: McpSettings = { source: () => Promise.resolve(gone), session };
    const failed = await called(await inMemory(settings), 'search_history', { query: 'x' });
    expect(failed).toMatchObject({ isError: true, json: { error: 'Store.Unavailable: no database' } });
  });
});

test('a session that goes on in a fork is read there', async () => {
  const ids = { session: 'edited', onEdit: 'fork' as const };
  const first = { role: 'user' as const, content: 'Which colour has the harbour?' };
  await stack.palimpsest.sync({ ...ids, messages: [first, { role: 'user', content: 'The old one.' }] });
  const { session: fork } = await stack.palimpsest.sync({
    ...{ ...ids, messages: [first, { role: 'user', content: 'The new one.' }] },
  });
  expect(fork).not.toBe('edited');
  const named = await inMemory({ source, session: 'edited' });
  expect(await called(named, 'expand_history', { from_message: 2 })).toMatchObject({
    json: { messages: [{ text: 'The new one.' }] },
  });
  const found = await called(await inMemory({ source }), 'search_history', {
    ...{ session: 'edited', query: '"The old one"' },
  });
  expect(found.json.hits).toEqual([]);
});

describe('palimpsest mcp', () => {
  const command = (args: string[], env: NodeJS.ProcessEnv) => ({
    ...{ command: process.execPath, args: [program('src/cli/main.ts'), 'mcp', ...args] },
    env: { ...(process.env as Record<string, string>), ...(env as Record<string, string>) },
  });

  test('serves standard input and output, and ends with its client', async () => {
    const transport = new StdioClientTransport(
      command(['--tenant', stack.queuePrefix, '--session', session], stackEnv(stack)),
    );
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(transport);
    await reads(client);
    const { pid } = transport;
    await client.close();
    expect(() => process.kill(pid ?? 0, 0)).toThrow();
  });

  test('takes the session from the environment, and the sessions from an API', async () => {
    const api = await startApi({ port: 0 }, {
      ...stack.palimpsest,
      forTenant: () => stack.palimpsest,
    } as never);
    const env = { PALIMPSEST_URL: api.address, PALIMPSEST_MCP_SESSION: session };
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(new StdioClientTransport(command([], env)));
    await reads(client);
    await client.close();
    await api.close();
  });

  test('starts while the API is away, and says so in each call', async () => {
    const env = { PALIMPSEST_URL: 'http://127.0.0.1:1', PALIMPSEST_MCP_SESSION: session };
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(new StdioClientTransport(command([], env)));
    expect((await client.listTools()).tools).toHaveLength(3);
    const failed = await called(client, 'search_history', { query: 'x' });
    expect(failed).toMatchObject({
      isError: true,
      json: { error: expect.stringContaining('Api.Unavailable') },
    });
    await client.close();
  });

  test('serves HTTP on this machine until a signal', async () => {
    const cli = new CliProcess(['mcp', '--http', '0', '--tenant', stack.queuePrefix], stackEnv(stack));
    await cli.shows(/MCP server: http:\S+/);
    const url = new URL(/http:\S+/.exec(cli.stderr)?.[0] ?? '');
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(url));
    await reads(client, { session });
    await client.close();
    cli.child.kill('SIGTERM');
    expect(await cli.ended).toMatchObject({ code: 0, stdout: '' });
  });

  test('refuses an id that no session has', async () => {
    const refused = await runCli(['mcp', '--session', 'x'.repeat(300)], stackEnv(stack));
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('--session') });
  });
});

describe('over HTTP', () => {
  test('several clients at once, and no page of another site', async () => {
    const running = await startMcpHttp({ source, session }, 0);
    const clients = await Promise.all(
      [1, 2, 3].map(async () => {
        const client = new Client({ name: 'test', version: '1' });
        await client.connect(new StreamableHTTPClientTransport(new URL(running.url)));
        return client;
      }),
    );
    await Promise.all(clients.map((client) => reads(client)));
    const status = async (
      method: string,
      path: string,
      headers: Record<string, string> = {},
    ): Promise<number> => {
      const url = new URL(path, running.url);
      const request = httpRequest(url, {
        method,
        headers: { 'content-type': 'application/json', ...headers },
      });
      request.end(method === 'POST' ? '{}' : undefined);
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      response.resume();
      return response.statusCode ?? 0;
    };
    expect(await status('POST', '/mcp', { origin: 'https://evil.example' })).toBe(403);
    expect(await status('POST', '/mcp', { host: 'evil.example' })).toBe(403);
    expect(await status('POST', '/mcp', { 'x-forwarded-for': '10.0.0.1' })).toBe(403);
    expect(await status('GET', '/mcp')).toBe(405);
    expect(await status('POST', '/else')).toBe(404);
    await Promise.all(clients.map((client) => client.close()));
    await running.close();
  });
});
