/** Large contexts over HTTP: compressed if the caller accepts it, streamed, and let go when the caller goes. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { appendTurn } from '../../../src/store/append/turns.js';
import { openPool } from '../../support/pool.js';
import { startApiStack, type ApiStack } from '../../support/api.js';

let server: ApiStack;

/** Texts with characters of one to four bytes. */
const said = (bytes: number, name: string) =>
  Array.from({ length: bytes / 50 }, (_, line) => `${name} ${line}: ä € 😀 ${'word '.repeat(6)}`).join('\n');

/** Texts that stay long when they are compressed. */
const noise = (bytes: number) => `ä€😀 ${randomBytes((bytes * 3) / 4).toString('base64')}`;

beforeAll(async () => {
  server = await startApiStack();
  const pool = openPool(server.stack.databaseUrl);
  const tenant = server.stack.queuePrefix;
  const policy = { contextWindow: 100_000_000, tokenizer: 'chars' as const };
  const make = { small: said, large: said, huge: noise };
  for (const [session, bytes] of [
    ['small', 1_000],
    ['large', 200_000],
    ['huge', 20_000_000],
  ] as const) {
    const parts = Math.ceil(bytes / 500_000);
    const messages = Array.from({ length: parts }, (_, part) => ({
      ...{ role: 'user' as const, content: make[session](bytes / parts, `${session} ${part}`) },
    }));
    await appendTurn(pool, { tenant, session, turnId: 't', policy, messages });
  }
  await pool.end();
});

afterAll(() => server.stop());

/** The answer without what `fetch` does to it. */
async function rawContext(session: string, headers: Record<string, string> = {}): Promise<IncomingMessage> {
  const request = get(`${server.api.address}/v1/sessions/${session}/context`, {
    headers: { authorization: `Bearer ${server.token}`, ...headers },
  });
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  return answer;
}

async function bytesOf(answer: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of answer) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

const decode = { gzip: gunzipSync, br: brotliDecompressSync };

test.each(['gzip', 'br'] as const)('a large context is compressed by %s', async (encoding) => {
  const plain = await rawContext('large');
  const text = await bytesOf(plain);
  expect(plain.headers['content-encoding']).toBeUndefined();
  expect(plain.headers['content-length']).toBe(String(text.length));
  const answer = await rawContext('large', { 'accept-encoding': encoding });
  expect(answer.headers).toMatchObject({
    ...{ 'content-encoding': encoding, vary: 'accept-encoding', etag: plain.headers.etag },
    'content-type': 'application/json; charset=utf-8',
  });
  const bytes = await bytesOf(answer);
  expect(bytes.length).toBeLessThan(text.length / 5);
  expect(decode[encoding](bytes).equals(text)).toBe(true);
});

test('a small context is not compressed', async () => {
  const answer = await rawContext('small', { 'accept-encoding': 'gzip, br' });
  expect(answer.headers['content-encoding']).toBeUndefined();
  expect(JSON.parse((await bytesOf(answer)).toString())).toEqual(
    await server.stack.palimpsest.context({ session: 'small' }),
  );
});

test('a known tag is answered without the context, whatever its encoding', async () => {
  const { etag } = await server.stack.palimpsest.context({ session: 'large' });
  for (const encoding of ['identity', 'gzip']) {
    const answer = await rawContext('large', { 'if-none-match': `W/"${etag}"`, 'accept-encoding': encoding });
    expect(answer.statusCode).toBe(304);
    expect((await bytesOf(answer)).length).toBe(0);
  }
});

test('a context of 20 MB is the context of the library', async () => {
  const own = await server.stack.palimpsest.context({ session: 'huge' });
  const bytes = await bytesOf(await rawContext('huge'));
  expect(bytes.length).toBeGreaterThan(20_000_000);
  expect(bytes.toString()).toBe(JSON.stringify(own));
});

test('sync answers the same context', async () => {
  const messages = [{ role: 'user', content: said(100_000, 'listed') }];
  const body = { messages, policy: { contextWindow: 100_000_000, tokenizer: 'chars' } };
  const { json } = await server.ask('/v1/sessions/listed/sync', { body });
  expect(json).toMatchObject({
    session: 'listed',
    context: await server.stack.palimpsest.context({ session: 'listed' }),
  });
});

test.each(['identity', 'gzip', 'br'])(
  'a caller that reads slowly and goes leaves nothing behind (%s)',
  async (encoding) => {
    const answer = await rawContext('huge', { 'accept-encoding': encoding });
    await once(answer, 'readable');
    answer.read(1);
    expect(server.api.load()).toMatchObject({ requests: 1 });
    // Others are served while the answer waits for its reader.
    expect((await server.ask('/v1/sessions/small/context')).status).toBe(200);
    expect(server.api.load().bodyBytes).toBeGreaterThan(20_000_000);
    answer.destroy();
    await expect.poll(() => server.api.load()).toMatchObject({ requests: 0, bodyBytes: 0 });
  },
);
