/**
 * Who may do what: every operation of the OpenAPI document with every kind of token, revocation, the tokens that a token may
 * make, and the endpoints of the process for callers from elsewhere.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { type RunningApi, startApi } from '../../../src/api/server.js';
import { type Scope, scopes } from '../../../src/contract/routes.js';
import type { TokenRequest } from '../../../src/contract/tokens.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { storedMaker } from '../../../src/store/tokens/tokens.js';
import { openPool } from '../../support/pool.js';
import { ask, type Answered, type Asked } from '../../support/api.js';
import { differences, document } from '../../support/openapi.js';
import { startStack, type Stack } from '../../support/stack.js';
import { Way } from '../../support/way.js';

const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => {
    const [{ token: [scope] = [] } = {}] = (operation.security as { token?: Scope[] }[]).filter(
      (one) => 'token' in one,
    );
    const remote: Asked = path.startsWith('/v1/') ? {} : { headers: { 'x-forwarded-for': '203.0.113.9' } };
    return {
      id: String(operation.operationId),
      method: method.toUpperCase(),
      path,
      operation,
      scope,
      remote,
    };
  }),
);
const guarded = operations.flatMap((one) => (one.scope === undefined ? [] : [{ ...one, scope: one.scope }]));
const ofTenants = guarded.filter(({ path }) => path.startsWith('/v1/'));

let stack: Stack;
let api: RunningApi;
let pool: Pool;
let ours: Palimpsest;
let theirs: Palimpsest;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl);
  api = await startApi({ port: 0, requireToken: true, metrics: async () => 'up 1\n' }, stack.palimpsest);
  ours = stack.palimpsest.forTenant(`ours-${stack.queuePrefix}`);
  theirs = stack.palimpsest.forTenant(`theirs-${stack.queuePrefix}`);
});

afterAll(async () => {
  await pool.end();
  await api.close();
  await stack.stop();
});

const made = async (of: Palimpsest, own: readonly Scope[], more: Partial<TokenRequest> = {}) =>
  of.createToken({ name: 'test', scopes: [...own], ...more });

const without = (scope: Scope): Scope[] => scopes.filter((one) => one !== scope);

async function expired(of: Palimpsest): Promise<string> {
  const { id, token } = await made(of, scopes, { expiresAt: '2999-01-01T00:00:00Z' });
  await pool.query(
    `update palimpsest.api_tokens set expires_at = now() - interval '1 second' where tenant_id = $1 and id = $2`,
    [of.tenant, id],
  );
  return token;
}

async function revoked(of: Palimpsest): Promise<string> {
  const { id, token } = await made(of, scopes);
  await of.revokeToken({ id });
  return token;
}

/** Bodies for which the document's example does not fit the session. */
const bodies: Record<string, Json> = {
  appendTurn: { turnId: 'next', messages: [{ role: 'user', content: 'more' }] },
  sync: { messages: [{ role: 'user', content: 'more' }], onEdit: 'append' },
  restore: { generation: 0 },
  eraseMessages: { seqs: [1] },
  findMessages: { text: 'secret' },
  fork: { to: 'fork-of-it', throughSeq: 1 },
  configure: { policy: { contextWindow: 16_000 } },
  configureTenant: { policy: { contextWindow: 16_000 } },
  startBackfill: { job: 'begun', select: { prefix: 'none/' } },
  estimateBackfill: { select: { prefix: 'none/' } },
};

/** The request of an operation on objects that the tenant has. */
async function requestOf({ id, method, path, operation, remote }: (typeof guarded)[number], of: Palimpsest) {
  const session = `session-of-${id}`;
  await of.appendTurn({
    session,
    turnId: 'first',
    messages: [{ role: 'user', content: 'a secret of ours' }],
  });
  if (path.includes('{job}')) await of.startBackfill({ job: `job-of-${id}`, select: { prefix: 'none/' } });
  const token = path.includes('{id}') ? (await made(of, ['read'], { name: 'object' })).id : '';
  const values: Record<string, string> = { session, job: `job-of-${id}`, id: token, part: '1' };
  const body = operation.requestBody as
    { content: { 'application/json': { schema: { $ref: string } } } } | undefined;
  const schema = body?.content['application/json'].schema.$ref?.split('/').at(-1) ?? '';
  const [example] = (document.components.schemas[schema]?.examples ?? []) as Json[];
  const query = id === 'toolResponse' ? '?seq=1' : id === 'settled' ? '?timeout=30000' : '';
  const asked: Asked = {
    ...{ method, ...remote },
    ...(body === undefined ? {} : { body: bodies[id] ?? example ?? {} }),
  };
  return { path: path.replace(/\{(\w+)\}/g, (_, name: string) => values[name] ?? '') + query, asked };
}

describe.each(guarded)('$id needs $scope', (one) => {
  let path: string;
  let asked: Asked;
  const call = (token: string | null): Promise<Answered> => ask(api.address, path, { ...asked, token });

  beforeAll(async () => {
    ({ path, asked } = await requestOf(one, ours));
  });

  test('the document names it', () => {
    expect(scopes).toContain(one.scope);
    expect(one.operation.description).toContain(`Needs the scope \`${one.scope}\`.`);
  });

  test.each([
    ['no token', async () => null],
    ['an unknown token', async () => `plm_${randomBytes(32).toString('base64url')}`],
    ['a token of another form', async () => 'x'.repeat(40)],
    ['the id of a token', async () => (await made(ours, scopes)).id],
    ['a revoked token', () => revoked(ours)],
    ['an expired token', () => expired(ours)],
  ])('%s: 401, without a word about tenants', async (what, token) => {
    const answer = await call(await token());
    expect(differences(one.operation, answer)).toEqual([]);
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    const { requestId, ...problem } = answer.json as Record<string, Json>;
    expect(requestId).toMatch(/./);
    expect(problem).toEqual({
      ...{ type: 'urn:palimpsest:failure:Api.Unauthorized', title: 'A token is required', status: 401 },
      detail:
        what === 'no token'
          ? 'The request has no token of Palimpsest.'
          : 'The token is not valid: it is unknown, revoked or expired.',
      ...{ failure: 'Api.Unauthorized', path: 'headers.authorization' },
      hint: 'Send `Authorization: Bearer TOKEN` with a token of this API.',
    });
  });

  test('every other scope: 403 with the scope', async () => {
    const answer = await call((await made(ours, without(one.scope))).token);
    expect(differences(one.operation, answer)).toEqual([]);
    expect(answer.json).toMatchObject({
      ...{ status: 403, failure: 'Api.Forbidden', details: { scope: one.scope } },
    });
  });

  test('the scope alone is enough', async () => {
    const needed = /^(?:createToken|sync)$/.test(one.id)
      ? [...new Set([one.scope, 'read' as const, 'append' as const])]
      : [one.scope];
    const answer = await call((await made(ours, needed)).token);
    expect(differences(one.operation, answer)).toEqual([]);
    const refusal = answer.json as { failure?: string; path?: string } | null;
    // A job of no session has ended, a session of one message has no archive part.
    const noObject = /Backfill$/.test(one.id) ? 'job' : one.id === 'archivePart' ? 'part' : null;
    if (answer.status !== 400) expect([200, 202, 204]).toContain(answer.status);
    else expect(refusal).toMatchObject({ failure: 'Input.Invalid', path: noObject });
  });
});

describe.each(ofTenants)('$id with the right scope of another tenant', (one) => {
  test('finds and changes nothing', async () => {
    const { path, asked } = await requestOf(one, ours);
    const before = await everything(ours.tenant);
    const token = (await made(theirs, [...new Set([one.scope, 'read' as const, 'append' as const])])).token;
    const answer = await ask(api.address, path, { ...asked, token });
    expect(differences(one.operation, answer)).toEqual([]);
    expect(answer.text).not.toMatch(/a secret of ours/);
    expect(answer.text).not.toContain(ours.tenant);
    if (path.includes(`-of-${one.id}`) || one.path.includes('{id}')) {
      // A turn or a list begins a session of its own under the same id.
      if (one.id !== 'appendTurn' && one.id !== 'sync') expect(answer.status).toBe(404);
    } else expect(answer.text).not.toContain(`-of-${one.id}`);
    expect(await everything(ours.tenant)).toEqual(before);
  });
});

/** What a tenant has stored, by content. Its workflows write of their own accord, but not into these columns. */
async function everything(tenant: string): Promise<unknown> {
  const tables = {
    sessions: 'session_id, policy, closed_at, paused_at',
    messages: '*',
    compactions: '*',
    tenants: '*',
    backfills: 'job, request',
    api_tokens: '*',
  };
  const seen: Record<string, unknown> = {};
  for (const [table, columns] of Object.entries(tables))
    seen[table] = (
      await pool.query<{ all: string }>(
        `select md5(string_agg(t::text, ',' order by t::text)) as all
         from (select ${columns} from palimpsest.${table} where tenant_id = $1) t`,
        [tenant],
      )
    ).rows;
  return seen;
}

test('only what tells nothing is open to all', () => {
  expect(operations.filter(({ scope }) => scope === undefined).map(({ id }) => id)).toEqual([
    'healthz',
    'openapi',
  ]);
});

describe('a token of the database', () => {
  test('is refused by every process from the next request on', async () => {
    const library = await Palimpsest.connect({ databaseUrl: stack.databaseUrl, temporal: stack.temporal });
    const other = await startApi({ port: 0, requireToken: true }, library);
    try {
      const { id, token } = await made(ours, ['read']);
      const statuses = () =>
        Promise.all(
          [api, other].map(async ({ address }) => (await ask(address, '/v1/sessions', { token })).status),
        );
      for (let round = 0; round < 3; round++) expect(await statuses()).toEqual([200, 200]);
      const admin = (await made(ours, ['admin'])).token;
      await ask(api.address, `/v1/tokens/${id}`, { method: 'DELETE', token: admin });
      expect(await statuses()).toEqual([401, 401]);
    } finally {
      await other.close();
      await library.close();
    }
  });

  test('gives only scopes that it has, for its tenant', async () => {
    const admin = (await made(ours, ['admin', 'read'])).token;
    const create = (body: Json) => ask(api.address, '/v1/tokens', { body, token: admin });
    const before = await ours.tokens();
    for (const scope of without('admin').filter((one) => one !== 'read'))
      expect(await create({ name: 'more', scopes: ['read', scope] })).toMatchObject({
        ...{ status: 403, json: { failure: 'Api.Forbidden', details: { scope } } },
      });
    expect((await create({ name: 'other', scopes: ['read'], tenant: theirs.tenant })).status).toBe(400);
    expect(await ours.tokens()).toEqual(before);
    const { token } = (await create({ name: 'less', scopes: ['read'] })).json as { token: string };
    expect(await stack.palimpsest.accessByToken(token)).toEqual({ tenant: ours.tenant, scopes: ['read'] });
    expect((await ask(api.address, '/v1/tokens', { token })).status).toBe(403);
  });

  test('names its maker, and ends with it', async () => {
    const end = '2999-01-01T00:00:00.000Z';
    const maker = await made(ours, ['admin', 'read'], { expiresAt: end });
    expect(maker.createdBy).toBeNull();
    const create = async (more: object, token = maker.token) =>
      ask(api.address, '/v1/tokens', { body: { name: 'heir', scopes: ['read', 'admin'], ...more }, token });
    const [endless, later, sooner] = [
      await create({}),
      await create({ expiresAt: '2999-06-01T00:00:00Z' }),
      await create({ expiresAt: '2998-01-01T00:00:00Z' }),
    ].map(({ json }) => json as { id: string; token: string; createdBy: string; expiresAt: string });
    for (const heir of [endless, later]) expect(heir).toMatchObject({ createdBy: maker.id, expiresAt: end });
    expect(sooner).toMatchObject({ createdBy: maker.id, expiresAt: '2998-01-01T00:00:00.000Z' });
    const grandchild = (await create({}, endless?.token)).json;
    expect(grandchild).toMatchObject({ createdBy: endless?.id, expiresAt: end });
    const listed = (await ask(api.address, '/v1/tokens', { token: maker.token })).json as {
      tokens: { id: string; createdBy: string | null }[];
    };
    const makers = new Map(listed.tokens.map(({ id, createdBy }) => [id, createdBy]));
    expect([later, sooner].map((one) => makers.get(one?.id ?? ''))).toEqual([maker.id, maker.id]);
    expect(makers.get(maker.id)).toBeNull();
  });

  test('that was revoked after its check makes no token', async () => {
    const { id, token } = await made(ours, ['admin']);
    await ours.revokeToken({ id });
    const before = await ours.tokens();
    await expect(
      ours.createTokenBy(storedMaker(token), { name: 'late', scopes: ['read'] }),
    ).rejects.toMatchObject({ type: 'Api.Unauthorized' });
    expect(await ours.tokens()).toEqual(before);
  });

  test('of the configuration makes endless tokens and is named as their maker', async () => {
    const tokens = [{ tenant: ours.tenant, sha256: createHash('sha256').update('c').digest('hex') }];
    const own = await startApi({ port: 0, tokens }, stack.palimpsest);
    try {
      const body = { name: 'heir', scopes: ['read'] };
      expect((await ask(own.address, '/v1/tokens', { body, token: 'c' })).json).toMatchObject({
        ...{ createdBy: 'configuration', expiresAt: null },
      });
    } finally {
      await own.close();
    }
  });

  test('is stored as a hash only', async () => {
    const { token } = await made(ours, ['read']);
    const { rows } = await pool.query<{ row: string }>('select t::text as row from palimpsest.api_tokens t');
    expect(rows.map(({ row }) => row).join()).not.toContain(token);
    expect(rows.map(({ row }) => row).join()).not.toContain(Buffer.from(token).toString('hex'));
  });

  test('with `append` alone sets no policy with its turns', async () => {
    const append = (await made(ours, ['append'])).token;
    const both = (await made(ours, ['append', 'policy'])).token;
    const body = {
      ...{ turnId: 't', messages: [{ role: 'user', content: 'hello' }] },
      policy: { contextWindow: 8_000 },
    };
    const turn = (token: string) => ask(api.address, '/v1/sessions/with-policy/turns', { body, token });
    expect((await turn(append)).json).toMatchObject({
      failure: 'Api.Forbidden',
      details: { scope: 'policy' },
    });
    // The token is checked before the policy is.
    const policies: Json[] = [{ pins: [{ pattern: '(' }] }, { unknown: 1 }, null];
    for (const policy of policies) {
      const wrong = { body: { turnId: 't-1', messages: [], policy }, token: append };
      expect((await ask(api.address, '/v1/sessions/with-policy/turns', wrong)).status).toBe(403);
    }
    await expect(ours.status({ session: 'with-policy' })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
    expect((await turn(both)).status).toBe(200);
  });
});

describe('an API that requires no token', () => {
  test('serves callers on this machine, but checks a token that it is given', async () => {
    const open = await startApi({ port: 0 }, stack.palimpsest);
    try {
      const call = async (asked: Asked) => (await ask(open.address, '/v1/sessions', asked)).status;
      expect(await call({})).toBe(200);
      expect(await call({ token: (await made(ours, ['read'])).token })).toBe(200);
      expect(await call({ token: (await made(ours, ['append'])).token })).toBe(403);
      expect(await call({ token: await revoked(ours) })).toBe(401);
      expect(await call({ token: 'unknown' })).toBe(401);
      for (const header of ['x-forwarded-for', 'forwarded', 'via', 'x-real-ip'])
        expect([header, await call({ headers: { [header]: '203.0.113.9' } })]).toEqual([header, 403]);
    } finally {
      await open.close();
    }
  });
});

test('while PostgreSQL is away: 503 and no access, never 401; tokens of the configuration are known', async () => {
  const url = new URL(stack.databaseUrl);
  const way = new Way(`${url.hostname}:${url.port}`);
  url.port = String(await way.open());
  url.hostname = '127.0.0.1';
  const library = await Palimpsest.connect({ databaseUrl: url.href, temporal: stack.temporal });
  const own = await startApi({ port: 0, requireToken: true, metrics: async () => 'up 1\n' }, library);
  try {
    const read = (await made(ours, ['read'])).token;
    const admin = (await made(ours, ['admin'])).token;
    const call = (path: string, token: string, headers = {}) => ask(own.address, path, { token, headers });
    const remote = { 'x-forwarded-for': '203.0.113.9' };
    expect((await call('/v1/sessions', read)).status).toBe(200);
    expect(await call('/readyz', admin, remote)).toMatchObject({ status: 200, json: { postgres: null } });
    way.cut();
    const away = [
      await call('/v1/sessions', read),
      await call('/v1/sessions', `plm_${randomBytes(32).toString('base64url')}`),
      await call('/metrics', admin, remote),
      await call('/readyz', admin, remote),
    ];
    for (const { status, json } of away)
      expect([status, json]).toMatchObject([503, { failure: 'Store.Unavailable' }]);
    // The first two callers are on this machine; the others came through a proxy.
    const address = new RegExp(`${url.port}|127\\.0\\.0\\.1|DATABASE_URL`);
    const unknown = `plm_${randomBytes(32).toString('base64url')}`;
    for (const { json, text } of [...away.slice(2), await call('/v1/sessions', unknown, remote)]) {
      expect(text).not.toMatch(address);
      expect(json).toMatchObject({ detail: 'The database is not available now.' });
    }
    expect(away[0]?.text).toMatch(address);
    const here = await call('/readyz', admin);
    expect(here).toMatchObject({
      status: 503,
      json: { postgres: { message: expect.stringMatching(/./) as string } },
    });
  } finally {
    await own.close();
    await library.close();
    way.cut();
  }
});

test('a caller from elsewhere learns type and hint of a failed server, no text of a driver', async () => {
  const driver = {
    type: 'Store.Unavailable' as const,
    message: 'password authentication failed for user "app"',
  };
  const service = {
    ...{
      forTenant: () => expect.fail(),
      accessByToken: async () => ({ tenant: 'a', scopes: ['admin'] as const }),
    },
    readiness: async () => ({ postgres: { ...driver, hint: 'Check DATABASE_URL.' }, temporal: null }),
  };
  const own = await startApi({ port: 0, requireToken: true }, service);
  try {
    const token = `plm_${randomBytes(32).toString('base64url')}`;
    const remote = { headers: { 'x-forwarded-for': '203.0.113.9' }, token };
    expect((await ask(own.address, '/readyz', remote)).json).toEqual({
      ...{ ready: false, ending: false, temporal: null },
      postgres: { type: 'Store.Unavailable', hint: 'Check DATABASE_URL.' },
    });
    expect((await ask(own.address, '/readyz')).text).toContain('password authentication');
  } finally {
    await own.close();
  }
});
