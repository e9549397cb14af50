/** JWTs of an identity provider: a server with the public keys on this machine, and tokens with every fault. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Writable } from 'node:stream';
import { type CryptoKey, exportJWK, exportSPKI, generateKeyPair, SignJWT, UnsecuredJWT } from 'jose';
import pino from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { type RunningApi, startApi } from '../../../src/api/server.js';
import { ask } from '../../support/api.js';

interface Key {
  kid: string;
  alg: string;
  privateKey: CryptoKey;
  publicKey: CryptoKey;
}

const issuer = 'https://login.example/';
const audience = 'palimpsest';
const tenants: string[] = [];
const lines: string[] = [];
const log = pino(
  { level: 'info' },
  new Writable({ write: (chunk: Buffer, _, done) => (lines.push(chunk.toString()), done()) }),
);

let published: Key[] = [];
let fetched = 0;
let broken: number | null = null;
let provider: Server;
let api: RunningApi;
let rsa: Key;

const key = async (alg: string, kid: string): Promise<Key> => ({
  ...{ alg, kid },
  ...(await generateKeyPair(alg, { extractable: true })),
});

const makers: unknown[] = [];
const client = {
  sessions: async () => ({ sessions: [], next: null }),
  createTokenBy: async (maker: unknown) => (makers.push(maker), {}),
};
const service = {
  forTenant: (tenant: string) => (tenants.push(tenant), client),
  accessByToken: async () => expect.fail('a JWT is not looked up'),
  readiness: () => expect.fail(),
};

async function serve(jwksUrl: string, clockToleranceMs = 0): Promise<RunningApi> {
  const identity = {
    issuer,
    audience,
    jwksUrl,
    clockToleranceMs,
    tenantClaim: 'tenant',
    scopesClaim: 'scope',
  };
  return startApi({ port: 0, identity, log }, service as never);
}

const keysUrl = () => `http://127.0.0.1:${(provider.address() as AddressInfo).port}/keys`;

beforeAll(async () => {
  rsa = await key('RS256', 'rsa-1');
  published = [rsa];
  provider = createServer((_, response) => {
    fetched++;
    if (broken !== null) return void response.writeHead(broken).end('no keys now');
    void Promise.all(
      published.map(async ({ kid, alg, publicKey }) => ({ ...(await exportJWK(publicKey)), kid, alg })),
    ).then((keys) => response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys })));
  });
  provider.listen(0, '127.0.0.1');
  await once(provider, 'listening');
  api = await serve(keysUrl());
});

afterEach(() => {
  vi.useRealTimers();
  broken = null;
});

afterAll(async () => {
  await api.close();
  provider.close();
});

const nowSeconds = () => Math.floor(Date.now() / 1_000);

interface Claims {
  [claim: string]: unknown;
}

const good = (): Claims => ({
  ...{ iss: issuer, aud: audience, sub: 'agent-7', exp: nowSeconds() + 60, iat: nowSeconds() },
  ...{ tenant: 'acme', scope: 'openid read append' },
});

const signed = (claims: Claims, by: Key = rsa, header: object = {}): Promise<string> =>
  new SignJWT(claims).setProtectedHeader({ alg: by.alg, kid: by.kid, ...header }).sign(by.privateKey);

const read = (token: string, address = api.address) => ask(address, '/v1/sessions', { token });

describe('a good token', () => {
  test.each(['RS256', 'PS384', 'ES256', 'ES512', 'EdDSA'])('%s gives its tenant', async (alg) => {
    const own = await key(alg, `own-${alg}`);
    published = [rsa, own];
    const fresh = await serve(keysUrl());
    tenants.length = 0;
    expect((await read(await signed(good(), own), fresh.address)).status).toBe(200);
    expect(tenants).toEqual(['acme']);
    await fresh.close();
  });

  test.each([
    ['a text', 'read', 200],
    ['a text with others', 'openid  append\tread', 200],
    ['a list', ['read'], 200],
    ['a list with others', ['openid', 7, 'read'], 200],
    ['a text without it', 'append admin', 403],
    ['a longer word', 'read:all', 403],
    ['a list of one text', ['append read'], 403],
    ['none', undefined, 403],
    ['an object', { read: true }, 403],
  ])('has the scopes of its claim: %s', async (_, scope, status) => {
    const answer = await read(await signed({ ...good(), scope }));
    expect(answer.status).toBe(status);
    if (status === 403)
      expect(answer.json).toMatchObject({ failure: 'Api.Forbidden', details: { scope: 'read' } });
  });

  test('bounds the tokens that it makes by its end', async () => {
    const body = { name: 'heir', scopes: ['read'] };
    const exp = nowSeconds() + 60;
    for (const more of [{ exp }, { exp: 1e308, sub: 'a\0b' }]) {
      const token = await signed({ ...good(), scope: 'admin read', ...more });
      expect((await ask(api.address, '/v1/tokens', { token, body })).status).toBe(200);
    }
    expect(makers).toEqual([
      { name: 'identity:agent-7', expiresAt: new Date(exp * 1_000) },
      { name: 'identity:ab', expiresAt: new Date('9999-01-01T00:00:00Z') },
    ]);
  });

  test('may be of a list of audiences, and in time by the tolerated difference of the clocks', async () => {
    expect((await read(await signed({ ...good(), aud: ['other', audience] }))).status).toBe(200);
    const tolerant = await serve(keysUrl(), 30_000);
    const late = await signed({ ...good(), exp: nowSeconds() - 10 });
    expect((await read(late, tolerant.address)).status).toBe(200);
    expect((await read(late)).status).toBe(401);
    const later = await signed({ ...good(), exp: nowSeconds() - 60 });
    expect((await read(later, tolerant.address)).status).toBe(401);
    await tolerant.close();
  });
});

const without = (claim: string): Claims => ({ ...good(), [claim]: undefined });

describe('a token is refused, and the log has the reason', () => {
  const wrong: [what: string, token: () => Promise<string>, reason: RegExp][] = [
    ['of another issuer', () => signed({ ...good(), iss: 'https://evil.example/' }), /CLAIM_VALIDATION.*iss/],
    ['of an issuer that differs by a slash', () => signed({ ...good(), iss: issuer.slice(0, -1) }), /iss/],
    ['without an issuer', () => signed(without('iss')), /iss/],
    ['for another audience', () => signed({ ...good(), aud: 'billing' }), /aud/],
    ['without an audience', () => signed(without('aud')), /aud/],
    ['that has expired', () => signed({ ...good(), exp: nowSeconds() - 5 }), /ERR_JWT_EXPIRED/],
    ['without an end', () => signed(without('exp')), /exp/],
    ['that is not valid yet', () => signed({ ...good(), nbf: nowSeconds() + 60 }), /nbf/],
    ['without a tenant', () => signed(without('tenant')), /tenant/],
    ['with a list of tenants', () => signed({ ...good(), tenant: ['acme'] }), /the claim tenant/],
    ['with an empty tenant', () => signed({ ...good(), tenant: '' }), /the claim tenant/],
    ['with a NUL in its tenant', () => signed({ ...good(), tenant: 'a\0' }), /the claim tenant/],
    ['signed with another key', async () => signed(good(), await key('RS256', 'rsa-1')), /SIGNATURE/],
    [
      'of a key that is not published',
      async () => signed(good(), await key('RS256', 'other')),
      /NO_MATCHING_KEY/,
    ],
    ['with a changed payload', changed, /SIGNATURE/],
    ['without a signature', async () => new UnsecuredJWT(good()).encode(), /ALG|INVALID|SUPPORTED/],
    ['with a cut signature', async () => (await signed(good())).replace(/[^.]+$/, ''), /./],
    ['signed with the public key as a shared secret', confused, /ALG_NOT_ALLOWED/],
    ['signed with the public JWK as a shared secret', confusedByJwk, /ALG_NOT_ALLOWED/],
    ['with an unknown critical header', critical, /SUPPORTED|INVALID/],
    ['that is no JWT', async () => 'aaa.bbb.ccc', /INVALID/],
  ];

  async function changed(): Promise<string> {
    const [head, , signature] = (await signed(good())).split('.');
    const payload = Buffer.from(JSON.stringify({ ...good(), tenant: 'initech' })).toString('base64url');
    return [head, payload, signature].join('.');
  }

  function critical(): Promise<string> {
    return new SignJWT(good())
      .setProtectedHeader({ alg: rsa.alg, kid: rsa.kid, crit: ['until'], until: 1 })
      .sign(rsa.privateKey, { crit: { until: true } });
  }

  async function confused(): Promise<string> {
    const secret = new TextEncoder().encode(await exportSPKI(rsa.publicKey));
    return new SignJWT(good()).setProtectedHeader({ alg: 'HS256', kid: rsa.kid }).sign(secret);
  }

  async function confusedByJwk(): Promise<string> {
    const secret = new TextEncoder().encode(JSON.stringify(await exportJWK(rsa.publicKey)));
    return new SignJWT(good()).setProtectedHeader({ alg: 'HS512', kid: rsa.kid }).sign(secret);
  }

  test.each(wrong)('%s', async (_, token, reason) => {
    lines.length = 0;
    tenants.length = 0;
    const given = await token();
    const answer = await read(given);
    expect([answer.status, answer.json]).toMatchObject([
      401,
      {
        failure: 'Api.Unauthorized',
        detail: 'The token is not valid: it is unknown, revoked or expired.',
      },
    ]);
    expect(answer.text).not.toMatch(/acme|initech/);
    expect(tenants).toEqual([]);
    const told = lines.filter((line) => line.includes('token refused')).join('');
    expect(told).toMatch(reason);
    expect(lines.join('')).not.toContain(given);
    expect(lines.join('')).not.toMatch(/acme|initech/);
  });
});

test('a header that names its own keys is not followed', async () => {
  const own = await key('RS256', rsa.kid);
  const jwk = await exportJWK(own.publicKey);
  fetched = 0;
  for (const header of [{ jwk }, { jku: `${keysUrl()}?mine`, x5u: `${keysUrl()}?mine` }])
    expect((await read(await signed(good(), own, header))).status).toBe(401);
  expect(fetched).toBe(0);
});

test('a new key is found, at most once in half a minute, and an old one ends', async () => {
  published = [rsa];
  const fresh = await serve(keysUrl());
  const began = Date.now();
  vi.useFakeTimers({ toFake: ['Date'], now: began });
  fetched = 0;
  const next = await key('ES256', 'ec-2');
  const status = async (by: Key) => (await read(await signed(good(), by), fresh.address)).status;
  expect([await status(rsa), await status(rsa), fetched]).toEqual([200, 200, 1]);
  published = [next];
  expect([await status(next), await status(next), fetched]).toEqual([401, 401, 1]);
  vi.setSystemTime(began + 31_000);
  expect([await status(next), await status(next), fetched]).toEqual([200, 200, 2]);
  expect([await status(rsa), fetched]).toEqual([401, 2]);
  published = [rsa];
  await fresh.close();
});

describe('while the keys cannot be read: 503, not 401', () => {
  const unavailable = { status: 503, json: { failure: 'Identity.Unavailable' } };

  test.each([500, 404])('the provider answers %i', async (status) => {
    broken = status;
    const fresh = await serve(keysUrl());
    lines.length = 0;
    const answer = await read(await signed(good()), fresh.address);
    expect(answer).toMatchObject(unavailable);
    expect(answer.headers.get('retry-after')).toBe('1');
    expect(answer.text).not.toContain('127.0.0.1');
    expect(lines.join('')).toContain(keysUrl());
    broken = null;
    expect((await read(await signed(good()), fresh.address)).status).toBe(200);
    await fresh.close();
  });

  test('nothing listens there', async () => {
    const gone = createServer().listen(0, '127.0.0.1');
    await once(gone, 'listening');
    const { port } = gone.address() as AddressInfo;
    gone.close();
    await once(gone, 'close');
    const fresh = await serve(`http://127.0.0.1:${port}/keys`);
    expect(await read(await signed(good()), fresh.address)).toMatchObject(unavailable);
    // A token that is refused whatever the keys are needs none.
    expect((await read('aaa.bbb.ccc', fresh.address)).status).toBe(401);
    expect((await read('no-jwt', fresh.address)).status).toBe(401);
    expect((await read(new UnsecuredJWT(good() as never).encode(), fresh.address)).status).toBe(401);
    await fresh.close();
  });

  test('the answer has no keys', async () => {
    const odd = createServer((_, response) => response.end('{"keys": 7}')).listen(0, '127.0.0.1');
    await once(odd, 'listening');
    const fresh = await serve(`http://127.0.0.1:${(odd.address() as AddressInfo).port}/keys`);
    expect(await read(await signed(good()), fresh.address)).toMatchObject(unavailable);
    await fresh.close();
    odd.close();
  });
});
