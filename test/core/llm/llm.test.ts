/**
 * The result of a summarizer call: a text with its cost, a typed failure for every fault of an endpoint, or the requested
 * abort. Real HTTP on loopback.
 */
import { describe, expect, test, vi } from 'vitest';
import { PalimpsestError } from '../../../src/errors.js';
import { createModelClient } from '../../../src/llm/client.js';
import { isAbort } from '../../../src/llm/classify.js';
import { apiKey, asked, failureOf, useModelClient } from '../../support/model-client.js';
import * as model from '../../support/model-replies.js';
import { startModelServer } from '../../support/model-server.js';

const llm = useModelClient();
type Case = [name: string, script: model.Script, type: string, message: RegExp];

describe('an answer', () => {
  test('has the text and its cost', async () => {
    llm.server.reply(model.ok('## Current state\n- The build passes.'));
    const answer = await llm.summarize();
    const [request] = llm.server.requests;
    expect(answer).toMatchObject({
      text: '## Current state\n- The build passes.',
      calls: 1,
      model: 'test-model',
      usageEstimated: false,
    });
    expect(answer.inputTokens).toBe(model.countPrompt(request!));
    expect(answer.outputTokens).toBeGreaterThan(5);
    expect(answer.ms).toBeGreaterThanOrEqual(0);
    expect(request!.body).toMatchObject({
      model: 'test-model',
      messages: asked.messages,
      max_tokens: 500,
      temperature: 0,
    });
    expect(request!.headers.authorization).toBe(`Bearer ${apiKey}`);
  });

  const shapes: [name: string, message: object, text: string][] = [
    [
      'parts',
      {
        content: [
          { type: 'text', text: 'One. ' },
          { type: 'text', text: 'Two.' },
        ],
      },
      'One. Two.',
    ],
    [
      'thoughts among parts',
      {
        content: [
          { type: 'thinking', thinking: [{ type: 'text', text: 'Hm' }] },
          { type: 'text', text: 'Two.' },
        ],
      },
      'Two.',
    ],
    ['reasoning beside it', { content: 'Two.', reasoning_content: 'Hm' }, 'Two.'],
    ['thoughts in front of it', { content: '<think>\nHm\n</think>\n\nTwo.' }, 'Two.'],
    ['an empty refusal field', { content: 'Two.', refusal: '' }, 'Two.'],
  ];
  test.each(shapes)('with %s is read', async (_name, message, text) => {
    llm.server.reply((request) => model.completion(request, { message, finish: 'stop', output: text }));
    expect((await llm.summarize()).text).toBe(text);
  });

  test('without usage is counted locally, and says so', async () => {
    llm.server.reply(model.ok('Twelve chars', { withoutUsage: true }));
    expect(await llm.summarize()).toMatchObject({ inputTokens: 40, outputTokens: 3, usageEstimated: true });
  });

  test('with another content type is still read', async () => {
    llm.server.reply(async (request) => {
      const { body } = await model.ok('Fine.')(request);
      return { status: 200, body: JSON.stringify(body), headers: { 'content-type': 'text/plain' } };
    });
    expect((await llm.summarize()).text).toBe('Fine.');
  });
});

describe('a bad answer is Llm.BadOutput and its cost counts', () => {
  const cases: Case[] = [
    ['empty text', model.empty(), 'Llm.BadOutput', /empty/],
    ['white space', model.blank(), 'Llm.BadOutput', /empty/],
    ['a refusal field', model.refusalField(), 'Llm.BadOutput', /refused/],
    [
      'no content at all',
      (r) => model.completion(r, { message: {}, finish: 'stop', output: '' }),
      'Llm.BadOutput',
      /empty/,
    ],
    [
      'a tool call',
      (r) =>
        model.completion(r, { message: { content: null, tool_calls: [] }, finish: 'tool_calls', output: '' }),
      'Llm.BadOutput',
      /empty/,
    ],
    [
      'thoughts alone',
      (r) =>
        model.completion(r, {
          message: { content: '', reasoning_content: 'Hm' },
          finish: 'stop',
          output: '',
        }),
      'Llm.BadOutput',
      /reasoning/,
    ],
    ['an unclosed thought', model.ok('<think>Hm, what is this'), 'Llm.BadOutput', /reasoning/],
    ['a web page', model.webPage(), 'Llm.BadOutput', /web page/],
    ['an empty body', model.status(200, ''), 'Llm.BadOutput', /empty body/],
    ['plain text', model.status(200, 'upstream ok'), 'Llm.BadOutput', /not JSON/],
    ['no choices', model.status(200, { id: 'x', choices: [] }), 'Llm.BadOutput', /no choices/],
    ['JSON of another kind', model.status(200, { status: 'healthy' }), 'Llm.BadOutput', /no choices/],
    ['JSON null', model.status(200, 'null'), 'Llm.BadOutput', /no choices/],
    ['a content filter', model.contentFilter(), 'Llm.Rejected', /filter/],
    [
      'an answer broken off',
      (r) => model.completion(r, { message: { content: 'Half' }, finish: 'error', output: '' }),
      'Llm.Unavailable',
      /interrupted its answer/,
    ],
    [
      'the end of the window',
      (r) => model.completion(r, { message: { content: 'Half' }, finish: 'model_length', output: '' }),
      'Llm.ContextOverflow',
      /window/,
    ],
  ];
  test.each(cases)('%s', async (_name, script, type, message) => {
    llm.server.reply(script);
    const failure = await failureOf(llm.summarize());
    expect([failure.type, failure.message]).toEqual([type, expect.stringMatching(message)]);
    expect(failure.hint).toBeTruthy();
    expect(llm.server.requests).toHaveLength(1);
  });
});

describe('an unreachable endpoint is Llm.Unavailable', () => {
  test('dropped before the headers', async () => {
    llm.server.reply(model.dropBeforeHeaders());
    expect((await failureOf(llm.summarize())).type).toBe('Llm.Unavailable');
  });

  test('dropped in the middle of the body', async () => {
    llm.server.reply(model.dropMidBody());
    expect((await failureOf(llm.summarize())).type).toBe('Llm.Unavailable');
    expect(llm.server.requests[0]).toMatchObject({ answered: null, aborted: false });
  });

  test('cut short by a proxy', async () => {
    llm.server.reply(
      model.status(200, '{"choices":[{"message":{"content":"Hal', { 'content-type': 'application/json' }),
    );
    expect((await failureOf(llm.summarize())).type).toBe('Llm.Unavailable');
  });

  test('nothing listens', async () => {
    const { url, close } = await startModelServer();
    await close();
    const failure = await failureOf(
      llm.summarize({}, createModelClient({ apiKey, baseUrl: url, timeoutMs: 20_000 })),
    );
    expect(failure).toMatchObject({ type: 'Llm.Unavailable', details: { code: 'ECONNREFUSED' } });
    expect(failure.hint).toContain('OPENAI_BASE_URL');
  });

  test('it never answers', async () => {
    llm.server.reply(model.silence());
    do {
      const failure = await failureOf(llm.summarize({}, llm.clientWith(50)));
      expect([failure.type, failure.message]).toEqual(['Llm.Unavailable', expect.stringContaining('50 ms')]);
      // On a busy machine the time is up before the request has arrived.
    } while (llm.server.requests.length === 0);
    await llm.server.waitUntil(() => llm.server.requests[0]?.aborted === true, 'the request to be given up');
  });

  test('it begins a body and never ends it', async () => {
    llm.server.reply((request) => ({
      ...model.completion(request, { message: { content: 'x' }, finish: 'stop', output: 'x' }),
      fault: 'stall-mid-body',
    }));
    const failure = await failureOf(llm.summarize({}, llm.clientWith(80)));
    expect(failure.type).toBe('Llm.Unavailable');
    await llm.server.waitUntil(() => llm.server.inFlight() === 0, 'the request to be given up');
  });
});

describe('a cancelled call is a cancellation, not a failure', () => {
  const moments: [string, model.Script][] = [
    ['before the headers', model.silence()],
    [
      'in the middle of the body',
      async (request) => ({ ...(await model.ok()(request)), fault: 'stall-mid-body' }),
    ],
  ];
  test.each(moments)('%s', async (_name, script) => {
    llm.server.reply(script);
    const cancel = new AbortController();
    const reason = new Error('CANCELLED');
    const call = llm.summarize({ signal: cancel.signal }).catch((thrown: unknown) => thrown);
    await llm.server.waitForRequests(1);
    cancel.abort(reason);
    const thrown = await call;
    expect(thrown).toMatchObject({ name: 'AbortError', cause: reason });
    expect(isAbort(thrown)).toBe(true);
    expect(thrown).not.toBeInstanceOf(PalimpsestError);
    await llm.server.waitUntil(() => llm.server.requests[0]?.aborted === true, 'the request to be given up');
  });

  test('before it began: nothing is sent', async () => {
    const thrown: unknown = await llm
      .summarize({ signal: AbortSignal.abort() })
      .catch((error: unknown) => error);
    expect(isAbort(thrown)).toBe(true);
    expect(llm.server.requests).toHaveLength(0);
  });

  test('and no failure is taken for one', async () => {
    llm.server.reply(model.status(500));
    expect(isAbort(await failureOf(llm.summarize()))).toBe(false);
  });
});

describe('a client', () => {
  test('without a key is unavailable and sends nothing', async () => {
    for (const key of [undefined, '', '  ']) {
      const without = createModelClient({ apiKey: key, baseUrl: llm.server.url, timeoutMs: 1_000 });
      expect(without.available).toBe(false);
      expect((await failureOf(llm.summarize({}, without))).hint).toContain('OPENAI_API_KEY');
    }
    expect(llm.client.available).toBe(true);
    expect(llm.server.requests).toHaveLength(0);
  });

  test('accepts a key with a line break at its end', async () => {
    await llm.summarize(
      {},
      createModelClient({ apiKey: `${apiKey}\n`, baseUrl: llm.server.url, timeoutMs: 20_000 }),
    );
    expect(llm.server.requests[0]!.headers.authorization).toBe(`Bearer ${apiKey}`);
  });

  test.each([
    [{ apiKey: 'sk-“quoted”-key' }, 'OPENAI_API_KEY'],
    [{ apiKey, baseUrl: 'localhost:11434/v1' }, 'OPENAI_BASE_URL'],
    [{ apiKey, baseUrl: 'http://me:pass@127.0.0.1/v1' }, 'OPENAI_BASE_URL'],
  ])('refuses settings that could never work, without showing them', (settings, path) => {
    const create = () => createModelClient({ timeoutMs: 1_000, ...settings });
    expect(create).toThrow(expect.objectContaining({ type: 'Input.Invalid', path }));
    expect(create).not.toThrow(/quoted|pass@/);
  });

  test('prints nothing, even if the environment tells `openai` to', async () => {
    vi.stubEnv('OPENAI_LOG', 'debug');
    const prints = (['debug', 'log', 'info', 'warn', 'error'] as const).map((level) =>
      vi.spyOn(console, level),
    );
    await llm.summarize({}, llm.clientWith(20_000));
    for (const print of prints) expect(print).not.toHaveBeenCalled();
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
  });

  test('reuses its connections', async () => {
    const ports = new Set<number | undefined>();
    llm.server.reply((request) => {
      ports.add(request.clientPort);
      return model.ok('Fine.')(request);
    });
    for (let calls = 0; calls < 10; calls += 1) await llm.summarize();
    expect(ports.size).toBeLessThanOrEqual(3);
  });
});
