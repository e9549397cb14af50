/** Node's own HTTP in place of `fetch`: what the transport relies on. */
import { createServer, type RequestListener, type Server } from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { generate } from 'selfsigned';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { nodeFetch, type Sent } from '../../../src/http-client/node-fetch.js';

const servers: Server[] = [];

afterEach(() => {
  vi.restoreAllMocks();
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

async function serve(answer: RequestListener, server: Server = createServer()): Promise<URL> {
  servers.push(server.on('request', answer));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
}

function sent(more: Partial<Sent> = {}): Sent {
  return { method: 'GET', headers: {}, signal: new AbortController().signal, ...more };
}

describe("Node's own HTTP", () => {
  it('keeps its connection, and never calls fetch', async () => {
    const called = vi.spyOn(globalThis, 'fetch');
    const sockets = new Set<Socket>();
    const url = await serve(({ socket }, response) => (sockets.add(socket), response.end('{}')));
    for (let call = 0; call < 3; call++) expect(await (await nodeFetch(url, sent())).text()).toBe('{}');
    expect(sockets.size).toBe(1);
    expect(called).not.toHaveBeenCalled();
  });

  it.each([
    ['gzip', gzipSync],
    ['br', brotliCompressSync],
  ] as const)('reads an answer in %s, and refuses half of it', async (encoding, compress) => {
    const text = JSON.stringify(Array.from({ length: 2_000 }, (_, at) => `${at} ä€😀`));
    const bytes = compress(text);
    const url = await serve(({ url: path, headers }, response) => {
      expect(headers['accept-encoding']).toContain(encoding);
      response.setHeader('content-encoding', encoding);
      response.end(path === '/half' ? bytes.subarray(0, bytes.length / 2) : bytes);
    });
    expect(await (await nodeFetch(url, sent())).text()).toBe(text);
    const half = await nodeFetch(new URL('/half', url), sent());
    await expect(half.text()).rejects.toThrow();
  });

  it('follows a redirect with method, headers and body', async () => {
    const url = await serve((request, response) => {
      if (request.url === '/') return void response.writeHead(307, { location: '/there' }).end('elsewhere');
      let body = '';
      request.on('data', (part: Buffer) => (body += part.toString()));
      request.on('end', () => response.end(`${request.method} ${request.headers.authorization} ${body}`));
    });
    const post = sent({ method: 'POST', headers: { authorization: 'Bearer t' }, body: '{"a":1}' });
    expect(await (await nodeFetch(url, post)).text()).toBe('POST Bearer t {"a":1}');
  });

  it('rejects with the reason of an abort, before an answer and in the middle of it', async () => {
    const url = await serve(({ url: path }, response) => void (path === '/half' && response.write('half')));
    const reason = new Error('too late');
    const waiting = new AbortController();
    const silent = nodeFetch(url, sent({ signal: waiting.signal }));
    waiting.abort(reason);
    await expect(silent).rejects.toBe(reason);
    const reading = new AbortController();
    const half = await nodeFetch(new URL('/half', url), sent({ signal: reading.signal }));
    const text = half.text();
    reading.abort(reason);
    await expect(text).rejects.toThrow();
  });

  it('rejects if the connection broke before the body is read', async () => {
    const url = await serve((_, response) => {
      response.writeHead(200, { 'content-length': '100' }).write('half');
      setTimeout(() => response.destroy(), 20);
    });
    const { text } = await nodeFetch(url, sent());
    await new Promise((resolve) => setTimeout(resolve, 200));
    await expect(text()).rejects.toThrow();
  });

  it('speaks TLS, and checks the certificate', async () => {
    const { private: key, cert } = await generate([{ name: 'commonName', value: 'localhost' }]);
    const plain = await serve((_, response) => response.end('secure'), https.createServer({ key, cert }));
    const url = new URL(`https://localhost:${plain.port}/`);
    await expect(nodeFetch(url, sent())).rejects.toMatchObject({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
    https.globalAgent.options.ca = cert;
    try {
      expect(await (await nodeFetch(url, sent())).text()).toBe('secure');
    } finally {
      delete https.globalAgent.options.ca;
    }
  });

  it('leaves the request to fetch where a platform lacks it', async () => {
    vi.spyOn(process, 'getBuiltinModule').mockReturnValue(undefined);
    const called = vi.spyOn(globalThis, 'fetch');
    const url = await serve((_, response) => response.end('{}'));
    expect(await (await nodeFetch(url, sent())).text()).toBe('{}');
    expect(called).toHaveBeenCalledOnce();
  });
});
