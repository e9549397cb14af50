/** The part of `fetch` that the client uses, over Node's own HTTP, which takes less CPU time than its `fetch`. */
import type { IncomingMessage } from 'node:http';

/** @internal Tests send one. */
export interface Sent {
  method: string;
  headers: Readonly<Record<string, string>>;
  body?: string;
  signal: AbortSignal;
}

export interface Answered {
  ok: boolean;
  status: number;
  url: string;
  headers: { get(name: string): string | null };
  body: AsyncIterable<Uint8Array> | null;
  text(): Promise<string>;
}

export type Fetch = (url: URL, sent: Sent) => Promise<Answered>;

/** A platform without Node's HTTP has `fetch`, which also follows redirects. */
export const nodeFetch: Fetch = (url, sent) =>
  builtIn('node:http') ? new Promise((...settle) => send(url, sent, ...settle)) : fetch(url, sent);

/** Loads a module when it is needed first; undefined on a platform that lacks it. */
const builtIn: typeof process.getBuiltinModule = (id: string) => process.getBuiltinModule?.(id) as never;

const redirects: ReadonlySet<number | undefined> = new Set([301, 302, 303, 307, 308]);

/** Node's global agents keep connections open, and use a proxy of the environment where Node does. */
function send(
  url: URL,
  sent: Sent,
  resolve: (answer: Answered | Promise<Answered>) => void,
  reject: (error: unknown) => void,
): void {
  const { method, body, signal } = sent;
  const headers = { 'user-agent': 'node', 'accept-encoding': 'gzip, br', ...sent.headers };
  const { request } = url.protocol === 'https:' ? builtIn('node:https') : builtIn('node:http');
  const sending = request(url, { method, headers });
  signal.addEventListener('abort', () => sending.destroy(signal.reason as Error), { once: true });
  sending.on('error', reject).once('response', (response) => {
    if (!redirects.has(response.statusCode)) return resolve(answerOf(url, response));
    response.resume();
    resolve(fetch(url, sent));
  });
  sending.end(body);
}

function answerOf(url: URL, response: IncomingMessage): Answered {
  const { statusCode: status = 0, headers } = response;
  const body = decoded(response);
  return {
    ok: status >= 200 && status < 300,
    status,
    url: url.href,
    headers: { get: (name) => (headers[name] === undefined ? null : String(headers[name])) },
    body,
    async text() {
      const parts: Uint8Array[] = [];
      for await (const part of body) parts.push(part);
      return new TextDecoder().decode(Buffer.concat(parts));
    },
  };
}

function decoded(response: IncomingMessage): AsyncIterable<Uint8Array> {
  const encoding = response.headers['content-encoding'];
  if (encoding !== 'gzip' && encoding !== 'br') return response;
  const { createBrotliDecompress, createGunzip } = builtIn('node:zlib');
  const decoder = encoding === 'br' ? createBrotliDecompress() : createGunzip();
  return builtIn('node:stream').pipeline(response, decoder, () => undefined);
}
