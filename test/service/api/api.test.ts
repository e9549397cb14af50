/**
 * Every operation of the OpenAPI document against the running server: an operation without a case here fails, and so does an
 * answer that differs from the document, also by an additional field.
 */
import { readFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { startApiStack, type Answered, type ApiStack, type Ask } from '../../support/api.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { differences, document, errorsOf } from '../../support/openapi.js';

const listed = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    ...{ path, method, operation },
    id: String(operation.operationId),
  })),
);

let server: ApiStack;
let ask: Ask;

beforeAll(async () => {
  server = await startApiStack({ metrics: async () => '# TYPE palimpsest_up gauge\npalimpsest_up 1\n' });
  ask = server.ask;
  await compacted('walk');
});

afterAll(() => server.stop());

const at = (session: string, rest = '') => `/v1/sessions/${session}${rest}`;
const post = { method: 'POST' };

/** A session with an archive part, and a tool's result in it. */
async function compacted(session: string): Promise<void> {
  const [first, ...turns] = dialogue(12);
  // SDKs write null for a field that a message does not use.
  const call = {
    ...{ role: 'assistant', content: null, name: null, tool_call_id: null },
    tool_calls: [
      { id: 'c1', type: 'function', function: { name: 'get_order', arguments: '{"order":4711}' } },
    ],
  };
  const result = { role: 'tool', tool_call_id: 'c1', content: 'order 4711: shipped', tool_calls: null };
  const messages = [...(first ?? []), call, result] as never;
  await ask(at(session, '/turns'), { body: { turnId: 'first', messages, policy: smallPolicy as never } });
  for (const [index, turn] of turns.entries())
    expect(
      (await ask(at(session, '/turns'), { body: { turnId: `t-${index}`, messages: turn as never } })).status,
    ).toBe(200);
  expect((await ask(at(session, '/compact'), post)).status).toBe(200);
  await ask(at(session, '/settled'));
}

/** One or more answers of each operation, by its id. */
const cases: Record<string, () => Promise<Answered[]>> = {
  appendTurn: async () => {
    const messages = [{ role: 'user', content: 'Where is my order 4711?' }];
    const usage = {
      input_tokens: 4,
      cache_read_input_tokens: 896,
      output_tokens: 12,
      service_tier: 'standard',
    };
    const turn = { messages, usage };
    const made = await ask(at('append', '/turns'), { body: { ...turn, turnId: 't-1', expectedSeq: 0 } });
    const repeated = await ask(at('append', '/turns'), { body: turn, headers: { 'idempotency-key': 't-1' } });
    expect(made.json).toMatchObject({ fromSeq: 1, throughSeq: 1, repeated: false, signalled: true });
    expect(repeated.json).toMatchObject({ fromSeq: 1, throughSeq: 1, repeated: true });
    return [made, repeated];
  },
  sync: async () => {
    const messages = [{ role: 'user', content: 'Where is my order 4711?' }];
    const made = await ask(at('synced', '/sync'), { body: { messages } });
    const more = [...messages, { role: 'assistant', content: 'Shipped.' }];
    const longer = await ask(at('synced', '/sync'), { body: { messages: more, budget: 1000 } });
    expect(made.json).toMatchObject({
      known: 0,
      stored: { throughSeq: 1 },
      unchanged: true,
      context: { messages },
    });
    expect(longer.json).toMatchObject({ known: 1, stored: { fromSeq: 2 }, edited: null, throughSeq: 2 });
    const edited = await ask(at('synced', '/sync'), {
      body: { messages: [{ role: 'user', content: 'Other' }] },
    });
    expect([edited.status, edited.json]).toMatchObject([409, { failure: 'Store.ListEdited' }]);
    return [made, longer, edited];
  },
  context: async () => {
    const made = await ask(at('walk', '/context?format=openai-chat&wait=100'));
    expect(made.json).toMatchObject({ session: 'walk', format: 'openai-chat' });
    const etag = made.headers.get('etag') ?? '';
    const same = await ask(at('walk', '/context'), { headers: { 'if-none-match': `"other", ${etag}` } });
    expect([same.status, same.text, same.headers.get('etag')]).toEqual([304, '', etag]);
    const other = await ask(at('walk', '/context?budget=1000'), { headers: { 'if-none-match': '"other"' } });
    expect((other.json as { tokens: number }).tokens).toBeLessThanOrEqual(1000);
    return [made, same, other];
  },
  compact: async () => {
    await compacted('twice');
    const goesOn = await ask(at('twice', '/compact?wait=false'), post);
    expect(goesOn.status).toBe(202);
    expect(goesOn.headers.get('location')).toBe(at('twice', '/status'));
    await ask(at('twice', '/settled?timeout=30000'));
    const nothing = await ask(at('twice', '/compact?wait=30000'), post);
    expect([nothing.status, nothing.json]).toEqual([200, null]);
    return [goesOn, nothing];
  },
  resummarize: async () => {
    const nothing = await ask(at('walk', '/resummarize'), { ...post, body: {} });
    expect(nothing.json).toBeNull();
    return [nothing];
  },
  status: async () => {
    // A compaction on request returns with its commit, of which the workflow has yet to hear.
    await expect.poll(async () => (await ask(at('walk', '/status'))).json).toMatchObject({ phase: 'idle' });
    const status = await ask(at('walk', '/status'));
    expect(status.json).toMatchObject({ session: 'walk', generation: 1 });
    return [status];
  },
  settled: async () => [await ask(at('walk', '/settled?timeout=20000'))],
  sessions: async () => {
    const first = await ask('/v1/sessions?limit=1&prefix=wa&failed=false');
    expect(first.json).toMatchObject({ sessions: [{ session: 'walk' }] });
    return [first, await ask('/v1/sessions?after=walk')];
  },
  closeSession: async () => [await ask(at('walk', '/close'), post)],
  pause: async () => {
    const paused = await ask(at('walk', '/pause'), post);
    expect((await ask(at('walk', '/status'))).json).toMatchObject({ paused: true });
    await ask(at('walk', '/resume'), post);
    return [paused];
  },
  resume: async () => [await ask(at('walk', '/resume'), post)],
  erase: async () => {
    const messages = [{ role: 'user', content: 'Forget me.' }];
    await ask(at('gone', '/turns'), { body: { turnId: 't', messages } });
    const erased = await ask(at('gone'), { method: 'DELETE' });
    expect(erased.json).toEqual({
      ...{ messages: 1, generations: 0, digests: 0, forks: 0 },
      ...{ executions: 1, remaining: 0 },
    });
    expect((await ask(at('gone', '/status'))).status).toBe(404);
    return [erased];
  },
  eraseMessages: async () => {
    const messages = [{ role: 'user', content: 'Call me Ann.' }];
    await ask(at('holed', '/turns'), { body: { turnId: 't-1', messages } });
    const found = await ask(at('holed', '/find-messages'), { body: { text: 'call me ann' } });
    expect(found.json).toEqual({ hits: [{ seq: 1, role: 'user', erased: false }], elsewhere: [] });
    const erased = await ask(at('holed', '/erase-messages'), { body: { seqs: [1], reason: 'asked' } });
    expect(erased.json).toMatchObject({ messages: [{ seq: 1, reason: 'asked' }], remaining: [] });
    const replay = await ask(at('holed', '/replay'));
    expect(replay.text).not.toContain('Ann');
    const missing = await ask(at('holed', '/erase-messages'), { body: { seqs: [2] } });
    expect(missing.json).toMatchObject({ status: 400, path: 'seqs' });
    return [erased, missing];
  },
  findMessages: async () => {
    const messages = [{ role: 'user', content: 'Call me Ann.' }];
    await ask(at('sought', '/turns'), { body: { turnId: 't-1', messages } });
    return [await ask(at('sought', '/find-messages'), { body: { text: 'Ann' } })];
  },
  tenantPolicy: async () => [await ask('/v1/policy')],
  configureTenant: async () => {
    const changed = await ask('/v1/policy', {
      method: 'PUT',
      body: { policy: { summary: { maxTokens: 900 } } },
    });
    expect((await ask('/v1/policy')).json).toMatchObject({ policy: { summary: { maxTokens: 900 } } });
    return [changed];
  },
  policy: async () => {
    const own = await ask(at('walk', '/policy'));
    expect(own.json).toMatchObject({ policy: smallPolicy });
    return [own];
  },
  configure: async () => [
    await ask(at('append', '/policy'), { method: 'PUT', body: { policy: { contextWindow: 16_000 } } }),
  ],
  pins: async () => [await ask(at('walk', '/pins'))],
  pin: async () => {
    const pins: Json = ['Never call the customer.', { seq: 1 }, { pattern: 'order \\d+' }];
    const pinned = await ask(at('append', '/pins'), { method: 'PUT', body: { pins } });
    expect((await ask(at('append', '/pins'))).json).toEqual({ pins });
    return [pinned];
  },
  compactions: async () => {
    const all = await ask(at('walk', '/compactions'));
    expect(all.json).toMatchObject({ compactions: [{ generation: 1 }] });
    return [all];
  },
  timeline: async () => {
    const sizes = await ask(at('walk', '/timeline'));
    expect(sizes.json).toMatchObject({
      session: 'walk',
      turns: expect.arrayContaining([expect.objectContaining({ turn: 1, fromSeq: 1 })]) as object,
      compactions: [{ generation: 1, part: 1 }],
    });
    return [sizes];
  },
  archiveParts: async () => {
    const parts = await ask(at('walk', '/archive'));
    expect(parts.json).toMatchObject({ parts: [{ part: 1, fromSeq: 1 }] });
    return [parts];
  },
  archivePart: async () => {
    const part = await ask(at('walk', '/archive/1'));
    const { messages } = part.json as { messages: { seq: number }[] };
    expect(messages.map(({ seq }) => seq)).toEqual(messages.map((_, index) => index + 1));
    return [part];
  },
  replay: async () => {
    const all = await ask(at('walk', '/replay'));
    const seqs = all.text
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { seq: number }).seq);
    expect(seqs).toEqual(Array.from({ length: 26 }, (_, index) => index + 1));
    const page = await ask(at('walk', '/replay?after=24&limit=1'));
    expect(page.json).toMatchObject({ messages: [{ seq: 25 }], next: 25 });
    const last = await ask(at('walk', '/replay?after=26'));
    expect(last.json).toEqual({ messages: [], next: null });
    return [all];
  },
  export: async () => {
    const file = await ask(at('walk', '/export'));
    expect(file.headers.get('content-type')).toBe('application/octet-stream');
    expect(JSON.parse(file.text)).toHaveLength(26);
    return [file];
  },
  expand: async () => {
    const page = await ask(at('walk', '/messages?part=1&fromSeq=2&limit=2&maxCharacters=100000'));
    expect(page.json).toMatchObject({ part: 1, messages: [{ seq: 2 }, { seq: 3 }], nextSeq: 4 });
    return [page, await ask(at('walk', '/messages'))];
  },
  search: async () => {
    const found = await ask(at('walk', '/search'), {
      body: { query: '4711 shipped', tool: 'get_order', after: 1 },
    });
    expect(found.json).toMatchObject({
      hits: [{ seq: 4, tool: 'get_order', following: [{ seq: 5 }] }, { seq: 3 }],
    });
    return [found];
  },
  toolResponse: async () => {
    const result = await ask(at('walk', '/tool-response?callId=c1'));
    expect(result.json).toMatchObject({ seq: 4, content: 'order 4711: shipped' });
    return [result, await ask(at('walk', '/tool-response?seq=1&offset=3&limit=5'))];
  },
  historyLog: async () => {
    const history = await ask(at('walk', '/history'));
    expect(history.text).toContain('## Summarized at');
    return [history, await ask(at('append', '/history'))];
  },
  restore: async () => {
    await compacted('back');
    const back = await ask(at('back', '/restore'), { body: { generation: 0 } });
    expect(back.json).toMatchObject({ generation: 2, reason: 'restore' });
    return [back];
  },
  fork: async () => {
    const forked = await ask(at('walk', '/fork'), { body: { to: 'walk-on', throughSeq: 5 } });
    expect(forked.json).toMatchObject({ session: 'walk-on', messages: 5, repeated: false });
    return [forked];
  },
  startBackfill: async () => [await started('started')],
  backfills: async () => {
    await started('listed');
    const all = await ask('/v1/backfills');
    expect(all.json).toMatchObject({
      backfills: expect.arrayContaining([expect.objectContaining({ job: 'listed' })]),
    });
    return [all];
  },
  estimateBackfill: async () => [
    await ask('/v1/backfills/estimate', { body: { select: { prefix: 'walk' }, mode: 'all' } }),
  ],
  backfill: async () => {
    await started('asked');
    return [await ask('/v1/backfills/asked')];
  },
  backfillItems: async () => {
    await started('items');
    const done = () => ask('/v1/backfills/items').then(({ json }) => (json as { state: string }).state);
    await expect.poll(done).toBe('completed');
    const items = await ask('/v1/backfills/items/items?limit=2');
    expect(items.json).toMatchObject({ items: [{ session: 'old' }], next: null });
    return [items, await ask('/v1/backfills/items/items?state=failed&after=a')];
  },
  pauseBackfill: async () => {
    await started('paused');
    return [await ask('/v1/backfills/paused/pause', post)];
  },
  resumeBackfill: async () => {
    await started('resumed');
    return [await ask('/v1/backfills/resumed/resume', post)];
  },
  cancelBackfill: async () => {
    await started('cancelled');
    return [await ask('/v1/backfills/cancelled/cancel', post)];
  },
  resizeBackfill: async () => {
    await started('resized');
    const resized = await ask('/v1/backfills/resized/resize', { body: { concurrency: 3 } });
    return [resized];
  },
  retryBackfill: async () => {
    await started('again');
    const done = () => ask('/v1/backfills/again').then(({ json }) => (json as { state: string }).state);
    await expect.poll(done).toBe('completed');
    return [await ask('/v1/backfills/again/retry', { body: { spendLimit: 5 } })];
  },
  createToken: async () => {
    const made = await ask('/v1/tokens', { body: { name: 'made', scopes: ['read', 'append'] } });
    expect(made.json).toMatchObject({ name: 'made', scopes: ['append', 'read'], expiresAt: null });
    expect(made.headers.get('cache-control')).toBe('no-store');
    return [made];
  },
  tokens: async () => {
    await ask('/v1/tokens', {
      body: { name: 'listed', scopes: ['read'], expiresAt: '2999-01-01T00:00:00Z' },
    });
    const all = await ask('/v1/tokens');
    expect(all.json).toMatchObject({
      tokens: expect.arrayContaining([expect.objectContaining({ name: 'listed' })]),
    });
    return [all];
  },
  revokeToken: async () => {
    const made = await ask('/v1/tokens', { body: { name: 'revoked', scopes: ['read'] } });
    const { id } = made.json as { id: string };
    const revoked = await ask(`/v1/tokens/${id}`, { method: 'DELETE' });
    expect(revoked.json).toMatchObject({ id, revokedAt: expect.any(String) as string });
    return [revoked];
  },
  healthz: async () => [await ask('/healthz', { token: null })],
  readyz: async () => {
    const ready = await ask('/readyz', { token: null });
    expect(ready.json).toEqual({ ready: true, ending: false, postgres: null, temporal: null });
    return [ready];
  },
  metrics: async () => [await ask('/metrics', { token: null })],
  openapi: async () => {
    const served = await ask('/openapi.json', { token: null });
    expect(served.json).toEqual(document);
    return [served];
  },
};

/** A job over one small session. */
async function started(job: string): Promise<Answered> {
  const messages = [{ role: 'user', content: 'An old question.' }];
  await ask(at('old', '/turns'), { body: { turnId: 't', messages } });
  return ask('/v1/backfills', { body: { job, select: { prefix: 'old' }, mode: 'all', concurrency: 2 } });
}

describe('every operation answers as the document says', () => {
  test('every operation has a case, and every case an operation', () => {
    expect(Object.keys(cases).sort()).toEqual(listed.map(({ id }) => id).sort());
  });

  test.each(listed)('$id: $method $path', async ({ id, operation }) => {
    const answers = (await cases[id]?.()) ?? [];
    expect(answers.length).toBeGreaterThan(0);
    for (const answer of answers) expect(differences(operation, answer)).toEqual([]);
  });
});

test('a validator accepts the document', async () => {
  expect(await new Validator().validate(structuredClone(document) as never)).toEqual({ valid: true });
});

test('the document has what generators use: titles, one media type an answer, the version of the package', () => {
  for (const [name, { title }] of Object.entries(document.components.schemas)) expect(title).toBe(name);
  for (const { id, operation } of listed)
    for (const { content = {} } of Object.values(operation.responses as Record<string, { content?: object }>))
      expect([id, ...Object.keys(content).slice(1)]).toEqual([id]);
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  expect((document.info as { version: string }).version).toBe(version);
});

test('every operation of a tenant documents the refusal by a limit, with Retry-After', () => {
  for (const { id, operation } of listed.filter(({ path }) => path.startsWith('/v1/')))
    expect([id, (operation.responses as Record<string, object>)['429']]).toEqual([
      id,
      expect.objectContaining({
        description: expect.stringContaining('`Tenant.LimitReached`') as string,
        headers: { 'Retry-After': expect.anything() as object },
      }),
    ]);
});

test('every example in the document is valid by its own schema', () => {
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    const [example] = schema.examples as [unknown];
    expect([name, errorsOf(`#/components/schemas/${name}`, example)]).toEqual([name, []]);
  }
});
