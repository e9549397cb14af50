import fastify from 'fastify';
import { afterAll, expect, test } from 'vitest';
import { sendJson } from '../../../src/api/send-json.js';

const server = fastify();
const json = JSON.stringify('x'.repeat(100_000));
server.get('/', (request, reply) => sendJson([json], request.headers['accept-encoding'], reply));
afterAll(() => server.close());

test.each([
  [undefined, null],
  ['', null],
  ['gzip', 'gzip'],
  ['br', 'br'],
  ['gzip, deflate, br', 'gzip'],
  ['GZIP;Q=0.5 , br ; q=0.8', 'br'],
  ['*', 'gzip'],
  ['*;q=0.5, gzip;q=0', 'br'],
  ['gzip;q=0, br;q=0', null],
  ['identity', null],
  ['identity, gzip;q=0.5', null],
  ['identity;q=0.5, gzip', 'gzip'],
  ['deflate, zstd', null],
  ['gzip;q=wrong', 'gzip'],
])('%s: %s', async (accepted, encoding) => {
  const headers = accepted === undefined ? {} : { 'accept-encoding': accepted };
  const { headers: sent } = await server.inject({ url: '/', headers });
  expect(sent['content-encoding'] ?? null).toBe(encoding);
});
