/**
 * The refusals of the API: status, failure type, field and hint of each, with a check that nothing was stored. The table of
 * wrong inputs is in one place, so that a new case is one more line.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { openPool } from '../../support/pool.js';
import { digestOf, startApiStack, type Answered, type ApiStack, type Asked } from '../../support/api.js';
import { words } from '../../support/dialogue.js';
import { differences, document, errorsOf } from '../../support/openapi.js';

const otherToken = randomUUID();
const bodyLimitBytes = 200_000;
const hello = [{ role: 'user', content: 'hello' }];
const turns = '/v1/sessions/here/turns';

let server: ApiStack;
let pool: Pool;

beforeAll(async () => {
  const other = { tenant: `other-${randomUUID()}`, sha256: digestOf(otherToken) };
  server = await startApiStack({ bodyLimitBytes, tokens: [other] });
  pool = openPool(server.stack.databaseUrl);
  await server.ask(turns, { body: { turnId: 'first', messages: hello } });
  await server.ask('/v1/sessions/long/turns', {
    body: { turnId: 'first', messages: [{ role: 'user', content: words(600) }] },
  });
});

afterAll(async () => {
  await pool.end();
  await server.stop();
});

/** Everything stored, by content: refused requests leave it as it was. */
async function stored(): Promise<unknown> {
  const tables = ['sessions', 'turns', 'messages', 'compactions', 'archive_parts', 'reductions', 'backfills'];
  const seen: Record<string, unknown> = {};
  for (const table of tables)
    seen[table] = (
      await pool.query(
        `select md5(string_agg(t::text, ',' order by t::text)) as all from palimpsest.${table} t`,
      )
    ).rows;
  return seen;
}

interface Wrong {
  what: string;
  path: string;
  asked?: Asked;
  status: number;
  failure?: string;
  /** Field of the problem; null: it names none. */
  at: string | null;
  hint?: RegExp;
  detail?: RegExp;
}

const raw = (text: string, headers: Record<string, string> = {}): Asked => ({
  body: Buffer.from(text),
  headers,
});

const turn = (fields: Json & object): Asked => ({
  body: { turnId: 'new', messages: hello, ...fields },
});

const put = (body: Json): Asked => ({ method: 'PUT', body });
const post: Asked = { method: 'POST' };

const who: Wrong[] = [
  {
    what: 'no token',
    path: turns,
    asked: { ...turn({}), token: null },
    status: 401,
    failure: 'Api.Unauthorized',
    at: 'headers.authorization',
    hint: /Bearer/,
  },
  {
    what: 'a wrong token',
    path: turns,
    asked: { ...turn({}), token: 'wrong' },
    status: 401,
    failure: 'Api.Unauthorized',
    at: 'headers.authorization',
  },
  {
    what: 'basic credentials',
    path: turns,
    asked: { ...turn({}), token: null, headers: { authorization: 'Basic YTpi' } },
    status: 401,
    failure: 'Api.Unauthorized',
    at: 'headers.authorization',
  },
  {
    what: 'the digest as the token',
    path: turns,
    asked: { ...turn({}), token: digestOf(otherToken) },
    status: 401,
    failure: 'Api.Unauthorized',
    at: 'headers.authorization',
  },
  {
    what: 'no token for what is not there',
    path: '/v1/sessions/nowhere/status',
    asked: { token: null },
    status: 401,
    failure: 'Api.Unauthorized',
    at: 'headers.authorization',
  },
];

const bodies: Wrong[] = [
  {
    what: 'a body beyond the limit',
    path: turns,
    asked: turn({ messages: [{ role: 'user', content: 'x'.repeat(bodyLimitBytes) }] }),
    status: 413,
    failure: 'Input.TooLarge',
    at: 'body',
    hint: /turns/,
  },
  { what: 'no body', path: turns, asked: post, status: 400, at: 'body', hint: /json/ },
  { what: 'an array as body', path: turns, asked: { body: [] }, status: 400, at: 'body', hint: /fields/ },
  {
    what: 'a field where none is known',
    path: '/v1/sessions/here/pause',
    asked: { ...post, body: { for: 5 } },
    status: 400,
    at: 'for',
    hint: /takes no fields/,
  },
  {
    what: 'a pin on a message beyond any log',
    path: '/v1/sessions/here/pins',
    asked: put({ pins: [{ seq: 2 ** 31 }] }),
    status: 400,
    at: 'pins[0].seq',
    hint: /message in the log/,
  },
  {
    what: 'malformed JSON',
    path: turns,
    asked: raw('{"turnId": "t", '),
    status: 400,
    at: 'body',
    hint: /JSON/,
  },
  { what: 'a byte order mark', path: turns, asked: raw('\uFEFF{}'), status: 400, at: 'body' },
  {
    what: 'bytes that are not UTF-8',
    path: turns,
    asked: { body: Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]) },
    status: 400,
    at: 'body',
    hint: /UTF-8/,
  },
  {
    what: 'a duplicate key',
    path: turns,
    asked: raw('{"turnId":"t","messages":[{"role":"user","content":"a","content":"b"}]}'),
    status: 400,
    at: 'messages[0].content',
  },
  {
    what: 'a number beyond double precision',
    path: turns,
    asked: raw('{"turnId":"t","messages":[{"role":"user","content":"a","id":12345678901234567890}]}'),
    status: 400,
    at: 'messages[0].id',
    hint: /string/,
  },
  {
    what: 'nesting without end',
    path: turns,
    asked: raw('['.repeat(5_000)),
    status: 400,
    at: `${'[0]'.repeat(67).slice(0, 200)}…`,
  },
  {
    what: 'form data',
    path: turns,
    asked: raw('turnId=t', { 'content-type': 'application/x-www-form-urlencoded' }),
    status: 415,
    at: 'headers.content-type',
    hint: /application\/json/,
  },
  {
    what: 'text',
    path: turns,
    asked: raw('{}', { 'content-type': 'text/plain' }),
    status: 415,
    at: 'headers.content-type',
  },
  {
    what: 'a compressed body',
    path: turns,
    asked: raw('{}', { 'content-encoding': 'gzip' }),
    status: 415,
    at: 'headers.content-encoding',
    hint: /without Content-Encoding/,
  },
  {
    what: 'JSON in another charset',
    path: turns,
    asked: raw('{}', { 'content-type': 'application/json; charset=latin1' }),
    status: 415,
    at: 'headers.content-type',
  },
  {
    what: 'an unknown field',
    path: turns,
    asked: turn({ sesion: 's' }),
    status: 400,
    at: 'sesion',
    hint: /turnId, messages, at, format/,
  },
  {
    what: 'a misspelt field',
    path: turns,
    asked: { body: { turnId: 't', mesages: hello } },
    status: 400,
    at: 'mesages',
    hint: /messages/,
  },
  {
    what: 'an unknown field within',
    path: turns,
    asked: turn({ usage: { inputTokens: 1, outputTokens: 1, cached: 1 } }),
    status: 400,
    at: 'usage.cached',
  },
  {
    what: 'a wrong type',
    path: turns,
    asked: turn({ expectedSeq: '1' }),
    status: 400,
    at: 'expectedSeq',
    hint: /Last `seq`/,
  },
  {
    what: 'messages that are no list',
    path: turns,
    asked: turn({ messages: 'hello' }),
    status: 400,
    at: 'messages',
  },
  { what: 'no messages', path: turns, asked: turn({ messages: [] }), status: 400, at: 'messages' },
  {
    what: 'a role that is none',
    path: turns,
    asked: turn({ messages: [{ role: 'robot', content: 'x' }] }),
    status: 400,
    at: 'messages[0].role',
    hint: /system/,
  },
  {
    what: 'no turn id',
    path: turns,
    asked: { body: { messages: hello } },
    status: 400,
    at: 'turnId',
    hint: /Idempotency-Key/,
  },
  {
    what: 'two turn ids',
    path: turns,
    asked: { ...turn({}), headers: { 'idempotency-key': 'other' } },
    status: 400,
    at: 'turnId',
  },
  ...(
    [
      ['openai-chat', 'anthropic', { role: 'assistant', content: [{ type: 'tool_use' }] }, 'content[0].type'],
      ['openai-chat', 'gemini', { role: 'user', parts: [{ text: 'hello' }] }, 'parts'],
      ['anthropic', 'openai-chat', { role: 'assistant', content: 'x', tool_calls: [{}] }, 'tool_calls'],
      ['openai-responses', 'openai-chat', { role: 'tool', content: 'x', tool_call_id: 'c' }, 'tool_call_id'],
      ['gemini', 'openai-chat', { role: 'user', content: 'hello' }, 'content'],
      ['ai-sdk', 'openai-chat', { role: 'assistant', content: null, tool_calls: [{}] }, 'tool_calls'],
      ['anthropic', 'ai-sdk', { role: 'tool', content: [{ type: 'tool-result' }] }, 'content[0].type'],
      ['claude-code', 'openai-chat', { role: 'user', content: 'hello' }, 'role'],
    ] as const
  ).map(([format, seen, message, field]): Wrong => ({
    what: `a message as ${seen} has it in a session of ${format}`,
    path: '/v1/sessions/new/turns',
    asked: turn({ format, messages: [message] } as unknown as Json & object),
    status: 400,
    at: `messages[0].${field}`,
    hint: new RegExp(`format: '${seen}'`),
  })),
  {
    what: 'a backfill that may spend nothing',
    path: '/v1/backfills',
    asked: { body: { job: 'j', spendLimit: 0 } },
    status: 400,
    at: 'spendLimit',
    hint: /Limit on the cost/,
  },
  {
    what: 'an unknown format',
    path: turns,
    asked: turn({ format: 'yaml' }),
    status: 400,
    at: 'format',
  },
  {
    what: 'another format than the session has',
    path: turns,
    asked: turn({ format: 'anthropic', messages: [{ role: 'user', content: 'x' }] }),
    status: 400,
    at: 'format',
    hint: /openai-chat/,
  },
  {
    what: 'a wrong policy',
    path: '/v1/sessions/new/turns',
    asked: turn({ policy: { trigger: { fraktion: 1 } } }),
    status: 400,
    at: 'policy.trigger.fraktion',
  },
  {
    what: 'a body where none is taken',
    path: '/v1/sessions/here/close',
    asked: { body: { now: true } },
    status: 400,
    at: 'now',
  },
  {
    what: 'a policy for a tenant that is none',
    path: '/v1/policy',
    asked: put({ policy: { contextWindow: -1 } }),
    status: 400,
    at: 'policy.contextWindow',
  },
  {
    what: 'pins that are none',
    path: '/v1/sessions/here/pins',
    asked: put({ pins: [{ pattern: '(' }] }),
    status: 400,
    at: 'pins[0].pattern',
  },
  {
    what: 'a generation that is not there',
    path: '/v1/sessions/here/restore',
    asked: { body: { generation: 9 } },
    status: 400,
    at: 'generation',
  },
  {
    what: 'a generation beyond any log',
    path: '/v1/sessions/here/restore',
    asked: { body: { generation: Number.MAX_SAFE_INTEGER } },
    status: 400,
    at: 'generation',
  },
  {
    what: 'messages beyond any log to erase',
    path: '/v1/sessions/here/erase-messages',
    asked: { body: { seqs: [Number.MAX_SAFE_INTEGER] } },
    status: 400,
    at: 'seqs[0]',
  },
  {
    what: 'a fork beyond any log',
    path: '/v1/sessions/here/fork',
    asked: { body: { to: 'x', throughSeq: Number.MAX_SAFE_INTEGER } },
    status: 400,
    at: 'throughSeq',
  },
  {
    what: 'a token that ends after the year 9999',
    path: '/v1/tokens',
    asked: {
      body: { name: 'n', scopes: ['read'], expiresAt: '9999-12-31T23:59:59.999999999-23:59' },
    },
    status: 400,
    at: 'expiresAt',
  },
  {
    what: 'a token that ended before the year 1',
    path: '/v1/tokens',
    asked: { body: { name: 'n', scopes: ['read'], expiresAt: '0000-01-01T00:00:00Z' } },
    status: 400,
    at: 'expiresAt',
  },
  {
    what: 'a fork onto a session that is there',
    path: '/v1/sessions/here/fork',
    asked: { body: { to: 'long', throughSeq: 1 } },
    status: 400,
    at: 'to',
  },
  {
    what: 'a fork beyond the end',
    path: '/v1/sessions/here/fork',
    asked: { body: { to: 'x', throughSeq: 7 } },
    status: 400,
    at: 'throughSeq',
  },
  {
    what: 'a search for nothing',
    path: '/v1/sessions/here/search',
    asked: { body: { query: '' } },
    status: 400,
    at: 'query',
  },
  {
    what: 'a backfill with too much at once',
    path: '/v1/backfills',
    asked: { body: { job: 'j', concurrency: 501 } },
    status: 400,
    at: 'concurrency',
  },
  {
    what: 'a backfill of sessions of half a token',
    path: '/v1/backfills',
    asked: { body: { job: 'j', select: { minTokens: 0.5 } } },
    status: 400,
    at: 'select.minTokens',
  },
  {
    what: 'a backfill of an unknown selection',
    path: '/v1/backfills',
    asked: { body: { job: 'j', select: { tenant: 'x' } } },
    status: 400,
    at: 'select.tenant',
  },
];

const races: Wrong[] = [
  {
    what: 'a turn id with other content',
    path: turns,
    asked: { body: { turnId: 'first', messages: [{ role: 'user', content: 'other' }] } },
    status: 409,
    failure: 'Store.TurnConflict',
    at: 'turnId',
  },
  {
    what: 'an expected seq that is past',
    path: turns,
    asked: turn({ expectedSeq: 0 }),
    status: 409,
    failure: 'Store.StaleAppend',
    at: 'expectedSeq',
  },
  {
    what: 'a budget that nothing fits in',
    path: '/v1/sessions/long/context?budget=5',
    status: 422,
    failure: 'Budget.Unreachable',
    at: null,
    hint: /^raise budget to at least \d+$/,
  },
];

const queries: Wrong[] = [
  {
    what: 'an unknown query field',
    path: '/v1/sessions/here/context?bugdet=5',
    status: 400,
    at: 'bugdet',
    hint: /budget/,
  },
  {
    what: 'a budget that is no number',
    path: '/v1/sessions/here/context?budget=lots',
    status: 400,
    at: 'budget',
  },
  { what: 'a negative budget', path: '/v1/sessions/here/context?budget=-5', status: 400, at: 'budget' },
  { what: 'a fractional wait', path: '/v1/sessions/here/context?wait=0.5', status: 400, at: 'wait' },
  {
    what: 'a query field twice',
    path: '/v1/sessions/here/context?budget=50&budget=60',
    status: 400,
    at: 'budget',
  },
  {
    what: 'a format that no context has',
    path: '/v1/sessions/here/context?format=codex',
    status: 400,
    at: 'format',
  },
  { what: 'a list longer than is given', path: '/v1/sessions?limit=1001', status: 400, at: 'limit' },
  { what: 'a flag that is none', path: '/v1/sessions?failed=yes', status: 400, at: 'failed' },
  { what: 'a NUL in a query', path: '/v1/sessions?after=%00', status: 400, at: 'after' },
  { what: 'a NUL in a prefix', path: '/v1/sessions?prefix=a%00', status: 400, at: 'prefix' },
  {
    what: 'a prefix longer than any id',
    path: `/v1/sessions?prefix=${'a'.repeat(201)}`,
    status: 400,
    at: 'prefix',
    hint: /shorter/,
  },
  { what: 'a part that is no number', path: '/v1/sessions/here/archive/one', status: 400, at: 'part' },
  { what: 'a part that is not there', path: '/v1/sessions/here/archive/7', status: 400, at: 'part' },
  {
    what: 'neither call nor message',
    path: '/v1/sessions/here/tool-response',
    status: 400,
    at: 'callId',
    detail: /callId or seq is missing/,
  },
  {
    what: 'a call and a message',
    path: '/v1/sessions/here/tool-response?callId=c-1&seq=1',
    status: 400,
    at: 'callId',
    detail: /not both/,
  },
  {
    what: 'a call that was never made',
    path: '/v1/sessions/here/tool-response?callId=none',
    status: 400,
    at: 'callId',
  },
  {
    what: 'a NUL in a call id',
    path: '/v1/sessions/here/tool-response?callId=%00',
    status: 400,
    at: 'callId',
  },
  {
    what: 'an If-None-Match that is none',
    path: '/v1/sessions/here/context',
    asked: { headers: { 'if-none-match': 'abc"' } },
    status: 400,
    at: 'headers.if-none-match',
    hint: /ETag/,
  },
  {
    what: 'a wait that is neither',
    path: '/v1/sessions/here/compact?wait=soon',
    asked: post,
    status: 400,
    at: 'wait',
  },
];

const ids: Wrong[] = [
  {
    what: 'a session that is not there',
    path: '/v1/sessions/nowhere/context',
    status: 404,
    failure: 'Store.SessionNotFound',
    at: 'session',
    hint: /first/,
  },
  {
    what: "another tenant's session",
    path: '/v1/sessions/here/context',
    asked: { token: otherToken },
    status: 404,
    failure: 'Store.SessionNotFound',
    at: 'session',
  },
  {
    what: 'a session that holds a NUL',
    path: '/v1/sessions/a%00b/turns',
    asked: turn({}),
    status: 400,
    at: 'session',
  },
  {
    what: 'half of a surrogate pair in a path',
    path: '/v1/sessions/%ED%A0%80/turns',
    asked: turn({}),
    status: 400,
    at: 'url',
  },
  { what: 'a path that is not UTF-8', path: '/v1/sessions/%ff/context', status: 400, at: 'url' },
  {
    what: 'a huge session id',
    path: `/v1/sessions/${'s'.repeat(5_000)}/turns`,
    asked: turn({}),
    status: 400,
    at: 'session',
    hint: /UUID/,
  },
  { what: 'a NUL in a turn id', path: turns, asked: turn({ turnId: 'a\u0000' }), status: 400, at: 'turnId' },
  {
    what: 'half of a surrogate pair in a turn id',
    path: turns,
    asked: raw('{"turnId":"\\ud800","messages":[{"role":"user","content":"x"}]}'),
    status: 400,
    at: 'turnId',
  },
  {
    what: 'a huge turn id',
    path: turns,
    asked: turn({ turnId: 't'.repeat(600) }),
    status: 400,
    at: 'turnId',
  },
  { what: 'an empty turn id', path: turns, asked: turn({ turnId: '' }), status: 400, at: 'turnId' },
  {
    what: 'a header key that is not ASCII',
    path: turns,
    asked: { body: { messages: hello }, headers: { 'idempotency-key': '\u00e9' } },
    status: 400,
    at: 'headers.idempotency-key',
  },
  {
    what: 'a NUL in the target of a fork',
    path: '/v1/sessions/here/fork',
    asked: { body: { to: '\u0000', throughSeq: 1 } },
    status: 400,
    at: 'to',
  },
  {
    what: 'a job that is not there',
    path: '/v1/backfills/none',
    status: 404,
    failure: 'Store.BackfillNotFound',
    at: 'job',
  },
  {
    what: 'a job that holds a NUL',
    path: '/v1/backfills',
    asked: { body: { job: 'a\u0000' } },
    status: 400,
    at: 'job',
  },
];

const paths: Wrong[] = [
  { what: 'a path that is not there', path: '/v1/session/here', status: 404, at: 'url', hint: /openapi/ },
  {
    what: 'a path with /v1 twice',
    path: '/v1/v1/sessions?limit=1',
    status: 404,
    at: 'url',
    hint: /Leave \/v1 out/,
    detail: /^The path \/v1\/v1\/sessions does not exist\.$/,
  },
  {
    what: 'a long path that is not there',
    path: `/v1/${'x'.repeat(1_000)}`,
    status: 404,
    at: 'url',
    detail: /^The path \/v1\/x{196}… does not exist\.$/,
  },
  { what: 'a path out of the API', path: '/v1/sessions/..%2f..%2fetc%2fpasswd', status: 405, at: 'method' },
  {
    what: 'a session named like a path out',
    path: '/v1/sessions/..%2f..%2fetc%2fpasswd/context',
    status: 404,
    failure: 'Store.SessionNotFound',
    at: 'session',
  },
  { what: 'a path with dots', path: '/v1/sessions/here/../../../etc/passwd', status: 404, at: 'url' },
  { what: 'another method', path: '/v1/sessions/here/turns', status: 405, at: 'method', hint: /POST/ },
  {
    what: 'a method of nobody',
    path: '/v1/sessions/here/context',
    asked: { method: 'PATCH' },
    status: 405,
    at: 'method',
    hint: /GET/,
  },
];

describe.each([
  ['callers', who],
  ['bodies', bodies],
  ['races', races],
  ['queries', queries],
  ['ids', ids],
  ['paths', paths],
])('wrong %s', (_, table) => {
  test.each(table)(
    '$what: $status',
    async ({ path, asked, status, failure = 'Input.Invalid', at, hint, detail = /./ }) => {
      const before = await stored();
      const answer = await server.ask(path, asked);
      expect(answer).toMatchObject({
        status,
        json: { failure, status, type: `urn:palimpsest:failure:${failure}` },
      });
      expect(answer.headers.get('content-type')).toContain('application/problem+json');
      const problem = answer.json as { path?: string; hint?: string; detail: string; requestId: string };
      expect(problem.path ?? null).toBe(at);
      expect(problem.detail).toMatch(detail);
      if (at !== null || hint) expect(problem.hint ?? '').toMatch(hint ?? /./);
      expect(problem.requestId).toBe(answer.headers.get('x-request-id'));
      expect(errorsOf('#/components/schemas/Problem', problem)).toEqual([]);
      expect(documented(path, asked?.method ?? (asked?.body === undefined ? 'GET' : 'POST'), answer)).toEqual(
        [],
      );
      expect(await stored()).toEqual(before);
    },
  );
});

/** The document also lists the statuses of failures. */
function documented(path: string, method: string, answer: Answered): unknown[] {
  const found = Object.entries(document.paths).find(([pattern]) =>
    new RegExp(`^${pattern.replace(/\{\w+\}/g, '[^/]+')}$`).test(path.split('?')[0] ?? ''),
  );
  const operation = found?.[1][method.toLowerCase()];
  return operation === undefined ? [] : differences(operation, answer);
}
