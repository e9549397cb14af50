/**
 * Library and HTTP client have one interface: the same cases run with both on the same servers, each as a separate tenant, and
 * every value and every failure must be the same.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningApi, startApi } from '../../../src/api/server.js';
import type { PalimpsestClient } from '../../../src/contract/client.js';
import { routes } from '../../../src/contract/routes.js';
import { HttpPalimpsest } from '../../../src/http-client/index.js';
import { archive } from '../../conformance/archive.js';
import { backfills } from '../../conformance/backfills.js';
import { comparable, type Case } from '../../conformance/case.js';
import { operating } from '../../conformance/operating.js';
import { tokens } from '../../conformance/tokens.js';
import { turns } from '../../conformance/turns.js';
import { startStack, type Stack } from '../../support/stack.js';

const groups: Record<string, Case[]> = { turns, operating, archive, backfills, tokens };
const token = 'a-token-of-one-tenant';

let stack: Stack;
let api: RunningApi;
let clients: { tenant: string; client: PalimpsestClient }[];

beforeAll(async () => {
  stack = await startStack();
  const sha256 = createHash('sha256').update(token).digest('hex');
  const [direct, over] = [`${stack.queuePrefix}-library`, `${stack.queuePrefix}-http`];
  api = await startApi({ port: 0, tokens: [{ tenant: over, sha256 }] }, stack.palimpsest);
  clients = [
    { tenant: direct, client: stack.palimpsest.forTenant(direct) },
    { tenant: over, client: await HttpPalimpsest.connect({ url: api.address, token }) },
  ];
});

afterAll(async () => {
  await api.close();
  await stack.stop();
});

describe.each(Object.entries(groups))('%s', (_, cases) => {
  it.each(cases)('$name', async ({ run, expected }) => {
    const [library, http] = await Promise.all(
      clients.map(async ({ tenant, client }) => comparable(await run(client), tenant)),
    );
    if (expected !== undefined) expect(library).toMatchObject(expected as object);
    expect(http).toEqual(library);
  });
});

it('no method of the interface is left out', () => {
  const folder = new URL('../../conformance/', import.meta.url);
  const asked = readdirSync(folder).flatMap((file) =>
    [...readFileSync(new URL(file, folder), 'utf8').matchAll(/client\.(\w+)\(/g)].map(([, name]) => name),
  );
  const methods = Object.keys(routes).map((id) => (id.startsWith('archive') ? 'archive' : id));
  expect(methods.filter((name) => !asked.includes(name))).toEqual([]);
});
