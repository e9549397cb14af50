/**
 * `palimpsest/http` on a failing network: the retried requests, the failures for callers, and unchanged contexts, which are not
 * sent twice. The server here is scripted; test/service/contract/conformance.test.ts uses the real one.
 */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { HttpPalimpsest, type HttpOptions } from '../../../src/http-client/index.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

function json(body: unknown, status = 200, headers: Record<string, string> = {}): Answer {
  return (_, response) =>
    void response
      .writeHead(status, { 'content-type': 'application/json', ...headers })
      .end(JSON.stringify(body));
}

const reset: Answer = (request) => void request.socket.destroy();
const silent: Answer = () => undefined;

const problem = (failure: string, status: number, more: object = {}) =>
  json({ type: `urn:palimpsest:failure:${failure}`, status, failure, detail: 'It is so.', ...more }, status);

const turn = { session: 'a/b', turnId: 't-1', messages: [{ role: 'user' as const, content: 'Hello' }] };
const stored = { turnId: 't-1', fromSeq: 1, throughSeq: 1 };

describe.each<[string, Partial<HttpOptions>]>([
  ["Node's own HTTP", {}],
  ['the global fetch', { fetch: globalThis.fetch }],
])('over %s', (_, over) => {
  /** Answers the request of `connect`, then gives the scripted answers, one per request, and repeats the last one for ever. */
  async function against(
    script: Answer[],
    options: Partial<HttpOptions> = {},
  ): Promise<{
    client: HttpPalimpsest;
    url: string;
    seen: { url: string; headers: IncomingMessage['headers']; body: string }[];
  }> {
    const seen: { url: string; headers: IncomingMessage['headers']; body: string }[] = [];
    const answers: Answer[] = [json({ policy: {}, policyVersion: 0 }), ...script];
    const server = createServer((request, response) => {
      let body = '';
      request.setEncoding('utf8');
      request.on('data', (text: string) => (body += text));
      request.on('end', () => {
        seen.push({ url: `${request.method} ${request.url}`, headers: request.headers, body });
        (answers.length > 1 ? answers.shift()! : answers[0]!)(request, response);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closing.push(
      () => new Promise((resolve) => (server.close(() => resolve()), server.closeAllConnections())),
    );
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/behind/`;
    const client = await HttpPalimpsest.connect({ url, ...over, ...options });
    seen.splice(0);
    return { client, url, seen };
  }

  describe('requests that are repeated', () => {
    it('a turn and a read, under the same id and path, when the connection breaks', async () => {
      const { client, seen } = await against([reset, reset, json(stored), reset, json({ pins: [] })]);
      expect(await client.appendTurn(turn)).toEqual(stored);
      expect(await client.pins({ session: 'a/b' })).toEqual({ pins: [] });
      expect(seen.map(({ url }) => url)).toEqual([
        ...Array.from({ length: 3 }, () => 'POST /behind/v1/sessions/a%2Fb/turns'),
        ...Array.from({ length: 2 }, () => 'GET /behind/v1/sessions/a%2Fb/pins'),
      ]);
      expect(new Set(seen.slice(0, 3).map(({ body }) => body)).size).toBe(1);
    });

    it('a request for which the API or a proxy was too busy', async () => {
      const { client, seen } = await against([problem('Api.Overloaded', 503), json({}, 502), json(stored)]);
      expect(await client.appendTurn(turn)).toEqual(stored);
      expect(seen).toHaveLength(3);
    });

    it("a request that failed because of another writer or the tenant's limit", async () => {
      const answers = [problem('Store.Busy', 409), problem('Tenant.LimitReached', 429), json(stored)];
      const { client, seen } = await against(answers);
      expect(await client.appendTurn(turn)).toEqual(stored);
      expect(seen).toHaveLength(3);
    });

    it('at most four times in all', async () => {
      const { client, seen } = await against([reset]);
      await expect(client.appendTurn(turn)).rejects.toMatchObject({ type: 'Api.Unavailable' });
      expect(seen).toHaveLength(4);
    });

    it('but no request that would take effect twice', async () => {
      const { client, seen } = await against([reset]);
      const policy = { contextWindow: 9_000 };
      await expect(client.configure({ session: 's', policy })).rejects.toMatchObject({
        type: 'Api.Unavailable',
      });
      await expect(client.erase({ session: 's' })).rejects.toMatchObject({ type: 'Api.Unavailable' });
      await expect(client.restore({ session: 's', generation: 0 })).rejects.toThrow('does not answer');
      expect(seen).toHaveLength(3);
    });

    it('but no request that was answered with another failure', async () => {
      const { client, seen } = await against([problem('Store.Unavailable', 503)]);
      await expect(client.appendTurn(turn)).rejects.toMatchObject({ type: 'Store.Unavailable' });
      expect(seen).toHaveLength(1);
    });
  });

  describe('the failures that a caller gets', () => {
    it('the failure that the library throws', async () => {
      const more = { path: 'expectedSeq', hint: 'Read again.', details: { lastSeq: 4 } };
      const { client } = await against([problem('Store.StaleAppend', 409, more)]);
      await expect(client.appendTurn(turn)).rejects.toMatchObject({
        ...{ type: 'Store.StaleAppend', message: 'It is so.' },
        ...more,
      });
    });

    it('Api.Failed for a failure of a later version, a page of a proxy and a text that is not JSON', async () => {
      const page: Answer = (_, response) => void response.writeHead(404).end('<h1>Not here</h1>');
      const text: Answer = (_, response) => void response.writeHead(200).end('<h1>Welcome</h1>');
      const { client } = await against([problem('Store.Later', 418), page, text]);
      for (const details of [{ failure: 'Store.Later' }, { status: 404 }, { status: 200 }])
        await expect(client.pins({ session: 's' })).rejects.toMatchObject({ type: 'Api.Failed', details });
    });

    it('a timeout, without a retry', async () => {
      const { client, seen } = await against([silent], { timeoutMs: 1_000 });
      await expect(client.appendTurn(turn)).rejects.toMatchObject({ type: 'Api.Unavailable' });
      expect(seen).toHaveLength(1);
    });

    it('a timeout in the middle of an answer', async () => {
      const half: Answer = (_, response) => void response.writeHead(200).write('{"pins":');
      const { client } = await against([half], { timeoutMs: 1_000 });
      await expect(client.pins({ session: 's' })).rejects.toThrow('timed out after 1000 ms');
    });

    it.each([
      ['http://127.0.0.1:1024', 'nothing listens at 127.0.0.1:1024'],
      ['http://nowhere.invalid', /no host nowhere\.invalid|name of nowhere\.invalid/],
    ])('no answer at %s, with the reason', async (url, reason) => {
      const call = HttpPalimpsest.connect({ url, ...over });
      await expect(call).rejects.toMatchObject({ type: 'Api.Unavailable', cause: expect.any(Error) });
      await expect(call).rejects.toThrow(reason);
    });

    it.each([
      [{ url: 'localhost:7280' }, 'url'],
      [{ url: 'http://me:secret@localhost' }, 'url'],
      [{ url: 'http://localhost', token: 'two words' }, 'token'],
      [{ url: 'http://localhost', timeoutMs: 0 }, 'timeoutMs'],
      [undefined, 'url'],
      ['http://localhost', 'options'],
      [null, 'options'],
      [{ uri: 'http://localhost' }, 'uri'],
      [{ url: 'http://localhost', tokne: 'x' }, 'tokne'],
      [{ url: 7280 }, 'url'],
      [{ url: 'http://localhost', token: 5 }, 'token'],
      [{ url: 'http://localhost', fetch: 'node-fetch' }, 'fetch'],
      [{ url: 'http://localhost', keptContexts: 'many' }, 'keptContexts'],
    ])('%j is an invalid option', async (options, path) => {
      const call = HttpPalimpsest.connect(options as HttpOptions);
      await expect(call).rejects.toMatchObject({ type: 'Input.Invalid', path });
    });

    it('the URL and the token of the environment, if the call gives no URL', async () => {
      const { seen, url } = await against([json({}), json({}), json({})]);
      vi.stubEnv('PALIMPSEST_URL', url);
      vi.stubEnv('PALIMPSEST_TOKEN', 'of-the-environment');
      try {
        await HttpPalimpsest.connect();
        await HttpPalimpsest.connect({ token: 'given' });
        await HttpPalimpsest.connect({ url });
      } finally {
        vi.unstubAllEnvs();
      }
      const tokens = seen.map(({ headers }) => headers.authorization);
      expect(tokens).toEqual(['Bearer of-the-environment', 'Bearer given', undefined]);
      vi.stubEnv('PALIMPSEST_URL', '127.0.0.1:7280');
      try {
        await expect(HttpPalimpsest.connect()).rejects.toMatchObject({
          ...{
            message: 'PALIMPSEST_URL is not an http(s) URL such as http://127.0.0.1:7280',
            path: 'PALIMPSEST_URL',
          },
        });
      } finally {
        vi.unstubAllEnvs();
      }
    });

    it('a value that JSON or a URL would change, before it is sent', async () => {
      const { client, seen } = await against([json(stored)]);
      const messages = [{ role: 'user' as const, content: 'x', at: new Date() }];
      const refused = [
        [client.appendTurn({ ...turn, messages }), 'messages[0].at'],
        [client.pins({ session: '..' }), 'session'],
        [client.backfill({ job: '.' }), 'job'],
      ] as const;
      for (const [call, path] of refused)
        await expect(call).rejects.toMatchObject({ type: 'Input.Invalid', path });
      expect(seen).toEqual([]);
    });
  });

  describe('calls longer than a connection may be silent', () => {
    const settled: Answer = (_, response) => void response.writeHead(204).end();
    const accepted = json({ status: '/v1/sessions/s/status' }, 202);
    const made = { generation: 4, reason: 'manual' };

    it('a compaction continues without a connection, and its outcome is polled', async () => {
      const compactions = json({ compactions: [{ generation: 3 }, made] });
      const { client, seen } = await against([json({ generation: 3 }), accepted, settled, compactions]);
      expect(await client.compact({ session: 's' })).toEqual(made);
      expect(seen.map(({ url }) => url)).toEqual([
        'GET /behind/v1/sessions/s/status',
        'POST /behind/v1/sessions/s/compact?wait=45000',
        'GET /behind/v1/sessions/s/settled?timeout=45000',
        'GET /behind/v1/sessions/s/compactions',
      ]);
    });

    it.each([
      [null, { lastError: null }],
      ['Llm.Rejected', { lastError: { type: 'Llm.Rejected', message: 'no' } }],
    ])('a compaction that commits nothing ends with %s', async (type, status) => {
      const { client } = await against([
        ...[
          json({ generation: 3 }),
          accepted,
          settled,
          json({ compactions: [{ generation: 3 }] }),
          json(status),
        ],
      ]);
      const call = client.resummarize({ session: 's' });
      if (type === null) expect(await call).toBeNull();
      else await expect(call).rejects.toMatchObject({ type });
    });

    it('with wait: false the outcome is not polled', async () => {
      const { client, seen } = await against([accepted]);
      expect(await client.compact({ session: 's', wait: false })).toBeNull();
      expect(seen.map(({ url }) => url)).toEqual(['POST /behind/v1/sessions/s/compact?wait=false']);
    });

    it('`settled` waits in slices, but not for a server that is away', async () => {
      const { client, seen } = await against([problem('Temporal.Unavailable', 503)]);
      const call = client.settled({ session: 's', timeoutMs: 100_000 });
      await expect(call).rejects.toMatchObject({ type: 'Temporal.Unavailable' });
      expect(seen.map(({ url }) => url)).toEqual(['GET /behind/v1/sessions/s/settled?timeout=45000']);
    });
  });

  describe('a context that has not changed', () => {
    const context = { session: 's', messages: [{ role: 'user', content: 'Hello' }], etag: 'e1' };

    it('is requested with its ETag and taken from memory, one for each format and budget', async () => {
      const unchanged: Answer = (_, response) => void response.writeHead(304, { etag: 'W/"e1"' }).end();
      const { client, seen } = await against([json(context, 200, { etag: 'W/"e1"' }), unchanged]);
      const first = await client.context({ session: 's' });
      first.messages.pop();
      expect(await client.context({ session: 's', waitMs: 5 })).toEqual(context);
      expect(seen.map(({ headers }) => headers['if-none-match'])).toEqual([undefined, 'W/"e1"']);
      await expect(client.context({ session: 's', budget: 900 })).rejects.toMatchObject({
        type: 'Api.Failed',
      });
      expect(seen.at(-1)?.headers['if-none-match']).toBeUndefined();
    });

    it('is removed if more contexts are in use than are kept', async () => {
      const { client, seen } = await against([json(context, 200, { etag: '"e"' })], { keptContexts: 1 });
      for (const session of ['a', 'b', 'a', 'a']) await client.context({ session });
      expect(seen.map(({ headers }) => headers['if-none-match'])).toEqual([
        undefined,
        undefined,
        undefined,
        '"e"',
      ]);
    });
  });

  describe('a replay', () => {
    const line = (seq: number) =>
      `${JSON.stringify({ seq, message: { role: 'user', content: 'a\u2028b' }, tokens: 1 })}\n`;
    const lines = (texts: string[], end: (response: ServerResponse) => void): Answer => {
      return (_, response) => {
        response.writeHead(200, { 'content-type': 'application/x-ndjson' });
        for (const text of texts) response.write(text);
        setTimeout(() => end(response), 20);
      };
    };
    const broken = (response: ServerResponse) => response.destroy();
    const whole = (response: ServerResponse) => response.end();

    async function seqs(client: HttpPalimpsest): Promise<number[]> {
      const found: number[] = [];
      for await (const { seq } of client.replay({ session: 's' })) found.push(seq);
      return found;
    }

    it('continues at the same line when the connection breaks, however the text is cut into pieces', async () => {
      const text = line(1) + line(2) + line(3);
      const { client } = await against([
        lines([text.slice(0, 90), text.slice(90, 100)], broken),
        lines([text, line(4).trimEnd()], whole),
      ]);
      expect(await seqs(client)).toEqual([1, 2, 3, 4]);
    });

    it('ends with the failure of the API', async () => {
      const corrupt = { failure: 'Store.Corrupt', detail: 'message 2 is missing', details: { seq: 2 } };
      const { client } = await against([
        lines([line(1), `${JSON.stringify({ problem: corrupt })}\n`], broken),
      ]);
      await expect(seqs(client)).rejects.toMatchObject({ type: 'Store.Corrupt', details: { seq: 2 } });
    });

    it('ends if it makes no progress', async () => {
      const { client, seen } = await against([lines([line(1)], broken)]);
      await expect(seqs(client)).rejects.toMatchObject({ type: 'Api.Unavailable' });
      expect(seen.length).toBeLessThan(10);
    });

    it('that is ended early leaves no connection open', async () => {
      let closed: () => void;
      const left = new Promise<void>((resolve) => (closed = resolve));
      const endless: Answer = (request, response) => {
        request.socket.once('close', () => closed());
        response.writeHead(200).write(line(1));
      };
      const { client } = await against([endless]);
      for await (const { seq } of client.replay({ session: 's' })) {
        expect(seq).toBe(1);
        break;
      }
      await left;
    });
  });
});

it('needs no package but zod, and no code for PostgreSQL, Temporal or models', () => {
  const { files, packages } = imported(new URL('../../../src/http-client/index.ts', import.meta.url));
  expect(packages).toEqual(['zod']);
  expect(files).toContain('src/http-client/client.ts');
  expect(files.filter((file) => /\/(store|temporal|llm|runtime|library|api|cli)\//.test(file))).toEqual([]);
});

/** All runtime imports of a module, without type imports. */
function imported(entry: URL): { files: string[]; packages: string[] } {
  const root = new URL('../../..', import.meta.url).href;
  const files = new Set<string>();
  const packages = new Set<string>();
  const visit = (file: URL): void => {
    const name = file.href.slice(root.length);
    if (files.has(name)) return;
    files.add(name);
    const code = readFileSync(file, 'utf8');
    for (const [, from = ''] of code.matchAll(/^(?:import|export)(?! type\b)[^;]*?from '([^']+)';/gm))
      if (from.startsWith('.')) visit(new URL(from.replace(/\.js$/, '.ts'), file));
      else if (!from.startsWith('node:')) packages.add(from);
  };
  visit(entry);
  return { files: [...files], packages: [...packages] };
}
