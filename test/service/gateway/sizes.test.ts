/** Requests through the gateway fit the window of a provider that counts more tokens, and get shorter once one is refused. */
import { gzipSync } from 'node:zlib';
import Anthropic from '@anthropic-ai/sdk';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { RunningGateway } from '../../../src/gateway/server.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { gatewayOf, key } from '../../support/gateway.js';
import { startStack, type Stack } from '../../support/stack.js';
import { type Received, startUpstream, tokensOf, type UpstreamServer } from '../../support/upstream.js';

const window = 8_000;
const maxTokens = 1_000;
const counter = counterFor('o200k_base');
let stack: Stack;
let upstream: UpstreamServer;
let running: RunningGateway;

beforeAll(async () => {
  stack = await startStack();
  await stack.palimpsest.configureTenant({ policy: { contextWindow: window } });
  upstream = await startUpstream();
  running = await gatewayOf(stack, { upstreams: { scripted: upstream.url } });
});

afterEach(() => void upstream.requests.splice(0));

afterAll(async () => {
  await running?.close();
  await upstream?.close();
  await stack?.stop();
});

const clientOf = (session: string): Anthropic =>
  new Anthropic({
    ...{ baseURL: running.address, apiKey: 'provider', maxRetries: 0 },
    defaultHeaders: { 'x-palimpsest-session': session, 'x-palimpsest-key': key },
  });

/** A request as the provider counts it. */
function countedBy(factor: number, { body: { system, messages = [], tools } }: Received): number {
  const offered = tools === undefined ? 0 : counter.count(JSON.stringify(tools));
  return Math.ceil(factor * (tokensOf([system, messages]) + 4 * messages.length + offered));
}

/** Talks for some turns; a refused message is said again. Returns the number of refusals. */
async function talk(
  session: string,
  turns: number,
  model: string,
  messages: Anthropic.MessageParam[] = [],
  length = 30,
): Promise<number> {
  const anthropic = clientOf(session);
  let refusals = 0;
  for (let turn = 0; turn < turns; turn++) {
    messages.push({ role: 'user', content: `Turn ${turn}. ${'What is so? '.repeat(length)}` });
    const request = { model, max_tokens: maxTokens, system: 'Be brief.', messages };
    const { content } = await anthropic.messages.create(request).catch((error: unknown) => {
      if (!(error instanceof Anthropic.BadRequestError)) throw error;
      refusals++;
      return anthropic.messages.create(request);
    });
    messages.push({ role: 'assistant', content });
  }
  return refusals;
}

const said = `Yes. ${'It is so. '.repeat(30)}`;

test('a provider that counts more gets no request above its window, with and without recovery tools', async () => {
  const session = 'counts-more';
  const sizes: { tokens: number; tools: number }[] = [];
  upstream.reply((received) => {
    const input = countedBy(1.15, received);
    sizes.push({ tokens: input + maxTokens, tools: received.body.tools?.length ?? 0 });
    return { text: said, usage: { input, output: 100 } };
  });
  const messages: Anthropic.MessageParam[] = [];
  do {
    await talk(session, 1, 'claude-test', messages);
    await stack.palimpsest.settled({ session });
  } while ((await stack.palimpsest.status({ session })).generation === 0);
  // Nothing is compacted any more: contexts grow up to what they may have, while reports without tools are known.
  await stack.palimpsest.pause({ session });
  const client = new pg.Client({ connectionString: stack.ownerUrl });
  await client.connect();
  // A report is not used if a compaction was committed a few seconds before.
  await client.query(`update palimpsest.compactions set created_at = created_at - interval '1 minute'`);
  await client.end();
  await talk(session, 16, 'claude-test', messages, Number(process.env.LEN ?? 60));
  expect(sizes.filter(({ tools }) => tools > 0).length).toBeGreaterThan(10);
  const largest = Math.max(...sizes.map(({ tokens }) => tokens));
  expect(largest).toBeLessThanOrEqual(window);
  expect(largest).toBeGreaterThan(0.8 * window);
});

test.each(['', 'gzip'])(
  'a request that the provider finds too long makes the next one shorter (%s)',
  async (encoding) => {
    // A model whose window is smaller than the policy says.
    upstream.reply((received, response) => {
      const input = countedBy(1, received);
      if (input <= 3_000) return { text: said, usage: { input, output: 100 } };
      const message = `prompt is too long: ${input} tokens > 3000 maximum`;
      const body = Buffer.from(
        JSON.stringify({ type: 'error', error: { type: 'invalid_request_error', message } }),
      );
      response.writeHead(400, {
        'content-type': 'application/json',
        ...(encoding === '' ? {} : { 'content-encoding': encoding }),
      });
      response.end(encoding === '' ? body : gzipSync(body));
    });
    expect(await talk(`too-long-${encoding}`, 24, 'claude-test')).toBe(1);
  },
);
