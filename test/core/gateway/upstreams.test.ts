/** Which upstream a request reaches, and with which headers. */
import { describe, expect, test } from 'vitest';
import { isFailure } from '../../../src/errors.js';
import { answerHeaders, requestHeaders } from '../../../src/gateway/forward.js';
import { protocolOf } from '../../../src/gateway/protocols/index.js';
import { targetOf, upstreamsOf } from '../../../src/gateway/upstreams.js';

const upstreams = upstreamsOf(
  { openai: 'https://api.openai.com', router: 'https://openrouter.ai/api/', local: 'http://[::1]:11434' },
  { router: 'key' },
);

describe('the target of a request', () => {
  test.each([
    ['/v1/models', 'openai', '/v1/models'],
    ['/openai/v1/models?a=/../b', 'openai', '/v1/models?a=/../b'],
    ['/router/v1/chat/completions', 'router', '/api/v1/chat/completions'],
    ['/local', 'local', '/'],
    ['/local?a=1', 'local', '/?a=1'],
  ])('%s', (target, name, path) => {
    expect(targetOf(upstreams, target)).toMatchObject({ upstream: { name }, path });
  });

  test.each(
    [
      [
        '',
        '*',
        'http://evil/',
        'evil:443',
        '//evil/v1/x',
        '/evil/v1/x',
        '/',
        '/openai/../x',
        '/v1/..',
        '/v1/%2e./x',
      ],
      [
        '/v1/..%2fx',
        '/v1/x%2F%2e%2e',
        '/v1/x%5c..%5cx',
        '/v1/.%2E/x',
        '/v1\\..\\x',
        '/v1/x y',
        '/V1/models',
        '/openaix/v1/models',
      ],
    ].flat(),
  )('%s is refused', (target) => {
    expect(() => targetOf(upstreams, target)).toThrow(expect.objectContaining({ type: 'Input.Invalid' }));
  });

  test('a list without upstreams, or with a key for none, is refused', () => {
    for (const make of [() => upstreamsOf({}, {}), () => upstreamsOf({ a: 'https://a' }, { b: 'key' })])
      try {
        make();
        expect.unreachable();
      } catch (error) {
        expect(isFailure(error, 'Input.Invalid')).toBe(true);
      }
  });
});

test.each([
  ['POST', '/v1/chat/completions', 'chat'],
  ['POST', '/openai/deployments/x/chat/completions', 'chat'],
  ['POST', '/v1/responses', 'responses'],
  ['POST', '/api/v1/messages', 'messages'],
  ['GET', '/v1/responses', null],
  ['POST', '/v1/responses/resp_1/cancel', null],
  ['POST', '/v1/messages/count_tokens', null],
  ['POST', '/v1/threads/t/messages', null],
  ['POST', '/v1/completions', null],
])('%s %s is %s', (method, path, name) => expect(protocolOf(method, path)?.name ?? null).toBe(name));

describe('headers', () => {
  test('keep their order, their case and their repetitions', () => {
    const raw = ['B', '1', 'a', '2', 'B', '3', 'Host', 'x', 'Content-Length', '5'];
    expect(requestHeaders(raw, { key: null })).toEqual(['B', '1', 'a', '2', 'B', '3', 'Content-Length', '5']);
    expect(requestHeaders(raw, { key: null, length: 7 }).slice(-2)).toEqual(['Content-Length', '7']);
    expect(
      answerHeaders(['Set-Cookie', 'a', 'Set-Cookie', 'b', 'Content-Encoding', 'br'], { read: true }),
    ).toEqual([...['Set-Cookie', 'a', 'Set-Cookie', 'b']]);
  });

  test('of Palimpsest and of the connection stay here, whatever their case', () => {
    const raw = [
      'X-Palimpsest-Key',
      'secret',
      'x-PALIMPSEST-session',
      's',
      'Connection',
      'Close, X-A',
      'X-A',
      '1',
      'TE',
      'x',
    ];
    expect(requestHeaders(raw, { key: null })).toEqual([]);
    expect(answerHeaders([...raw, 'Transfer-Encoding', 'chunked'])).toEqual([]);
  });

  test('a configured key replaces every key of the client', () => {
    const raw = ['authorization', 'Bearer mine', 'X-Api-Key', 'mine', 'api-key', 'mine'];
    expect(requestHeaders(raw, { key: 'theirs' })).toEqual(['x-api-key', 'theirs']);
  });
});
