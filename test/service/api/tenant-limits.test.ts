/** The operator's limits over HTTP: refusals name limit, field and next step, and no token of the tenant can raise a limit. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { HttpPalimpsest } from '../../../src/http-client/index.js';
import { operations } from '../../../src/api/operations/index.js';
import { scopes } from '../../../src/contract/routes.js';
import { changeLimits, findOverrides } from '../../../src/store/tenants/limits.js';
import { ask as askApi, startApiStack, type ApiStack } from '../../support/api.js';
import { openPool } from '../../support/pool.js';
import { talk } from '../../support/store.js';

let served: ApiStack;
let pool: Pool;
let tenant: string;

beforeAll(async () => {
  served = await startApiStack();
  pool = openPool(served.stack.databaseUrl, { max: 4 });
  tenant = served.stack.queuePrefix;
});

afterAll(async () => {
  await pool.end();
  await served.stop();
});

const json = (value: object): Json => JSON.parse(JSON.stringify(value)) as Json;
const turn = (turnId: string, more: object = {}): Json => json({ turnId, messages: talk(2), ...more });

const problem = (limit: string, path?: string) => ({
  status: 403,
  json: {
    ...{ type: 'urn:palimpsest:failure:Tenant.BeyondLimit', failure: 'Tenant.BeyondLimit', status: 403 },
    ...(path === undefined ? {} : { path }),
    ...{ detail: expect.any(String) as string, hint: expect.stringContaining('palimpsest limits') as string },
    details: { limit },
  },
});

test('a policy beyond a limit is refused for the tenant, a session, its pins and a first turn', async () => {
  const { ask } = served;
  await changeLimits(pool, tenant, {
    concurrency: 8,
    models: ['small*'],
    policyCharacters: 100,
    patterns: 1,
  });
  const policies: [policy: object, limit: string, path: string][] = [
    [{ summary: { concurrency: 64 } }, 'concurrency', 'policy.summary.concurrency'],
    [{ summary: { model: 'expensive' } }, 'models', 'policy.summary.model'],
    [{ summary: { prompt: 'x'.repeat(101) } }, 'policyCharacters', 'policy.summary.prompt'],
    [{ redact: { patterns: ['a', 'b'] } }, 'patterns', 'policy.redact.patterns'],
  ];
  expect(await ask('/v1/sessions/known/turns', { body: turn('1') })).toMatchObject({ status: 200 });
  for (const [policy, limit, path] of policies) {
    const body = json({ policy });
    for (const place of ['/v1/policy', '/v1/sessions/known/policy'])
      expect(await ask(place, { method: 'PUT', body }), place).toMatchObject(problem(limit, path));
    expect(await ask('/v1/sessions/new/turns', { body: turn('1', { policy }) })).toMatchObject(
      problem(limit, path),
    );
  }
  const pins = [{ pattern: 'a' }, { pattern: 'b' }];
  expect(await ask('/v1/sessions/known/pins', { method: 'PUT', body: json({ pins }) })).toMatchObject(
    problem('patterns', 'policy.pins'),
  );
  expect(await ask('/v1/sessions/new/status')).toMatchObject({ status: 404 });
  expect(await ask('/v1/policy')).toMatchObject({ json: { policy: {}, policyVersion: 0 } });
});

test('a limit lowered later narrows what the status shows, and says so', async () => {
  const { ask } = served;
  await changeLimits(pool, tenant, { concurrency: null, models: null });
  await ask('/v1/sessions/lowered/turns', {
    body: turn('1', { policy: { summary: { concurrency: 64 } } }),
  });
  await changeLimits(pool, tenant, { concurrency: 3 });
  const { json: shown } = await ask('/v1/sessions/lowered/status');
  const { knobs, policy } = shown as unknown as { knobs: { path: string }[]; policy: { summary: object } };
  expect(policy.summary).toMatchObject({ concurrency: 3 });
  expect(knobs.find(({ path }) => path === 'summary.concurrency')).toMatchObject({
    ...{ value: 3, source: 'session', warning: expect.stringContaining('given: 64') as string },
  });
  expect(await ask('/v1/sessions/lowered/policy')).toMatchObject({
    json: { policy: { summary: { concurrency: 64 } } },
  });
  expect(await ask('/v1/sessions/lowered/turns', { body: turn('2') })).toMatchObject({ status: 200 });
});

test('appends beyond stored bytes and sessions are refused; the client does not repeat them', async () => {
  const { ask, api, token, stack } = served;
  await changeLimits(pool, tenant, { storedBytes: 1 });
  expect(await ask('/v1/sessions/known/turns', { body: turn('9') })).toMatchObject(problem('storedBytes'));
  expect(await ask('/v1/sessions/known/context')).toMatchObject({ status: 200 });
  await changeLimits(pool, tenant, { storedBytes: null, sessions: 1 });
  const client = await HttpPalimpsest.connect({ url: api.address, token });
  await expect(
    client.appendTurn({ session: 'another', turnId: '1', messages: talk(2) }),
  ).rejects.toMatchObject({
    ...{ type: 'Tenant.BeyondLimit', details: { limit: 'sessions', most: 1 } },
    hint: expect.stringContaining('--sessions') as string,
  });
  await client.close();
  expect(await ask('/v1/sessions/known', { method: 'DELETE' })).toMatchObject({ status: 200 });
  expect(stack.model.requests).toEqual([]);
});

test('no operation of the API changes a limit, whatever scopes a token has', async () => {
  await changeLimits(pool, tenant, { sessions: null, concurrency: 8 });
  const before = await findOverrides(pool, tenant);
  expect(operations.filter(({ path, id }) => /limit/i.test(`${path} ${id}`))).toEqual([]);
  const { token } = await served.stack.palimpsest.createToken({ name: 'all', scopes: [...scopes] });
  const limits = { concurrency: 64 };
  for (const body of [{ policy: { limits } }, { policy: {}, limits }]) {
    const answer = await askApi(served.api.address, '/v1/policy', { method: 'PUT', body: json(body), token });
    expect(answer).toMatchObject({ status: 400, json: { failure: 'Input.Invalid' } });
  }
  expect(await findOverrides(pool, tenant)).toEqual(before);
});
