/** Streams through the gateway: their order and their bytes, their faults, and what only some providers send. */
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest, type ServerResponse } from 'node:http';
import Anthropic from '@anthropic-ai/sdk';
import { describe, expect, test } from 'vitest';
import { type Headers, replayed, send, sessionHeaders, useGateways } from '../../support/gateway.js';
import { history, list, look, search, window } from '../../support/long-conversation.js';
import { answerAt, type Received } from '../../support/upstream.js';

// Contexts are shortened as they are read; nothing has to be compacted.
const bench = useGateways({ worker: false, contextWindow: window });

const paths = ['/v1/chat/completions', '/v1/messages', '/v1/responses'] as const;
type Path = (typeof paths)[number];

const streamOf = (path: Path, messages: readonly object[], more: object = {}): string =>
  JSON.stringify({
    ...{ model: 'gpt-4o', stream: true, [path === '/v1/responses' ? 'input' : 'messages']: messages },
    ...(path === '/v1/messages' ? { max_tokens: 500 } : {}),
    ...more,
  });

const frame = { input: 10, output: 2, model: 'm', id: 'answer' };
const sse = { 'content-type': 'text/event-stream' };

/** Answers one request after the other; the last answer is repeated. */
function inTurn(...answers: ((received: Received, response: ServerResponse) => unknown)[]): void {
  let next = 0;
  bench.upstream.reply(async (received, response) => {
    await answers[Math.min(next++, answers.length - 1)]?.(received, response);
  });
}

/** A stream with what the model says. */
const says =
  (said: Parameters<typeof answerAt>[1]) =>
  ({ url }: Received, response: ServerResponse) =>
    response.writeHead(200, sse).end(answerAt(url, said, frame).events.join(''));

async function opened(url: string, body: string, headers: Headers): Promise<IncomingMessage> {
  const request = httpRequest(url, { method: 'POST', headers });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

describe.each(paths)('%s', (path) => {
  test.each(['on', 'off'])(
    'each piece passes before the next one comes, with recovery %s',
    async (recovery) => {
      const pieces = Array.from({ length: 20 }, (_, at) => `(piece ${String(at).padStart(4, '0')})`);
      let seen = '';
      let noticed: () => void = () => undefined;
      bench.upstream.reply(async ({ url }, response) => {
        response.writeHead(200, sse);
        const { events } = answerAt(url, { text: pieces.join('') }, frame);
        for (const event of events) {
          response.write(event);
          const piece = /"(?:content|text|delta)":"(\(piece \d+\))"/.exec(event)?.[1];
          while (piece !== undefined && !seen.includes(piece))
            await new Promise<void>((resolve) => (noticed = resolve));
        }
        response.end();
      });
      const { address } = await bench.gateway();
      const headers = sessionHeaders(`in-order-${path}-${recovery}`, { 'x-palimpsest-recovery': recovery });
      const response = await opened(`${address}${path}`, streamOf(path, list), headers);
      expect(response.headers['x-palimpsest-bypassed']).toBeUndefined();
      for await (const bytes of response) {
        seen += String(bytes);
        noticed();
      }
      const shown = [...seen.matchAll(/"(?:content|text|delta)":"(\(piece \d+\))"/g)].map(
        ([, piece]) => piece,
      );
      expect(shown).toEqual(pieces);
    },
  );

  test.each<[string, readonly object[], Headers]>([
    ['below the trigger', history.slice(0, 1), {}],
    ['with recovery off', list, { 'x-palimpsest-recovery': 'off' }],
  ])('the bytes of a stream %s are those of a direct call', async (how, messages, more) => {
    const text = [
      ': a comment\r\n\r\n',
      ...answerAt(path, { text: 'Grüße 🚢', calls: [look] }, frame).events,
      'event: unknown\nid: 7\ndata: {"a": 1.0}\ndata:\n\n',
      'data:[DONE]',
    ].join('');
    const bytes = Buffer.from(text);
    inTurn((_, response) => {
      response.writeHead(200, [...Object.entries(sse).flat(), 'X-Own', 'a', 'X-Own', 'b']);
      for (let at = 0; at < bytes.length; at += 7) response.write(bytes.subarray(at, at + 7));
      response.end();
    });
    const { address } = await bench.gateway();
    const body = streamOf(path, messages);
    const through = await send(`${address}${path}`, {
      body,
      headers: sessionHeaders(`same-${path}-${how}`, more),
    });
    const direct = await send(`${bench.upstream.url}${path}`, { body, headers: {} });
    expect(through.bytes.toString()).toBe(direct.bytes.toString());
    const plain = ({ rawHeaders }: typeof through) =>
      rawHeaders.filter((one) => !/ GMT$|^timeout=\d+$/.test(one));
    expect(plain(through)).toEqual(plain(direct));
    expect(bench.upstream.requests).toHaveLength(2);
  });

  test('an upstream that hangs after a search ends the stream with an error', async () => {
    const { address } = await bench.gateway({ upstreamTimeoutMs: 400 });
    inTurn(says({ text: 'I look it up.', calls: [search] }), () => undefined);
    const { status, bytes } = await send(`${address}${path}`, {
      body: streamOf(path, list),
      headers: sessionHeaders(`hangs-${path}`),
    });
    expect(status).toBe(200);
    expect(bytes.toString()).toContain('does not answer');
    inTurn(
      ({ url }, response) => {
        const { whole } = answerAt(url, { calls: [search] }, frame);
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(whole));
      },
      () => undefined,
    );
    const whole = await send(`${address}${path}`, {
      body: streamOf(path, list, { stream: false }),
      headers: sessionHeaders(`hangs-whole-${path}`),
    });
    expect(whole.status).toBe(504);
  });

  test('an answer that is cut off is passed on as far as it came, and not stored', async () => {
    const { address } = await bench.gateway();
    const { events } = answerAt(path, { text: 'A part of it.' }, frame);
    const begun = events.slice(0, -3).join('');
    inTurn((_, response) => response.writeHead(200, sse).end(begun));
    const ended = await send(`${address}${path}`, {
      body: streamOf(path, list),
      headers: sessionHeaders(`cut-${path}`),
    });
    expect(ended.bytes.toString()).toBe(begun);
    inTurn((_, response) => response.writeHead(200, sse).write(begun, () => response.destroy()));
    const broken = send(`${address}${path}`, {
      body: streamOf(path, list),
      headers: sessionHeaders(`cut-${path}`),
    });
    await expect(broken).rejects.toThrow();
    await bench.gateways.splice(0)[0]?.close();
    expect(await replayed(bench.stack, `cut-${path}`)).toHaveLength(list.length);
  });

  test('an answer that is too long to be stored passes as a whole', async () => {
    const { address } = await bench.gateway({ bodyLimitBytes: 200_000 });
    const text = 'All about it. '.repeat(30_000);
    inTurn(says({ text }));
    const session = `too-long-${path}`;
    const { bytes } = await send(`${address}${path}`, {
      body: streamOf(path, list),
      headers: sessionHeaders(session),
    });
    const deltas = [...bytes.toString().matchAll(/"(?:content|text|delta)":"([^"]*)"/g)].map(
      ([, one]) => one,
    );
    expect(deltas.join('')).toContain(text);
    expect(bytes.toString()).toMatch(/\[DONE\]|message_stop|response\.completed/);
    await bench.gateways.splice(0)[0]?.close();
    expect(await replayed(bench.stack, session)).toHaveLength(list.length);
  });

  test('a client that reads slowly slows the provider down', async () => {
    const size = 100_000;
    const count = 600;
    let written = 0;
    let isBlocked = false;
    let noticed: () => void = () => undefined;
    bench.upstream.reply(async (_, response) => {
      response.writeHead(200, sse);
      const event = `: ${'x'.repeat(size)}\n\n`;
      const closed = once(response, 'close');
      for (; written < count && !response.destroyed; written++) {
        if (response.write(event)) continue;
        isBlocked = true;
        noticed();
        await Promise.race([new Promise((resolve) => response.once('drain', resolve)), closed]);
        isBlocked = false;
      }
      response.end();
      noticed();
    });
    const { address } = await bench.gateway();
    const response = await opened(`${address}${path}`, streamOf(path, list), sessionHeaders(`slow-${path}`));
    let ahead = 0;
    let read = 0;
    for await (const bytes of response) {
      read += (bytes as Buffer).length;
      ahead = Math.max(ahead, written * size - read);
      // Nothing more is read before the provider waits, or has sent everything.
      while (!isBlocked && written < count) await new Promise<void>((resolve) => (noticed = resolve));
    }
    expect(read).toBe(count * (size + 4));
    expect(ahead).toBeLessThan(0.5 * count * size);
  });
});

describe('thinking', () => {
  test('of messages goes back to the provider with its signature, before the call', async () => {
    const thinking = { type: 'thinking', thinking: 'Where was it?', signature: 'c2lnbmVk' };
    const event = (data: { type: string; [field: string]: unknown }) =>
      `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
    const opening = [
      event({
        type: 'message_start',
        message: {
          type: 'message',
          role: 'assistant',
          model: 'm',
          content: [],
          usage: { input_tokens: 7, output_tokens: 1 },
        },
      }),
      event({
        type: 'content_block_start',
        index: 0,
        content_block: { type: 'thinking', thinking: '', signature: '' },
      }),
      ...['Where ', 'was it?'].map((part) =>
        event({ type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: part } }),
      ),
      event({
        ...{ type: 'content_block_delta', index: 0 },
        delta: { type: 'signature_delta', signature: thinking.signature },
      }),
      event({ type: 'content_block_stop', index: 0 }),
    ];
    inTurn(
      ({ url }, response) => {
        const { events } = answerAt(url, { calls: [search] }, frame);
        const call = events.slice(2).map((text) => text.replaceAll('"index":0', '"index":1'));
        response.writeHead(200, sse).end([...opening, ...call].join(''));
      },
      says({ text: 'It is vermilion.' }),
    );
    const { address } = await bench.gateway();
    const client = new Anthropic({
      ...{ baseURL: address, apiKey: 'provider', maxRetries: 0 },
      defaultHeaders: sessionHeaders('thinks') as Record<string, string>,
    });
    const mark = { cache_control: { type: 'ephemeral' as const } };
    const system = [{ type: 'text' as const, text: 'Be.', ...mark }];
    const message = await client.messages
      .stream({
        ...{ model: 'claude-test', max_tokens: 2_000, system, messages: list },
        thinking: { type: 'enabled', budget_tokens: 1_024 },
        tools: [{ name: 'look', input_schema: { type: 'object' }, ...mark }],
      })
      .finalMessage();
    expect(message.content).toMatchObject([thinking, { type: 'text', text: 'It is vermilion.' }]);
    expect(message.stop_reason).toBe('end_turn');
    // Both requests are reported, though the deltas name the output only.
    expect(message.usage).toMatchObject({ input_tokens: 7 + 10, output_tokens: 2 + 2 });
    const [first, second] = bench.upstream.requests;
    expect(second!.body.messages!.slice(-2)).toMatchObject([
      { role: 'assistant', content: [thinking, { type: 'tool_use', id: 'call-search' }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call-search' }] },
    ]);
    for (const { body } of [first!, second!]) {
      expect(body.system).toEqual(system);
      expect(body.tools?.[0]).toMatchObject({ name: 'look', ...mark });
      expect(body).toMatchObject({ thinking: { type: 'enabled', budget_tokens: 1_024 } });
    }
  });

  test('of responses goes back with its encrypted content, and the client sees no call', async () => {
    const reasoning = (n: number) => ({
      id: `rs_${n}`,
      type: 'reasoning',
      summary: [],
      encrypted_content: `secret-${n}`,
    });
    let n = 0;
    bench.upstream.reply(({ url }, response) => {
      const { whole } = answerAt(url, ++n === 1 ? { calls: [search] } : { text: 'It is vermilion.' }, frame);
      const output = [reasoning(n), ...(whole as { output: object[] }).output];
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ ...whole, output }));
    });
    const { address } = await bench.gateway();
    const body = streamOf('/v1/responses', list, {
      ...{ stream: false, store: false, include: ['reasoning.encrypted_content'] },
    });
    const { json } = await send(`${address}/v1/responses`, { body, headers: sessionHeaders('reasons') });
    expect(json).toMatchObject({ output: [reasoning(2), { type: 'message' }] });
    expect(bench.upstream.requests[1]!.body.input!.slice(-3)).toMatchObject([
      reasoning(1),
      { type: 'function_call', call_id: 'call-search' },
      { type: 'function_call_output', call_id: 'call-search' },
    ]);
  });
});

test('an answer without usage is stored', async () => {
  const chunk = (delta: object, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  inTurn((_, response) =>
    response
      .writeHead(200, sse)
      .end(`${chunk({ role: 'assistant', content: 'Two.' })}${chunk({}, 'stop')}data: [DONE]\n\n`),
  );
  const { address } = await bench.gateway();
  const body = streamOf('/v1/chat/completions', [{ role: 'user', content: 'One.' }]);
  await send(`${address}/v1/chat/completions`, { body, headers: sessionHeaders('no-usage') });
  await bench.gateways.splice(0)[0]?.close();
  expect(await replayed(bench.stack, 'no-usage')).toEqual([
    { role: 'user', content: 'One.' },
    { role: 'assistant', content: 'Two.' },
  ]);
});
