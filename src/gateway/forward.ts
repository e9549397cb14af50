/** Requests to the upstream and its answers, as HTTP: headers, bytes, cancellation. */
import { once } from 'node:events';
import * as http from 'node:http';
import * as https from 'node:https';
import { pipeline } from 'node:stream/promises';
import type { Transform } from 'node:stream';
import zlib from 'node:zlib';
import { networkReason } from '../errors.js';
import { Refused } from '../api/problem.js';
import type { Target, Upstream } from './upstreams.js';

/** A connection that was idle this long may be closed by the upstream at any moment. */
const idleMs = 30_000;
const agents = { keepAlive: true, timeout: idleMs, scheduling: 'lifo' } as const;

export class Forwarder {
  readonly #http = new http.Agent(agents);
  readonly #https = new https.Agent(agents);

  constructor(private readonly timeoutMs: number) {}

  /**
   * Sends a request; its body follows on the returned stream. Nothing is repeated. The request ends when the signal is aborted.
   */
  open(
    { upstream, path }: Target,
    method: string,
    headers: string[],
    signal: AbortSignal,
  ): http.ClientRequest {
    const { protocol, hostname, port, host } = upstream.url;
    const secure = protocol === 'https:';
    const request = (secure ? https : http).request({
      // As an option it covers the connecting as well.
      ...{ protocol, method, path, signal, timeout: this.timeoutMs },
      // An address of IPv6 stands in brackets in a URL.
      hostname: hostname.replace(/^\[(.*)\]$/, '$1'),
      ...(port === '' ? {} : { port }),
      agent: secure ? this.#https : this.#http,
      headers: ['Host', host, ...headers],
    });
    request.on('timeout', () => request.destroy(new Silent()));
    // A failure after the head of the answer is met by the reader of the answer.
    request.on('error', () => undefined);
    return request;
  }

  close(): void {
    this.#http.destroy();
    this.#https.destroy();
  }
}

class Silent extends Error {}

/** Resolves to the head of the answer. Throws `Llm.Unavailable` if there is none. */
export async function answerTo(
  request: http.ClientRequest,
  { name }: Upstream,
): Promise<http.IncomingMessage> {
  try {
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    return answer;
  } catch (error) {
    // The client has gone.
    if (error instanceof Error && error.name === 'AbortError') throw error;
    if (error instanceof Silent)
      throw new Refused(504, 'Llm.Unavailable', `The upstream ${name} does not answer.`, { cause: error });
    const reason = networkReason(error) ?? 'the connection failed';
    throw new Refused(502, 'Llm.Unavailable', `The upstream ${name} cannot be reached: ${reason}.`, {
      cause: error,
    });
  }
}

/** Headers that belong to one connection (RFC 9110, 7.6.1). */
const ofConnection = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade'],
]);

type Header = [name: string, value: string];

/** The headers that are passed on, as they came. `raw` alternates names and values. */
function endToEnd(raw: readonly string[]): Header[] {
  const headers = raw.flatMap((name, index): Header[] =>
    index % 2 === 0 ? [[name, raw[index + 1] ?? '']] : [],
  );
  const named = headers.flatMap(([name, value]) =>
    name.toLowerCase() === 'connection' ? value.split(',').map((one) => one.trim().toLowerCase()) : [],
  );
  const dropped = new Set([...ofConnection, ...named]);
  // It delimits the body, whatever the client says of it.
  dropped.delete('content-length');
  return headers.filter(([name]) => !dropped.has(name.toLowerCase()));
}

/** Headers in which clients send the key of a provider. */
const keyHeaders = ['x-api-key', 'api-key', 'x-goog-api-key', 'authorization'];

interface RequestHeaders {
  key: string | null;
  /** Bytes of the body; undefined: it is passed on as it comes. */
  length?: number;
  /** The answer is read here: it should not be compressed. */
  plain?: boolean;
}

/** The headers of a request for the upstream, without those for Palimpsest and, if a key is given, with it. */
export function requestHeaders(
  raw: readonly string[],
  { key, length, plain = false }: RequestHeaders,
): string[] {
  const passed = endToEnd(raw).filter(([name]) => {
    const lower = name.toLowerCase();
    if (lower === 'host' || lower === 'expect' || lower.startsWith('x-palimpsest-')) return false;
    if (key !== null && keyHeaders.includes(lower)) return false;
    return !(lower === 'content-length' && length !== undefined) && !(plain && lower === 'accept-encoding');
  });
  const sent = (name: string) => raw.some((one, index) => index % 2 === 0 && one.toLowerCase() === name);
  // Without it, Node would send the body of a GET or a DELETE bare, and the upstream would read it as further requests.
  const isChunked = length === undefined && sent('transfer-encoding');
  return [
    ...passed.flat(),
    ...(key === null ? [] : keyHeader(keyHeaders.find(sent) ?? 'authorization', key)),
    ...(length === undefined ? [] : ['Content-Length', String(length)]),
    ...(isChunked ? ['Transfer-Encoding', 'chunked'] : []),
    ...(plain ? ['Accept-Encoding', 'identity'] : []),
  ];
}

/** The key stands where the client's SDK sends its own. */
const keyHeader = (name: string, key: string): Header =>
  name === 'authorization' ? ['Authorization', `Bearer ${key}`] : [name, key];

/** The headers of an answer for the client. `read`: the body is decompressed and may have another length. */
export function answerHeaders(raw: readonly string[], { read = false } = {}): string[] {
  const changed = /^content-(?:length|encoding)$/i;
  return endToEnd(raw)
    .filter(([name]) => !/^x-palimpsest-/i.test(name) && !(read && changed.test(name)))
    .flat();
}

/** Sends the head of the answer at once: the first byte of its body may come much later. */
export function beginAnswer(
  response: http.ServerResponse,
  { statusCode = 502, statusMessage }: http.IncomingMessage,
  headers: string[],
  own: Readonly<Record<string, string>> = {},
): void {
  response.sendDate = false;
  response.writeHead(statusCode, statusMessage, [...headers, ...Object.entries(own).flat()]);
  response.flushHeaders();
}

/** Passes an answer on as its bytes come. */
export async function passAnswer(
  answer: http.IncomingMessage,
  response: http.ServerResponse,
  own: Readonly<Record<string, string>>,
): Promise<void> {
  beginAnswer(response, answer, answerHeaders(answer.rawHeaders), own);
  await pipeline(answer, response);
}

/** Waits until the client takes more. */
export async function write(
  response: http.ServerResponse,
  part: string | Buffer,
  signal: AbortSignal,
): Promise<void> {
  if (!response.write(part)) await once(response, 'drain', { signal });
}

/** Returns a stream that decompresses the body; null if it is not compressed. */
export function decompressor(answer: http.IncomingMessage): Transform | null {
  return decompressors.get(encodingOf(answer))?.() ?? null;
}

/** Whether the body can be read here. */
export function hasKnownEncoding(answer: http.IncomingMessage): boolean {
  const encoding = encodingOf(answer);
  return encoding === '' || encoding === 'identity' || decompressors.has(encoding);
}

const encodingOf = ({ headers }: http.IncomingMessage): string =>
  (headers['content-encoding'] ?? '').trim().toLowerCase();

const flush = { flush: zlib.constants.Z_SYNC_FLUSH };
const decompressors = new Map<string, () => Transform>([
  ['gzip', () => zlib.createGunzip(flush)],
  ['x-gzip', () => zlib.createGunzip(flush)],
  ['deflate', () => zlib.createInflate(flush)],
  ['br', () => zlib.createBrotliDecompress({ flush: zlib.constants.BROTLI_OPERATION_FLUSH })],
]);
