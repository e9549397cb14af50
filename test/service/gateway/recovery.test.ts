/** The model reads its archive through the gateway: its calls are answered here, and the client sees only its own. */
import { gzipSync } from 'node:zlib';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import type { RunningGateway } from '../../../src/gateway/server.js';
import { key, send, useGateways } from '../../support/gateway.js';
import { history, list, look, lookTool as tool, search, window } from '../../support/long-conversation.js';
import { answerAt, type Part, type Said, tokensOf } from '../../support/upstream.js';
import { storedItems } from '../../support/sessions.js';

// Contexts are shortened as they are read; nothing has to be compacted.
const bench = useGateways({ worker: false, contextWindow: window });

const headersOf = (session: string, more: Record<string, string> = {}) => ({
  ...{ 'x-palimpsest-session': session, 'x-palimpsest-key': key },
  ...more,
});

const openaiOf = ({ address }: RunningGateway, session: string, more: Record<string, string> = {}): OpenAI =>
  new OpenAI({
    baseURL: `${address}/v1`,
    apiKey: 'provider',
    maxRetries: 0,
    defaultHeaders: headersOf(session, more),
  });

const anthropicOf = ({ address }: RunningGateway, session: string): Anthropic =>
  new Anthropic({ baseURL: address, apiKey: 'provider', maxRetries: 0, defaultHeaders: headersOf(session) });

const tools = [{ type: 'function' as const, function: tool }];

const markedUser = (text: string): Anthropic.MessageParam => ({
  role: 'user',
  content: [{ type: 'text', text, cache_control: { type: 'ephemeral' } }],
});

/** Says one after the other. */
function inTurn(...answers: Said[]): void {
  let next = 0;
  bench.upstream.reply(() => answers[Math.min(next++, answers.length - 1)] ?? { text: 'Nothing.' });
}

/** Without what the SDK adds to a call of a stream. */
function plainCall(call: OpenAI.ChatCompletionMessageToolCall): OpenAI.ChatCompletionMessageToolCall {
  if (call.type !== 'function') return call;
  const { name, arguments: args } = call.function;
  return { id: call.id, type: call.type, function: { name, arguments: args } };
}

interface Page {
  content: string;
  offset: number;
  next_offset: number | null;
}

const replayed = async (session: string): Promise<Part[]> =>
  (await storedItems(bench.stack.palimpsest, session)) as Part[];

const namesIn = (request: number): string[] =>
  (bench.upstream.requests[request]?.body.tools ?? []).map((one) => one.function?.name ?? one.name ?? '');

describe('recovery tools are offered', () => {
  const ours = ['get_tool_response', 'search_history', 'expand_history'];

  test('once the context lacks something, after the tools of the client', async () => {
    inTurn({ text: 'Yes.' });
    const openai = openaiOf(await bench.gateway(), 'offered');
    await openai.chat.completions.create({ model: 'gpt-4o', messages: list.slice(0, 1), tools });
    await openai.chat.completions.create({ model: 'gpt-4o', messages: list, tools });
    await openai.responses.create(
      { model: 'gpt-4o', input: list, instructions: 'Be.' },
      { headers: headersOf('offered-r') },
    );
    expect([0, 1, 2].map(namesIn)).toEqual([['look'], ['look', ...ours], ours]);
    const { headers } = bench.upstream.requests[1]!;
    expect(headers['accept-encoding']).toBe('identity');
    expect(Object.keys(headers).filter((name) => name.startsWith('x-palimpsest'))).toEqual([]);
  });

  test('not if the session has them off, the client answers them itself, or several answers are asked for', async () => {
    inTurn({ text: 'Yes.' });
    const running = await bench.gateway();
    const off = openaiOf(running, 'not-offered', { 'x-palimpsest-recovery': 'off' });
    await off.chat.completions.create({ model: 'gpt-4o', messages: list, tools });
    const openai = openaiOf(running, 'not-offered');
    const own = [...tools, { type: 'function' as const, function: { ...tool, name: 'search_history' } }];
    await openai.chat.completions.create({ model: 'gpt-4o', messages: list, tools: own });
    await openai.chat.completions.create({ model: 'gpt-4o', messages: list, tools, n: 2 });
    expect([0, 1, 2].map(namesIn)).toEqual([['look'], ['look', 'search_history'], ['look']]);
    // They get the context all the same.
    for (const { body } of bench.upstream.requests) expect(tokensOf(body.messages!)).toBeLessThan(window);
  });
});

describe('a search', () => {
  test('of chat completions is answered here, and known to the model in the next turn', async () => {
    const running = await bench.gateway();
    for (const streamed of [false, true]) {
      bench.upstream.requests.splice(0);
      inTurn(
        { text: 'I look it up. ', calls: [search], usage: { input: 100, output: 10 } },
        { text: 'It is vermilion.', usage: { input: 200, output: 20 } },
      );
      const session = `chat-${streamed}`;
      const openai = openaiOf(running, session);
      const request = { model: 'gpt-4o', messages: list, tools };
      const completion = streamed
        ? await openai.chat.completions
            .stream({ ...request, stream_options: { include_usage: true } })
            .finalChatCompletion()
        : await openai.chat.completions.create(request);
      const { message, finish_reason: reason } = completion.choices[0]!;
      expect(message.content).toBe(streamed ? 'I look it up. It is vermilion.' : 'It is vermilion.');
      expect(message.tool_calls ?? []).toEqual([]);
      expect(reason).toBe('stop');
      expect(completion.usage).toMatchObject({
        prompt_tokens: 300,
        completion_tokens: 30,
        total_tokens: 330,
      });
      const [, second] = bench.upstream.requests;
      const [asked, result] = second!.body.messages!.slice(-2);
      expect(asked).toMatchObject({ role: 'assistant', tool_calls: [{ id: 'call-search' }] });
      expect(result).toMatchObject({ role: 'tool', tool_call_id: 'call-search' });
      expect(result?.content).toContain('vermilion');

      inTurn({ text: 'You are welcome.' });
      const { role, content } = message;
      const next = [...list, { role, content }, { role: 'user' as const, content: 'Thanks.' }];
      await openai.chat.completions.create({ model: 'gpt-4o', messages: next, tools });
      const sent = bench.upstream.requests[2]!.body.messages!.slice(-4);
      expect(sent.map((one) => one.role)).toEqual(['assistant', 'tool', 'assistant', 'user']);
      const log = await replayed(session);
      expect(log.slice(0, 17).map((one) => one.content)).toEqual(list.map((one) => one.content));
      expect(log.slice(17)).toMatchObject([
        { role: 'assistant', content: 'I look it up. ', tool_calls: [{ id: 'call-search' }] },
        { role: 'tool', tool_call_id: 'call-search' },
        { role: 'assistant', content: 'It is vermilion.' },
        { role: 'user', content: 'Thanks.' },
      ]);
    }
  });

  test('together with a call of the client is answered with the next request', async () => {
    const running = await bench.gateway();
    for (const streamed of [false, true]) {
      bench.upstream.requests.splice(0);
      const session = `mixed-${streamed}`;
      const openai = openaiOf(running, session);
      const ask = async (messages: OpenAI.ChatCompletionMessageParam[]) => {
        const request = { model: 'gpt-4o', messages, tools };
        return streamed
          ? openai.chat.completions.stream(request).finalChatCompletion()
          : openai.chat.completions.create(request);
      };
      inTurn({ calls: [search, look] }, { text: 'Done.' });
      const completion = await ask(list);
      const { message, finish_reason: reason } = completion.choices[0]!;
      expect(reason).toBe('tool_calls');
      expect(message.tool_calls).toMatchObject([{ id: 'call-look', function: { name: 'look' } }]);
      const { role, content, tool_calls: calls } = message;
      const answered = [
        ...list,
        { role, content, tool_calls: calls!.map(plainCall) },
        { role: 'tool' as const, tool_call_id: 'call-look', content: 'Seen.' },
      ];
      await ask(answered);
      const sent = bench.upstream.requests[1]!.body.messages!.slice(-3);
      expect(sent).toMatchObject([
        { role: 'assistant', tool_calls: [{ id: 'call-search' }, { id: 'call-look' }] },
        { role: 'tool', tool_call_id: 'call-search', content: expect.stringContaining('vermilion') },
        { role: 'tool', tool_call_id: 'call-look', content: 'Seen.' },
      ]);
      // The third request goes on from what the log has.
      await ask([...answered, { role: 'assistant', content: 'Done.' }, { role: 'user', content: 'More.' }]);
      expect(bench.upstream.requests[2]!.body.messages!.slice(-5).map((one) => one.role)).toEqual([
        'assistant',
        'tool',
        'tool',
        'assistant',
        'user',
      ]);
    }
  });

  test('stays in the log of a fork, whose reasoning has what follows it', async () => {
    const openai = openaiOf(await bench.gateway(), 'reasons');
    inTurn(
      { text: 'I look it up. ', calls: [search], reasons: true },
      { text: 'It is vermilion.', reasons: true },
      { text: 'Welcome.', reasons: true },
    );
    const held: OpenAI.Responses.ResponseInput = [...list];
    const ask = async (question?: string) => {
      const input = [
        ...held,
        ...(question === undefined ? [] : [{ role: 'user' as const, content: question }]),
      ];
      return openai.responses.stream({ model: 'gpt-4o', input, store: false }).finalResponse();
    };
    const { output } = await ask();
    expect(output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'reasoning', 'message']);
    held.push(...(output as OpenAI.Responses.ResponseInputItem[]));
    for (const question of ['Thanks.', 'Thank you.']) {
      await ask(question);
      const sent = bench.upstream.requests.at(-1)!.body.input!.slice(-8);
      expect(sent.map(({ type, role }) => type ?? role)).toEqual([
        ...['reasoning', 'message', 'reasoning', 'function_call', 'function_call_output'],
        ...['reasoning', 'message', 'user'],
      ]);
      expect(sent.at(-1)?.content).toBe(question);
    }
  });

  test('together with a call of the client, by messages', async () => {
    const anthropic = anthropicOf(await bench.gateway(), 'mixed-messages');
    inTurn({ text: 'Both.', calls: [search, look] }, { text: 'Done.' });
    const request = {
      model: 'claude-test',
      max_tokens: 100,
      tools: [{ name: 'look', input_schema: { type: 'object' as const } }],
    };
    // The mark moves with the newest message, as clients do it.
    const marked = [...history, markedUser('Which colour has the harbour?')];
    const { content, stop_reason: reason } = await anthropic.messages
      .stream({ ...request, messages: marked })
      .finalMessage();
    expect({ reason, content }).toMatchObject({
      reason: 'tool_use',
      content: [{ text: 'Both.' }, { id: 'call-look' }],
    });
    const result = { type: 'tool_result' as const, tool_use_id: 'call-look', content: 'Seen.' };
    const messages = [
      ...list,
      { role: 'assistant' as const, content },
      { role: 'user' as const, content: [result] },
    ];
    await anthropic.messages.create({ ...request, messages });
    expect(bench.upstream.requests[1]!.body.messages!.slice(-2)).toMatchObject([
      { role: 'assistant', content: [{ text: 'Both.' }, { id: 'call-search' }, { id: 'call-look' }] },
      {
        role: 'user',
        content: [{ tool_use_id: 'call-search' }, { tool_use_id: 'call-look', content: 'Seen.' }],
      },
    ]);
  });

  test('is forgotten if the gateway ends before the next request, and the conversation goes on', async () => {
    inTurn({ calls: [search, look] }, { text: 'Done.' });
    const first = await bench.gateway({ answerAfterMs: 1_000_000 });
    const completion = await openaiOf(first, 'forgotten').chat.completions.create({
      model: 'gpt-4o',
      messages: list,
      tools,
    });
    // Another process has not stored what this one keeps.
    const { content, tool_calls: calls } = completion.choices[0]!.message;
    const next = [
      ...list,
      { role: 'assistant' as const, content, tool_calls: calls! },
      { role: 'tool' as const, tool_call_id: 'call-look', content: 'Seen.' },
    ];
    await openaiOf(await bench.gateway(), 'forgotten').chat.completions.create({
      model: 'gpt-4o',
      messages: next,
      tools,
    });
    expect(bench.upstream.requests[1]!.body.messages!.slice(-2)).toMatchObject([
      { role: 'assistant', tool_calls: [{ id: 'call-look' }] },
      { role: 'tool', content: 'Seen.' },
    ]);
    // What the first process then stores comes too late, and changes nothing.
    await bench.gateways.splice(0, 1)[0]?.close();
    expect(await replayed('forgotten')).toHaveLength(next.length);
  });

  test('is not put into the log for an answer that the client changed', async () => {
    inTurn({ text: 'One. ', calls: [search] }, { text: 'Two.' });
    const openai = openaiOf(await bench.gateway(), 'changed');
    await openai.chat.completions.create({ model: 'gpt-4o', messages: list });
    const next = [
      ...list,
      { role: 'assistant' as const, content: 'Two, corrected.' },
      { role: 'user' as const, content: 'Go on.' },
    ];
    await openai.chat.completions.create({ model: 'gpt-4o', messages: next });
    expect((await replayed('changed')).slice(17).map(({ role, content }) => ({ role, content }))).toEqual(
      next.slice(17),
    );
  });

  test.each(['chat/completions', 'responses', 'messages'])('that has no end is ended: %s', async (path) => {
    let number = 0;
    bench.upstream.reply(({ body }) => {
      const canCall = body.tools !== undefined && body.tool_choice?.type !== 'none';
      return canCall ? { calls: [{ ...search, id: `again-${++number}` }] } : { text: 'So it is.' };
    });
    const { address } = await bench.gateway();
    const field = path === 'responses' ? 'input' : 'messages';
    const { status, bytes } = await send(`${address}/v1/${path}`, {
      body: JSON.stringify({ model: 'gpt-4o', max_tokens: 100, [field]: list }),
      headers: { 'content-type': 'application/json', ...headersOf(`endless-${field}-${path}`) },
    });
    expect({ status, text: bytes.toString() }).toEqual({
      status: 200,
      text: expect.stringContaining('So it is.'),
    });
    expect(bench.upstream.requests).toHaveLength(20);
    const last = bench.upstream.requests.at(-1)!.body;
    expect(JSON.stringify((last.messages ?? last.input)!.at(-1))).toContain('too many calls');
    // Every one of these requests fits.
    for (const { body } of bench.upstream.requests)
      expect(tokensOf([body.messages, body.input, body.tools])).toBeLessThan(window);
  });

  test('works with compressed answers', async () => {
    let number = 0;
    bench.upstream.reply(({ url, body }, response) => {
      const said = ++number === 1 ? { calls: [search] } : { text: 'It is vermilion.' };
      const { whole, events } = answerAt(url, said, { input: 1, output: 1, model: 'm', id: 'a' });
      const stream = body.stream === true;
      response.writeHead(200, {
        'content-type': stream ? 'text/event-stream' : 'application/json',
        'content-encoding': 'gzip',
      });
      response.end(gzipSync(stream ? events.join('') : JSON.stringify(whole)));
    });
    const running = await bench.gateway();
    for (const stream of [false, true]) {
      number = 0;
      const openai = openaiOf(running, `compressed-${stream}`);
      const text = stream
        ? (await openai.responses.stream({ model: 'gpt-4o', input: list }).finalResponse()).output_text
        : (await openai.responses.create({ model: 'gpt-4o', input: list })).output_text;
      expect(text).toBe('It is vermilion.');
    }
  });

  test('whose results are long makes room for them', async () => {
    let number = 0;
    bench.upstream.reply(() =>
      ++number <= 4
        ? { calls: [{ id: `page-${number}`, name: 'expand_history', args: { from_message: 1, limit: 8 } }] }
        : { text: 'Read.' },
    );
    const openai = openaiOf(await bench.gateway(), 'long-results');
    const { choices } = await openai.chat.completions.create({ model: 'gpt-4o', messages: list });
    expect(choices[0]!.message.content).toBe('Read.');
    for (const { body } of bench.upstream.requests)
      expect(tokensOf([body.messages, body.tools])).toBeLessThan(window);
    const results = bench.upstream.requests.at(-1)!.body.messages!.filter(({ role }) => role === 'tool');
    const [first, ...others] = results.map(({ content }) => JSON.parse(String(content)) as object);
    expect(first).toMatchObject({ next_message: expect.any(Number) });
    // Nothing more has room beside it.
    expect(JSON.stringify(others)).toContain('too long for the context');
  });

  test('for too much of a text gets as much as there is room for, and where it goes on', async () => {
    const long = { role: 'user' as const, content: 'The harbour was painted again. '.repeat(2_000) };
    const pages = [0, 1, 2].map((n) => ({
      id: `page-${n}`,
      name: 'get_tool_response',
      args: { message: 1, offset: n * 20_000, limit: 20_000 },
    }));
    inTurn({ calls: pages }, { text: 'Read.' });
    const openai = openaiOf(await bench.gateway(), 'long-text');
    await openai.chat.completions.create({ model: 'gpt-4o', messages: [long, ...list.slice(1)] });
    const { messages } = bench.upstream.requests[1]!.body;
    expect(tokensOf([messages, bench.upstream.requests[1]!.body.tools])).toBeLessThan(window);
    const results = messages!.slice(-3).map(({ content }) => JSON.parse(String(content)) as Page);
    results.forEach(({ offset, content, next_offset: next }, n) => {
      expect(offset).toBe(n * 20_000);
      expect(content.length).toBeGreaterThan(1_000);
      expect(next).toBe(offset + content.length);
    });
  });
});

const paths = ['/v1/chat/completions', '/v1/responses', '/v1/messages'];
const everyWay = paths.flatMap((path) => [false, true].map((stream) => ({ path, stream })));

const requestAt = (path: string, stream: boolean, more: object = {}): string => {
  const field = path === '/v1/responses' ? 'input' : 'messages';
  return JSON.stringify({ model: 'gpt-4o', max_tokens: 100, stream, [field]: list, ...more });
};

const frame = { input: 1, output: 1, model: 'm', id: 'a' };
const jsonHeaders = { 'content-type': 'application/json' };

describe.each(everyWay)('$path, stream: $stream', ({ path, stream }) => {
  const ask = async (session: string, more: Record<string, string> = {}) => {
    const { address } = await bench.gateway();
    const headers = { ...jsonHeaders, ...headersOf(`${session}-${path}-${stream}`, more) };
    return send(`${address}${path}`, { body: requestAt(path, stream), headers });
  };

  /** Refuses these requests, counted from 1; in the other ones the model searches, and then answers. */
  function refusing(...refused: number[]): void {
    const answers = [
      { text: 'One. ', calls: [search] },
      { text: 'Two. ', calls: [{ ...search, id: 'again' }] },
      { text: 'It is vermilion.' },
    ];
    let number = 0;
    bench.upstream.reply((_, response) => {
      if (!refused.includes(++number)) return answers.shift();
      response.writeHead(400, jsonHeaders).end(JSON.stringify(tooLong));
      return undefined;
    });
  }

  const tooLong = { error: { type: 'invalid_request_error', message: 'prompt is too long: 9 tokens > 8' } };
  const sizes = () => bench.upstream.requests.map(({ body }) => tokensOf([body.messages, body.input]));

  test.each([
    [1, 3],
    [2, 4],
  ])('requests %s and %s are too long: each is repeated once, with less', async (...refused) => {
    refusing(...refused);
    const { status, bytes } = await ask(`too-long-${refused[0]}`);
    expect(status).toBe(200);
    expect(bench.upstream.requests).toHaveLength(5);
    const found = sizes();
    for (const number of refused) expect(found[number]).toBeLessThan(found[number - 1] ?? 0);
    const sent = JSON.stringify(bench.upstream.requests[4]?.body);
    for (const id of ['call-search', 'again']) expect(sent).toContain(id);
    const text = bytes.toString();
    expect(text).not.toContain('too long');
    if (!stream) return expect(text).toContain('It is vermilion.');
    const deltas = [...text.matchAll(/"(?:content|delta)":"([^"]+)"|"text_delta","text":"([^"]+)"/g)];
    expect(deltas.map(([, one, other]) => one ?? other).join('')).toBe('One. Two. It is vermilion.');
  });

  test('a repeated request that is too long again is the provider’s refusal', async () => {
    refusing(2, 3);
    const { status, bytes } = await ask('too-long-again');
    expect(bench.upstream.requests).toHaveLength(3);
    const [, second = 0, third = 0] = sizes();
    expect(third).toBeLessThan(second);
    if (stream) expect(bytes.toString()).toContain('prompt is too long');
    else expect({ status, text: bytes.toString() }).toEqual({ status: 400, text: JSON.stringify(tooLong) });
  });

  test('a call that the last request no longer offered passes', async () => {
    let number = 0;
    bench.upstream.reply(() => ({ calls: [{ ...search, id: `again-${++number}` }] }));
    const { bytes } = await ask('no-end');
    expect(bench.upstream.requests).toHaveLength(20);
    const shown = bytes.toString();
    expect(new Set(shown.match(/again-\d+/g))).toEqual(new Set(['again-20']));
    expect(shown).toContain('search_history');
  });

  test('with recovery off, a call that the model makes all the same passes unchanged', async () => {
    const { whole, events } = answerAt(path, { calls: [search] }, frame);
    const text = stream ? events.join('') : JSON.stringify(whole);
    bench.upstream.reply((_, response) => {
      response
        .writeHead(200, { 'content-type': stream ? 'text/event-stream' : 'application/json' })
        .end(text);
    });
    const { bytes } = await ask('off', { 'x-palimpsest-recovery': 'off' });
    expect(namesIn(0)).toEqual([]);
    expect(bytes.toString()).toBe(text);
  });
});

describe('a response has the tools of the client only', () => {
  const look = { type: 'function' as const, name: 'look', parameters: tool.parameters, strict: false };

  test.each<[boolean, string]>([
    [false, 'identity'],
    [true, 'identity'],
    [false, 'gzip'],
  ])('and its other bytes are the provider’s (stream: %s, %s)', async (stream, encoding) => {
    const said = (tools: readonly object[]) => {
      const { whole, events } = answerAt('/v1/responses', { text: 'Yes.' }, { ...frame, tools });
      return stream ? events.join('') : JSON.stringify(whole, null, 2);
    };
    bench.upstream.reply(({ body }, response) => {
      response.writeHead(200, {
        'content-type': stream ? 'text/event-stream' : 'application/json',
        'content-encoding': encoding,
      });
      const text = said(body.tools ?? []);
      response.end(encoding === 'gzip' ? gzipSync(text) : text);
    });
    const { address } = await bench.gateway();
    const { bytes } = await send(`${address}/v1/responses`, {
      body: requestAt('/v1/responses', stream, { tools: [look] }),
      headers: { ...jsonHeaders, ...headersOf(`own-tools-${stream}-${encoding}`) },
    });
    expect(namesIn(0)).toHaveLength(4);
    expect(bytes.toString()).toBe(said([look]));
  });

  test('also after a search', async () => {
    const openai = openaiOf(await bench.gateway(), 'own-tools');
    const request = { model: 'gpt-4o', input: list, tools: [look] };
    inTurn({ calls: [search] }, { text: 'Yes.' });
    const whole = await openai.responses.create(request);
    const shown = [whole.tools];
    inTurn({ calls: [search] }, { text: 'Yes.' });
    for await (const event of await openai.responses.create({ ...request, stream: true }))
      if ('response' in event) shown.push(event.response.tools);
    expect(shown).toEqual([[look], [look], [look], [look]]);
  });
});

describe('the provider fails after a search', () => {
  const failure = { error: { message: 'Slow down', type: 'requests', code: 'rate_limit_exceeded' } };

  function failing(): void {
    let number = 0;
    bench.upstream.reply((_, response) => {
      if (++number === 1) return { text: 'I look it up.', calls: [search] };
      response
        .writeHead(429, { 'content-type': 'application/json', 'retry-after': '9' })
        .end(JSON.stringify(failure));
      return undefined;
    });
  }

  test('an answer that is no stream is the provider’s', async () => {
    failing();
    const openai = openaiOf(await bench.gateway(), 'fails');
    const call = openai.chat.completions.create({ model: 'gpt-4o', messages: list });
    await expect(call).rejects.toMatchObject({ status: 429, code: 'rate_limit_exceeded' });
    expect(bench.upstream.requests).toHaveLength(2);
  });

  test('a stream ends with the provider’s error', async () => {
    const running = await bench.gateway();
    const openai = openaiOf(running, 'fails-stream');
    failing();
    const chat = openai.chat.completions.stream({ model: 'gpt-4o', messages: list });
    await expect(chat.finalChatCompletion()).rejects.toThrow('Slow down');
    failing();
    const response = openai.responses.stream(
      { model: 'gpt-4o', input: list },
      { headers: headersOf('fails-responses') },
    );
    await expect(response.finalResponse()).rejects.toThrow('Slow down');
    failing();
    const message = anthropicOf(running, 'fails-messages').messages.stream({
      model: 'claude-test',
      max_tokens: 9,
      messages: list,
    });
    await expect(message.finalMessage()).rejects.toThrow('Slow down');
  });
});

test('a request with more tools than before still fits', async () => {
  inTurn({ text: 'Yes.' });
  const openai = openaiOf(await bench.gateway(), 'more-tools');
  await openai.chat.completions.create({ model: 'gpt-4o', messages: list });
  const many = Array.from({ length: 12 }, (_, n) => ({
    type: 'function' as const,
    function: { ...tool, name: `tool_${n}`, description: 'It does a lot of things. '.repeat(25) },
  }));
  await openai.chat.completions.create({ model: 'gpt-4o', messages: list, tools: many });
  const [first, second] = bench.upstream.requests.map(({ body }) => tokensOf([body.messages, body.tools]));
  expect(first).toBeLessThan(window);
  expect(second).toBeLessThan(window);
});
