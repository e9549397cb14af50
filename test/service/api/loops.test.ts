/** The loops of docs/loops.md, run unchanged except for their model: a hundred turns on a small window. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { itemDigest } from '../../../src/formats/list-digest.js';
import { HttpPalimpsest } from '../../../src/http-client/client.js';
import { startAgentProvider } from '../../support/agent-provider.js';
import { type ApiStack, startApiStack } from '../../support/api.js';
import { program } from '../../support/compiled.js';
import { asJavaScript, document, examplesIn } from '../../support/documents.js';
import { storedItems } from '../../support/sessions.js';

type Held = Json[];
interface Loop {
  answer(client: HttpPalimpsest, session: string, held: Held, question?: string): Promise<{ held: Held }>;
}

const window = 4_000;
const turns = 100;

let server: ApiStack;
let folder: string;

beforeAll(async () => {
  server = await startApiStack();
  folder = await mkdtemp(path.join(tmpdir(), 'loops-'));
});

afterAll(async () => {
  await rm(folder, { recursive: true });
  await server.stop();
});

/** The loop under a heading, for a window and an endpoint of a test. */
async function loopOf(heading: string, url: string): Promise<Loop> {
  const [example] = examplesIn(document('docs/loops.md'), heading);
  const named = /(const policy = \{) model: '[^']+', reservedOutputTokens: [\d_]+/;
  expect(example?.code).toMatch(named);
  const code = (example?.code ?? '')
    .replace(named, `$1 contextWindow: ${window}, reservedOutputTokens: 400`)
    .replace('new OpenAI()', `new OpenAI({ apiKey: 'none', baseURL: '${url}', maxRetries: 0 })`)
    .replace(
      'new Anthropic()',
      `new Anthropic({ apiKey: 'none', baseURL: '${url.replace('/v1', '')}', maxRetries: 0 })`,
    );
  const packages = {
    openai: import.meta.resolve('openai'),
    '@anthropic-ai/sdk': import.meta.resolve('@anthropic-ai/sdk'),
    'palimpsest-client': pathToFileURL(program('src/http-client/index.ts')).href,
  };
  const file = path.join(folder, `${heading.replaceAll(' ', '-')}-${new URL(url).port}.mjs`);
  await writeFile(file, asJavaScript(code, packages));
  return (await import(file)) as Loop;
}

/** The function of docs/formats.md that rebuilds what was sent from a replay. */
async function rebuilding(): Promise<(client: HttpPalimpsest, session: string) => Promise<Json[]>> {
  const [example] = examplesIn(document('docs/formats.md'), 'What is kept');
  const file = path.join(folder, 'sent.mjs');
  await writeFile(file, asJavaScript(example?.code ?? ''));
  const { sent } = (await import(file)) as { sent: Awaited<ReturnType<typeof rebuilding>> };
  return sent;
}

const connect = (): Promise<HttpPalimpsest> =>
  HttpPalimpsest.connect({ url: server.api.address, token: server.token });

test.each(['OpenAI chat completions', 'OpenAI Responses', 'Anthropic'])('%s', async (heading) => {
  const session = heading;
  const provider = await startAgentProvider(window, (question) => [
    ['search_history', { query: `"Question ${Math.ceil(question / 2)}:"`, limit: 1 }],
    ['get_tool_response', { message: question, limit: 200 }],
  ]);
  try {
    const { answer } = await loopOf(heading, provider.url);
    let client = await connect();
    let held: Held = [];
    for (let turn = 1; turn <= turns; turn++) {
      // A process that is started again has a new client, and has lost its list.
      if (turn % 10 === 0) {
        client = await connect();
        held = (await client.sync<Json>({ session, messages: [] })).context.messages;
      }
      if (turn % 25 === 0) await client.settled({ session });
      ({ held } = await answer(client, session, held, `Question ${turn}: ${'word '.repeat(100)}`));
    }
    const replayed = await storedItems(client, session);
    expect(replayed.map(itemDigest)).toEqual(provider.said.map(itemDigest));
    expect(await (await rebuilding())(client, session)).toEqual(replayed);
    expect(provider.refused).toEqual([]);
    expect(provider.requests).toBe(2 * turns);
    expect(provider.largest).toBeLessThanOrEqual(window);
    expect((await client.status({ session })).generation).toBeGreaterThan(3);
  } finally {
    await provider.close();
  }
});

afterEach(() => vi.unstubAllEnvs());

test('the first call takes address and token from the environment, and needs no token', async () => {
  const [example] = examplesIn(document('docs/loops.md'));
  const source = pathToFileURL(program('src/http-client/index.ts')).href;
  const code = asJavaScript(example?.code ?? '', { 'palimpsest-client': source });
  const run = async (name: string, token: string | undefined): Promise<unknown> => {
    vi.stubEnv('PALIMPSEST_URL', server.api.address);
    vi.stubEnv('PALIMPSEST_TOKEN', token);
    const file = path.join(folder, `${name}.mjs`);
    await writeFile(file, code);
    return import(file);
  };
  await expect(run('without', undefined)).rejects.toMatchObject({ type: 'Api.Unauthorized' });
  await expect(run('empty', '')).rejects.toMatchObject({ type: 'Api.Unauthorized' });
  await run('first', server.token);
  expect((await server.stack.palimpsest.status({ session: 'ticket-4711' })).session).toBe('ticket-4711');
});

test.each(['OpenAI chat completions', 'OpenAI Responses', 'Anthropic'])(
  '%s: an answer is stored although another process has added to the session meanwhile',
  async (heading) => {
    const session = `${heading} beside another`;
    const provider = await startAgentProvider(window, () => [['get_tool_response', { call_id: 'none' }]]);
    const other = { role: 'user', content: 'From another process.' };
    try {
      const { answer } = await loopOf(heading, provider.url);
      const client = await connect();
      const beside = Object.create(client, {
        sync: {
          value: async (request: Parameters<HttpPalimpsest['sync']>[0]) => {
            if (JSON.stringify(request.messages.slice(-1)).includes('Answer 1.')) {
              const { context } = await client.sync<Json>({ session, messages: [] });
              await client.sync<Json>({ session, messages: [...context.messages, other] });
            }
            return client.sync(request);
          },
        },
      }) as HttpPalimpsest;
      const { held } = await answer(beside, session, [], 'Question 1');
      await answer(client, session, held, 'Question 2');
      const said = JSON.stringify(await storedItems(client, session));
      const texts = [...said.matchAll(/"((?:Question|From|Answer)[^"]*)"/g)].map(([, text]) => text);
      expect(texts).toEqual(['Question 1', other.content, 'Answer 1.', 'Question 2', 'Answer 2.']);
    } finally {
      await provider.close();
    }
  },
);

describe('a process that ends in the middle of a turn', () => {
  type Restart = Pick<Loop, 'answer'> & {
    heldBy(client: HttpPalimpsest, session: string): Promise<Held>;
    isUnanswered(held: Held): boolean;
  };

  async function restartOf(url: string): Promise<Restart> {
    const [, example] = examplesIn(document('docs/loops.md')).filter(({ language }) => language === 'ts');
    const source = pathToFileURL(program('src/http-client/index.ts')).href;
    const file = path.join(folder, 'restart.mjs');
    await writeFile(file, asJavaScript(example?.code ?? '', { 'palimpsest-client': source }));
    const { heldBy, isUnanswered } = (await import(file)) as Restart;
    return { heldBy, isUnanswered, answer: (await loopOf('OpenAI chat completions', url)).answer };
  }

  test('goes on without storing the question twice; an answer without a context is returned', async () => {
    const session = 'ended';
    const provider = await startAgentProvider(window, (question) => [
      ['expand_history', { limit: question }],
    ]);
    try {
      const { answer, heldBy, isUnanswered } = await restartOf(provider.url);
      const client = await connect();
      const held = await heldBy(client, session);
      expect(held).toEqual([]);
      const question = { role: 'user' as const, content: 'Question 1' };
      await client.sync({ session, messages: [question] });
      const found = await heldBy(client, session);
      expect(isUnanswered(found)).toBe(true);
      const answered = await answer(client, session, found);
      expect(isUnanswered(answered.held)).toBe(false);
      expect(await heldBy(client, session)).toEqual(answered.held);
      const roles: string[] = [];
      for await (const { message } of client.replay({ session })) roles.push(message.role);
      expect(roles).toEqual(['user', 'assistant', 'tool', 'assistant']);

      const away: HttpPalimpsest = Object.create(client, {
        sync: {
          value: (request: Parameters<HttpPalimpsest['sync']>[0]) =>
            JSON.stringify(request.messages.slice(-1)).includes('Answer 2.')
              ? Promise.reject(new Error('away'))
              : client.sync(request),
        },
      }) as HttpPalimpsest;
      const { held: kept } = await answer(away, session, answered.held, 'Question 2');
      expect(kept.at(-1)).toMatchObject({ content: 'Answer 2.' });
      const { known } = await client.sync({ session, messages: kept });
      expect(known).toBe(kept.length - 1);
    } finally {
      await provider.close();
    }
  });
});
