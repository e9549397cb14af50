/**
 * Endpoints refuse in many forms. By the type of the failure the workflow waits, halves the chunk or falls back, so a wrong
 * type costs money or loses a summary. Text that a refusal repeats must not reach workflow histories.
 */
import { describe, expect, test } from 'vitest';
import { longestRetryAfterMs, retryAfter } from '../../../src/llm/classify.js';
import { apiKey, failureOf, secret, useModelClient } from '../../support/model-client.js';
import * as model from '../../support/model-replies.js';

const llm = useModelClient();
type Case = [name: string, script: model.Script, type: string, message: RegExp];
const error = (message: string, code: string | null = null) => model.failure(message, code);

test('tenants get neither the address nor the words of the endpoint', async () => {
  const { port } = new URL(llm.server.url);
  llm.server.reply(model.status(401, error('Wrong key for org-INTERNAL at gw.internal:8443', 'gw.internal')));
  const failure = await failureOf(llm.summarize());
  expect([failure.message, failure.hint].join()).toMatch(new RegExp(`INTERNAL.*${port}`, 's'));
  const { type, message, hint, details } = failure.forTenants ?? failure;
  expect({ type, message, details }).toEqual({
    type: 'Llm.Rejected',
    message: 'The model endpoint refuses the request (401 invalid_request_error)',
    details: { status: 401, code: 'invalid_request_error' },
  });
  expect(hint).toBe('OPENAI_API_KEY is not accepted by the endpoint (OPENAI_BASE_URL): check both.');
  llm.server.reply(model.dropBeforeHeaders());
  const broken = await failureOf(llm.summarize());
  expect(broken.hint).toContain(port);
  expect(broken.forTenants?.hint).toContain('Check that the endpoint (OPENAI_BASE_URL) is up');
});

describe('a refused request gets its type by its meaning', () => {
  const cases: Case[] = [
    ['429', model.rateLimited(), 'Llm.RateLimited', /rate_limit_exceeded.*Rate limit reached/],
    [
      '429 without quota',
      model.status(429, error('You exceeded your current quota', 'insufficient_quota')),
      'Llm.Rejected',
      /insufficient_quota/,
    ],
    [
      '429 of a minute that speaks of quota',
      model.status(429, error('You exceeded your current quota, please check', 'RESOURCE_EXHAUSTED')),
      'Llm.RateLimited',
      /RESOURCE/,
    ],
    [
      '429 that no waiting cures',
      model.status(
        429,
        error('Request too large for m on tokens per min (TPM): Limit 10000, Requested 15000.'),
      ),
      'Llm.ContextOverflow',
      /too large/,
    ],
    ['402', model.status(402, error('Insufficient Balance')), 'Llm.Rejected', /Balance/],
    ['408', model.status(408), 'Llm.Unavailable', /408/],
    ['409', model.status(409), 'Llm.Unavailable', /409/],
    ['500', model.status(500), 'Llm.Unavailable', /500/],
    [
      '502 as a page',
      model.status(502, '<html><head><style>b{}</style></head><h1>502 Bad Gateway</h1></html>'),
      'Llm.Unavailable',
      /: 502 Bad Gateway$/,
    ],
    ['503', model.status(503, ''), 'Llm.Unavailable', /503/],
    [
      '529',
      model.status(529, { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }),
      'Llm.Unavailable',
      /Overloaded/,
    ],
    [
      '400',
      model.status(400, error('messages: at least one message is required')),
      'Llm.Rejected',
      /at least one/,
    ],
    [
      '401',
      model.status(401, error('Incorrect API key', 'invalid_api_key')),
      'Llm.Rejected',
      /invalid_api_key/,
    ],
    ['403', model.status(403, error('Not yours')), 'Llm.Rejected', /403/],
    [
      '404',
      model.status(404, error('The model does not exist', 'model_not_found')),
      'Llm.Rejected',
      /model_not_found/,
    ],
    [
      '413 of a proxy',
      model.status(413, '<html><h1>413 Request Entity Too Large</h1></html>'),
      'Llm.ContextOverflow',
      /413/,
    ],
    [
      '400 of a content filter',
      model.status(400, error('The response was filtered', 'content_filter')),
      'Llm.Rejected',
      /content_filter/,
    ],
    [
      'x-should-retry: false on 500',
      model.status(500, '', { 'x-should-retry': 'false' }),
      'Llm.Rejected',
      /500/,
    ],
    [
      'x-should-retry: true on 400',
      model.status(400, '', { 'x-should-retry': 'true' }),
      'Llm.Unavailable',
      /400/,
    ],
    [
      'an error in a 200',
      model.status(200, { error: { code: 429, message: 'Slow down' } }),
      'Llm.RateLimited',
      /Slow down/,
    ],
    [
      'an error in a choice',
      model.status(200, { choices: [{ error: { code: 503, message: 'No provider' } }] }),
      'Llm.Unavailable',
      /No provider/,
    ],
    [
      'an error in a 200 without a code',
      model.status(200, { error: 'loading model' }),
      'Llm.Unavailable',
      /loading model/,
    ],
  ];
  test.each(cases)('%s', async (_name, script, type, message) => {
    llm.server.reply(script);
    const failure = await failureOf(llm.summarize());
    expect([failure.type, failure.message]).toEqual([type, expect.stringMatching(message)]);
    expect(llm.server.requests).toHaveLength(1);
  });

  test.each([
    [401, /OPENAI_API_KEY.*OPENAI_BASE_URL/],
    [403, /OPENAI_API_KEY.*test-model/],
    [404, /test-model.*PALIMPSEST_SUMMARY_MODEL.*OPENAI_BASE_URL/],
  ])('%i names the settings to check', async (code, hint) => {
    llm.server.reply(model.status(code));
    expect((await failureOf(llm.summarize())).hint).toMatch(hint);
  });

  const bodies: [string, string | object][] = [
    ['OpenAI', { error: { message: 'Wrong field', code: 'bad' } }],
    ['Ollama', { error: 'Wrong field' }],
    ['TGI', { error: 'Wrong field', error_type: 'validation' }],
    ['Mistral', { object: 'error', message: 'Wrong field', type: 'invalid_request_error', code: 400 }],
    ['Mistral, nested', { object: 'error', message: { detail: [{ type: 'missing', msg: 'Wrong field' }] } }],
    ['FastAPI', { detail: 'Wrong field' }],
    ['FastAPI validation', { detail: [{ loc: ['body', 'x'], msg: 'Wrong field' }] }],
    ['Google', [{ error: { code: 400, message: 'Wrong field', status: 'INVALID_ARGUMENT' } }]],
    [
      'OpenRouter',
      { error: { message: 'Provider returned error', code: 400, metadata: { raw: 'Wrong field' } } },
    ],
    ['plain text', 'Wrong field'],
  ];
  test.each(bodies)('the message of %s is found', async (_name, body) => {
    llm.server.reply(model.status(400, body));
    expect((await failureOf(llm.summarize())).message).toContain('Wrong field');
  });
});

describe('Retry-After', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  const cases: [string, Record<string, string>, number | null][] = [
    ['seconds', { 'retry-after': '7' }, 7_000],
    ['part of a second', { 'retry-after': '0.25' }, 250],
    ['milliseconds, which go first', { 'retry-after-ms': '1234', 'retry-after': '9' }, 1_234],
    ['an HTTP date', { 'retry-after': 'Thu, 01 Jan 2026 00:00:30 GMT' }, 30_000],
    [
      'a date by the clock of the llm.server',
      { 'retry-after': 'Thu, 01 Jan 2026 01:00:30 GMT', date: 'Thu, 01 Jan 2026 01:00:00 GMT' },
      30_000,
    ],
    ['a date that has passed', { 'retry-after': 'Wed, 31 Dec 2025 00:00:00 GMT' }, 0],
    ['a negative number', { 'retry-after': '-5' }, 0],
    ['a day, capped', { 'retry-after': '86400' }, longestRetryAfterMs],
    ['nonsense', { 'retry-after': 'soon' }, null],
    ['nothing', {}, null],
  ];
  test.each(cases)('as %s', (_name, headers, expected) => {
    expect(retryAfter(new Headers(headers), now)).toBe(expected);
  });

  test.each([
    [429, 'Llm.RateLimited'],
    [503, 'Llm.Unavailable'],
  ])('of a %i is in the details', async (code, type) => {
    llm.server.reply(model.status(code, '', { 'retry-after': '17' }));
    const failure = await failureOf(llm.summarize());
    expect([failure.type, failure.details]).toEqual([type, { status: code, retryAfterMs: 17_000 }]);
  });
});

describe('a failure repeats no text of the prompt', () => {
  const echoes: [string, model.Script][] = [
    ['the prompt', model.status(400, error(`Invalid input: '${secret}'`))],
    [
      'the request as JSON',
      ({ body }) => ({ status: 422, body: { detail: [{ msg: 'Bad', input: body }, JSON.stringify(body)] } }),
    ],
    ['a page with it', model.status(500, `<html><body>${secret}</body></html>`)],
    [
      'the key',
      model.status(
        401,
        error(`Invalid token. Received=${apiKey}, also sk-other-987654321 and Bearer abc.def`),
      ),
    ],
    ['very much', model.status(400, error('All is wrong. '.repeat(1_000)))],
    ['the answer', model.cutOff(secret)],
  ];
  const keys = [
    'Api key AIzaSyD4x-0123456789abcdefghijklmnopqrs is not valid',
    `Incorrect API key provided: ${apiKey.slice(0, 7)}****${apiKey.slice(-6)}`,
    'Access denied for subscription key 0123456789abcdef0123456789abcdef',
    'token: "tenant9-gateway-secret-77" has expired',
    'POST https://gateway.local/v1?key=zz81-very-private-82 failed',
    "Invalid key 'qwertzuiopasdfghjklyxcv'",
  ];
  test.each(keys)('nor any form of key: %s', async (message) => {
    llm.server.reply(model.status(401, error(message)));
    const { message: shown } = await failureOf(llm.summarize());
    for (const key of [
      'qwertzuiopasdfghjklyxcv',
      'AIza',
      apiKey.slice(0, 7),
      apiKey.slice(-6),
      '0123456789abcdef',
      'secret-77',
      'private-82',
    ])
      expect(shown).not.toContain(key);
  });

  test('but names of models and ids of requests stay readable', async () => {
    const said = 'claude-3-5-sonnet-20241022 is overloaded (request req_011CSHoEeqs5C35K2UUqR7Fy)';
    llm.server.reply(model.status(529, error(said)));
    expect((await failureOf(llm.summarize())).message).toContain(said);
  });

  test.each(echoes)('when the endpoint repeats %s', async (_name, script) => {
    llm.server.reply(script);
    const failure = await failureOf(llm.summarize());
    const shown = [
      failure.message,
      failure.hint,
      JSON.stringify(failure.details),
      failure.stack,
      String(failure.cause),
    ].join('\n');
    for (const word of ['launch code', '4711', apiKey, 'sk-other', 'abc.def'])
      expect(shown).not.toContain(word);
    expect(failure.message.length).toBeLessThan(420);
  });
});
